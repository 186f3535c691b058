"""Import data of the C++ system: it becomes events of the journal, from which the store is folded.

The events are written to a directory beside the journal's segments and synced. Renaming that directory commits the
import: a failure before it leaves the old data and the journal as they were; after it, the same command, or a
repetition of it, finishes the rest. The old data stays beside the new store under another name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...config.config import Config
from ...config.settings import Settings
from ...journal.segments import list_segments
from ...platform.clock import Clock
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ...policy.policies import Policies
from ...root.cpp_data import CppData, found_in, interrupted_import, is_used, message_files
from ...root.locks import lock_root
from ...root.open_root import Sources
from ...stores.backends import layout_of, places
from ...stores.errors import StoreBusy
from ...stores.filesystem.names import read_name
from ..foreign_data import ImportRefused, begin_time, check_backend, copied_database, set_aside
from ..idle_root import check_process, fold_imported
from ..staged_journal import STAGING, staged_journal
from .database import CppDatabase
from .events import CppEvents
from .message_files import CppFiles
from .rows import CppSource

#: What is appended to the names of the old data afterwards.
_OLD_SUFFIX: Final = ".before-migration"
#: What the hybrid backend of the C++ system has in the directory of a queue's bodies.
_BODY_FOLDERS: Final = ("active", "archive", "dlq")


@dataclass(frozen=True, slots=True)
class CppImport:
    """What an import did, or would do.

    ``counts``: how many queues, policies, and messages by their old state (empty if the import was begun, and counted,
    by an earlier run). ``unusable``: rows and files that cannot be used; ``unfinished``: files that were being written
    when the C++ daemon ended. ``old``: the paths of the old data now; empty if it is unchanged, or gone. ``others``:
    other data of the C++ system that is not imported.
    """

    source: Path
    counts: dict[str, int]
    unusable: int
    unfinished: int = 0
    old: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()


def check_cpp(config: Config, workspace: Path, accept_loss: bool = False) -> CppImport:
    """What ``import_cpp`` would do. Reads a copy of a database made in ``workspace``, and changes nothing.

    Raises ``ImportRefused``, ``StoreError``, ``OSError``.
    """
    check_backend(config)
    begun = interrupted_import(config.settings)
    if begun:
        return CppImport(begun.path, {}, 0)
    data, *others = _importable(config)
    copied = copied_database(data.path, workspace) if data.is_database else nullcontext(data.path)
    with copied as copy, _opened(config, data, copy) as source:
        clock = Clock()
        begin_time(clock, source.oldest())
        events = _events(config, source, clock, Sources())
        for _ in events.requests():
            pass
        _check_losses(events, data, source, accept_loss)
        return _import_of(data, events, source, others)


def import_cpp(config: Config, sources: Sources, accept_loss: bool = False) -> CppImport:
    """Import data of the C++ system, or finish an import that was interrupted; then fold it into the store.
    ``accept_loss``: even if most messages cannot be used.

    Raises ``ImportRefused``, ``RootBusy``, ``WrongOwner``, ``StoreError``, ``StartError``, ``OSError``.
    """
    check_process(config)
    files = sources.files
    with lock_root(config, files):
        quarantine = Quarantine(config.quarantine_root, files)
        begun = interrupted_import(config.settings)
        if begun:
            data, done = begun, CppImport(begun.path, {}, 0)
        else:
            data, *others = _importable(config)
            with _opened(config, data, data.path) as source:
                events = _write_events(data, source, config, sources, quarantine, accept_loss)
                done = _import_of(data, events, source, others)
        old = _finish(data, config.settings, files, quarantine)
    fold_imported(config, sources)
    return replace(done, old=old)


def _import_of(data: CppData, events: CppEvents, source: CppSource, others: list[CppData]) -> CppImport:
    unfinished = source.unfinished if isinstance(source, CppFiles) else 0
    return CppImport(
        data.path,
        dict(events.counts),
        len(events.unusable),
        unfinished,
        others=tuple(other.path for other in others),
    )


def _importable(config: Config) -> list[CppData]:
    """The data to import, and behind it other data of the C++ system. Raises ``ImportRefused`` if there is none, or
    something else is in its place."""
    settings = config.settings
    found = found_in(settings)
    if not found:
        earlier = _imported_before(settings)
        if earlier:
            raise ImportRefused(
                f"the data of the C++ system was imported already; it is in {earlier} now. To import it once more, make"
                " a new root, and put it there under its old name"
            )
        raise ImportRefused(
            f"there is no database of the C++ system at {settings.sqlite_db_path}, and no directory of its messages at"
            f" {settings.filesystem_root}: put it there, or name it by sqlite.dbPath or filesystem.root; a database"
            " that SQLite cannot read must be repaired first: `sqlite3 OLD .recover | sqlite3 NEW`"
        )
    if is_used(settings.journal_root):
        raise ImportRefused(
            f"{found[0]}, and the journal {settings.journal_root} already has messages or settings of queues: import"
            " the old one into a new root, and move messages from one to the other with `postroomd export` and"
            " `postroomd import`"
        )
    if not found[0].is_database and any(read_name(path.name) for path, _ in message_files(settings)):
        raise ImportRefused(
            f"{found[0]}, and also of a store of postroomd, which may be in use: move the files of the C++ system to a"
            " directory of their own, and name it by filesystem.root"
        )
    if not os.access(found[0].path.parent, os.W_OK):
        raise ImportRefused(f"{found[0].path.parent} cannot be written to: {found[0].path} gets another name in it")
    strangers = _own_store(found[0], settings)
    if strangers and not list_segments(settings.journal_root):
        raise ImportRefused(
            f"{strangers[0]} is a store whose journal is missing: put back the journal {settings.journal_root}, or move"
            " the store away if it is not needed"
        )
    return found


def _imported_before(settings: Settings) -> Path | None:
    """Where the data of an earlier import is now."""
    if not is_used(settings.journal_root):
        return None
    names = (settings.sqlite_db_path, settings.filesystem_root)
    olds = [path.with_name(path.name + _OLD_SUFFIX) for path in names]
    return next((old for old in olds if old.exists()), None)


def _own_store(data: CppData, settings: Settings) -> list[Path]:
    """What the store of this root already has on the disk, apart from the data of the C++ system."""
    return [
        path
        for path in places(settings)
        if path != data.path
        and os.path.lexists(path)
        and not (path.is_dir() and not any(path.iterdir()))
        and not (path == settings.hybrid_payload_root and _is_of_cpp(path))
        and not (data.is_database and path.name.startswith(data.path.name))  # its write-ahead log
    ]


def _is_of_cpp(bodies: Path) -> bool:
    """Whether the C++ system's hybrid backend has stored bodies in a directory."""
    return any((queue / folder).is_dir() for queue in bodies.iterdir() for folder in _BODY_FOLDERS)


def _check_losses(events: CppEvents, data: CppData, source: CppSource, accept_loss: bool) -> None:
    """Raise ``ImportRefused`` if most messages would be lost."""
    places = f"; files with bodies are looked for in {source.shown_bodies}" if isinstance(source, CppDatabase) else ""
    advice = ". Put back what is missing; or move the old data away to start with an empty root"
    events.check_losses(data.path, accept_loss, places + advice)


@contextmanager
def _opened(config: Config, data: CppData, path: Path) -> Iterator[CppSource]:
    settings = config.settings
    source: CppSource
    if data.is_database:
        beside = data.path.parent
        bodies = (
            settings.hybrid_payload_root,
            config.root / "data/payloads",
            beside / "payloads",
            beside.parent / "data/payloads",
        )
        tables = settings.sqlite_kv_table, settings.sqlite_message_index_table
        source = CppDatabase(path, *tables, tuple(dict.fromkeys(bodies)))
    else:
        source = CppFiles(settings)
    try:
        source.open()
    except StoreBusy as error:
        raise ImportRefused(f"{error}: stop the C++ daemon, and whoever else uses it") from error
    try:
        yield source
    finally:
        source.close()


def _events(config: Config, source: CppSource, clock: Clock, sources: Sources) -> CppEvents:
    return CppEvents(source, clock.now(), Policies(config.defaults, config.queues, config.patterns), sources.ids)


def _write_events(
    data: CppData, source: CppSource, config: Config, sources: Sources, quarantine: Quarantine, accept_loss: bool
) -> CppEvents:
    """Write all events to the staging directory, durably, and commit it."""
    settings, files, clock = config.settings, sources.files, sources.clock()
    journal = settings.journal_root
    begin_time(clock, source.oldest())
    root_id = sources.ids.root()
    events = _events(config, source, clock, sources)
    reason = f"taken over from {data.path.name} of the C++ system"
    written = staged_journal(journal, events.requests(), reason, root_id, clock, files, settings.journal_segment_bytes)
    with written:
        _check_losses(events, data, source, accept_loss)
        set_aside(events.unusable, quarantine, data.path.name, "the C++ system")
        directory = files.open_directory(journal)
        try:
            files.rename(STAGING, data.committed, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
        finally:
            files.close(directory)
    return events


def _finish(data: CppData, settings: Settings, files: Files, quarantine: Quarantine) -> tuple[Path, ...]:
    """Rename the old data and move the committed events into the journal; may be repeated after a stop anywhere. The
    old data's new paths; none if an earlier run has renamed it."""
    journal, old = settings.journal_root, []
    if data.path.exists():
        for _, segment in list_segments(journal):  # of a daemon that was started here before, and did nothing
            quarantine.move_in(segment, "a journal without messages, replaced by that of imported data")
        for path in _own_store(data, settings):
            quarantine.move_in(path, "a store without messages, replaced by one of imported data")
        bodies = layout_of(settings).bodies
        if data.is_database and bodies and bodies.is_dir() and _is_of_cpp(bodies):
            old.append(_rename_old(bodies, files))
        old.insert(0, _rename_old(data.path, files))  # last: what is above is done now
    committed = journal / data.committed
    for _, segment in list_segments(committed):
        files.rename(segment, journal / segment.name)
    files.sync_directory(journal)
    files.rmdir(committed)
    files.sync_directory(journal)
    return tuple(old)


def _rename_old(path: Path, files: Files) -> Path:
    old, number = path.with_name(path.name + _OLD_SUFFIX), 1
    while old.exists():
        number += 1
        old = path.with_name(f"{path.name}{_OLD_SUFFIX}.{number}")
    files.rename(path, old)
    files.sync_directory(path.parent)
    return old
