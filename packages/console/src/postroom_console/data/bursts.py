"""Collapses bursts: similar lines of one second and queue become one line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from .records import Record

#: Similar lines within a second that are collapsed.
BURST: Final = 6


class Shown(NamedTuple):
    """A record and the number of lines that it represents. Of a burst it is the last record, with the number of the
    first, so that the line keeps its place while the burst grows."""

    number: int
    record: Record
    times: int = 1


def collapsed(
    pairs: Sequence[tuple[int, Record]], opened: Collection[int] = (), least: int = BURST, rows: int = 0
) -> list[Shown]:
    """The records, with ``least`` or more similar ones of one second collapsed, unless the number of the first is in
    ``opened``.

    With ``rows``, only so many of the last lines, which are the same as without.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (_, record) in enumerate(pairs):
        client = "" if record.is_event else record.client  # only the last event of a request names it
        alike = (record.wall_ms // 1000, record.kind, record.queue, client, record.code)
        groups.setdefault(alike, []).append(at)
    bursts: dict[int, list[int]] = {}  # by the index of the first
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
