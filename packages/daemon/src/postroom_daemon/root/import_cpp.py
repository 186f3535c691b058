"""Taking over a database of the C++ system: what is in it becomes events, of which the store is then folded as ever.

The events are written into a directory beside the journal's segments and synced; its rename is the moment from which
the database counts as taken over. Whatever fails before leaves the old database as it was, and the next start begins
anew; whatever fails after is gone on with. The old database stays beside the new one under another name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from postroom_common.events import EventType, encode_event

from ..config.config import Config
from ..engine.context import Draft
from ..journal.segments import list_segments, segment_name
from ..platform.clock import Clock, Now
from ..platform.files import CREATE_FLAGS, Files
from ..platform.ids import Ids
from ..platform.quarantine import Quarantine
from ..policy.policies import Policies
from ..stores.base import StoreBusy, StoreError
from ..stores.sqlite.cpp import CppDatabase, is_cpp_database
from .import_cpp_events import Teller, age_of_all

log = logging.getLogger(__name__)

#: Directories in the journal's: events that are being written, and those that are whole.
_STAGING: Final = "taking-over"
_WHOLE: Final = "taken-over"
#: What the old database is called afterwards.
BEFORE: Final = ".before-migration"
#: Messages whose events make one group.
_GROUP_MESSAGES: Final = 200
_BACKENDS: Final = ("sqlite", "hybrid")


def take_over(config: Config, files: Files, clock: Clock, ids: Ids, quarantine: Quarantine) -> None:
    """Take over the database at ``sqlite.dbPath`` if it is one of the C++ system.

    Raises ``OSError``; ``StoreError`` where it cannot be, with the old database as it was.
    """
    settings = config.settings
    if settings.backend not in _BACKENDS:
        return
    journal, path = settings.journal_root, settings.sqlite_db_path
    if (journal / _WHOLE).is_dir():
        _finish(journal, path, files)
        return
    if (journal / _STAGING).is_dir():
        _discard(journal / _STAGING, files)
    tables = settings.sqlite_kv_table, settings.sqlite_message_index_table
    if not is_cpp_database(path, *tables):
        return
    if list_segments(journal):
        raise StoreError(
            f"{path}: a database of the C++ system, and the journal {journal} has other messages already: let"
            " sqlite.dbPath name the database that belongs to the journal, or use a new root for the old one"
        )
    database = CppDatabase(path, *tables, config.root)
    try:
        database.open()
    except StoreBusy as error:
        raise StoreError(f"{error}: stop the C++ daemon, and whoever else has it open") from error
    try:
        _write_events(database, config, files, clock, ids, quarantine)
        _finish(journal, path, files)
    finally:
        database.close()


def _write_events(
    database: CppDatabase, config: Config, files: Files, clock: Clock, ids: Ids, quarantine: Quarantine
) -> None:
    settings = config.settings
    journal, wall = settings.journal_root, clock.now().wall
    # Engine time begins so that everything has the age that it had.
    clock.resume(None, Now(age_of_all(wall, database.oldest()), wall))
    policies = Policies(config.defaults, config.queues, config.patterns)
    staging = journal / _STAGING
    try:
        writer = _Writer(staging, files, clock, ids.root(), settings.journal_segment_bytes)
        try:
            teller = Teller(database, clock.now(), policies, ids)
            epoch = _epoch(settings.sqlite_db_path.name, writer.root_id)
            writer.write_all([[epoch], [clock.mark(clock.now(), writer.root_id)]])
            writer.write_all(teller.requests())
            writer.write_all([[clock.mark(clock.now(), writer.root_id)]])
        finally:
            writer.close()
        teller.set_aside(quarantine, settings.sqlite_db_path.name)
        directory = files.open_directory(journal)
        try:
            files.rename(_STAGING, _WHOLE, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
        finally:
            files.close(directory)
    except BaseException:
        if staging.is_dir():
            _discard(staging, files)
        raise
    log.warning(
        "%s is taken over from the C++ system: %s; %d rows of which nothing can be made are in quarantine",
        settings.sqlite_db_path,
        ", ".join(f"{count} {name}" for name, count in sorted(teller.counts.items())) or "nothing was in it",
        teller.odd_count,
    )


def _epoch(name: str, root_id: str) -> Draft:
    return {"type": EventType.EPOCH_STARTED, "root": root_id, "reason": f"taken over from {name} of the C++ system"}


def _finish(journal: Path, path: Path, files: Files) -> None:
    """The events are whole: the old database makes room, they become the journal. May be done in several goes."""
    if path.exists():
        kept, number = path.with_name(path.name + BEFORE), 1
        while kept.exists():
            number += 1
            kept = path.with_name(f"{path.name}{BEFORE}.{number}")
        files.rename(path, kept)
        files.sync_directory(path.parent)
        log.warning("the old database is kept as %s; remove it when you are sure", kept)
    whole = journal / _WHOLE
    for _, segment in list_segments(whole):
        files.rename(segment, journal / segment.name)
    files.sync_directory(journal)
    files.rmdir(whole)
    files.sync_directory(journal)


def _discard(staging: Path, files: Files) -> None:
    """Remove events that were never whole."""
    for _, segment in list_segments(staging):
        files.unlink(segment)
    files.rmdir(staging)


class _Writer:
    """Segments in a directory of their own, each durable when it is full."""

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

    def write_all(self, requests: Iterator[list[Draft]] | list[list[Draft]]) -> None:
        """Write requests, each with all its events or not at all once they are read back."""
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
