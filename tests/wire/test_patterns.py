"""Queues by pattern: publishing to all that match, consuming from any; policies by pattern, and with a new queue."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from postroom_client import Binary, Client, InvalidArgument, InvalidRequest
from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, wait_until
from tests.wire.test_long_poll import LONG_MS, payload
from tests.wire.test_operator import all_pages
from tests.wire.test_policies import postroom

#: Patterns on which an engine that backtracks takes for ever.
EVIL = ["(a+)+$", "(a|aa)+$", "(.*a){12}$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"]
#: Patterns that are refused: they refer to what was matched, look around, or are too large.
UNSUPPORTED = ["(", r"(a)\1", "(?=a)b", "(?<!a)b", "(?>a)b", "(a{1,1000}){1,1000}", r"[\p{L}\p{N}]{900}", "a" * 1025]


def consume(daemon: Daemon, pattern: str, **fields: Any) -> tuple[str, Any] | None:
    """The queue and the body of the next message from any queue that matches."""
    message = daemon.ask("consume_next", queuePattern=pattern, **fields)["message"]
    return message and (message["queue"], message["payload"])


@on_every_store
def test_the_oldest_message_of_all_queues_that_match_comes_first(daemon: Daemon) -> None:
    for queue, body in [("eu.b", "1"), ("us.a", "2"), ("eu.a", "3"), ("eu.b", "4"), ("eu.a", "5")]:
        daemon.publish(queue, body)
    assert [consume(daemon, "^eu[.]") for _ in range(5)] == [
        ("eu.b", "1"),
        ("eu.a", "3"),
        ("eu.b", "4"),
        ("eu.a", "5"),
        None,
    ]
    assert consume(daemon, "") == ("us.a", "2"), "an empty pattern is found in every name"


@on_every_store
def test_a_pattern_is_found_anywhere_in_a_name(daemon: Daemon) -> None:
    for queue in ("orders.eu", "eu", "europe-Ä", "asia"):
        daemon.publish(queue, queue)
    daemon.ask("publish", queuePattern="eu", message="to all")
    counts = {one["queue"]: one["ready"] for one in daemon.ask("list_queues")["queues"]}
    assert counts == {"orders.eu": 2, "eu": 2, "europe-Ä": 2, "asia": 1}
    assert list(daemon.ask("publish", queuePattern="Ä$", message="x")["published"]) == ["europe-Ä"]
    assert list(daemon.ask("publish", queuePattern="(?i)EU$", message="x")["published"]) == ["eu", "orders.eu"]


def test_consumers_that_wait_by_pattern_are_listed(daemon: Daemon) -> None:
    daemon.publish("old", "x")
    daemon.ask("consume_next", queue="old", consumerId="worker")
    for number, pattern in enumerate(["^new", "^new", "^other", "d$"]):
        daemon.send("consume_next", {"queuePattern": pattern, "waitMs": LONG_MS, "consumerId": f"waits-{number // 2}"})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 4, "the requests wait")
    waiting = [
        {"queuePattern": "^new", "consumerId": "waits-0", "waiting": 2},
        {"queuePattern": "^other", "consumerId": "waits-1", "waiting": 1},
        {"queuePattern": "d$", "consumerId": "waits-1", "waiting": 1},
    ]
    listed = daemon.ask("list_consumers")
    assert listed["waitingByPattern"] == waiting
    assert [one["consumerId"] for one in listed["consumers"]] == ["worker"] and listed["count"] == 1
    pages = list(all_pages(daemon, "list_consumers", limit=1))
    assert [one for page in pages for one in page.get("waitingByPattern", [])] == waiting
    assert [one["consumerId"] for page in pages for one in page["consumers"]] == ["worker"]
    assert daemon.ask("list_consumers", queue="old")["waitingByPattern"] == waiting[2:]
    assert daemon.ask("list_consumers", queue="new.1")["waitingByPattern"] == waiting[:1]
    assert "waitingByPattern" not in daemon.ask("list_consumers", queue="none")
    shown = postroom(daemon, "consumers").stdout
    assert "worker" in shown and "waits-0" in shown and "^other" in shown


def test_a_queue_that_is_created_while_a_request_waits_serves_it(daemon: Daemon) -> None:
    daemon.publish("old", "not this one")
    waiting = daemon.send("consume_next", {"queuePattern": "^new", "waitMs": LONG_MS})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "the request waits")
    daemon.publish("old", "nor this")
    daemon.publish("new.1", "this one")
    assert payload(daemon, waiting) == "this one"


def test_who_has_waited_longest_is_served_first_by_pattern_or_by_name(daemon: Daemon) -> None:
    sent = []
    for number, where in enumerate([{"queuePattern": "^q"}, {"queue": "q.1"}, {"queuePattern": "1$"}]):
        sent.append(daemon.send("consume_next", {**where, "waitMs": LONG_MS}))
        daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == number + 1, "the request waits")  # noqa: B023
    for body in "abc":
        daemon.publish("q.1", body)
    assert [payload(daemon, one) for one in sent] == ["a", "b", "c"]


def test_several_messages_by_pattern_come_in_the_order_in_which_they_became_available(daemon: Daemon) -> None:
    for number in range(12):
        daemon.publish(f"q.{number % 3}", str(number))
    messages = daemon.ask("consume_next", queuePattern="^q", max=10)["messages"]
    assert [one["message"]["payload"] for one in messages] == [str(number) for number in range(10)]


@on_every_store
def test_a_publish_by_pattern_reaches_the_queues_that_exist_and_creates_none(daemon: Daemon) -> None:
    for queue in ("a.1", "a.2", "a.3", "b"):
        daemon.publish(queue, "first")
    daemon.ask("pause", queue="a.2", operation="publish")
    daemon.ask("set_policy", queue="a.3", policy={"deduplication": {"mode": "while-present"}})
    first = daemon.ask("publish", queue="a.3", message="first", deduplicationKey="k")["messageKey"]
    sent = daemon.send("publish", {"queuePattern": "^a", "message": "all", "deduplicationKey": "k"})
    data = daemon.answer(sent)["data"]
    assert data["published"]["a.1"]["messageKey"].startswith("msg:a.1:")
    assert data["published"]["a.3"] == {
        "messageId": first.rpartition(":")[2],
        "messageKey": first,
        "duplicate": True,
    }
    assert data["refused"]["a.2"]["code"] == "ERR_PAUSED"
    assert daemon.ask("status", queue="a.1")["metrics"]["ready"] == 2
    assert daemon.ask("status", queue="a.2")["metrics"]["ready"] == 1
    nobody = daemon.ask("publish", queuePattern="^c", message="all")
    assert nobody == {"published": {}, "refused": {}} and daemon.ask("list_queues")["count"] == 4
    daemon.restart(kill=True)
    assert daemon.again(sent)["data"] == data, "a repeat gets the first answer"
    assert daemon.ask("status", queue="a.1")["metrics"]["ready"] == 2


@pytest.mark.parametrize("pattern", UNSUPPORTED)
def test_a_pattern_that_is_not_supported_is_refused(daemon: Daemon, pattern: str) -> None:
    for command in ({"queuePattern": pattern}, {"queuePattern": pattern, "waitMs": 100}):
        refused = daemon.answer(daemon.send("consume_next", command))
        assert refused["error"]["code"] == "ERR_INVALID_REQUEST" and "queuePattern" in refused["error"]["message"]
    refused = daemon.answer(daemon.send("set_policy_patterns", {"patterns": [{"pattern": pattern}]}))
    assert refused["error"]["code"] == "ERR_INVALID_REQUEST" and "patterns[0]" in refused["error"]["message"]


def test_no_pattern_keeps_the_daemon_busy(daemon: Daemon) -> None:
    for number in range(20):
        daemon.publish("a" * 200 + f"-{number}!", "x")
    began = time.monotonic()
    for pattern in EVIL:
        daemon.ask("publish", queuePattern=pattern, message="y")
        daemon.ask("consume_next", queuePattern=pattern)
    assert time.monotonic() - began < 20, "a pattern that backtracks takes longer than the universe has existed"


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("publish", {"queue": "q", "queuePattern": "q", "message": "x"}),
        ("publish", {"queuePattern": "q", "createWith": {}, "message": "x"}),
        ("publish", {"message": "x"}),
        ("publish", {"queuePattern": 5, "message": "x"}),
        ("consume_next", {"queue": "q", "queuePattern": "q"}),
        ("consume_next", {"queuePattern": "q", "createWith": {}}),
        ("consume_next", {}),
        ("consume_next", {"queue": "q", "createWith": {"retry": {"limits": 3}}}),
        ("publish", {"queue": "q", "createWith": {"visibilityTimeoutSec": -1}, "message": "x"}),
        ("publish", {"queue": "new", "createWith": {"visibilityTimeoutSec": -1}, "message": "x"}),
        ("publish", {"queue": "new", "createWith": {"dlq": {"queue": "q"}}, "message": "x"}),
        ("set_policy_patterns", {"patterns": [{"pattern": "a", "policy": {"ttl": 3}}]}),
        ("set_policy_patterns", {"patterns": [{"pattern": "a", "policy": {"dlq": {"queue": "q"}}}]}),
        ("set_policy_patterns", {"patterns": [{"policy": {}}]}),
        ("set_policy_patterns", {"patterns": [{"pattern": "a", "name": "b"}]}),
        ("set_policy_patterns", {"patterns": [{"pattern": "a"}] * 257}),
    ],
)
def test_a_wrong_field_is_named(daemon: Daemon, command: str, fields: dict[str, Any]) -> None:
    daemon.publish("q", "x")
    refused = daemon.answer(daemon.send(command, fields))
    assert refused["error"]["code"] in ("ERR_INVALID_REQUEST", "ERR_PARSE_ERROR"), refused
    assert daemon.ask("list_queues")["count"] == 1 and daemon.ask("status", queue="q")["metrics"]["ready"] == 1


def test_one_of_several_messages_has_no_pattern(daemon: Daemon) -> None:
    daemon.publish("q", "x")
    results = daemon.ask("publish_batch", messages=[{"queuePattern": "q", "message": "x"}])["results"]
    assert results[0]["error"]["code"] == "ERR_INVALID_REQUEST"


@on_every_store
@pytest.mark.parametrize("without_store", [False, True], ids=["restarted", "rebuilt from the journal"])
def test_policies_by_pattern_apply_at_once_and_survive(daemon: Daemon, without_store: bool) -> None:
    daemon.publish("eu.orders", "x")
    patterns = [
        {"pattern": "^eu", "policy": {"retry": {"limit": 1}, "ttlSec": 60}},
        {"pattern": "orders$", "policy": {"visibilityTimeoutSec": 5}},
    ]
    assert daemon.ask("set_policy_patterns", patterns=patterns)["patterns"] == patterns
    daemon.ask("set_policy", queue="eu.orders", policy={"ttlSec": 70})
    for again in (False, True):
        if again:
            daemon.kill()
            if without_store:
                daemon.forget_store()
            daemon.start()
        assert daemon.ask("get_policy_patterns")["patterns"] == patterns
        explained = daemon.ask("get_policy", queue="eu.orders", explain=True)["explanation"]
        assert explained["retry.limit"] == {"value": 1, "layer": "runtimePattern", "pattern": "^eu"}
        assert explained["ttlSec"] == {"value": 70, "layer": "override"}
        assert explained["visibilityTimeoutSec"] == {"value": 30, "layer": "default"}, "only the first match applies"
        assert daemon.ask("status", queue="us.orders")["policy"]["visibilityTimeoutSec"] == 5
    daemon.settle("nack", daemon.consume("eu.orders"), requeue=True)
    assert daemon.ask("status", queue="eu.orders")["metrics"]["dlq"] == 1
    assert daemon.ask("set_policy_patterns", patterns=[])["patterns"] == []
    assert daemon.ask("status", queue="eu.orders")["policy"]["retry"]["limit"] == 5


@on_every_store
@pytest.mark.parametrize("without_store", [False, True], ids=["restarted", "rebuilt from the journal"])
def test_a_queue_has_the_policy_with_which_it_was_created(daemon: Daemon, without_store: bool) -> None:
    policy = {"visibilityTimeoutSec": 7, "limits": {"messages": 1}, "dlq": {"queue": "graves"}}
    daemon.ask("publish", queue="a", message="x", createWith=policy)
    full = daemon.answer(daemon.send("publish", {"queue": "a", "message": "x", "createWith": {"ttlSec": 1}}))
    assert full["error"]["code"] == "ERR_QUEUE_FULL", "the policy applies, and a later one does not"
    assert daemon.ask("consume_next", queue="b", createWith={"visibilityTimeoutSec": 8})["message"] is None
    assert daemon.ask("consume_next", queue="c")["message"] is None
    daemon.ask("set_policy_patterns", patterns=[{"pattern": "^b", "policy": {"retry": {"limit": 2}}}])
    for again in (False, True):
        if again:
            daemon.kill()
            if without_store:
                daemon.forget_store()
            daemon.start()
        assert [one["queue"] for one in daemon.ask("list_queues")["queues"]] == ["a", "b"]
        explained = daemon.ask("get_policy", queue="a", explain=True)["explanation"]
        assert explained["visibilityTimeoutSec"] == {"value": 7, "layer": "created"}
        assert explained["dlq.queue"] == {"value": "graves", "layer": "created"}
        explained = daemon.ask("get_policy", queue="b", explain=True)["explanation"]
        assert explained["visibilityTimeoutSec"] == {"value": 8, "layer": "created"}
        assert explained["retry.limit"] == {"value": 2, "layer": "runtimePattern", "pattern": "^b"}
        address = daemon.answer(daemon.send("publish", {"queue": "graves", "message": "x"}))
        assert address["error"]["code"] == "ERR_INVALID_REQUEST", "the name is a dead-letter address"
    daemon.ask("set_policy", queue="a", policy={"limits": {"messages": 2}})
    daemon.ask("set_policy", queue="a", policy={})
    assert daemon.ask("get_policy", queue="a")["policy"]["limits"]["messages"] == 1


def test_a_request_that_creates_a_queue_waits_for_its_messages(daemon: Daemon) -> None:
    sent = daemon.send("consume_next", {"queue": "q", "createWith": {"retry": {"limit": 1}}, "waitMs": LONG_MS})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "the request waits")
    assert daemon.ask("status", queue="q")["policy"]["retry"]["limit"] == 1
    daemon.ask("delete_queue", queue="q")
    assert daemon.ask("list_queues")["count"] == 0, "the waiting request does not create it again"
    daemon.publish("q", "x")
    assert payload(daemon, sent) == "x"


@on_every_store
def test_a_backup_and_an_export_have_what_was_set(daemon: Daemon, make_daemon: Any) -> None:
    patterns = [{"pattern": "^eu", "policy": {"retry": {"limit": 1}, "validation": {"schema": {"type": "object"}}}}]
    daemon.ask("set_policy_patterns", patterns=patterns)
    daemon.ask("publish", queue="eu", message={"a": 1}, createWith={"ttlSec": 9, "dlq": {"queue": "graves"}})
    backup = daemon.root.with_name("backup.tar.gz")
    assert daemon.tool("backup", "--to", backup).returncode == 0
    exported = daemon.tool("export")
    daemon.stop()
    assert daemon.tool("verify").returncode == 0
    restored, imported = make_daemon(), make_daemon().start()
    assert restored.tool("restore", "--from", backup).returncode == 0
    restored.start()
    result = imported.tool("import", data=exported.stdout)
    assert result.returncode == 0, result.stderr
    for other in (restored, imported):
        assert other.ask("get_policy_patterns")["patterns"] == patterns
        explained = other.ask("get_policy", queue="eu", explain=True)["explanation"]
        assert explained["ttlSec"] == {"value": 9, "layer": "created"}
        assert explained["dlq.queue"] == {"value": "graves", "layer": "created"}
        assert other.ask("consume_next", queuePattern="u$")["message"]["queue"] == "eu"


def test_the_command_line_has_patterns(daemon: Daemon) -> None:
    for queue in ("a.1", "a.2"):
        daemon.publish(queue, queue)
    published = postroom(daemon, "publish", "--queue-pattern", "^a", "--message", "x", "--json")
    assert sorted(json.loads(published.stdout)["data"]["published"]) == ["a.1", "a.2"]
    consumed = postroom(daemon, "consume", "--queue-pattern", "2$", "--raw")
    assert (consumed.returncode, consumed.stdout.strip()) == (0, "a.2")
    assert postroom(daemon, "consume", "--queue-pattern", "nothing").returncode == 4
    missing = postroom(daemon, "consume")
    assert missing.returncode == 2 and "--queue" in missing.stderr
    shown = postroom(daemon, "policy", "set-patterns", "--patterns", '[{"pattern": "^a", "policy": {"ttlSec": 5}}]')
    assert shown.returncode == 0, shown.stderr
    rows = [" ".join(line.split()) for line in postroom(daemon, "policy", "patterns").stdout.splitlines()]
    assert any("^a" in row and "ttlSec" in row for row in rows), rows
    made = postroom(daemon, "publish", "--queue", "new", "--message", "x", "--create-with", '{"ttlSec": 9}')
    assert made.returncode == 0 and daemon.ask("status", queue="new")["policy"]["ttlSec"] == 9


def test_messages_that_become_ready_later_are_found_by_pattern(daemon: Daemon) -> None:
    assert consume(daemon, "^q") is None
    daemon.publish("q.late", "late", delayMs=300)
    daemon.publish("q.returned", "returned")
    assert consume(daemon, "^q", visibilityTimeoutSec=0.05) == ("q.returned", "returned")
    got = {wait_until(lambda: consume(daemon, "^q"), "a message is ready") for _ in range(2)}
    assert got == {("q.late", "late"), ("q.returned", "returned")}


@pytest.mark.parametrize("transport", ["lane", "mailbox"])
def test_the_client_publishes_to_all_and_waits_for_any_over_either_door(daemon: Daemon, transport: str) -> None:
    with Client(str(daemon.ipc), client_id="by-pattern", transport=transport) as client:
        for queue in ("a.1", "a.2"):
            client.publish(queue, "first", create_with={"retry": {"limit": 2}})
        body = bytes(range(256))
        published = client.publish(None, Binary(body), queue_pattern="^a[.]")
        assert sorted(published["published"]) == ["a.1", "a.2"] and published["refused"] == {}
        deliveries = client.consume_next(queue_pattern="^a[.]", max=10)
        assert [(one.queue, bytes(getattr(one.payload, "data", b""))) for one in deliveries] == [
            ("a.1", b""),
            ("a.2", b""),
            ("a.1", body),
            ("a.2", body),
        ]
        client.ack_batch(deliveries)
        assert client.consume_next(queue_pattern="^a[.]", wait_ms=20) is None
        created = client.consume_next("b", create_with={"retry": {"limit": 3}})
        assert created is None and client.get_policy("b")["policy"]["retry"]["limit"] == 3
        patterns = [{"pattern": "^b", "policy": {"retry": {"limit": 4}}}]
        assert client.set_policy_patterns(patterns)["patterns"] == patterns
        assert client.get_policy_patterns()["patterns"] == patterns
        with pytest.raises(InvalidArgument, match="queue or queue_pattern"):
            client.publish(None, "x")
        with pytest.raises(InvalidRequest, match="queuePattern"):
            client.consume_next(queue_pattern="(")
