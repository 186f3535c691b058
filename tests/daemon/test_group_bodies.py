"""How many bodies the answers of one group have, and what becomes of the requests for which that is not enough."""

from __future__ import annotations

from typing import Any

import pytest

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_daemon.broker import transaction
from postroom_daemon.broker.fair_scheduler import FairScheduler
from tests.conformance.bench import Bench, Sent
from tests.daemon.test_fair_scheduler import request

BODY = "x" * 400


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the bodies of these tests are not enough for a group, three are."""
    monkeypatch.setattr(transaction, "BODIES_OF_A_GROUP", 1000)


def answered(sent: list[Sent]) -> list[int]:
    """Which requests have an answer."""
    return [number for number, one in enumerate(sent) if one.answers]


def submit(bench: Bench, *sent: Sent) -> None:
    for one in sent:
        bench.live.broker.submit(one.request)


def test_requests_beyond_the_bodies_of_a_group_are_done_by_the_next_in_their_order(bench: Bench) -> None:
    for number in range(8):
        bench.publish("q", f"{number}{BODY}")
    sent = [bench.make("consume_next", queue="q") for _ in range(7)]
    sent.insert(5, bench.make("publish", queue="other", message="x"))
    submit(bench, *sent)
    groups: list[list[int]] = []
    while bench.live.broker.has_work:
        bench.live.broker.run_group()
        groups.append(answered(sent))
    assert groups == [[0, 1, 2], [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6, 7]]
    bodies = [one.data["message"]["payload"][0] for one in sent if "message" in one.data]
    assert bodies == [str(number) for number in range(7)]


@pytest.mark.parametrize(
    ("command", "more"), [("get_message", {}), ("browse", {"fullBodies": True}), ("list_dlq", {"fullBodies": True})]
)
def test_all_that_shows_bodies_counts(bench: Bench, command: str, more: dict[str, Any]) -> None:
    key = bench.publish("q", BODY)
    if command == "get_message":
        more = {"messageKey": key}
    else:
        more = {"queue": "q", **more}
    if command == "list_dlq":
        lease = bench.do("consume_next", queue="q")["lease"]
        bench.do("nack", messageKey=key, leaseId=lease["leaseId"], requeue=False, reason="x")
    sent = [bench.make(command, **more) for _ in range(5)]
    submit(bench, *sent)
    bench.live.broker.run_group()
    assert answered(sent) == [0, 1, 2]
    bench.run()
    assert answered(sent) == [0, 1, 2, 3, 4]


def test_those_who_wait_are_served_by_as_many_groups_as_their_messages_need(bench: Bench) -> None:
    for number in range(8):
        bench.publish("q", f"{number}{BODY}")
    bench.do("pause", queue="q", what="consume")
    sent = [bench.make("consume_next", queue="q", waitMs=60_000) for _ in range(7)]
    bench.run(*sent)
    assert answered(sent) == []
    submit(bench, bench.make("resume", queue="q", what="consume"))
    groups = []
    for _ in range(3):
        bench.live.broker.run_group()
        groups.append(len(answered(sent)))
        assert (bench.live.broker.next_due() == 0) == (groups[-1] < 7)
    assert groups == [3, 6, 7]
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1


@pytest.mark.interpreted
def test_a_group_that_fails_loses_no_request_that_it_had_no_space_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        bench.publish("q", f"{number}{BODY}")
    sent = [bench.make("consume_next", queue="q") for _ in range(6)]
    submit(bench, *sent)
    failing = bench.live.store.commit

    def fail_once() -> None:
        monkeypatch.setattr(bench.live.store, "commit", failing)
        raise ValueError("a fault of ours")

    monkeypatch.setattr(bench.live.store, "commit", fail_once)
    bench.live.broker.run_group()
    bench.run()
    assert [one.code for one in sent] == ["OK"] * 6
    assert len({one.data["message"]["messageKey"] for one in sent}) == 6


def test_a_message_is_not_leased_to_one_who_has_too_much_unread(bench: Bench) -> None:
    bench.publish("q", BODY)
    full, waits = bench.make("consume_next", queue="q"), bench.make("consume_next", queue="later", waitMs=60_000)

    def is_full() -> None:
        raise CommandError(ErrorCode.QUOTA_EXCEEDED, "read the answers first")

    for one in (full, waits):
        one.request.check_deliverable = is_full
        bench.run(one)
    bench.publish("later", BODY)
    assert [full.code, waits.code] == ["ERR_QUOTA_EXCEEDED"] * 2
    assert bench.event_types().count("leased") == 0


@pytest.mark.parametrize("queued", [False, True])
def test_requests_that_are_put_back_come_first_again(queued: bool) -> None:
    scheduler = FairScheduler(turn_requests=10)
    scheduler.add([request(number, 1) for number in range(4)])
    if queued:  # more than a group takes: each account has a queue
        scheduler.add([request(number, 2) for number in range(4, 8)])
    taken = scheduler.take(4, 10**6)
    scheduler.add([request(9, 1)])
    scheduler.put_back(taken[1:])
    again = [one.started_ns for one in scheduler.take(100, 10**6)]
    assert [number for number in again if number in (1, 2, 3, 9)] == [1, 2, 3, 9]
    assert len(again) == (8 if queued else 4) and scheduler.count == 0
