"""When the messages of a queue died: the last one, and how many in the last hour and day."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
#: Deaths are counted by slots of five minutes, which become hours when they are no part of the last hour any more.
_SLOT_MS: Final = 5 * _MINUTE_MS
_LAST_HOUR_MS: Final = _HOUR_MS + _SLOT_MS
_LAST_DAY_MS: Final = 25 * _HOUR_MS


class Deaths(NamedTuple):
    """``last`` and ``last_wall``: engine and wall time of the last one (0: none yet); ``slots``: the engine time at
    which each slot begins, with the number of those that died in it, oldest first. It is never changed in place."""

    last: int = 0
    last_wall: int = 0
    slots: tuple[tuple[int, int], ...] = ()

    def with_one(self, engine: int, wall: int) -> Deaths:
        """One more has died."""
        slot, slots = engine - engine % _SLOT_MS, self.slots
        if engine < self.last:  # of long ago, told by another root
            return self._replace(slots=_merged((*slots, (slot, 1)), self.last))
        if slots and slots[-1][0] == slot:
            return Deaths(engine, wall, (*slots[:-1], (slot, slots[-1][1] + 1)))
        return Deaths(engine, wall, _merged((*slots, (slot, 1)), engine))

    def in_last_hour(self, now: int) -> int:
        """How many died in the hour, and at most five minutes more, before ``now``."""
        return sum(count for start, count in self.slots if start > now - _LAST_HOUR_MS)

    def in_last_day(self, now: int) -> int:
        """How many died in the 24 hours, and at most one hour more, before ``now``."""
        return sum(count for start, count in self.slots if start > now - _LAST_DAY_MS)

    def to_json(self) -> list[Any]:
        """As a record holds it."""
        return [self.last, self.last_wall, *self.slots]

    @classmethod
    def from_json(cls, data: list[Any]) -> Deaths:
        """Read what ``to_json`` made. Raises ``TypeError`` or ``ValueError`` for anything else."""
        last, last_wall, *slots = data
        return cls(last, last_wall, tuple((start, count) for start, count in slots))


def _merged(slots: tuple[tuple[int, int], ...], now: int) -> tuple[tuple[int, int], ...]:
    """Slots in order, without those that are too old, and by the hour where they are no part of the last one."""
    counts: dict[int, int] = {}
    for start, count in slots:
        if start > now - _LAST_DAY_MS:
            begin = start if start > now - _LAST_HOUR_MS else start - start % _HOUR_MS
            counts[begin] = counts.get(begin, 0) + count
    return tuple(sorted(counts.items()))


NO_DEATHS: Final = Deaths()
