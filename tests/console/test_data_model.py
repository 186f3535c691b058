"""The known state of a daemon: rates, problems and its age."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from postroom_console.data.model import QUEUES_LIMIT, STALE_MS, TREND_POINTS, Model

counts = st.fixed_dictionaries({"published": st.integers(0, 10**6), "acked": st.integers(0, 10**6)})


def reported(event: int, engine_ms: int, *queues: dict[str, Any]) -> dict[str, Any]:
    return {"queues": list(queues), "asOfEvent": event, "engineNowMs": engine_ms}


def queue(name: str = "alarms", ready: int = 0, published: int = 0, acked: int = 0, **more: Any) -> dict[str, Any]:
    totals = {"published": published, "acked": acked}
    return {"queue": name, "ready": ready, "inflight": 0, "delayed": 0, "dlq": 0, "totals": totals, **more}


def test_one_answer_has_no_rates_and_two_have() -> None:
    model = Model()
    model.take("queues", reported(5, 1000, queue(published=10)), 0)
    assert (model.queues["alarms"].in_rate, model.queues["alarms"].out_rate) == (None, None)
    model.take("queues", reported(9, 3000, queue(published=30, acked=4)), 2000)
    assert (model.queues["alarms"].in_rate, model.queues["alarms"].out_rate) == (10.0, 2.0)


def test_a_log_shows_its_records_and_how_fast_they_are_appended() -> None:
    model = Model()
    log = {"created": 7, "records": 12, "bytes": 3400, "readers": 2}
    for at, appended in ((1000, 10), (3000, 12)):
        model.take("queues", reported(at, at, {**queue(), "totals": {"appended": appended}, "log": log}), at)
    shown = model.queues["alarms"]
    assert (shown.is_log, shown.records, shown.bytes, shown.readers, shown.in_rate) == (True, 12, 3400, 2, 1.0)


@given(counts, counts, st.integers(1, 10**6), st.integers(-5, 5))
def test_no_rate_is_negative(before: dict[str, int], after: dict[str, int], span_ms: int, events: int) -> None:
    model = Model()
    model.take("queues", reported(10, 1000, {**queue(), "totals": before}), 0)
    model.take("queues", reported(10 + events, 1000 + span_ms, {**queue(), "totals": after}), 1)
    rates = (model.queues["alarms"].in_rate, model.queues["alarms"].out_rate)
    assert all(rate is None or rate >= 0 for rate in rates)
    assert events >= 0 or rates == (None, None)


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    model = Model()
    for event in (1, 2):
        model.take("queues", reported(event, 1000, queue(published=event)), 0)
    assert model.queues["alarms"].in_rate is None


def test_a_queue_that_is_gone_is_no_longer_shown_and_one_that_came_has_no_past() -> None:
    model = Model()
    model.take("queues", reported(1, 1000, queue("a", published=5)), 0)
    model.take("queues", reported(2, 2000, queue("b", published=7)), 1000)
    assert list(model.queues) == ["b"]
    assert model.queues["b"].in_rate is None


def test_the_length_of_trends_and_the_number_of_queues_are_bounded() -> None:
    model = Model()
    for number in range(TREND_POINTS + 5):
        model.take("queues", reported(number, number * 1000, queue(ready=number)), number)
    assert list(model.queues["alarms"].trend) == list(range(5, TREND_POINTS + 5))
    model.take("queues", reported(99, 10**6, *(queue(f"q{number}") for number in range(QUEUES_LIMIT + 10))), 0)
    assert len(model.queues) == QUEUES_LIMIT


def test_trouble_is_sorted_with_the_worst_first() -> None:
    model = Model()
    fine, old = queue("fine"), queue("old", oldestReadyAgeMs=60_000)
    dead, paused = queue("dead", dlq=1), queue("paused", paused={"consume": True})
    model.take("queues", reported(1, 1, fine, old, {**dead, "dlq": 1}, paused), 0)
    order = sorted(model.queues.values(), key=lambda one: one.trouble, reverse=True)
    assert [one.name for one in order] == ["paused", "dead", "old", "fine"]


def test_everything_is_stale_while_the_daemon_is_silent_or_gone() -> None:
    model = Model()
    assert model.is_stale(0) and model.age_ms(0) is None
    model.take("health", {}, 1000)
    assert not model.is_stale(1000 + STALE_MS)
    assert model.is_stale(1001 + STALE_MS)
    model.fail("queues", "", "no answer", 2000)
    assert model.is_stale(2000)
    assert model.age_ms(3000) == 2000
    model.take("health", {}, 4000)
    assert not model.is_stale(4000)
    assert (model.problem, model.reconnects) == ("", 1)


def test_the_last_state_stays_while_nobody_answers() -> None:
    model = Model()
    model.take("queues", reported(1, 1000, queue(ready=3)), 0)
    model.fail("queues", "", "no answer", 10)
    assert model.queues["alarms"].ready == 3


def test_a_daemon_that_refuses_is_not_gone() -> None:
    model = Model()
    model.take("health", {}, 0)
    model.fail("queues", "ERR_FORBIDDEN", "not you", STALE_MS)
    assert not model.is_stale(STALE_MS + 1)
    assert model.age_ms(STALE_MS + 1) == 1
    model.take("health", {}, STALE_MS + 2)
    assert model.reconnects == 0


def test_deadlines_count_down_between_two_answers() -> None:
    model = Model()
    assert model.engine_now("leases", 5) == 0
    model.take("leases", {"engineNowMs": 70_000}, 1000)
    assert model.engine_now("leases", 1250) == 70_250


def test_an_older_or_newer_daemon_may_leave_fields_out() -> None:
    model = Model()
    model.take("queues", {"queues": [{"queue": "a", "ready": 1, "inflight": 0, "delayed": 0, "dlq": 0}]}, 0)
    assert model.queues["a"].held == 0
    model.take("queues", {"queues": None}, 1)
    assert model.queues == {}


def test_an_answer_of_another_shape_is_ignored_and_the_last_state_stays() -> None:
    model = Model()
    model.take("queues", reported(1, 1000, queue(ready=3)), 0)
    for number, strange in enumerate(([1, 2], [{"queue": "a"}], [{}], 7), 1):
        model.take("queues", {"queues": strange}, number)
        assert "malformed answer" in model.problem
        assert (model.queues["alarms"].ready, model.heard_ms) == (3, 0)
    model.take("health", {"asOfEvent": [1]}, 20)
    assert "health" not in model.answers
