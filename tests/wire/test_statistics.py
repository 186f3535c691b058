"""Rates and waiting times of queues."""

from __future__ import annotations

from tests.wire.conftest import on_every_store
from tests.wire.daemon import Daemon, Fields

MEASURED = {"statistics": {"enabled": True}}


def figures(daemon: Daemon, queue: str) -> Fields:
    """The figures of a queue."""
    (one,) = daemon.ask("queue_statistics", queue=queue)["queues"]
    assert isinstance(one, dict)
    return one


@on_every_store
def test_rates_and_waiting_times_of_a_queue_are_measured_if_its_policy_says_so(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=MEASURED)
    for _ in range(3):
        daemon.publish("q")
    daemon.ask("publish_batch", queue="q", messages=[{"message": "x"}] * 4)
    daemon.ask("consume_next", queue="q", max=5)
    daemon.publish("other")
    shown = figures(daemon, "q")
    assert shown["enabled"] is True
    assert (shown["published"]["count"], shown["delivered"]["count"], shown["retention"]["n"]) == (7, 5, 5)
    assert set(shown["published"]) == {"count", "oneMinute", "fiveMinutes", "fifteenMinutes", "oneDay", "mean"}
    assert 0 <= shown["retention"]["min"] <= shown["retention"]["median"] <= shown["retention"]["max"] < 60
    assert figures(daemon, "other") == {"queue": "other", "enabled": False}
    assert [one["queue"] for one in daemon.ask("queue_statistics")["queues"]] == ["q"]


def test_the_policy_measures_from_the_first_message_after_a_restart_and_stops_when_it_is_turned_off(
    daemon: Daemon,
) -> None:
    daemon.ask("set_policy", queue="q", policy=MEASURED)
    daemon.publish("q")
    daemon.restart(kill=True)
    assert figures(daemon, "q")["published"]["count"] == 0  # the figures are those since the start
    daemon.publish("q")
    assert figures(daemon, "q")["published"]["count"] == 1
    daemon.ask("set_policy", queue="q", policy={"statistics": {"enabled": False}})
    assert figures(daemon, "q") == {"queue": "q", "enabled": False}


def test_a_configuration_may_measure_all_queues(make_daemon: object) -> None:
    daemon: Daemon = make_daemon(config={"policyDefaults": MEASURED}).start()  # type: ignore[operator]
    for queue in ("a", "b", "c"):
        daemon.publish(queue)
    first = daemon.ask("queue_statistics", limit=2)
    rest = daemon.ask("queue_statistics", limit=2, after=first["next"])
    assert [one["queue"] for one in (*first["queues"], *rest["queues"])] == ["a", "b", "c"]
    assert rest["next"] == ""
    assert daemon.refusal("queue_statistics", queue="none") == "ERR_QUEUE_NOT_FOUND"


def test_a_message_that_was_returned_waits_from_then_on(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy=MEASURED)

    def now_ms() -> int:
        return int(daemon.ask("health")["engineNowMs"])

    before_ms = now_ms()
    daemon.publish("q")
    held = daemon.consume("q")
    first_ms = held["engineNowMs"] - before_ms
    daemon.wait(lambda: now_ms() - held["engineNowMs"] > 300, "time has passed")
    before_ms = now_ms()
    daemon.settle("release", held)
    second_ms = daemon.consume("q")["engineNowMs"] - before_ms
    assert figures(daemon, "q")["retention"]["max"] * 1000 <= max(first_ms, second_ms) + 1
