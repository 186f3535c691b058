"""Find the end of the journal: how much of its last segment is valid, and what a crash left behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from .segments import Line, read_lines

#: Bytes at the end of a segment that are read first: most groups are smaller.
_END_BYTES: Final = 256 * 1024


class Tail(NamedTuple):
    """The end of the last segment: the id of its last valid event, the bytes to keep, and its size."""

    last_id: int
    keep_bytes: int
    size: int


class _Place(NamedTuple):
    """The offset of a line and the ids of its event; ``id`` 0: damaged."""

    offset: int
    id: int = 0
    req: int = 0
    grp: int = 0
    first_of_group: int | None = None


def examine_tail(path: Path) -> Tail:
    """Find the end of the valid part of the last segment.

    In the last group, everything from the first damage on is cut, since a torn group was never acknowledged; so is an
    incomplete request. Damage before the last group stays in place: ``read_requests`` reports it.
    Raises ``OSError``.
    """
    size = path.stat().st_size
    whole = _whole_end(path, size)
    if whole:
        return whole
    places = [_place(line) for line in read_lines(path)]
    last = next((place for place in reversed(places) if place.id), None)
    if last is None:
        return Tail(0, 0, size)
    keep = last_id = 0
    previous: _Place | None = None
    following = _following(places)
    for index, place in enumerate(places):
        if not place.id and _tears_last_group(previous, following[index], last):
            break
        if place.id:
            previous = place
        if previous is None or previous.id >= previous.req:
            keep = index + 1
            last_id = previous.id if previous else 0
    return Tail(last_id, places[keep].offset if keep < len(places) else size, size)


def _whole_end(path: Path, size: int) -> Tail | None:
    """The end of a segment whose last group is whole, from that group alone; None if it is not, or is very large."""
    lines = [*read_lines(path, max(0, size - _END_BYTES))]
    last = lines[-1].event if lines else None
    if last is None or not last["id"] == last["req"] == last["grp"]:
        return None
    first = last["id"] - last.get("gn", 1) + 1
    ids = [line.id for line in lines[first - last["id"] - 1 :]]
    return Tail(last["id"], size, size) if ids == [*range(first, last["id"] + 1)] else None


def _place(line: Line) -> _Place:
    event = line.event
    if event is None:
        return _Place(line.offset)
    ends_group = event["id"] == event["grp"]
    first = event["grp"] - event.get("gn", 1) + 1 if ends_group else None
    return _Place(line.offset, event["id"], event["req"], event["grp"], first)


def _following(places: list[_Place]) -> list[_Place | None]:
    """For each line, the next intact one behind it."""
    following_each: list[_Place | None] = []
    following: _Place | None = None
    for place in reversed(places):
        following_each.append(following)
        if place.id:
            following = place
    return following_each[::-1]


def _tears_last_group(previous: _Place | None, following: _Place | None, last: _Place) -> bool:
    """Whether damage between two intact events has destroyed an event of the last group, whose last intact event is
    ``last``."""
    if following is None:
        return True
    if following.grp != last.grp:
        return False
    if previous and previous.id + 1 == following.id:
        return False  # the bytes in between were not an event
    if last.first_of_group is not None:
        return following.id > last.first_of_group
    # Only the missing end says where the group began: it is torn, unless the group before lacks as many events.
    return previous is None or previous.grp < following.id - 1
