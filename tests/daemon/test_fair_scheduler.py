"""Whose requests a group takes when more are pending than it has space for."""

from __future__ import annotations

from postroom_common.codec import Request as WireRequest
from postroom_daemon.broker.fair_scheduler import FairScheduler
from postroom_daemon.model.principal import Account, Principal
from postroom_daemon.model.request import Request
from tests.conformance.bench import Bench


def request(number: int, account: Account, size: int = 10, door: str = "mailbox") -> Request:
    wire = WireRequest(f"r{number}", "c", "status", 0, {})
    made = Request(wire, Principal("c", account), None, 0, lambda answer: None, bytes=size, door=door)
    made.started_ns = number
    return made


def accounts(taken: list[Request]) -> list[Account]:
    return [one.who.account for one in taken]


def test_requests_that_fit_into_a_group_are_taken_in_the_order_of_arrival() -> None:
    scheduler = FairScheduler(turn_requests=1)
    senders: list[Account] = [1, 1, 2, 1, "token:a"]
    given = [request(number, account) for number, account in enumerate(senders)]
    for one in given:
        scheduler.add([one])
    assert scheduler.take(10, 1000) == given
    assert scheduler.take(10, 1000) == [] and scheduler.count == 0


def test_a_flood_of_one_account_leaves_the_others_their_turn_whatever_door_they_use() -> None:
    scheduler = FairScheduler(turn_requests=1)
    for number in range(100):
        scheduler.add([request(number, 1)])
    for number in range(100, 130):
        scheduler.add([request(number, ("token:a", "token:b")[number % 2], door="lane")])
    first = scheduler.take(32, 10**6)
    assert len(first) == 32
    assert accounts(first).count("token:a") >= 10 <= accounts(first).count("token:b")
    rest = []
    while taken := scheduler.take(32, 10**6):
        rest += taken
    assert len(rest) == 98 and scheduler.count == 0


def test_nothing_of_a_flood_is_lost_and_each_account_keeps_its_order() -> None:
    scheduler = FairScheduler(turn_requests=2)
    given = [request(number, number % 7) for number in range(500)]
    for one in given:
        scheduler.add([one])
    taken = []
    while group := scheduler.take(9, 10**6):
        taken += group
    assert sorted(one.started_ns for one in taken) == list(range(500))
    for account in range(7):
        assert [one for one in taken if one.who.account == account] == given[account::7]


def test_bytes_count_too_and_a_request_larger_than_a_group_is_taken_alone() -> None:
    scheduler = FairScheduler(turn_requests=100)
    for number in range(3):
        scheduler.add([request(number, number, size=5000)])
    assert [len(scheduler.take(100, 1000)) for _ in range(4)] == [1, 1, 1, 0]


def test_a_withdrawn_request_is_not_executed() -> None:
    scheduler = FairScheduler(turn_requests=1)
    given = [request(number, 1) for number in range(3)]
    for one in given:
        scheduler.add([one])
    scheduler.remove(given[1])
    scheduler.remove(request(9, 4))
    assert scheduler.take(10, 1000) == [given[0], given[2]]


def test_a_door_is_notified_when_the_broker_has_no_space_for_more(bench: Bench) -> None:
    broker = bench.live.broker
    broker.limits = broker.limits._replace(requests=3)
    sent = [bench.make("publish", queue="q", message="x") for _ in range(4)]
    spaces = []
    for one in sent:
        one.request.door = "lane"
        spaces.append(broker.space_for("lane"))
        broker.submit(one.request)
    assert spaces == [3, 2, 1, 0] and broker.space_for("mailbox") == 3
    broker.run_group()
    assert [len(one.answers) for one in sent] == [1, 1, 1, 0]
    assert broker.next_due() == 0, "there is more to do at once"
    broker.run_group()
    assert len(sent[3].answers) == 1


def test_a_pending_request_can_be_cancelled(bench: Bench) -> None:
    sent = bench.make("publish", queue="q", message="x")
    bench.live.broker.submit(sent.request)
    bench.live.broker.cancel(sent.request)
    bench.live.broker.run_group()
    assert not sent.answers and bench.event_types().count("published") == 0
