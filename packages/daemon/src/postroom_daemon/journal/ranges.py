"""Events by their ids: where they are in the segments, and which are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.events import Event, EventType

from .segments import list_segments, read_lines

_CHUNK_BYTES: Final = 2**20


class MissingEvents(NamedTuple):
    """Ids that a journal skips. ``declared``: the ``gap`` event behind them says so."""

    first: int
    last: int
    declared: bool


def missing_before(event: Event, expected: int) -> MissingEvents | None:
    """The ids from ``expected`` on that a journal skips before an event; None if it skips none, or none that was ever
    used for an event."""
    if event["id"] <= expected or "unused" in event:
        return None
    return MissingEvents(expected, event["id"] - 1, event["type"] == EventType.GAP)


def segments_until(journal: Path, event_id: int) -> list[Path]:
    """The segments that begin at ``event_id`` or before, in order. Raises ``OSError``."""
    return [path for first, path in list_segments(journal) if first <= event_id]


def event_at(journal: Path, event_id: int) -> Event | None:
    """An event by its id; None if the journal does not have it. Raises ``OSError``."""
    for path in segments_until(journal, event_id)[-1:]:
        for line in read_lines(path):
            if line.event and line.event["id"] == event_id:
                return line.event
    return None


def content(segments: list[Path], index: int, event_id: int) -> Iterator[bytes]:
    """The bytes of segment ``index`` up to ``event_id``, in chunks. Raises ``OSError``."""
    if index + 1 < len(segments):
        with segments[index].open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
        return
    for line in read_lines(segments[index]):
        if line.event and line.event["id"] > event_id:
            return
        yield line.data
        if line.event and line.event["id"] == event_id:
            return
