"""The same bytes, sent again: executed once, and answered as the first time."""

from __future__ import annotations

from typing import Any

from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, Sent, receipt

#: What may differ between two answers to the same request: the clocks beside the facts, and the event they stand at.
CLOCKS = ("engineNowMs", "leaseUntil", "asOfEvent")


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in CLOCKS}
    return value


def a_request(daemon: Daemon, command: str, queue: str) -> Sent:
    """A request of a command that will succeed and change something."""
    if command == "publish":
        return daemon.request("publish", {"queue": queue, "message": "only once"})
    if command in ("set_policy", "pause", "resume"):
        daemon.publish(queue)
        return daemon.request(command, {"queue": queue, **({"policy": {}} if command == "set_policy" else {})})
    daemon.publish(queue, {"n": 1})
    if command == "consume_next":
        return daemon.request("consume_next", {"queue": queue, "payloadAs": "value"})
    delivery = daemon.consume(queue)
    if command == "reprocess_dlq":
        daemon.settle("nack", delivery)
        return daemon.request("reprocess_dlq", {"messageKey": delivery["message"]["messageKey"]})
    if command == "nack with requeue":
        return daemon.request("nack", {**receipt(delivery), "requeue": True, "reason": "not now"})
    return daemon.request(command, receipt(delivery))


COMMANDS = (
    "publish",
    "consume_next",
    "ack",
    "nack",
    "nack with requeue",
    "release",
    "extend_lease",
    "reprocess_dlq",
    "pause",
    "resume",
    "set_policy",
)


@on_every_store
def test_a_repeat_of_any_command_gets_the_first_answer_and_changes_nothing(daemon: Daemon) -> None:
    firsts: list[tuple[Sent, Any]] = []
    for number, command in enumerate(COMMANDS):
        sent = a_request(daemon, command, f"q{number}")
        daemon.put(sent.data, sent.name)
        first = daemon.answer(sent)
        assert first["ok"], first
        firsts.append((sent, without_clocks(first)))
        count = len(daemon.events())
        assert without_clocks(daemon.again(sent)) == without_clocks(first)
        assert without_clocks(daemon.again(sent, daemon.new_name())) == without_clocks(first)
        assert len(daemon.events()) == count, f"a repeat was executed: {command}"
    count = len(daemon.events())
    for kill in (True, False):
        daemon.restart(kill=kill)
        for sent, reported in firsts:
            assert without_clocks(daemon.again(sent)) == reported
    assert [e["type"] for e in daemon.events()[count:]] == ["clock_marked"] * 3, "a repeat was executed after a restart"


def takes_keys_once(daemon: Daemon, queue: str = "q") -> None:
    """A queue that takes a key once, as long as its message is there."""
    daemon.ask("set_policy", queue=queue, policy={"deduplication": {"mode": "while-present"}})


def test_a_duplicate_is_one_for_the_next_daemon_even_when_the_key_is_free_again(daemon: Daemon) -> None:
    takes_keys_once(daemon)
    first = daemon.ask("publish", queue="q", deduplicationKey="k")
    sent = daemon.send("publish", {"queue": "q", "deduplicationKey": "k"})
    reported = daemon.answer(sent)
    assert reported["data"] == first | {"duplicate": True}
    daemon.settle("ack", daemon.consume("q"))
    daemon.restart(kill=True)
    assert daemon.again(sent) == reported
    assert daemon.counts("q") == {}
    assert "duplicate" not in daemon.ask("publish", queue="q", deduplicationKey="k")  # another request is taken
    daemon.restart(kill=True)
    assert daemon.again(sent) == reported
    assert daemon.counts("q") == {"ready": 1}


BATCHES = (["old", "old"], ["old", "new", "old", "new"], ["new", "old", "bad"])


@on_every_store
def test_batches_with_duplicates_are_answered_as_before_by_the_next_daemon(daemon: Daemon) -> None:
    batches = []
    for number, keys in enumerate(BATCHES):
        queue = f"q{number}"
        takes_keys_once(daemon, queue)
        daemon.ask("publish", queue=queue, deduplicationKey="old")
        messages = [{"deduplicationKey": key, **({"ttlMs": -1} if key == "bad" else {})} for key in keys]
        sent = daemon.send("publish_batch", {"queue": queue, "messages": messages})
        reported = daemon.answer(sent)
        batches.append((queue, sent, reported))
        assert sum(one.get("duplicate", False) for one in reported["data"]["results"]) == sum(
            key in keys[:place] or key == "old" for place, key in enumerate(keys)
        )
        while daemon.counts(queue):
            daemon.settle("ack", daemon.consume(queue))
    events = len(daemon.events("published"))
    for _ in range(2):
        daemon.restart(kill=True)
        for _, sent, reported in batches:
            assert daemon.again(sent) == reported
    assert [daemon.counts(queue) for queue, _, _ in batches] == [{}] * len(BATCHES)
    assert len(daemon.events("published")) == events


@on_every_store
def test_a_request_whose_answer_was_lost_with_the_daemon_is_answered_by_the_next_one(daemon: Daemon) -> None:
    sent = daemon.send("publish", {"queue": "q", "message": "x"})
    daemon.wait(daemon.answer_path(sent).exists, "it is answered")
    daemon.kill()
    daemon.answer_path(sent).unlink()
    daemon.put(sent.data, sent.name)
    daemon.start()
    assert daemon.answer(sent)["ok"]
    assert len(daemon.events("published")) == 1


@on_every_store
def test_two_copies_in_one_group_are_executed_once(daemon: Daemon) -> None:
    daemon.publish("q", "first")
    daemon.publish("q", "second")
    sent = daemon.request("consume_next", {"queue": "q"})
    daemon.freeze()
    daemon.put(sent.data, "a-copy.json")
    daemon.put(sent.data, "b-copy.json")
    daemon.thaw()
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "both copies are gone")
    assert daemon.answer(sent)["data"]["message"]["payload"] == "first"
    assert len(daemon.events("leased")) == 1


def test_two_copies_that_wait_for_a_message_get_one_delivery(daemon: Daemon) -> None:
    sent = daemon.request("consume_next", {"queue": "q", "waitMs": 60000})
    daemon.put(sent.data, "a-copy.json")
    daemon.put(sent.data, "b-copy.json")
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] >= 2, "both wait")
    daemon.publish("q", "first")
    daemon.publish("q", "second")
    assert daemon.answer(sent)["data"]["message"]["payload"] == "first"
    daemon.ask("health")
    assert len(daemon.events("leased")) == 1, "one request leased two messages"
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "no copy is left behind")


def test_a_copy_that_waits_ends_with_the_delivery_of_the_other(daemon: Daemon) -> None:
    sent = daemon.request("consume_next", {"queue": "q", "waitMs": 4000})
    daemon.put(sent.data, "a-copy.json")
    daemon.put(sent.data, "b-copy.json")
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] >= 2, "both wait")
    daemon.publish("q", "only one")
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "no copy is left behind")
    assert daemon.answer(sent)["data"]["message"], "the end of the copy's wait overwrote the delivery"


def test_a_refusal_is_repeated_even_when_its_cause_is_gone(daemon: Daemon) -> None:
    daemon.publish("q")
    daemon.ask("pause", queue="q", operation="publish")
    sent = daemon.send("publish", {"queue": "q", "message": "refused"})
    first = daemon.answer(sent)
    assert first["error"]["code"] == "ERR_PAUSED"
    daemon.ask("resume", queue="q", operation="publish")
    assert daemon.again(sent) == first
    assert daemon.counts("q") == {"ready": 1}


def test_an_answer_is_repeated_even_if_the_queue_was_paused_since(daemon: Daemon) -> None:
    sent = daemon.send("publish", {"queue": "q", "message": "x"})
    first = daemon.answer(sent)
    daemon.ask("pause", queue="q", operation="publish")
    assert daemon.again(sent) == first


def test_an_answer_is_repeated_even_if_the_deadline_has_passed_since(daemon: Daemon) -> None:
    deadline = daemon.ask("health")["timestamp"] + 4000
    sent = daemon.send("publish", {"queue": "q", "message": "x"}, deadlineMs=deadline)
    first = daemon.answer(sent)
    assert first["ok"]
    daemon.wait(lambda: daemon.ask("health")["timestamp"] > deadline, "the deadline is over")
    assert daemon.again(sent) == first


def test_the_same_id_with_other_bytes_is_a_new_request(daemon: Daemon) -> None:
    first = daemon.answer(daemon.send("publish", {"queue": "q", "message": "one"}, request_id="reused"))
    other = daemon.send("publish", {"queue": "q", "message": "two"}, request_id="reused")
    assert daemon.answer(other)["data"]["messageKey"] != first["data"]["messageKey"]
    assert daemon.counts("q") == {"ready": 2}


def test_a_repeated_consume_gets_the_same_lease_until_the_delivery_is_over(daemon: Daemon) -> None:
    daemon.publish("q")
    sent = daemon.send("consume_next", {"queue": "q"})
    first = daemon.answer(sent)["data"]
    assert daemon.again(sent)["data"]["lease"]["leaseId"] == first["lease"]["leaseId"]
    daemon.settle("ack", first)
    assert daemon.again(sent)["error"]["code"] == "ERR_LEASE_EXPIRED"


@on_every_store
def test_a_repeated_consume_after_the_lease_ran_out_is_an_error(daemon: Daemon) -> None:
    daemon.publish("q")
    sent = daemon.send("consume_next", {"queue": "q", "visibilityTimeoutSec": 0.05})
    assert daemon.answer(sent)["ok"]
    daemon.wait(lambda: daemon.events("retried"), "the lease is over")
    assert daemon.again(sent)["error"]["code"] == "ERR_LEASE_EXPIRED"
    assert len(daemon.events("leased")) == 1


def test_a_request_that_found_no_message_is_executed_again(daemon: Daemon) -> None:
    sent = daemon.send("consume_next", {"queue": "q"})
    assert daemon.answer(sent)["data"] == {"message": None}
    daemon.publish("q", "now there is one")
    assert daemon.again(sent)["data"]["message"]["payload"] == "now there is one"


def test_an_executed_request_whose_response_had_no_space_is_answered_when_repeated(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q", "message": "x"}, client_id="blocked")
    box = daemon.responses / "blocked"
    (box / f"{sent.request_id}.json").mkdir(parents=True)
    daemon.put(sent.data, sent.name)
    assert "response could not be written" in daemon.reason(sent.name)
    (box / f"{sent.request_id}.json").rmdir()
    assert daemon.again(sent)["ok"]
    assert len(daemon.events("published")) == 1
