"""The store of a stopped root, opened so that nothing of it changes: files are read where they lie, a database from a
copy, which also takes what its log holds."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ...config.settings import Settings
from ...engine.fold import apply
from ...journal.segments import list_segments, read_requests
from ...model.lifecycle import IllegalTransition
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ...root.preflight import is_cpp_database
from ...stores.backends import layout_of, make_store
from ...stores.base import NotStored, Store, StoreDamaged
from ...stores.sqlite.store import SqliteStore

#: What the copy of a database is called.
COPY_NAME: Final = "store.db"
#: What stands in the place of a missing directory of bodies.
PAYLOADS_NAME: Final = "payloads"
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ReadonlyFiles(Files):
    """File calls that only read. What would remove a file is noted in ``removed``; all else that would change one
    raises ``OSError``."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []
        self.open = _open
        self.mkdir = _mkdir
        self.flock = lambda fd, operation: None  # it may read what another process works on
        self.unlink = lambda path, **options: self.removed.append(os.fspath(path))
        for name in ("write", "rename", "rmdir", "ftruncate", "allocate"):
            setattr(self, name, _refuse)


def _open(path: Any, flags: int, *mode: int, dir_fd: int | None = None) -> int:
    if flags & _WRITING:
        _refuse()
    return os.open(path, flags, dir_fd=dir_fd)


def _mkdir(path: Any, *mode: int, dir_fd: int | None = None) -> None:
    os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))


def _refuse(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


class RecordingQuarantine(Quarantine):
    """Notes what would be kept, with the reason."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ReadonlyFiles())
        self.noted: list[tuple[str, str]] = []

    def keep(self, name: str, data: bytes, reason: str) -> None:
        self.noted.append((name, reason))

    def keep_file(self, path: Path, reason: str, name: str = "") -> None:
        self.noted.append((str(path), reason))


@dataclass(slots=True)
class ReadonlyStore:
    """A store that is open to be looked at. ``aside`` and ``removed`` are what opening it would have moved to
    quarantine, with the reason, and removed."""

    store: Store
    settings: Settings
    aside: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def is_of_cpp(settings: Settings) -> bool:
    """Whether the database, of which ``settings`` name a copy, is one of the C++ system."""
    if layout_of(settings).database is None:
        return False
    return is_cpp_database(settings.sqlite_db_path, settings.sqlite_kv_table, settings.sqlite_message_index_table)


def copied(settings: Settings, workspace: Path) -> Settings:
    """The settings with the database, if there is one, replaced by a copy in ``workspace``. Raises ``OSError``."""
    if layout_of(settings).database is None:
        return settings
    copy = workspace / COPY_NAME
    for suffix in ("", "-wal"):
        source = settings.sqlite_db_path.with_name(settings.sqlite_db_path.name + suffix)
        if suffix == "" or source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + suffix))
    return replace(with_payloads(settings, workspace), sqlite_db_path=copy)


def with_payloads(settings: Settings, workspace: Path) -> Settings:
    """The settings with the directory of the bodies, if it is missing, replaced by an empty one in ``workspace``: a
    store makes it as it is opened. Raises ``OSError``."""
    bodies = layout_of(settings).bodies
    if bodies is None or bodies.exists():
        return settings
    empty = workspace / PAYLOADS_NAME
    empty.mkdir()
    return replace(settings, hybrid_payload_root=empty)


@contextmanager
def open_readonly(quarantine_root: Path, settings: Settings) -> Iterator[ReadonlyStore]:
    """Open a store without changing it; a database must be a copy. Raises ``StoreError``, ``OSError``."""
    files, quarantine = ReadonlyFiles(), RecordingQuarantine(quarantine_root)
    store = make_store(settings, files, quarantine)
    store.open()
    try:
        yield ReadonlyStore(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()


#: What the database is called that is folded from nothing.
FOLDED_NAME: Final = "folded.db"
#: Requests that are folded in one transaction.
_BATCH: Final = 2000


@contextmanager
def dry_run(quarantine_root: Path, settings: Settings, workspace: Path, damaged: bool) -> Iterator[ReadonlyStore]:
    """The new store, to be looked at. ``damaged``: ``settings`` name a copy of a database, of which is kept what can
    still be read; else it begins with nothing. Raises ``StoreError`` where the start would be refused, ``OSError``."""
    files, quarantine = ReadonlyFiles(), RecordingQuarantine(quarantine_root)
    if layout_of(settings).database is None:  # nothing can be salvaged, and folded into a database it is the same
        settings, damaged = replace(settings, backend=SqliteStore.name), False
    if not damaged:
        settings = replace(settings, sqlite_db_path=workspace / FOLDED_NAME)
    store = make_store(settings, files, quarantine)
    try:
        _make(store, settings.journal_root, damaged)
    except StoreDamaged:  # what was salvaged is no better: it is done without
        store.close()
        _make(store, settings.journal_root, False)
    try:
        yield ReadonlyStore(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()


def _make(store: Store, journal: Path, salvage: bool) -> None:
    if salvage:
        store.recovery.salvage(next((first for first, _ in list_segments(journal)), None) if journal.is_dir() else None)
    for path in store.disk.files():  # of the workspace
        path.unlink(missing_ok=True)
    store.open()
    try:
        _fold(store, journal)
    except BaseException:
        store.close()
        raise


def _fold(store: Store, journal: Path) -> None:
    store.begin()
    requests = read_requests(journal, store.applied + 1, lambda damage: None) if journal.is_dir() else ()
    for count, request in enumerate(requests, 1):
        for event in request.events:
            try:
                apply(event, store)
            except (NotStored, IllegalTransition):  # what it builds on is missing
                store.applied = event["id"]
        if count % _BATCH == 0:
            store.commit()
            store.begin()
    store.commit()
    store.recovery.finish_replay(clean=False)
