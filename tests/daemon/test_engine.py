"""decide: what each command comes to, and what it refuses."""

from __future__ import annotations

import gc
import re
import tracemalloc
from typing import Any

import pytest

from postroom_common.codec import decode_request
from postroom_common.errors import CommandError, RequestRejected
from postroom_common.protocol import FIELDS, Command, Field, Kind
from postroom_daemon.engine.fields import read_fields
from postroom_daemon.platform.ids import Ids
from tests.conformance.bench import Bench
from tests.table import table

GOOD: dict[Kind, Any] = {
    Kind.TEXT: "text", Kind.QUEUE: "q", Kind.INTEGER: 1, Kind.NUMBER: 1.5, Kind.FLAG: True, Kind.OBJECT: {},
    Kind.ARRAY: [], Kind.ATTRIBUTES: {}, Kind.VALUE: None, Kind.SCALAR: 1,
}  # fmt: skip
WRONG: dict[Kind, list[Any]] = {
    Kind.TEXT: [1, True, [], {}],
    Kind.QUEUE: [1, [], {}],
    Kind.INTEGER: ["1", 1.5, [], {}],
    Kind.NUMBER: ["1", [], {}],
    Kind.FLAG: [1, "true", 0],
    Kind.OBJECT: ["{}", [], 1],
    Kind.ARRAY: ["[]", {}, 1],
    Kind.ATTRIBUTES: [1, [], True],
    Kind.VALUE: [],
    Kind.SCALAR: [True, [], {}],
}
ALL = {f"{command}.{field.name}": (command, field) for command, fields in FIELDS.items() for field in fields}


def complete(command: Command) -> dict[str, Any]:
    return {field.name: GOOD[field.kind] for field in FIELDS[command] if field.required}


def code_of(command: Command, payload: dict[str, Any]) -> str:
    try:
        read_fields(command, payload)
    except CommandError as error:
        return error.code
    return "OK"


@table("command, field", ALL)
def test_every_field_is_read_by_its_kind_and_bounds(command: Command, field: Field) -> None:
    payload = complete(command)
    assert code_of(command, payload | {field.name: GOOD[field.kind]}) == "OK"
    names_something = field.required and field.kind in (Kind.TEXT, Kind.QUEUE)
    invalid_kind = "ERR_PARSE_ERROR"
    if field.name in ("queue", "messageKey") or names_something:
        invalid_kind = "ERR_INVALID_REQUEST"
    for value in WRONG[field.kind]:
        assert code_of(command, payload | {field.name: value}) == invalid_kind
    if field.low is not None and field.high is not None:
        assert code_of(command, payload | {field.name: field.low}) in ("OK", "ERR_PARSE_ERROR")
        for value in (field.low - 1, field.high + 1):
            value = int(value) if field.kind is Kind.INTEGER else value
            assert code_of(command, payload | {field.name: value}) == "ERR_INVALID_REQUEST"
    if field.required:
        payload.pop(field.name)
        assert code_of(command, payload) == "ERR_INVALID_REQUEST"
        assert code_of(command, payload | {field.name: None}) == "ERR_INVALID_REQUEST"
        if field.kind in (Kind.TEXT, Kind.QUEUE):
            assert code_of(command, payload | {field.name: ""}) == "ERR_INVALID_REQUEST"
    elif field.kind is not Kind.VALUE:
        assert read_fields(command, payload | {field.name: None})[field.name] == field.default


@pytest.mark.parametrize("name", ["", "x" * 257, "ü" * 129, "a\nb", "\x7f", "\x85"])
def test_an_invalid_name_is_refused(name: str) -> None:
    assert code_of(Command.STATUS, {"queue": name}) == "ERR_INVALID_REQUEST"


def test_unknown_fields_are_ignored() -> None:
    assert "color" not in read_fields(Command.STATUS, {"queue": "q", "color": "red"})


def test_ids_are_uuids_of_their_version_and_messages_sort_by_time() -> None:
    variant = "[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    leases = {Ids().lease() for _ in range(1000)}
    messages = [Ids().message(1_795_811_841_655 + number) for number in range(1000)]
    assert len(leases) == 1000 and len(set(messages)) == 1000
    assert all(re.fullmatch(f"[0-9a-f]{{8}}-[0-9a-f]{{4}}-4[0-9a-f]{{3}}-{variant}", one) for one in leases)
    assert all(re.fullmatch(f"[0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f]{{3}}-{variant}", one) for one in messages)
    assert messages == sorted(messages) and messages[0].replace("-", "")[:12] == f"{1_795_811_841_655:012x}"


@pytest.mark.parametrize(
    ("payload", "priority"),
    [
        ({}, 0),
        ({"priority": 3, "attributes": {"priority": 9}}, 3),
        ({"priority": 0, "attributes": {"priority": 9}}, 0),
        ({"attributes": {"priority": 9}}, 9),
        ({"attributes": '{"priority": -4}'}, -4),
        ({"attributes": '{"priority": "9"}'}, 0),
        ({"attributes": '{"priority": true}'}, 0),
        ({"attributes": {"priority": 2**31}}, 0),
        ({"attributes": '"priority"'}, 0),
        ({"attributes": '{"priority": '}, 0),
        ({"attributes": '{"a":' * 5000 + '"priority"'}, 0),
    ],
)
def test_the_priority_at_the_top_level_overrides_that_of_the_attributes(
    bench: Bench, payload: dict[str, Any], priority: int
) -> None:
    bench.publish(**payload)
    assert bench.do("consume_next", queue="q")["message"]["priority"] == priority


def test_names_and_ids_that_are_too_long_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            long = f"{number}" + "x" * 2**20
            with pytest.raises(CommandError):
                read_fields(Command.STATUS, {"queue": long})
            with pytest.raises(RequestRejected):
                decode_request(f'{{"requestId":"r","clientId":"{long}","command":"health"}}'.encode())
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_message_dies_with_a_reason_and_is_reprocessed_with_its_history(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 2, "backoff": "fixed", "initialDelaySec": 3}})
    key = bench.publish()
    lease = bench.do("consume_next", queue="q", consumerId="w")["lease"]["leaseId"]
    retried = bench.do("nack", messageKey=key, leaseId=lease, requeue=True, reason="first")
    assert retried["availableAtEngineMs"] - retried["engineNowMs"] == 3000
    bench.clocks.pass_ms(3000)
    bench.do("consume_next", queue="q", consumerId="w", visibilityTimeoutSec=1)
    bench.clocks.pass_ms(1000)
    letter = bench.do("list_dlq", queue="q")["messages"][0]
    assert letter["reasonCode"] == "RETRY_LIMIT" and letter["attempt"] == 2 and letter["consumerId"] == "w"
    assert letter["reason"] == "retry limit exceeded (attempt 2): the lease of w ended"
    bench.do("reprocess_dlq", messageKey=key)
    assert bench.do("consume_next", queue="q")["message"]["attempt"] == 1
    entry = bench.store.get(key)
    assert entry is not None and entry.failures == 2


def test_a_refused_command_leaves_no_event(bench: Bench) -> None:
    bench.publish()
    events = len(bench.events())
    for command, payload in (
        ("ack", {"messageKey": "msg:q:none"}),
        ("pause", {"queue": "none"}),
        ("reprocess_dlq", {"messageKey": "msg:q:none"}),
        ("set_policy", {"queue": "new", "policy": {"retry": {"limit": -1}}}),
        ("set_policy", {"queue": "new", "policy": {"color": 1}}),
        ("get_policy", {"queue": "none"}),
        ("publish", {"queue": "q", "encoding": "base64", "message": "no"}),
        ("consume_next", {"queue": "q", "payloadAs": "xml"}),
        ("status", {"queue": "none"}),
        ("consume_next", {"queue": "none"}),
    ):
        bench.send(command, **payload)
    assert len(bench.events()) == events and bench.do("list_queues")["count"] == 1


def test_pages_of_queues_and_dead_letters_have_everything_once(bench: Bench) -> None:
    keys = []
    for number in range(7):
        key = bench.publish(f"q{number}")
        keys.append(bench.publish("dead"))
        bench.do("nack", messageKey=keys[-1], leaseId=bench.do("consume_next", queue="dead")["lease"]["leaseId"])
        bench.clocks.pass_ms(number % 2)
        assert key
    for command, field, name in (("list_queues", "queues", "queue"), ("list_dlq", "messages", "messageKey")):
        found: list[str] = []
        after = ""
        while True:
            page = bench.do(command, after=after, limit=3, **({"queue": "dead"} if command == "list_dlq" else {}))
            found += [one[name] for one in page[field]]
            after = page["next"]
            if not after:
                break
        assert found == (keys if command == "list_dlq" else ["dead", *(f"q{number}" for number in range(7))])


@pytest.mark.parametrize("name", ["taken", "self"])
def test_dead_letters_are_not_addressed_by_the_name_of_a_queue(bench: Bench, name: str) -> None:
    bench.publish(queue="taken")
    refused = bench.send("set_policy", queue="self", policy={"dlq": {"queue": name}})
    assert refused.code == "ERR_INVALID_REQUEST"


@pytest.mark.parametrize("name", ["q.dlq", "morgue"])
def test_a_dead_letter_address_never_becomes_a_queue(bench: Bench, name: str) -> None:
    bench.publish(queue="q")
    bench.do("set_policy", queue="q", policy={"dlq": {"queue": "morgue"}})
    for command in ("publish", "set_policy"):
        assert bench.send(command, queue=name, policy={}).code == "ERR_INVALID_REQUEST"
    assert bench.do("consume_next", queue=name)["message"] is None
    assert bench.store.queue(name) is None
