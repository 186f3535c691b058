"""Moments for people, in the zone of the technician (``TZ`` names another one)."""

from __future__ import annotations

import time
from typing import Final

#: Days for which the day of the month tells which one it was.
_DAYS: Final = 27
_DAY_MS: Final = 86_400_000


def unix_ms() -> int:
    """The time of day, as milliseconds of Unix time."""
    return time.time_ns() // 1_000_000


def moment(wall_ms: int, now_ms: int) -> str:
    """A moment in eight characters: ``14:02:11`` of today; ``25 14:02`` of another day, by its day of the month, for
    four weeks; ``26-09-14`` of one that is further away."""
    then = _local(wall_ms)
    if then is None:
        return "-"
    if then[:3] == (_local(now_ms) or then)[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%d %H:%M" if abs(now_ms - wall_ms) < _DAYS * _DAY_MS else "%y-%m-%d", then)


def date_and_time(wall_ms: int) -> str:
    """A moment, whole."""
    then = _local(wall_ms)
    return "-" if then is None else time.strftime("%Y-%m-%d %H:%M:%S", then)


def _local(wall_ms: int) -> time.struct_time | None:
    """The parts of a moment; None when its year has no four digits."""
    try:
        then = time.localtime(wall_ms / 1000)
    except (OverflowError, OSError, ValueError):
        return None
    return then if 1000 <= then.tm_year <= 9999 else None
