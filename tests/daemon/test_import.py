"""import_state: what another root exported, with ids, attempts, delays, dead letters and policies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest

from postroom_daemon.state import State, steady
from tests.conformance.bench import Bench
from tests.daemon.test_state import quietly, work

KEPT = ("queue", "createdMs", "priority", "attempt", "target", "message", "history")
BACKENDS = ("sqlite", "memory", "filesystem", "hybrid")


def told(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Queues and messages by name, with times on the wall and without what belongs to one root alone: numbers of
    events, leases, totals."""
    shift = state.head.wall_ms - state.head.engine_ms
    queues = {record.name: (record.override, record.publish_paused, record.consume_paused) for record in state.queues}
    messages = {}
    for message in state.messages:
        shown = orjson.loads(orjson.dumps(message))
        inflight = shown["state"] == "inflight"
        messages[shown["key"]] = {
            "state": "ready" if inflight else shown["state"],
            "due": shown["dueEngineMs"] + shift if shown["state"] == "delayed" else None,
            **{
                name: shown.get(name)
                for name in ("queue", "createdMs", "priority", "attempt", "target", "message", "history")
            },
        }
    return queues, messages


def transfer(state: State) -> dict[str, Any]:
    """The request that imports a state."""
    messages = orjson.loads(orjson.dumps(list(state.messages)))
    return {
        "engineMs": state.head.engine_ms,
        "wallMs": state.head.wall_ms,
        "queues": [record.to_json() for record in state.queues],
        "messages": sorted(messages, key=lambda message: message["published"]),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(3))
def test_queues_and_messages_come_to_another_root_as_they_were(
    make_bench: Callable[..., Bench], backend: str, seed: int
) -> None:
    source, random = make_bench("memory").open(), Random(seed)
    for _ in range(250):
        work(source, random)
    source.publish("a", targetConsumerId="c1", attributes={"a": [1, 2.5]}, type="t", version=3)
    target = make_bench(backend).open()
    target.hands.wall_ms = source.hands.wall_ms + 7
    target.publish("z")
    done = target.do("import_state", **transfer(steady(quietly(source))))
    expected_queues, expected = told(steady(quietly(source)))
    target.hands.pass_ms(0)
    queues, messages = told(steady(quietly(target)))
    assert {name: queues[name] for name in expected_queues} == expected_queues
    assert {key: one for key, one in messages.items() if one["queue"] != "z"} == expected
    assert done == {"queues": len(expected_queues), "messages": len(expected), "skipped": 0}
    for queue in expected_queues:  # and in the same order
        order = [one.key for one in sorted(source.store.entries("", 1000), key=lambda e: e.seq) if one.queue == queue]
        assert [
            one.key for one in sorted(target.store.entries("", 1000), key=lambda e: e.seq) if one.queue == queue
        ] == order
    target.reopen(without_store=backend in ("sqlite", "filesystem"))
    assert told(steady(quietly(target)))[1] == messages


def test_what_is_there_already_is_left_as_it_is(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    for number in range(3):
        source.publish(message=f"body {number}")
    request = transfer(steady(quietly(source)))
    assert target.do("import_state", **request) == {"queues": 1, "messages": 3, "skipped": 0}
    target.do("set_policy", queue="q", policy={"retry": {"limit": 2}})
    first = target.do("consume_next", queue="q")["message"]["messageKey"]
    assert target.do("import_state", **request) == {"queues": 0, "messages": 0, "skipped": 4}
    assert target.store.get(first).state == "inflight"  # type: ignore[union-attr]
    assert target.store.queue("q").override == {"retry.limit": 2}  # type: ignore[union-attr]


def test_who_waits_for_a_message_gets_one_that_is_imported(make_bench: Callable[..., Bench]) -> None:
    source, target = make_bench().open(), make_bench().open()
    key = source.publish()
    waiting = target.make("consume_next", queue="q", waitMs=1000)
    target.run(waiting)
    target.do("import_state", **transfer(steady(quietly(source))))
    assert waiting.data["message"]["messageKey"] == key


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_message_that_was_moved_comes_under_the_key_of_its_birth(
    make_bench: Callable[..., Bench], backend: str
) -> None:
    source, target = make_bench("memory").open(), make_bench(backend).open()
    key = source.publish("born", message="goes far")
    source.do("move", messageKey=key, to="other")
    assert target.do("import_state", **transfer(steady(quietly(source))))["messages"] == 1
    target.reopen(without_store=backend in ("sqlite", "filesystem"))
    entry = target.store.get(key)
    assert entry is not None and entry.queue == "other"
    delivered = target.do("consume_next", queue="other")
    assert (delivered["message"]["messageKey"], delivered["message"]["payload"]) == (key, "goes far")
    target.do("ack", messageKey=key, leaseId=delivered["lease"]["leaseId"])
    assert target.store.get(key) is None


def test_only_the_daemons_user_and_root_may_import(bench: Bench) -> None:
    stranger = bench.make("import_state", uid=4711, engineMs=0, wallMs=0)
    bench.run(stranger)
    assert stranger.code == "ERR_FORBIDDEN"


GOOD: dict[str, Any] = {
    "key": "msg:q:1", "queue": "q", "state": "ready", "published": 3, "createdMs": 5, "createdEngineMs": 5,
    "message": {"parts": [{"text": "body"}]},
}  # fmt: skip
FAILURE = {"reasonCode": "REJECTED", "reasonMessage": "", "attempt": 1, "consumerId": "", "failedAtMs": 5}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"key": 7}, "no key"),
        ({"key": "q:1"}, "does not begin"),
        ({"key": "msg:1"}, "does not begin"),
        ({"key": "msg::1"}, "does not begin"),
        ({"key": "msg:q:"}, "does not begin"),
        ({"key": "msg:q:" + "x" * 5000}, "key must be"),
        ({"queue": "", "key": "msg::1"}, "must not be empty"),
        ({"state": "gone"}, "state must be"),
        ({"priority": 2**31}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"dueEngineMs": -1}, "dueEngineMs"),
        ({"attempt": 1.5}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"history": {}}, "history"),
        ({"history": [FAILURE] * 33}, "history"),
        ({"history": [FAILURE | {"attempt": "1"}]}, "failure"),
        ({"history": [FAILURE | {"failedAtMs": -1}]}, "failedAtMs"),
        ({"message": None}, "message must be"),
        ({"message": {"parts": []}}, "parts"),
        ({"message": {"parts": [{"text": 7}]}}, "strings"),
        ({"message": {"parts": [{"text": "a", "json": 1}]}}, "just one"),
        ({"message": {"parts": [{"base64": "?"}]}}, "base64"),
        ({"message": {"parts": [{"text": ""}], "other": 1}}, "unknown"),
        ({"message": {"parts": [{"text": ""}], "type": []}}, "message.type"),
        ({"bodyLost": True, "message": None}, "message must be"),
    ],
)
def test_what_is_no_message_is_refused_and_nothing_is_imported(bench: Bench, change: dict[str, Any], text: str) -> None:
    sent = bench.send("import_state", engineMs=0, wallMs=0, messages=[GOOD | {"key": "msg:q:0"}, GOOD | change])
    assert sent.code == "ERR_INVALID_REQUEST"
    assert text in str(sent.answer.error)
    assert bench.store.entries("", 10) == []


@pytest.mark.parametrize(
    "queue",
    [
        7,
        {},
        {"name": "q\n"},
        {"name": "q", "override": {"retry.limit": -1}},
        {"name": "q", "override": {"x": 1}},
        {"name": "q", "publishPaused": 1},
        {"name": "a.dlq"},
        {"name": "q", "override": []},
    ],
)
def test_what_is_no_queue_is_refused(bench: Bench, queue: Any) -> None:
    assert bench.send("import_state", engineMs=0, wallMs=0, queues=[queue]).code == "ERR_INVALID_REQUEST"
    assert bench.store.queue_names("", 10) == []
