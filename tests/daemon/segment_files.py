"""Segments of a journal that are written, read and damaged by hand."""

from __future__ import annotations

from pathlib import Path

from postroom_common.events import Event, encode_event
from postroom_daemon.journal.segments import Damage, read_requests, segment_name


def group(first: int, *requests: int) -> list[Event]:
    """The events of one group, whose requests have so many events each."""
    last = first + sum(requests) - 1
    events: list[Event] = []
    for length in requests:
        request = first + length - 1
        for number in range(first, request + 1):
            event: Event = {"id": number, "epoch": 1, "req": request, "grp": last, "engineMs": 5, "wallMs": 5}
            event["type"] = "clock_marked"
            if number == request and length > 1:
                event["n"] = length
            events.append(event)
        first = request + 1
    if len(events) > 1:
        events[-1]["gn"] = len(events)
    return events


def write(root: Path, *groups: list[Event]) -> Path:
    path = root / segment_name(groups[0][0]["id"])
    path.write_bytes(b"".join(encode_event(event) for events in groups for event in events))
    return path


def ids(root: Path, damages: list[Damage] | None = None, begin: int = 1) -> list[int]:
    report = damages.append if damages is not None else lambda damage: None
    return [event["id"] for request in read_requests(root, begin, report) for event in request.events]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x04
    path.write_bytes(data)


def line_starts(path: Path) -> list[int]:
    starts = [0]
    for line in path.read_bytes().splitlines(True):
        starts.append(starts[-1] + len(line))
    return starts
