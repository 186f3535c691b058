"""What is remembered of the snapshots of a root: up to where they went, and by what it is seen that this still holds.

A data directory can be put back to an earlier state by hand. Its journal then gives the same numbers to other events,
and only their checksums tell.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .journal import Journal, Place
from .traffic import Mark

#: Ends of earlier snapshots that are kept in mind: where the journal was put back, the newest that it still has counts.
POINTS_LIMIT: Final = 64


class Point(NamedTuple):
    """The end of a slice: its last event with the checksum that the journal had of it, and a place in the traffic log.
    The checksum is empty where it is not known."""

    epoch: int
    event: int
    crc: str
    traffic: Mark

    @property
    def place(self) -> Place:
        """The place behind it."""
        return Place(self.epoch, self.event)


#: In front of everything.
START: Final = Point(0, 0, "", Mark())


class Last(NamedTuple):
    """Up to where the snapshots of a root went, the last of them, and where earlier ones ended, the newest first."""

    point: Point
    snapshot: str
    earlier: tuple[Point, ...] = ()

    def trusted(self, journal: Journal) -> Point:
        """The newest point up to which the journal is what was exported; ``START`` where none is known to be.

        That is this one as long as the journal says nothing else: also where it does not reach back so far, and where
        no checksum is known. Raises as ``Journal.find``.
        """
        available = journal.available_from()
        if self.point.event < available:
            return self.point
        found = journal.find(self.point.epoch, self.point.event)
        if found and self.point.crc in ("", found["crc"]):
            return self.point._replace(crc=found["crc"])
        for point in self.earlier:
            found = journal.find(point.epoch, point.event) if point.crc and point.event >= available else None
            if found and found["crc"] == point.crc:
                return point
        return START

    def followed(self, point: Point, snapshot: str, trusted: Point) -> Last:
        """What is to be remembered once a snapshot has gone on behind a trusted point."""
        points = (trusted, *(one for one in self.earlier if one[:2] < trusted[:2]))
        earlier = [one for one in points if one.crc and one[:2] != point[:2]]
        return Last(point, snapshot, tuple(earlier[:POINTS_LIMIT]))


def to_json(last: Last) -> dict[str, Any]:
    """As it stands in the file."""
    points = [[*point[:3], list(point.traffic)] for point in (last.point, *last.earlier)]
    return {"snapshot": last.snapshot, "points": points}


def from_json(told: Any, version: int) -> Last:
    """What ``to_json`` made; of version 1 as well. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for what it
    did not make."""
    if version == 1:
        traffic = told["traffic"]
        mark = [traffic["file"], traffic["offset"], traffic["wall_ms"]]
        return Last(_point([told["epoch"], told["event"], "", mark]), _checked(told["snapshot"], str))
    point, *earlier = map(_point, told["points"])
    return Last(point, _checked(told["snapshot"], str), tuple(earlier))


def _point(told: Any) -> Point:
    epoch, event, crc, mark = told
    file, offset, wall_ms = (_checked(one, int) for one in mark)
    return Point(_checked(epoch, int), _checked(event, int), _checked(crc, str), Mark(file, offset, wall_ms))


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value
