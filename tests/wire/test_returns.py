"""Messages that come back to their queue: how often they may, and where they go."""

from __future__ import annotations

import pytest

from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon


def attempts(daemon: Daemon, queue: str, **settled: object) -> tuple[int, int]:
    """One delivery that fails at once: its number, and how many were left behind it."""
    delivery = daemon.ask("consume_next", queue=queue, waitMs=30_000)
    daemon.settle("nack", delivery, requeue=True, delayMs=0, **settled)
    return delivery["message"]["attempt"], delivery["message"]["attemptsLeft"]


# --- the limit of one message -------------------------------------------------------------------------------------


@on_every_store
def test_a_message_has_its_own_limit_of_deliveries_also_after_a_crash_and_from_the_journal_alone(
    daemon: Daemon,
) -> None:
    key = daemon.publish("q", retryLimit=3)
    assert attempts(daemon, "q") == (1, 2)
    daemon.restart(kill=True)
    assert attempts(daemon, "q") == (2, 1)
    daemon.stop()
    daemon.forget_store()
    if daemon.backend != "hybrid":  # its bodies are in no journal
        daemon.start()
        assert daemon.ask("get_message", messageKey=key)["message"]["retryLimit"] == 3
        assert attempts(daemon, "q") == (3, 0)
        assert daemon.counts("q") == {"dlq": 1}


def test_the_limit_of_the_policy_is_that_of_the_moment_unless_the_message_has_fixed_it(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 2}})
    daemon.publish("q", "follows")
    daemon.publish("q", "fixed", retryLimit="policy")
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 5}})
    deliveries = [daemon.consume("q")["message"] for _ in range(2)]
    assert [one["payload"] for one in deliveries] == ["follows", "fixed"]
    assert [one["attemptsLeft"] for one in deliveries] == [4, 1]


def test_a_limit_of_zero_in_the_policy_is_fixed_as_one(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 0}})
    daemon.publish("q", retryLimit="policy")
    daemon.ask("set_policy", queue="q", policy={"retry": {"limit": 9}})
    assert attempts(daemon, "q") == (1, 0)
    assert daemon.counts("q") == {"dlq": 1}


@pytest.mark.parametrize("limit", [0, -1, 1.5, 2**31, "", "unlimited"])
def test_a_limit_that_is_none_is_refused(daemon: Daemon, limit: object) -> None:
    assert daemon.refusal("publish", queue="q", message="x", retryLimit=limit) == "ERR_INVALID_REQUEST"


def test_each_message_of_a_batch_has_its_limit_and_each_delivery_shows_what_is_left(daemon: Daemon) -> None:
    daemon.ask("publish_batch", queue="q", messages=[{"message": "a", "retryLimit": 1}, {"message": "b"}])
    deliveries = daemon.ask("consume_next", queue="q", max=5)["messages"]
    assert [one["message"]["attemptsLeft"] for one in deliveries] == [0, 4]


def test_a_dead_letter_has_no_deliveries_left_to_show(daemon: Daemon) -> None:
    daemon.publish("q")
    daemon.settle("nack", daemon.consume("q"))
    assert "attemptsLeft" not in daemon.consume("q.dlq")["message"]


def test_a_second_life_has_the_limit_of_the_first(daemon: Daemon) -> None:
    key = daemon.publish("q", retryLimit=1)
    assert attempts(daemon, "q") == (1, 0)
    daemon.ask("reprocess_dlq", messageKey=key)
    assert attempts(daemon, "q") == (1, 0)


# --- the place of what returns ------------------------------------------------------------------------------------


def to_the_end(daemon: Daemon, queue: str = "q", **retry: object) -> None:
    daemon.ask("set_policy", queue=queue, policy={"retry": {"returnTo": "end", **retry}})


def bodies(daemon: Daemon, count: int, queue: str = "q") -> list[str]:
    """What is delivered next, as it comes, each acknowledged."""
    found = []
    for _ in range(count):
        delivery = daemon.ask("consume_next", queue=queue, waitMs=30_000)
        daemon.settle("ack", delivery)
        found.append(delivery["message"]["payload"])
    return found


@on_every_store
def test_a_message_that_failed_or_was_released_goes_behind_those_that_are_ready(daemon: Daemon) -> None:
    to_the_end(daemon)
    for body in "abc":
        daemon.publish("q", body)
    daemon.settle("nack", daemon.consume("q"), requeue=True, delayMs=0)
    daemon.publish("q", "d")
    daemon.settle("release", daemon.consume("q"))
    daemon.wait(lambda: daemon.counts("q") == {"ready": 4}, "all are ready")
    shown = daemon.ask("browse", queue="q", limit=2)
    rest = daemon.ask("browse", queue="q", after=shown["next"])
    assert [one["preview"] for one in (*shown["messages"], *rest["messages"])] == ["c", "a", "d", "b"]
    daemon.restart(kill=True)
    assert bodies(daemon, 1) == ["c"]
    if daemon.backend != "hybrid":  # its bodies are in no journal
        daemon.stop()
        daemon.forget_store()
        daemon.start()
    assert bodies(daemon, 3) == ["a", "d", "b"]


@on_every_store
def test_a_message_may_go_to_the_end_again_and_again_and_stays_there_when_the_policy_changes(daemon: Daemon) -> None:
    to_the_end(daemon)
    for body in "abc":
        daemon.publish("q", body)
    for _ in range(4):  # a, b, c, a
        daemon.settle("release", daemon.consume("q"))
    assert daemon.consume("q")["message"]["payload"] == "b"
    daemon.ask("set_policy", queue="q", policy={"retry": {"returnTo": "place"}})
    daemon.settle("release", daemon.consume("q"))
    assert bodies(daemon, 2) == ["c", "a"]


@on_every_store
def test_what_did_not_reach_its_consumer_keeps_its_place_whatever_the_policy_says(daemon: Daemon) -> None:
    to_the_end(daemon)
    for body in "ab":
        daemon.publish("q", body)
    daemon.settle("release", daemon.consume("q"), undelivered=True)
    daemon.restart(kill=True)
    delivery = daemon.consume("q")["message"]
    assert (delivery["payload"], delivery["attempt"]) == ("a", 1)


def test_a_dead_letter_that_did_not_reach_its_consumer_stays_dead(daemon: Daemon) -> None:
    daemon.publish("q")
    daemon.settle("nack", daemon.consume("q"))
    daemon.settle("release", daemon.consume("q.dlq"), undelivered=True)
    assert daemon.counts("q") == {"dlq": 1}


def test_a_lease_that_runs_out_goes_to_the_end_too_and_only_behind_its_own_priority(daemon: Daemon) -> None:
    to_the_end(daemon, initialDelaySec=0.001)
    for body, priority in (("a", 1), ("b", 1), ("low", 0)):
        daemon.publish("q", body, priority=priority)
    daemon.consume("q", visibilityTimeoutSec=0.01)
    daemon.wait(lambda: daemon.events("retried"), "the lease has ended")
    daemon.wait(lambda: daemon.counts("q") == {"ready": 3}, "it is ready")
    assert bodies(daemon, 3) == ["b", "a", "low"]


def test_by_default_a_message_returns_to_its_place(daemon: Daemon) -> None:
    for body in "ab":
        daemon.publish("q", body)
    daemon.settle("release", daemon.consume("q"))
    assert bodies(daemon, 2) == ["a", "b"]


def test_messages_of_an_ordering_key_stay_in_order(daemon: Daemon) -> None:
    to_the_end(daemon)
    for body in "ab":
        daemon.publish("q", body, orderingKey="k")
    daemon.settle("release", daemon.consume("q"))
    assert bodies(daemon, 2) == ["a", "b"]


@on_every_store
def test_what_was_at_the_end_keeps_its_place_on_hold_dead_and_in_another_queue(daemon: Daemon) -> None:
    to_the_end(daemon)
    a, b, c = (daemon.publish("q", body) for body in "abc")
    for _ in range(2):
        daemon.settle("release", daemon.consume("q"))
    daemon.ask("hold", messageKey=a)
    daemon.ask("unhold", messageKey=a)
    daemon.settle("nack", daemon.consume("q"))  # c
    daemon.ask("reprocess_dlq", messageKey=c)
    daemon.ask("move", messageKey=b, to="other")
    daemon.ask("move", messageKey=a, to="other")
    assert bodies(daemon, 2, "other") == ["a", "b"]
    assert bodies(daemon, 1) == ["c"]


# --- a nack that does not count -----------------------------------------------------------------------------------


@on_every_store
def test_a_nack_gives_the_attempt_back_if_the_policy_says_so_and_other_failures_count(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"nackCounts": False, "limit": 2, "initialDelaySec": 0.001}})
    key = daemon.publish("q")
    assert [attempts(daemon, "q", reason=f"failed {number}") for number in range(4)] == [(1, 1)] * 4
    daemon.restart(kill=True)
    daemon.ask("consume_next", queue="q", waitMs=30_000, visibilityTimeoutSec=0.01)
    daemon.wait(lambda: len(daemon.events("retried")) == 5, "the lease has ended")
    assert attempts(daemon, "q", reason="the last, given back") == (2, 0)
    history = daemon.ask("get_message", messageKey=key)["failures"]
    assert [one["attempt"] for one in history] == [1, 1, 1, 1, 1, 2]
    daemon.settle("nack", daemon.ask("consume_next", queue="q", waitMs=30_000))
    assert daemon.counts("q") == {"dlq": 1}


def test_nacks_of_a_batch_follow_the_same_policy(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"nackCounts": False, "limit": 1}})
    daemon.publish("q")
    lease = daemon.consume("q")["lease"]["leaseId"]
    daemon.ask("nack_batch", items=[{"leaseId": lease, "requeue": True, "delayMs": 0}])
    assert attempts(daemon, "q") == (1, 0)
