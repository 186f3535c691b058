"""Batches through the mailbox of a running daemon."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, Sent, receipt


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in ("engineNowMs", "leaseUntil")}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value


def publish(daemon: Daemon, *bodies: str, queue: str = "q") -> None:
    daemon.ask("publish_batch", queue=queue, messages=[{"message": body} for body in bodies])


def lease(daemon: Daemon, most: int = 10) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.ask("consume_next", queue="q", max=most)["messages"]
    return found


def a_request(daemon: Daemon, command: str) -> Sent:
    """A request of which some items are refused, and others change something."""
    if command == "publish_batch":
        return daemon.request(command, {"queue": "q", "messages": [{"message": "a"}, 7, {"message": "b"}]})
    publish(daemon, "a", "b")
    if command == "consume_next":
        return daemon.request(command, {"queue": "q", "max": 5})
    first, second = map(receipt, lease(daemon))
    if command == "ack_and_publish":
        return daemon.request(command, {**first, "messages": [{"queue": "r", "message": "c"}, {"queue": "s"}]})
    failed = {"requeue": True, "reason": "busy"} if command == "nack_batch" else {}
    return daemon.request(command, {"items": [{**first, **failed}, second, second, {"messageKey": "none"}]})


@pytest.mark.parametrize("command", ["publish_batch", "consume_next", "ack_batch", "nack_batch", "ack_and_publish"])
@on_every_store
def test_a_repeat_of_a_batch_gets_the_first_results_and_changes_nothing(daemon: Daemon, command: str) -> None:
    sent = a_request(daemon, command)
    daemon.put(sent.data, sent.name)
    first = daemon.answer(sent)
    assert first["ok"], first
    count = len(daemon.events())
    assert without_clocks(daemon.again(sent)) == without_clocks(first)
    daemon.restart(kill=True)
    assert without_clocks(daemon.again(sent)) == without_clocks(first)
    assert [event["type"] for event in daemon.events()[count:]] == ["clock_marked"], "a repeat was executed"


def test_a_batch_serves_all_waiting_consumers(daemon: Daemon) -> None:
    many = daemon.send("consume_next", {"queue": "q", "max": 2, "waitMs": 60000})
    one = daemon.send("consume_next", {"queue": "q", "waitMs": 60000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 2, "both wait")
    publish(daemon, "a", "b", "c")
    assert [found["message"]["payload"] for found in daemon.answer(many)["data"]["messages"]] == ["a", "b"]
    assert daemon.answer(one)["data"]["message"]["payload"] == "c"


def test_a_batch_is_complete_or_absent_after_a_kill(daemon: Daemon) -> None:
    sent = daemon.send("publish_batch", {"queue": "q", "messages": [{"message": str(n)} for n in range(500)]})
    daemon.wait(lambda: daemon.segments() and b"published" in daemon.segments()[-1].read_bytes(), "it is journaled")
    daemon.kill()
    daemon.start()
    assert len(daemon.answer(sent)["data"]["results"]) == 500
    assert daemon.counts("q") == {"ready": 500}


def test_many_small_messages_and_a_large_one_come_in_bounded_replies(daemon: Daemon) -> None:
    publish(daemon, "x" * 3_000_000)
    publish(daemon, "y" * 3_000_000)
    publish(daemon, "z")
    assert [len(found["message"]["payload"]) for found in lease(daemon)] == [3_000_000]
    assert [len(found["message"]["payload"]) for found in lease(daemon)] == [3_000_000, 1]
