"""What is on disk when logs are opened: what a checkpoint knows of, and what was appended behind it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.errors import DamagedRecord

from ...platform.files import LOST_ERRNOS
from .open_logs import DELETED, DIRECTORY, NAME, OF_LOG, OpenLog, OpenLogs
from .segments import Index, Scan, Segment
from .state import STATE_NAME, LogsState, LogState

log = logging.getLogger(__name__)

SEGMENT: Final = re.compile(r"([0-9]{20})\.log")


class Found(NamedTuple):
    """The fold of all events up to ``applied`` was on disk, as of the last checkpoint. ``had_state``: it said which
    logs there are. ``is_new``: there has never been a log. The files and directories in ``doomed`` may be erased."""

    applied: int
    had_state: bool
    is_new: bool
    doomed: list[Path]


def open_logs(opened: OpenLogs) -> Found:
    """Open all logs; the ends that are not intact are cut off. Raises ``StoreError``, ``OSError``."""
    root = opened.root
    try:
        state = _read_state(opened)
        had_state = state is not None
    except DamagedRecord as error:
        log.error("%s: %s; the journal is folded into the logs from its beginning", root, error)
        state, had_state = LogsState(), False
    names = sorted(opened.files.listdir(root)) if root.is_dir() else []
    is_new = state is None and not any(map(DIRECTORY.fullmatch, names))
    state = state or LogsState()
    opened.deleted += [number for number in state.deleted if f"{number:020d}" in names]
    doomed = [root / name for name in names if name.endswith(DELETED)]
    known = {f"{number:020d}": one for number, one in state.logs.items()}
    for name in dict.fromkeys([*known, *filter(DIRECTORY.fullmatch, names)]):
        if int(name) not in opened.deleted:
            opened.logs[int(name)] = _open_log(opened, int(name), known.get(name), doomed)
    return Found(state.applied, had_state, is_new, doomed)


def _read_state(opened: OpenLogs) -> LogsState | None:
    path = opened.root / STATE_NAME
    if path.is_symlink() or (path.exists() and not path.is_file()):
        _set_aside(opened, path, path.name)
        raise DamagedRecord(f"{path} is no file")
    try:
        return LogsState.read(opened.root)
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        raise DamagedRecord(str(error)) from error


def _set_aside(opened: OpenLogs, path: Path, name: str) -> None:
    if not opened.is_reading:
        opened.quarantine.move_in(path, "it is no file, or cannot be read", name)


def _files_of(opened: OpenLogs, directory: Path) -> list[str]:
    """The names of the files of a log. What has such a name and is no file is set aside."""
    names: list[str] = []
    for name in opened.files.listdir(directory) if directory.is_dir() else []:
        path = directory / name
        if path.is_file() and not path.is_symlink():
            names.append(name)
        elif OF_LOG.fullmatch(name):
            _set_aside(opened, path, f"{directory.name}~{name}")
    return names


def _open_log(opened: OpenLogs, number: int, state: LogState | None, doomed: list[Path]) -> OpenLog:
    segments = opened.segments
    directory = segments.directory(number)
    names = _files_of(opened, directory)
    named = state.name if state else _name_of(directory) if NAME in names else directory.name.lstrip("0")
    one = OpenLog(named, state or LogState(""))
    matches = [match for match in map(SEGMENT.fullmatch, names) if match and (directory / match[0]).stat().st_size]
    found = sorted(int(match[1]) for match in matches)
    known = {segment.first: segment for segment in one.segments}
    one.segments = [known.get(first) or Segment(first) for first in sorted({*known, *found})]
    lowest = min(known, default=one.before)
    doomed += [segments.path(number, first) for first in found if first < lowest]  # they were trimmed
    one.segments = [segment for segment in one.segments if segment.first >= lowest]
    for segment in list(one.segments):
        _open_segment(opened, number, one, segment, is_known=segment.first in known)
    if one.segments and not one.segments[-1].suspect:
        unsynced = opened.unsynced.get((number, one.segments[-1].first))
        try:
            one.index = unsynced[1] if unsynced else segments.read_index(number, one.segments[-1])
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            one.segments[-1].suspect = True
    one.undo()
    return one


def _name_of(directory: Path) -> str:
    try:
        return (directory / NAME).read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return directory.name.lstrip("0")


def _open_segment(opened: OpenLogs, number: int, one: OpenLog, segment: Segment, is_known: bool) -> None:
    """Learn what a segment has behind the last checkpoint; cut off what is not intact. One that cannot be read is
    suspect, or set aside if it was begun behind the checkpoint."""
    path, start = opened.segments.path(number, segment.first), segment.size
    try:
        _read_segment(opened, number, one, segment, is_known)
        return
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        log.error("%s: %s", path, error)
    opened.segments.forget(number, segment.first)
    if is_known:
        segment.size, segment.suspect, one.last = start, True, max(one.last, segment.last)
    else:
        one.segments.remove(segment)
        _set_aside(opened, path, f"{path.parent.name}~{path.name}")


def _read_segment(opened: OpenLogs, number: int, one: OpenLog, segment: Segment, is_known: bool) -> None:
    path = opened.segments.path(number, segment.first)
    try:
        size = path.stat().st_size if path.is_file() and not path.is_symlink() else -1
    except OSError:
        size = -1
    if is_known and (segment.suspect or size < segment.size or not _is_own(opened, number, segment)):
        segment.suspect = True
        log.error("%s: not all of its %d bytes are intact", path, segment.size)
        one.last = max(one.last, segment.last)
        return
    last = segment.last or segment.first - 1
    if size > segment.size or not is_known:
        start, segment.size = segment.size, max(size, 0)
        known = Segment(segment.first, start)
        index = Index() if not start else opened.segments.read_index(number, known)
        scan = opened.segments.scan(number, segment, start, last, index)
        if scan.last >= one.limit(segment):  # what another segment had
            index = Index() if not start else opened.segments.read_index(number, known)
            scan = Scan(0, start, last, 0)
        if not start and scan.records:
            segment.mark = opened.segments.mark(number, segment)
        segment.records += scan.records
        segment.last, segment.last_wall = scan.last, max(segment.last_wall, scan.wall_ms)
        if not 0 < scan.end == segment.size:
            _cut(opened, number, segment, scan.end)
        opened.unsynced[number, segment.first] = (segment, index)
    if not segment.records:
        one.segments.remove(segment)
        opened.unsynced.pop((number, segment.first), None)
    else:
        one.last = max(one.last, segment.last)


def _is_own(opened: OpenLogs, number: int, segment: Segment) -> bool:
    """Whether a file begins with the record with which its segment began at the last checkpoint."""
    return segment.mark in (0, opened.segments.mark(number, segment))


def _cut(opened: OpenLogs, number: int, segment: Segment, end: int) -> None:
    """Cut off what is not intact at the end of a segment, behind the last checkpoint: the journal has it."""
    path = opened.segments.path(number, segment.first)
    log.warning("%s: cut off at byte %d of %d: the rest is not intact", path, end, segment.size)
    if not opened.is_reading:
        rest = opened.segments.read(number, segment, end, segment.size - end)
        if rest.strip(b"\0"):
            name = f"{path.parent.name}~{path.name}.{end}"
            opened.quarantine.add(name, rest, "the end of a log that is not intact")
        opened.files.ftruncate(opened.segments.fd(number, segment.first, writing=True), end)
    segment.size = end


def cut_behind(opened: OpenLogs, number: int, one: OpenLog, position: int) -> None:
    """Set aside what a log has at a position and behind it. Raises ``OSError``; ``LogDamaged`` before anything is
    changed."""
    segments = opened.segments
    opened.sums.clear()
    cut = next((segment for segment in one.segments if segment.first < position <= segment.last), None)
    end = segments.seek(number, cut, lambda _, other: other >= position, 0) if cut else 0
    for segment in [segment for segment in one.segments if segment.first >= position]:
        one.segments.remove(segment)
        opened.unsynced.pop((number, segment.first), None)
        segments.forget(number, segment.first)
        path = segments.path(number, segment.first)
        opened.quarantine.move_in(path, "a segment behind lost records", f"{path.parent.name}~{path.name}")
    one.index = Index()
    if cut:
        _cut(opened, number, cut, end)
        scan = segments.scan(number, cut, 0, cut.first - 1, one.index)
        cut.records, cut.last, cut.last_wall = scan.records, scan.last, scan.wall_ms
        opened.unsynced[number, cut.first] = (cut, one.index)
    elif one.segments:
        unsynced = opened.unsynced.get((number, one.segments[-1].first))
        one.index = unsynced[1] if unsynced else segments.read_index(number, one.segments[-1])
    one.last = position - 1
    one.undo()
