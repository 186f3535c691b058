"""The last records against a plain list of all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_console.data.filters import Filter, FilterError
from postroom_console.data.records import Record
from postroom_console.data.ring import Ring
from tests.console.lines import event, request

KINDS = ("published", "acked", "died")
LIMIT = 7

batches = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 9)), max_size=10),
        st.sampled_from(["", "ev:died", "!ev:died", "ev:nothing"]),
    ),
    max_size=12,
)


@given(batches, st.integers(0, 40), st.integers(0, LIMIT + 2))
def test_a_ring_contains_the_end_of_a_list(steps: list[str | list[tuple[str, int]]], end: int, rows: int) -> None:
    ring, model, wanted = Ring(LIMIT), list[Record](), ""
    for step in steps:
        if isinstance(step, str):
            wanted = step
            ring.filter(step)
        else:
            records = [event(number, kind) for kind, number in step]
            ring.add(records)
            model += sorted(records, key=lambda record: record.engine_ms)
    means = Filter(wanted)
    kept = list(enumerate(model, 1))[-LIMIT:]
    shown = [(number, record) for number, record in kept if means(record)]
    assert (len(ring), ring.taken, ring.dropped) == (len(kept), len(model), len(model) - len(kept))
    assert list(ring.shown) == shown
    up_to_end = [pair for pair in shown if pair[0] <= end]
    assert list(ring.window(end, rows)) == (up_to_end[-rows:] if rows else [])
    died = Filter("ev:died")
    behind = [number for number, record in shown if number > end and died(record)]
    before = [number for number, record in shown if number < end and died(record)]
    assert ring.search(died, end, 1) == (behind[0] if behind else None)
    assert ring.search(died, end, -1) == (before[-1] if before else None)


def test_fewer_lines_are_stored_if_they_are_long() -> None:
    ring = Ring(limit_bytes=100_000)
    ring.add([event(number, message="x" * 30_000) for number in range(1, 10)])
    assert (len(ring), ring.dropped) == (3, 6)
    assert [number for number, _ in ring.shown] == [7, 8, 9]


def test_a_console_does_not_see_itself_unless_it_is_wanted() -> None:
    ring = Ring()
    ring.add([request("health", client="console-1-2"), request("publish"), event(1, by={"client": "console-1-2"})])
    assert [record.kind for _, record in ring.shown] == ["publish", "published"]
    ring.filter("", hides_own=False)
    assert len(ring.shown) == 3


def test_an_invalid_filter_changes_nothing() -> None:
    ring = Ring()
    ring.filter("ev:died")
    ring.add([event(1), event(2, "died")])
    with pytest.raises(FilterError):
        ring.filter("~(")
    ring.add([event(3), event(4, "died")])
    assert [number for number, _ in ring.shown] == [2, 4]


def test_a_cleared_ring_keeps_its_filter_and_its_numbers() -> None:
    ring = Ring()
    ring.filter("ev:died")
    ring.add([event(1, "died")])
    ring.clear()
    assert (len(ring), list(ring.shown)) == (0, [])
    ring.add([event(1), event(2, "died")])
    assert [number for number, _ in ring.shown] == [3]


def test_the_ring_reports_that_its_filter_gave_up() -> None:
    ring = Ring()
    ring.filter("~(a+)+$")
    ring.add([event(number, message="a" * 60 + "b") for number in range(1, 100)])
    assert "takes too long" in ring.problem
    ring.filter("")
    assert ring.problem == ""
    assert len(ring.shown) == 99
