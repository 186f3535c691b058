"""Times for people, in the terminal's time zone (``TZ``)."""

from __future__ import annotations

import time
from typing import Final

#: Days for which the day of the month is unambiguous.
_DAYS: Final = 27
_DAY_MS: Final = 86_400_000


def unix_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def moment(wall_ms: int, now_ms: int) -> str:
    """A time in eight characters: ``14:02:11`` today, ``25 14:02`` with the day of the month for four weeks,
    ``26-09-14`` beyond."""
    then = _local(wall_ms)
    if then is None:
        return "-"
    if then[:3] == (_local(now_ms) or then)[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%d %H:%M" if abs(now_ms - wall_ms) < _DAYS * _DAY_MS else "%y-%m-%d", then)


def date_and_time(wall_ms: int) -> str:
    """A complete time."""
    then = _local(wall_ms)
    return "-" if then is None else time.strftime("%Y-%m-%d %H:%M:%S", then)


def _local(wall_ms: int) -> time.struct_time | None:
    """The parts of a time; None if its year does not have four digits."""
    try:
        then = time.localtime(wall_ms / 1000)
    except (OverflowError, OSError, ValueError):
        return None
    return then if 1000 <= then.tm_year <= 9999 else None
