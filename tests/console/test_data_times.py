"""Times in eight characters, whatever the clocks say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from postroom_console.data.times import date_and_time, moment

NOW = 1_795_874_531_000  # 2026-11-28T14:02:11Z
DAY = 86_400_000


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("wall_ms", "shown"),
    [
        (NOW, "14:02:11"),
        (NOW + 3_600_000, "15:02:11"),
        (NOW - DAY, "27 14:02"),
        (NOW - 15 * 3_600_000, "27 23:02"),
        (NOW + DAY, "29 14:02"),
        (NOW - 75 * DAY, "26-09-14"),
        (0, "70-01-01"),
        (10**18, "-"),
        (-(10**18), "-"),
    ],
)
def test_another_day_is_never_shown_as_today(wall_ms: int, shown: str) -> None:
    assert moment(wall_ms, NOW) == shown


def test_a_clock_that_shows_no_year_spoils_no_other_moment() -> None:
    assert moment(NOW, 10**18) == "14:02:11"
    assert date_and_time(NOW) == "2026-11-28 14:02:11"
    assert date_and_time(10**18) == "-"
