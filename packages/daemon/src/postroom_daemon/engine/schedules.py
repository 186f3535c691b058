"""When a schedule is due: five cron fields in a time zone (library cronsim), or ``@every`` with a period.

All times are Unix milliseconds, because a crontab means wall time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_EVERY: Final = re.compile(r"@every\s+((?:\d{1,9}(?:ms|s|m|h|d))+)")
_PARTS: Final = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORTEST_MS: Final = 1000
_LONGEST_MS: Final = 366 * 86_400_000
MISSED: Final = ("skip", "once", "all")
#: Within this time before or after a change of the UTC offset, times of day may be ambiguous.
_HOURS: Final = timedelta(hours=4)
_NEVER: Final = "cron: there is no such time"


class Plan:
    """The times of one schedule. Raises ``ValueError`` with a text for its author if it is invalid."""

    def __init__(self, cron: str, timezone: str) -> None:
        self.every_ms = _every(cron) if cron.startswith("@") else 0
        self._cron = cron
        try:
            self._zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"timezone: this device knows no time zone {timezone!r}") from None
        if not self.every_ms:
            if len(cron.split()) != 5:
                raise ValueError("cron: expected five fields (minute hour day month weekday), or @every and a time")
            try:
                next(CronSim(cron, datetime(2026, 1, 1, tzinfo=self._zone)))
            except CronSimError as error:
                text = f"cron: {str(error).lower()} in {cron!r} (minute hour day month weekday)"
                raise ValueError(text) from None
            except StopIteration:
                raise ValueError(_NEVER) from None

    def after(self, wall: int, begin: int) -> int:
        """The first time after ``wall``; the periods of ``@every`` start at ``begin``."""
        if self.every_ms:
            return begin + max(1, (wall - begin) // self.every_ms + 1) * self.every_ms
        return self._cron_after(wall)

    def last(self, wall: int, begin: int) -> int:
        """The last time at or before ``wall``."""
        if self.every_ms:
            return begin + (wall - begin) // self.every_ms * self.every_ms
        before = _time(wall, self._zone)
        # In reverse, the library takes the hour that occurs twice at the end of summer time for the first one.
        if before.utcoffset() == (before - _HOURS).utcoffset() == (before + _HOURS).utcoffset():
            return _ms(next(CronSim(self._cron, before + timedelta(milliseconds=1), reverse=True)))
        last = _ms(next(CronSim(self._cron, before - _HOURS, reverse=True)))
        while (following := self._cron_after(last)) <= wall:
            last = following
        return last

    def _cron_after(self, wall: int) -> int:
        """The next time of a cron expression. Raises ``ValueError`` if there is none within 50 years."""
        time = next(CronSim(self._cron, _time(wall, self._zone)), None)
        if time is None:
            raise ValueError(_NEVER)
        return _ms(time)


def next_of(schedule: dict[str, Any], wall: int) -> int:
    """The first time of a stored schedule after ``wall``."""
    return Plan(schedule["cron"], schedule["timezone"]).after(wall, schedule["setMs"])


def _every(text: str) -> int:
    match = _EVERY.fullmatch(text)
    if match is None:
        raise ValueError("cron: expected five fields, or @every and a time such as 90s, 5m, 1h30m")
    period = sum(int(number) * _UNITS[unit] for number, unit in _PARTS.findall(match[1]))
    if not _SHORTEST_MS <= period <= _LONGEST_MS:
        raise ValueError("cron: @every must be from 1s to 366d")
    return period


def _time(wall: int, zone: Any) -> datetime:
    return datetime.fromtimestamp(wall / 1000, tz=zone)


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
