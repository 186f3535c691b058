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
