"""Many lines alike as one: what happened in the same second to the same queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from .records import Record

#: So many lines alike within a second are shown as one.
BURST: Final = 6


class Shown(NamedTuple):
    """A record, and for how many it stands: itself, the last of those alike of its second, and the others. The
    number is that of the first, so that the line stays where it is while more come."""

    number: int
    record: Record
    times: int = 1


def collapsed(
    pairs: Sequence[tuple[int, Record]], opened: Collection[int] = (), least: int = BURST, rows: int = 0
) -> list[Shown]:
    """The records, ``least`` and more alike of one second as one, unless the number of the first stands in ``opened``.

    With ``rows``, only so many of the last lines; they are the same as without.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (_, record) in enumerate(pairs):
        client = "" if record.is_event else record.client  # of the events of a request only the last names it
        alike = (record.wall_ms // 1000, record.kind, record.queue, client, record.code)
        groups.setdefault(alike, []).append(at)
    bursts: dict[int, list[int]] = {}  # by the place of the first
    hidden: set[int] = set()
    for places in groups.values():
        if len(places) >= least and pairs[places[0]][0] not in opened:
            bursts[places[0]] = places
            hidden.update(places[1:])
    shown = []
    for at in range(len(pairs) - 1, -1, -1):
        if at in hidden:
            continue
        places = bursts.get(at, [at])
        shown.append(Shown(pairs[at][0], pairs[places[-1]][1], len(places)))
        if rows and len(shown) == rows:
            break
    return shown[::-1]
