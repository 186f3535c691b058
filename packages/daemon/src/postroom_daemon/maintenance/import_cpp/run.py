"""Import a database of the C++ system: what it holds becomes events of the journal, from which the store is folded.

The events are written to a directory beside the journal's segments and synced. Renaming that directory commits the
import: a failure before it leaves the old database and the journal as they were; after it, the same command, or a
repetition of it, finishes the rest. The old database stays beside the new one under another name.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.events import EventType, encode_event

from ...config.config import Config
from ...engine.context import Draft
from ...journal.segments import list_segments, read_lines, segment_name
from ...platform.clock import Clock, Now
from ...platform.files import CREATE_FLAGS, Files
from ...platform.quarantine import Quarantine
from ...policy.policies import Policies
from ...root.locks import lock_root
from ...root.open_root import Sources, open_root
from ...root.preflight import CPP_IMPORT_COMMITTED, hindrance, is_cpp_database
from ...stores.backends import Layout, layout_of
from ...stores.base import StoreBusy
from .database import CppDatabase
from .events import CppEvents, age_of_all

log = logging.getLogger(__name__)

#: The directory of the events while they are being written.
_STAGING: Final = "taking-over"
#: What is appended to the old database's name afterwards.
_OLD_SUFFIX: Final = ".before-migration"
#: Messages whose events make one group.
_GROUP_MESSAGES: Final = 200
#: A journal with no events but these has no messages and no settings of queues: a database can still be imported.
_NOTHING_DONE: Final = frozenset(
    {EventType.EPOCH_STARTED, EventType.CLOCK_MARKED, EventType.ANSWERED, EventType.GAP, EventType.LOSS_ACCEPTED}
)


class ImportRefused(PostroomError):
    """The database cannot be imported, and nothing was changed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class CppImport:
    """What an import did, or would do.

    ``counts``: how many queues, policies, and messages by their old state (empty if the import was begun, and counted,
    by an earlier run). ``unusable``: rows that cannot be used. ``old``: the old database's path now; None if it is
    unchanged, or gone.
    """

    database: Path
    counts: dict[str, int]
    unusable: int
    old: Path | None = None


def check_cpp(config: Config, workspace: Path) -> CppImport:
    """What ``import_cpp`` would do. Reads a copy of the database made in ``workspace``, and changes nothing.

    Raises ``ImportRefused``, ``StoreError``, ``OSError``.
    """
    _check_backend(config)
    path = config.settings.sqlite_db_path
    if (config.settings.journal_root / CPP_IMPORT_COMMITTED).is_dir():
        return CppImport(path, {}, 0)
    _check_importable(config)
    with TemporaryDirectory(prefix="postroom-import-", dir=workspace) as directory:
        copy = Path(directory) / path.name
        for suffix in ("", "-wal", "-journal"):
            source = path.with_name(path.name + suffix)
            if suffix == "" or source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        database = _open(config, copy)
        try:
            clock = Clock()
            _resume(clock, database)
            events = _events(config, database, clock, Sources())
            for _ in events.requests():
                pass
        finally:
            database.close()
    _check_usable(events, path)
    return CppImport(path, dict(events.counts), len(events.unusable))


def import_cpp(config: Config, sources: Sources) -> CppImport:
    """Import the database at ``sqlite.dbPath``, or finish an import that was interrupted; then fold it into the store.

    Raises ``ImportRefused``, ``RootBusy``, ``WrongOwner``, ``StoreError``, ``StartError``, ``OSError``.
    """
    _check_backend(config)
    problem = hindrance(config)
    if problem:
        raise ImportRefused(problem)
    files, journal, path = sources.files, config.settings.journal_root, config.settings.sqlite_db_path
    events = None
    with lock_root(config, files):
        quarantine = Quarantine(config.quarantine_root, files)
        if not (journal / CPP_IMPORT_COMMITTED).is_dir():
            if (journal / _STAGING).is_dir():
                _discard(journal / _STAGING, files)
            _check_importable(config)
            database = _open(config, path)
            try:
                events = _write_events(database, config, sources, quarantine)
            finally:
                database.close()
        old = _finish(journal, path, files, quarantine)
    root = open_root(config, sources)
    try:
        root.broker.stop()
        root.store.disk.checkpoint()
    finally:
        root.close()
    return CppImport(path, dict(events.counts) if events else {}, len(events.unusable) if events else 0, old)


def _check_backend(config: Config) -> None:
    if not layout_of(config.settings).is_persistent:
        raise ImportRefused("backend memory stores nothing: choose another one by --backend")


def _check_importable(config: Config) -> None:
    settings = config.settings
    journal, path = settings.journal_root, settings.sqlite_db_path
    if not is_cpp_database(path, settings.sqlite_kv_table, settings.sqlite_message_index_table):
        raise ImportRefused(
            f"there is no database of the C++ system at {path}: put it there, or name it by sqlite.dbPath; one that"
            " SQLite cannot read must be repaired first: `sqlite3 OLD .recover | sqlite3 NEW`"
        )
    if journal.is_dir() and _is_used(journal, layout_of(settings)):
        raise ImportRefused(
            f"{path} is a database of the C++ system, and the journal {journal} already has other events:"
            " name the database that belongs to the journal by sqlite.dbPath, and import the old one into a new root"
        )


def _is_used(journal: Path, layout: Layout) -> bool:
    """Whether a journal has an event that an import would hide, or damage. Raises ``OSError``."""
    segments = [path for _, path in list_segments(journal)]
    if layout.messages:  # its store is not replaced with the database, and belongs to this journal
        return bool(segments)
    lines = (line for path in segments for line in read_lines(path))
    return any(line.event is None or line.event["type"] not in _NOTHING_DONE for line in lines)


def _check_usable(events: CppEvents, path: Path) -> None:
    if events.unusable and not events.counts:
        reason = events.unusable[0].reason
        raise ImportRefused(
            f"{path}: none of its {len(events.unusable)} rows can be used (the first: {reason}): nothing was imported."
            " Move the database away to start with an empty root"
        )


def _open(config: Config, path: Path) -> CppDatabase:
    settings = config.settings
    database = CppDatabase(path, settings.sqlite_kv_table, settings.sqlite_message_index_table, config.root)
    try:
        database.open()
    except StoreBusy as error:
        raise ImportRefused(f"{error}: stop the C++ daemon, and whoever else has it open") from error
    return database


def _resume(clock: Clock, database: CppDatabase) -> None:
    """Let engine time begin early enough for every message to keep its age."""
    wall = clock.now().wall
    clock.resume(None, Now(age_of_all(wall, database.oldest()), wall))


def _events(config: Config, database: CppDatabase, clock: Clock, sources: Sources) -> CppEvents:
    return CppEvents(database, clock.now(), Policies(config.defaults, config.queues, config.patterns), sources.ids)


def _write_events(database: CppDatabase, config: Config, sources: Sources, quarantine: Quarantine) -> CppEvents:
    """Write all events to the staging directory, durably, and commit it."""
    settings, files, clock = config.settings, sources.files, sources.clock()
    journal, name = settings.journal_root, settings.sqlite_db_path.name
    _resume(clock, database)
    staging = journal / _STAGING
    try:
        writer = _Writer(staging, files, clock, sources.ids.root(), settings.journal_segment_bytes)
        try:
            events = _events(config, database, clock, sources)
            reason = f"taken over from {name} of the C++ system"
            epoch: Draft = {"type": EventType.EPOCH_STARTED, "root": writer.root_id, "reason": reason}
            writer.write_all([[epoch], [clock.mark(clock.now(), writer.root_id)]])
            writer.write_all(events.requests())
            writer.write_all([[clock.mark(clock.now(), writer.root_id)]])
        finally:
            writer.close()
        _check_usable(events, settings.sqlite_db_path)
        events.set_aside(quarantine, name)
        directory = files.open_directory(journal)
        try:
            files.rename(_STAGING, CPP_IMPORT_COMMITTED, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
        finally:
            files.close(directory)
    except BaseException:
        if staging.is_dir():
            _discard(staging, files)
        raise
    return events


def _finish(journal: Path, path: Path, files: Files, quarantine: Quarantine) -> Path | None:
    """Rename the old database and move the committed events into the journal; may be repeated after a stop anywhere.
    The old database's new path; None if an earlier run has renamed it."""
    old = None
    if path.exists():
        for _, segment in list_segments(journal):  # of a daemon that was started here before, and did nothing
            quarantine.move_in(segment, "a journal without messages, replaced by that of an imported database")
        old, number = path.with_name(path.name + _OLD_SUFFIX), 1
        while old.exists():
            number += 1
            old = path.with_name(f"{path.name}{_OLD_SUFFIX}.{number}")
        files.rename(path, old)
        files.sync_directory(path.parent)
    committed = journal / CPP_IMPORT_COMMITTED
    for _, segment in list_segments(committed):
        files.rename(segment, journal / segment.name)
    files.sync_directory(journal)
    files.rmdir(committed)
    files.sync_directory(journal)
    return old


def _discard(staging: Path, files: Files) -> None:
    """Remove events that were never committed."""
    for _, segment in list_segments(staging):
        files.unlink(segment)
    files.rmdir(staging)


class _Writer:
    """Writes segments to a directory of their own, each durable when it is full."""

    def __init__(self, directory: Path, files: Files, clock: Clock, root_id: str, segment_bytes: int) -> None:
        self.root_id = root_id
        self._files = files
        self._clock = clock
        self._segment_bytes = segment_bytes
        journal = files.open_directory(directory.parent)
        try:
            self._mode = files.shared_mode(journal)
        finally:
            files.close(journal)
        self._directory = files.open_directory(directory)
        self._fd = -1
        self._size = 0
        self._last_id = 0

    def write_all(self, requests: Iterable[list[Draft]]) -> None:
        """Write requests. A reader sees all events of a request, or none. Raises ``OSError``."""
        group: list[list[Draft]] = []
        for request in requests:
            group.append(request)
            if len(group) == _GROUP_MESSAGES:
                self._write(group)
                group = []
        if group:
            self._write(group)

    def _write(self, group: list[list[Draft]]) -> None:
        if self._fd < 0 or self._size >= self._segment_bytes:
            self._begin_segment()
            if self._last_id:
                group = [[self._clock.mark(self._clock.now(), self.root_id)], *group]
        now = self._clock.now()
        first = self._last_id + 1
        last_of_group = self._last_id + sum(len(request) for request in group)
        lines = []
        for request in group:
            last = self._last_id + len(request)
            for draft in request:
                self._last_id += 1
                event = {"id": self._last_id, "epoch": 1, "req": last, "grp": last_of_group}
                event |= {"engineMs": now.engine, "wallMs": now.wall, **draft}
                if self._last_id == last and len(request) > 1:
                    event["n"] = len(request)
                if self._last_id == last_of_group > first:
                    event["gn"] = last_of_group - first + 1
                lines.append(encode_event(event))
        data = b"".join(lines)
        self._files.write_all(self._fd, data)
        self._size += len(data)

    def _begin_segment(self) -> None:
        self._end_segment()
        self._fd = self._files.open(segment_name(self._last_id + 1), CREATE_FLAGS, self._mode, dir_fd=self._directory)
        self._size = 0

    def _end_segment(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def close(self) -> None:
        """Make all of it durable. Raises ``OSError``."""
        try:
            self._end_segment()
            self._files.fsync(self._directory)
        finally:
            self._files.close(self._directory)
