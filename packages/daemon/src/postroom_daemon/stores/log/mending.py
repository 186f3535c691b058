"""What a start, ``verify`` and ``repair`` do with files of logs that are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .contract import LostRange, Records
from .open_logs import DELETED, DIRECTORY, OF_LOG, OpenLog, OpenLogs
from .reading import Reader
from .records import checksum_at, record_of, records_of
from .segments import NO_LIMIT, Intact, Segment
from .state import STATE_NAME


def lost(opened: OpenLogs) -> Iterator[LostRange]:
    """As ``Logs.lost``."""
    for number, one in opened.logs.items():
        for segment in [segment for segment in one.segments if segment.suspect]:
            found = _intact(opened, number, one, segment)
            yield LostRange(number, found.after, found.before)


def damaged(opened: OpenLogs) -> Iterator[tuple[Path, str]]:
    """Read everything: the segments that are damaged, each with what is, in words; they are ``suspect`` from then
    on."""
    for number, one in opened.logs.items():
        for segment in one.segments:
            found = _intact(opened, number, one, segment)
            missing = segment.records - len(found.records)
            if not (found.damaged or missing or segment.suspect):
                continue
            segment.suspect = True
            size = sum(end - at for at, end in found.damaged)
            text = f"{missing} records of {one.name} are missing between {found.after} and {found.before}"
            yield opened.segments.path(number, segment.first), f"{text}, {size} bytes are damaged"


def strangers(root: Path) -> list[Path]:
    """Files and directories that are no part of the logs below a directory."""
    found: list[Path] = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        name = path.name.removesuffix(DELETED)
        if not DIRECTORY.fullmatch(name):
            found += [path] if name not in (STATE_NAME, STATE_NAME + ".tmp") else []
        elif not path.is_dir():
            found.append(path)
        else:
            found += [one for one in sorted(path.iterdir()) if not OF_LOG.fullmatch(one.name) or one.is_dir()]
    return found


def heal(opened: OpenLogs, reader: Reader, lost: LostRange, records: Records) -> None:
    """As ``Logs.heal``, without the state of the logs."""
    number, one = lost.log, opened.logs[lost.log]
    for segment in [segment for segment in one.segments if segment.suspect]:
        found = _intact(opened, number, one, segment)
        if (found.after, found.before) == (lost.after, lost.before):
            reader.forget(number, segment)
            _rewrite(opened, number, one, segment, found, records)
    if not one.is_new and one.segments:
        one.index = opened.segments.read_index(number, one.segments[-1])
    reader.forget_places()
    one.undo()


def _rewrite(opened: OpenLogs, number: int, one: OpenLog, segment: Segment, found: Intact, records: Records) -> None:
    path, quarantine = opened.segments.path(number, segment.first), opened.quarantine
    if found.is_unreadable:
        quarantine.move_in(path, "a segment of a log that cannot be read", f"{path.parent.name}~{path.name}")
    for at, end in () if found.is_unreadable else found.damaged:
        quarantine.add(f"{path.parent.name}~{path.name}.{at}", found.data[at:end], "damaged records of a log")
    merged = dict(sorted((_intact_records(found) | records).items()))
    if not path.parent.is_dir():
        opened.make_directory(number, one)
    directory = opened.files.open_directory(path.parent)
    try:
        chunks: list[bytes] = []
        offset = wall = 0
        for position, (wall_ms, block) in merged.items():
            chunks.append(record_of(wall_ms, position, block, offset))
            offset, wall = offset + len(chunks[-1]), max(wall, wall_ms)
        path.with_suffix(".idx").unlink(missing_ok=True)
        opened.files.put(directory, path.name, b"".join(chunks), durable=True)
    finally:
        opened.files.close(directory)
    trimmed = [len(record) for record, position in zip(chunks, merged, strict=True) if position < one.before]
    segment.mark = checksum_at(chunks[0], 0) if chunks else 0
    segment.size, segment.records, segment.last_wall = offset, len(merged), wall
    segment.trimmed_records, segment.trimmed_bytes, segment.suspect = len(trimmed), sum(trimmed), False
    if merged:
        segment.last = max(merged)
        one.last = max(one.last, segment.last)
    else:
        one.segments.remove(segment)
        path.unlink(missing_ok=True)


def _intact(opened: OpenLogs, number: int, one: OpenLog, segment: Segment) -> Intact:
    """What is intact of a segment. What is lost at its end may reach to the segment that follows."""
    limit = one.limit(segment)
    found = opened.segments.intact(number, segment, limit)
    if segment.suspect and limit < NO_LIMIT:
        found.before = limit
    return found


def _intact_records(found: Intact) -> Records:
    parts = b"".join(found.data[at:end] for at, end, _ in found.records)
    return {position: (wall_ms, block) for wall_ms, position, block in records_of(parts)}
