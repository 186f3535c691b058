"""The events of one message, read backwards from the end of the journal: up to a limit of bytes, in slices of a few
milliseconds, so that other requests are served in between."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, EventType, decode_event

from .segments import list_segments, read_bytes

#: Bytes of the journal to read at most; a long line may exceed it.
LOOK_BYTES: Final = 16 * 1024 * 1024
_BLOCK_BYTES: Final = 512 * 1024
_ID: Final = re.compile(rb'\{"id":(\d+),')


class MessageHistory(NamedTuple):
    """Events about a message, oldest first, complete from event ``complete_from`` on. ``cut``: there may be older ones,
    beyond the limit."""

    events: list[Event]
    complete_from: int
    cut: bool


def history_slices(
    root: Path, key: str, limit: int, most_bytes: int = LOOK_BYTES
) -> Generator[None, None, MessageHistory]:
    """The latest events about a message, at most ``limit``, in steps that each read a block of the journal. Raises
    ``OSError``."""
    needle = orjson.dumps({"key": key})[1:-1]
    events: list[Event] = []
    looked = 0
    for region in _regions(root):
        if region is None:
            yield
            continue
        for event in _events_in(region, needle, key):
            events.append(event)
            if len(events) == limit or event["type"] == EventType.PUBLISHED:
                more = event["type"] != EventType.PUBLISHED
                return MessageHistory(events[::-1], event["id"], more)
        first = _ID.match(region)
        looked = int(first[1]) if first else looked
        most_bytes -= len(region)
        if most_bytes <= 0:
            return MessageHistory(events[::-1], looked, True)
        yield
    return MessageHistory(events[::-1], looked, False)


def _regions(root: Path) -> Iterator[bytes | None]:
    """The lines of the journal in blocks, the latest first; None for a block inside a long line. Segments that are
    removed meanwhile are skipped."""
    for _, path in reversed(list_segments(root)):
        try:
            end = path.stat().st_size
            rest: list[bytes] = []  # the bytes behind, the last part first
            while end > 0:
                start = max(0, end - _BLOCK_BYTES)
                block = read_bytes(path, start, end - start)
                end = start
                cut = block.find(b"\n") + 1 if start else 0
                if start and not cut:  # the middle of a long line
                    rest.append(block)
                    yield None
                    continue
                region = b"".join([block[cut:], *reversed(rest)])
                rest = [block[:cut]]
                if region:
                    yield region
        except FileNotFoundError:
            continue


def _events_in(region: bytes, needle: bytes, key: str) -> Iterator[Event]:
    """The intact events about a message in some lines, the latest first."""
    end = len(region)
    while (at := region.rfind(needle, 0, end)) >= 0:
        begin = region.rfind(b"\n", 0, at) + 1
        close = region.find(b"\n", at)
        try:
            event = decode_event(region[begin : len(region) if close < 0 else close])
        except DamagedRecord:
            event = {}
        if event.get("key") == key:
            yield event
        end = begin
