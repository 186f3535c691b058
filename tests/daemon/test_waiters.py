"""Who waits: in which order, until when, and in how much memory."""

from __future__ import annotations

from postroom_common.codec import Request
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Call
from postroom_daemon.model.waiters import Waiters
from tests.conformance.bench import Bench
from tests.daemon.reached import reached


def call(queue: str = "q", until: int = 100) -> Call:
    made = Call(Request("r", "c", "consume_next", 0, {}), Principal("c", 0), b"", 0, lambda answer: None)
    made.queue, made.wait_until = queue, until
    return made


def test_those_who_wait_are_named_in_the_order_in_which_they_came() -> None:
    waiters = Waiters()
    calls = [call(), call(), call("other"), call()]
    for one in calls:
        waiters.park(one)
    assert waiters.on("q") == [calls[0], calls[1], calls[3]]
    assert waiters.on("none") == [] and waiters.count == 4


def test_one_who_is_parked_again_has_the_old_place() -> None:
    waiters = Waiters()
    calls = [call() for _ in range(4)]
    for one in calls:
        waiters.park(one)
    for index in (2, 0, 3):
        assert waiters.remove(calls[index])
    assert not waiters.remove(calls[0])
    for index in (3, 0, 2):
        waiters.park(calls[index])
    assert waiters.on("q") == calls and waiters.count == 4


def test_a_wait_ends_once_and_in_order_of_the_ends() -> None:
    waiters = Waiters()
    calls = [call(until=until) for until in (30, 10, 20, 20)]
    for one in calls:
        waiters.park(one)
    waiters.remove(calls[2])
    waiters.park(calls[2])
    assert waiters.next_end() == 10
    assert waiters.over(9) == []
    assert waiters.over(20) == [calls[1], calls[2], calls[3]]
    assert waiters.over(20) == [] and waiters.next_end() == 30
    waiters.remove(calls[0])
    assert waiters.next_end() is None and waiters.count == 0


def test_waits_that_were_served_before_their_end_leave_nothing_behind() -> None:
    waiters = Waiters()
    steady = call(until=10**5)  # never behind those that left: its end is looked at first
    waiters.park(steady)
    for number in range(20_000):
        one = call(until=10**6 + number)
        waiters.park(one)
        waiters.remove(one)
    assert reached(waiters, Call) < 100
    assert waiters.next_end() == 10**5 and waiters.on("q") == [steady]
    assert waiters.over(10**7) == [steady]


def test_who_waits_by_a_name_of_dead_letters_gets_those_to_which_a_policy_gives_it(bench: Bench) -> None:
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.do("nack", messageKey=key, leaseId=lease, requeue=False)
    bench.do("set_policy", queue="other", policy={"dlq": {"queue": "graves"}})
    waiting = bench.make("consume_next", queue="graves", waitMs=60_000)
    bench.run(waiting)
    bench.do("set_policy", queue="q", policy={"dlq": {"queue": "graves"}})
    assert waiting.data["message"]["messageKey"] == key
