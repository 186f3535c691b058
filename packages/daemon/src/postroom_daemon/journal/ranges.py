"""A journal's segments up to one of its events, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from postroom_common.events import Event

from .segments import list_segments, read_lines

_CHUNK_BYTES: Final = 2**20


def segments_until(journal: Path, event_id: int) -> list[Path]:
    """The segments whose names tell of events up to ``event_id``, in order. Raises ``OSError``."""
    return [path for first, path in list_segments(journal) if first <= event_id]


def event_at(journal: Path, event_id: int) -> Event | None:
    """An event by its id; None when the journal does not have it. Raises ``OSError``."""
    for path in segments_until(journal, event_id)[-1:]:
        for line in read_lines(path):
            if line.event and line.event["id"] == event_id:
                return line.event
    return None


def content(segments: list[Path], index: int, event_id: int) -> Iterator[bytes]:
    """The bytes of one of the segments up to ``event_id``, in chunks: all but those of the last are copied whole.

    Raises ``OSError``.
    """
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
