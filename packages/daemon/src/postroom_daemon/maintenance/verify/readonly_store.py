"""Open the store of a stopped root without changing it: files are read in place, a database from a copy with its log.

``dry_run`` makes a store from scratch in the workspace, as the next start would, to report what is lost beforehand.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...config.settings import Settings
from ...engine.fold import apply
from ...journal.segments import list_segments, read_requests
from ...model.lifecycle import IllegalTransition
from ...model.records import BodyReference, Entry
from ...observe.state import bodies_in
from ...observe.state.following import Body
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ...root.cpp_data import exists, is_used, places_of
from ...stores.backends import layout_of, make_store_without_logs
from ...stores.base import Store
from ...stores.errors import NotStored, StoreDamaged
from ...stores.sqlite.store import SqliteStore

#: The name of a database's copy.
COPY_NAME: Final = "store.db"
#: The name of an empty directory in place of a missing one with bodies.
PAYLOADS_NAME: Final = "payloads"
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ReadonlyFiles(Files):
    """File calls that only read. Removals are recorded in ``removed``; all other changes raise ``OSError``."""

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
    """Records what would go to quarantine, with the reason."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ReadonlyFiles())
        self.noted: list[tuple[str, str]] = []

    def add(self, name: str, data: bytes, reason: str) -> None:
        self.noted.append((name, reason))

    def move_in(self, path: Path, reason: str, name: str = "") -> None:
        self.noted.append((str(path), reason))


@dataclass(slots=True)
class ReadonlyStore:
    """An open store that is only read. ``aside`` and ``removed`` are files that opening it would have moved to
    quarantine, with the reason, or removed."""

    store: Store
    settings: Settings
    aside: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def is_of_cpp(settings: Settings) -> bool:
    """Whether there is data of the C++ system instead of a store; a database that ``settings`` name is a copy."""
    own = places_of(settings)[0]
    return exists(own, settings) and (own.is_database or not is_used(settings.journal_root))


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
    """The settings with the directory of the bodies, if it is missing, replaced by an empty one in ``workspace``,
    since opening a store creates it. Raises ``OSError``."""
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
    store = make_store_without_logs(settings, files, quarantine)
    store.open()
    try:
        yield ReadonlyStore(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()


#: The name of a database that is folded from scratch.
FOLDED_NAME: Final = "folded.db"
#: Requests that are folded in one transaction.
_BATCH: Final = 2000


@contextmanager
def dry_run(quarantine_root: Path, settings: Settings, workspace: Path, damaged: bool) -> Iterator[ReadonlyStore]:
    """Open a store as the next start would make it. ``damaged``: from what can be read of the database copy that
    ``settings`` name; else from nothing. Raises ``StoreError`` if a start would be refused, ``OSError``."""
    files, quarantine = ReadonlyFiles(), RecordingQuarantine(quarantine_root)
    body = bodies_in(settings.hybrid_payload_root) if settings.cluster_enabled and layout_of(settings).bodies else None
    settings = replace(settings, cluster_enabled=False)  # else hybrid would write files
    if layout_of(settings).database is None:  # nothing can be salvaged; folded into a database, the result is the same
        settings, damaged = replace(settings, backend=SqliteStore.name), False
    if not damaged:
        settings = replace(settings, sqlite_db_path=workspace / FOLDED_NAME)
    store = make_store_without_logs(settings, files, quarantine)
    try:
        _make(store, settings.journal_root, damaged, body)
    except StoreDamaged:  # the salvaged store is damaged as well: do without it
        store.close()
        _make(store, settings.journal_root, False, body)
    try:
        yield ReadonlyStore(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()


def _make(store: Store, journal: Path, salvage: bool, body: Body | None) -> None:
    if salvage:
        store.recovery.salvage(next((first for first, _ in list_segments(journal)), None) if journal.is_dir() else None)
    for path in store.disk.files():  # files of the workspace
        path.unlink(missing_ok=True)
    store.open()
    try:
        _fold(store, journal, body)
    except BaseException:
        store.close()
        raise


def _fold(store: Store, journal: Path, body: Body | None) -> None:
    store.begin()
    requests = read_requests(journal, store.applied + 1, lambda damage: None) if journal.is_dir() else ()
    for count, request in enumerate(requests, 1):
        for event in request.events:
            try:
                apply(_in_its_file(event, body) if body else event, store)
            except (NotStored, IllegalTransition):  # an earlier event is missing
                store.applied = event["id"]
        if count % _BATCH == 0:
            store.commit()
            store.begin()
    store.commit()
    store.recovery.finish_replay(clean=False)


def _in_its_file(event: Event, body: Body) -> Event:
    """An event of a member of a cluster, which has the body of its message, as one that refers to the body's file, if
    there is one."""
    if event["type"] != EventType.PUBLISHED or "message" not in event:
        return event
    reference = BodyReference.of(raw_json(event["message"]))
    if body(Entry(event["key"], event["queue"], State.READY, 0, event["id"], 0, 0), reference) is None:
        return event
    return {name: value for name, value in event.items() if name != "message"} | {"body": reference.to_json()}
