"""Who waits: in which order, until when, and in how much memory."""

from __future__ import annotations

import os
from typing import Any

import pytest

from postroom_common.codec import Request as WireRequest
from postroom_common.protocol import ErrorCode, State
from postroom_daemon.broker.broker import TASKS_PAUSE_MS
from postroom_daemon.journal.journal import Journal
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Request
from postroom_daemon.model.subscriptions import Subscription, Subscriptions, choose
from tests.conformance.bench import Bench
from tests.daemon.reached import reached


def waiting(queue: str = "q", until: int = 100, session: object = None) -> Subscription:
    wire = WireRequest("r", "c", "consume_next", 0, {})
    request = Request(wire, Principal("c", 0), b"", 0, lambda answer: None, session=session)
    return Subscription(request, queue, until)


def filled(*subscriptions: Subscription) -> Subscriptions:
    filled = Subscriptions()
    for one in subscriptions:
        filled.add(one)
    filled.commit()
    return filled


def test_the_longest_waiting_request_is_offered_a_message_first() -> None:
    given = [waiting(), waiting(), waiting("other"), waiting()]
    subscriptions = filled(*given)
    assert subscriptions.on("q") == [given[0], given[1], given[3]]
    assert subscriptions.on("none") == [] and subscriptions.count == 4


def test_waits_by_pattern_and_by_name_are_served_in_one_order() -> None:
    given = [waiting("q-1"), waiting(""), waiting("q-1")]
    given[1].matches = lambda queue: queue.startswith("q-")
    subscriptions = filled(*given)
    assert subscriptions.on("q-1") == given
    assert subscriptions.on("q-2") == [given[1]]
    assert choose([given[2], given[0]], {given[1].matches: {given[1].number: given[1]}}, "q-1") == given
    assert subscriptions.remove(given[1].request)
    assert subscriptions.on("q-2") == []


def test_a_rollback_restores_everyones_place() -> None:
    given = [waiting() for _ in range(4)]
    subscriptions = filled(*given)
    subscriptions.commit()
    for index in (2, 0, 3):
        subscriptions.take(given[index])
    newcomer = waiting()
    subscriptions.add(newcomer)
    assert subscriptions.on("q") == [given[1], newcomer]
    subscriptions.rollback()
    assert subscriptions.on("q") == given and subscriptions.count == 4
    assert not subscriptions.remove(newcomer.request)


def test_a_rollback_forgets_waits_added_and_removed_since() -> None:
    subscriptions = filled(stays := waiting())
    subscriptions.commit()
    subscriptions.add(newcomer := waiting())
    subscriptions.take(newcomer)
    subscriptions.rollback()
    assert subscriptions.on("q") == [stays] and subscriptions.count == 1
    assert subscriptions.of_account(0) == 1


def test_a_wait_that_began_and_ended_in_a_group_that_failed_begins_once(bench: Bench) -> None:
    consumer = bench.make("consume_next", queue="q", waitMs=60_000)
    with bench.full_disk():
        bench.run(consumer, refused := bench.make("publish", queue="q", message="refused"))
    assert refused.code == ErrorCode.STORAGE_FULL and not consumer.answers
    assert bench.live.broker.subscriptions.of_account(os.geteuid()) == 1
    key = bench.publish()
    assert consumer.data["message"]["messageKey"] == key
    bench.publish()
    assert bench.live.broker.subscriptions.count == 0


def noted(monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, order: list[str], name: str) -> None:
    """Note each call of something by a name."""
    called = getattr(owner, call)

    def note(*arguments: Any) -> Any:
        order.append(name)
        return called(*arguments)

    monkeypatch.setattr(owner, call, note)


def test_a_publish_and_the_delivery_to_who_waits_are_one_group_and_the_delivery_is_answered_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish()
    bench.do("consume_next", queue="q")
    order: list[str] = []
    waiting = bench.make("consume_next", queue="q", waitMs=60_000)
    published = bench.make("publish", queue="q", message="x")
    for sent, name in ((waiting, "delivered"), (published, "published")):
        noted(monkeypatch, sent.request, "on_answer", order, name)
    bench.run(waiting)
    noted(monkeypatch, Journal, "sync", order, "sync")
    bench.run(published)
    assert order == ["sync", "delivered", "published"]
    assert waiting.data["message"]["messageKey"] == published.data["messageKey"]


def test_a_cancelled_wait_does_not_return_with_a_rollback() -> None:
    subscriptions = filled(gone := waiting(), stays := waiting())
    subscriptions.commit()
    assert subscriptions.remove(gone.request)
    subscriptions.rollback()
    assert subscriptions.on("q") == [stays]


def test_a_wait_ends_once_and_in_order_of_the_ends() -> None:
    given = [waiting(until=until) for until in (30, 10, 20, 20)]
    subscriptions = filled(*given)
    assert subscriptions.next_end() == 10
    assert subscriptions.take_ended(9) == []
    assert subscriptions.take_ended(20) == [given[1], given[2], given[3]]
    assert subscriptions.take_ended(20) == [] and subscriptions.next_end() == 30
    subscriptions.remove(given[0].request)
    assert subscriptions.next_end() is None and subscriptions.count == 0


def test_a_session_has_its_own_waits() -> None:
    first, second = object(), object()
    given = [waiting(session=first), waiting(session=second), waiting(session=first)]
    assert filled(*given).of_session(first) == [given[0].request, given[2].request]


def test_waits_served_before_their_end_leave_nothing_behind() -> None:
    steady = waiting(until=10**5)  # never behind those that left: its end is looked at first
    subscriptions = filled(steady)
    for number in range(20_000):
        subscriptions.commit()
        subscriptions.add(one := waiting(until=10**6 + number))
        subscriptions.take(one)
        subscriptions.commit()
    assert reached(subscriptions, Request) < 100
    assert subscriptions.next_end() == 10**5 and subscriptions.on("q") == [steady]
    assert subscriptions.take_ended(10**7) == [steady]


def test_the_end_of_a_session_ends_its_waits(bench: Bench) -> None:
    session = object()
    sent = bench.make("consume_next", queue="q", waitMs=60_000)
    sent.request.session = session
    other = bench.make("consume_next", queue="q", waitMs=60_000)
    bench.run(sent, other)
    bench.live.broker.end_session(session)
    key = bench.publish()
    assert not sent.answers
    assert other.data["message"]["messageKey"] == key


@pytest.mark.parametrize("many", [False, True], ids=["one", "max"])
def test_a_delivery_that_did_not_reach_its_client_is_undone_and_does_not_count(many: bool, bench: Bench) -> None:
    keys = [bench.publish(), bench.publish()]
    sent = bench.send("consume_next", queue="q", **({"max": 2} if many else {}))
    assert [key for key, _ in sent.answer.leases] == keys[: len(sent.answer.leases)]
    bench.live.broker.return_undelivered(sent.answer)
    assert bench.live.broker.next_due() == 0, "it is due at once"
    bench.run()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 2
    again = bench.do("consume_next", queue="q")["message"]
    assert (again["messageKey"], again["attempt"]) == (keys[0], 1)


def test_a_delivery_that_a_repeat_of_the_same_group_got_is_not_undone(bench: Bench) -> None:
    bench.publish()
    sent = bench.make("consume_next", queue="q")
    repeat = bench.again(sent)
    bench.run(sent, repeat)
    assert repeat.data == sent.data
    bench.live.broker.return_undelivered(sent.answer)
    bench.run()
    bench.do("ack", messageKey=sent.data["lease"]["messageKey"], leaseId=sent.data["lease"]["leaseId"])


def test_a_delivery_is_undone_even_if_the_disk_refuses_the_first_group(bench: Bench) -> None:
    key = bench.publish()
    sent = bench.send("consume_next", queue="q")
    bench.live.broker.return_undelivered(sent.answer)
    with bench.full_disk():
        bench.run(question := bench.make("status", queue="q"))
    assert question.data["metrics"]["inflight"] == 1
    assert bench.live.broker.next_due() == bench.live.clock.now().engine + TASKS_PAUSE_MS
    bench.clocks.pass_ms(TASKS_PAUSE_MS)
    bench.run()
    again = bench.do("consume_next", queue="q")["message"]
    assert (again["messageKey"], again["attempt"]) == (key, 1)


def test_a_dead_letter_that_did_not_reach_its_client_stays_as_it_was(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=key, leaseId=lease, requeue=False)
    sent = bench.send("consume_next", queue="q.dlq")
    bench.live.broker.return_undelivered(sent.answer)
    bench.run()
    entry = bench.store.get(key)
    assert entry and (entry.state, entry.lease_id, entry.attempt) == (State.DEAD, "", 1)


def test_a_consumer_waiting_at_a_dead_letter_address_gets_dead_letters_added_by_a_policy(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=key, leaseId=lease, requeue=False)
    bench.do("set_policy", queue="other", policy={"dlq": {"queue": "graves"}})
    waiting = bench.make("consume_next", queue="graves", waitMs=60_000)
    bench.run(waiting)
    bench.do("set_policy", queue="q", policy={"dlq": {"queue": "graves"}})
    assert waiting.data["message"]["messageKey"] == key
