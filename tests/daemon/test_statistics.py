"""The figures of ``queue_statistics``: those that folsom, the library of LMQ, computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from postroom_daemon.model import statistics
from postroom_daemon.model.distribution import described
from postroom_daemon.model.statistics import Meter
from tests.conformance.bench import Bench

#: Five waits, and what LMQ's /stats showed of them.
WAITS = [0.00085902214050293, 0.00086688995361328, 0.00570583343505859, 0.061945915222168, 0.103298902511597]


def test_the_figures_of_a_sample_are_those_of_bear() -> None:
    shown = described(WAITS)
    assert shown["n"] == 5
    expected = {
        "min": 0.00085902214050293, "max": 0.103298902511597, "mean": 0.0345353126525879,
        "geometricMean": 0.00770688998731487, "harmonicMean": 0.0019851145802291, "median": 0.00570583343505859,
        "variance": 0.00214464163129264, "standardDeviation": 0.0463102756555459, "skewness": 0.494205862399534,
        "kurtosis": -1.86141676609256,
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert shown["percentiles"] == {
        "50": WAITS[2], "75": WAITS[3], "90": WAITS[4], "95": WAITS[4], "99": WAITS[4], "99.9": WAITS[4]
    }  # fmt: skip
    assert shown["histogram"] == [{"upTo": WAITS[4], "count": 5}]


def test_a_histogram_has_bins_of_whole_seconds_from_the_least_value_on() -> None:
    shown = described([0.0017261505127, 0.01, 0.02, 0.03, 2.9])
    assert [one["count"] for one in shown["histogram"]] == [5, 0]
    assert [one["upTo"] - 0.0017261505127 for one in shown["histogram"]] == pytest.approx([3, 6])


@pytest.mark.parametrize(
    "values", [[0.0], [0.0] * 9, [1.5], [1e-9, 3e7], [0.25] * 6000, [float(n) for n in range(999)]]
)
def test_every_sample_has_finite_figures_and_each_value_is_in_one_bin(values: list[float]) -> None:
    shown = described(values)
    numbers = [value for value in shown.values() if isinstance(value, float)]
    assert all(map(math.isfinite, [*numbers, *shown["percentiles"].values()]))
    assert sum(one["count"] for one in shown["histogram"]) == shown["n"] == len(values)
    assert shown["histogram"][-1]["upTo"] >= max(values) - 1
    assert len(shown["histogram"]) < 1000


def test_an_empty_sample_has_no_figures() -> None:
    assert described([]) == {"n": 0}


def test_the_rates_are_those_of_folsom() -> None:
    meter = Meter(1000)
    for now in (1000, 1500, 5999):
        meter.note(now)
    meter.note(6000)  # in the next five seconds
    shown = meter.to_wire(11_074)
    assert shown["count"] == 4
    assert shown["oneMinute"] == pytest.approx(0.568017765851729)
    assert shown["fiveMinutes"] == pytest.approx(0.593388581528647)
    assert shown["fifteenMinutes"] == pytest.approx(0.597783939201959)
    assert shown["oneDay"] == pytest.approx(0.599976852521635)
    assert shown["mean"] == pytest.approx(4 / 10.074)


def test_a_meter_that_rests_costs_no_time_and_falls_as_if_it_had_ticked() -> None:
    resting, ticking = Meter(0), Meter(0)
    resting.note(0)
    ticking.note(0)
    for now in range(5000, 3_600_000, 5000):
        ticking.to_wire(now)
    assert resting.to_wire(3_600_000) == pytest.approx(ticking.to_wire(3_600_000))


def measured(bench: Bench, *queues: str) -> None:
    for queue in queues:
        bench.do("set_policy", queue=queue, policy={"statistics": {"enabled": True}})


def test_rates_fall_and_the_waits_of_the_last_minute_remain(bench: Bench) -> None:
    measured(bench, "q")
    for _ in range(10):
        bench.publish("q")
    bench.clocks.pass_ms(2000)
    bench.do("consume_next", queue="q", max=10)
    bench.clocks.pass_ms(3000)
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert shown["published"]["oneMinute"] == shown["delivered"]["oneDay"] == 2.0
    assert (shown["retention"]["n"], shown["retention"]["median"]) == (10, 2.0)
    bench.clocks.pass_ms(61_000)
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert 0.7 < shown["published"]["oneMinute"] < 0.8 and shown["published"]["count"] == 10
    assert shown["retention"] == {"n": 0}


def test_each_part_of_a_gathered_message_is_a_publish(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"statistics": {"enabled": True}, "gatherWindowSec": 1})
    for _ in range(3):
        bench.publish("q")
    bench.clocks.pass_ms(1000)
    bench.do("consume_next", queue="q")
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert (shown["published"]["count"], shown["delivered"]["count"]) == (3, 1)


def test_a_delayed_message_waits_from_its_time_on(bench: Bench) -> None:
    measured(bench, "q")
    bench.publish("q", delayMs=5000)
    bench.clocks.pass_ms(6000)
    bench.do("consume_next", queue="q")
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert shown["retention"]["max"] == 1.0


def test_a_second_has_a_hundred_samples_whatever_is_delivered_in_it(bench: Bench) -> None:
    measured(bench, "q")
    for _ in range(3):
        bench.do("publish_batch", queue="q", messages=[{"message": "x"}] * 90)
    bench.do("consume_next", queue="q", max=300)
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert (shown["delivered"]["count"], shown["retention"]["n"]) == (270, 100)


def test_memory_is_bounded_whatever_is_measured(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "QUEUES_LIMIT", 2)
    monkeypatch.setattr(statistics, "SAMPLES_LIMIT", 10)
    bench = make_bench("memory").open()
    measured(bench, "a", "b", "c")
    for queue in "abc":
        for _ in range(8):
            bench.publish(queue)
        bench.do("consume_next", queue=queue, max=8)
    rows = bench.do("queue_statistics")["queues"]
    assert [(one["queue"], one["published"]["count"], one["retention"]["n"]) for one in rows] == [
        ("a", 0, 0), ("b", 8, 0), ("c", 8, 8)
    ]  # fmt: skip


def test_a_deleted_queue_is_forgotten(bench: Bench) -> None:
    measured(bench, "q")
    bench.publish("q")
    bench.do("purge", queue="q")
    bench.do("delete_queue", queue="q")
    measured(bench, "q")
    (shown,) = bench.do("queue_statistics", queue="q")["queues"]
    assert shown["published"]["count"] == 0
