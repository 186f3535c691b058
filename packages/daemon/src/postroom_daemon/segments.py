"""Reading the journal's segments: which there are, what in them is intact, and where the end is.

``<first event id, 20 digits>.jsonl``, one event a line. Nothing here writes.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, decode_event

_NAME = re.compile(r"(\d{20})\.jsonl")


class Damage(NamedTuple):
    """Bytes of a segment that are no intact event, or belong to a request that has lost one."""

    segment: Path
    offset: int
    data: bytes
    reason: str


OnDamage = Callable[[Damage], None]


class Line(NamedTuple):
    """A line of a segment; ``event`` is None when it is damaged."""

    offset: int
    data: bytes
    event: Event | None


@dataclass(slots=True)
class Tail:
    """The end of the last segment: what is to be kept, and what is to be cut."""

    last_id: int
    keep_bytes: int
    cut: list[Line]


def segment_name(first_id: int) -> str:
    """The name of the segment that begins with an event."""
    return f"{first_id:020d}.jsonl"


def list_segments(root: Path) -> list[tuple[int, Path]]:
    """The segments in order, each with the id of its first event. Other files are passed over."""
    found = []
    for name in os.listdir(root):
        match = _NAME.fullmatch(name)
        if match:
            found.append((int(match[1]), root / name))
    return sorted(found)


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """The lines of a segment from a byte offset on, damaged ones included. Raises ``OSError``."""
    offset = start
    with path.open("rb") as file:
        file.seek(start)
        for data in file:
            event = None
            if data.endswith(b"\n"):
                try:
                    event = decode_event(data)
                except DamagedRecord:
                    pass
            yield Line(offset, data, event)
            offset += len(data)


def examine_tail(path: Path) -> Tail:
    """Where the last segment ends for good.

    In the last group, everything from the first damage on is cut: the group was never acknowledged if it is torn. So is
    a request of which only a part is there. Damage before the last group stays in place: ``read_requests`` reports it.
    """
    lines = list(read_lines(path))
    intact = [line for line in lines if line.event is not None]
    if not intact:
        return Tail(0, 0, lines)
    last_group = _group(intact[-1])
    keep = 0
    previous: Event | None = None
    for index, line in enumerate(lines):
        if line.event is None and _tears_last_group(lines[index:], previous, last_group):
            break
        if line.event is not None:
            previous = line.event
            if line.event["id"] >= line.event["req"]:
                keep = index + 1
        elif previous is None or previous["id"] >= previous["req"]:
            keep = index + 1  # damage between two requests, before the last group
    kept = [line.event for line in lines[:keep] if line.event is not None]
    end = lines[keep].offset if keep < len(lines) else path.stat().st_size
    return Tail(kept[-1]["id"] if kept else 0, end, lines[keep:])


def _group(line: Line) -> int:
    return int(line.event["grp"]) if line.event else 0


def _tears_last_group(rest: list[Line], previous: Event | None, last_group: int) -> bool:
    """Whether the damage at the head of ``rest`` lies in the last group (or behind it)."""
    following = next((line.event for line in rest if line.event is not None), None)
    if following is None:
        return True
    if following["grp"] != last_group:
        return False
    # The next intact event is of the last group: the damage is as well, unless the group before misses just as many.
    return previous is None or previous["grp"] < following["id"] - 1


def read_requests(root: Path, from_id: int, on_damage: OnDamage) -> Iterator[list[Event]]:
    """All intact requests that end at ``from_id`` or later, in order, each as the list of its events.

    Damaged lines, and the rest of a request that has lost one, go to ``on_damage``. Raises ``OSError``.
    """
    segments = list_segments(root)
    for index, (_, path) in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1][0] <= from_id:
            continue
        pending: list[Line] = []
        for line in read_lines(path):
            event = line.event
            if event is None:
                _report(path, pending, "its request is incomplete", on_damage)
                on_damage(Damage(path, line.offset, line.data, "no intact event"))
                pending = []
                continue
            if pending and (event["req"] != _request(pending[0]) or event["id"] != _id(pending[-1]) + 1):
                _report(path, pending, "its request is incomplete", on_damage)
                pending = []
            pending.append(line)
            if event["id"] == event["req"]:
                if len(pending) != event.get("n", 1):
                    _report(path, pending, "its request is incomplete", on_damage)
                elif event["id"] >= from_id:
                    yield [pended.event for pended in pending if pended.event is not None]
                pending = []
        _report(path, pending, "its request is incomplete", on_damage)


def _id(line: Line) -> int:
    return int(line.event["id"]) if line.event else 0


def _request(line: Line) -> int:
    return int(line.event["req"]) if line.event else 0


def _report(path: Path, lines: list[Line], reason: str, on_damage: OnDamage) -> None:
    for line in lines:
        on_damage(Damage(path, line.offset, line.data, reason))


def find_event(root: Path, event_id: int) -> Event | None:
    """One event by its id; None when its segment is gone or it is damaged. Raises ``OSError``."""
    holding = [path for first, path in list_segments(root) if first <= event_id]
    if not holding or holding[-1].stat().st_size == 0:
        return None
    with holding[-1].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        prefix = b'{"id":%d,' % event_id
        start = view.find(b"\n" + prefix) + 1
        if start == 0 and view[: len(prefix)] != prefix:
            return None
        end = view.find(b"\n", start)
        line = view[start : end if end >= 0 else len(view)]
    try:
        return decode_event(line)
    except DamagedRecord:
        return None
