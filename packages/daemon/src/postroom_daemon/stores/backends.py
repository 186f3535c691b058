"""The store that the settings choose."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.settings import Settings
from ..platform.files import Files
from ..platform.quarantine import Quarantine
from .base import Store
from .filesystem import names as fs_names
from .filesystem.store import FilesystemStore
from .hybrid.store import HybridStore
from .log.disk import DiskWithLogs
from .log.logs import LogFiles
from .memory import MemoryStore
from .sqlite.store import SqliteStore


def make_store(settings: Settings, files: Files, quarantine: Quarantine) -> Store:
    """The store of ``settings.backend`` with its ``logs``, not opened yet; each is opened and closed by itself."""
    store = make_store_without_logs(settings, files, quarantine)
    store.logs = LogFiles(settings.logs_root, files, quarantine)
    store.disk = DiskWithLogs(store, store.disk, store.logs)
    return store


def make_store_without_logs(settings: Settings, files: Files, quarantine: Quarantine) -> Store:
    """The store of ``settings.backend``, not opened yet, to be filled or examined by itself."""
    if settings.backend == MemoryStore.name:
        return MemoryStore()
    if settings.backend == FilesystemStore.name:
        folders = {
            fs_names.READY: settings.filesystem_inbox_dir,
            fs_names.DELAYED: settings.filesystem_delayed_dir,
            fs_names.INFLIGHT: settings.filesystem_processing_dir,
            fs_names.DEAD: settings.filesystem_dlq_dir,
            fs_names.HELD: settings.filesystem_held_dir,
            fs_names.DONE: settings.filesystem_archive_dir,
        }
        return FilesystemStore(settings.filesystem_root, files, quarantine, folders, settings.filesystem_meta_dir)
    options: dict[str, Any] = {
        "kv": settings.sqlite_kv_table,
        "msg": settings.sqlite_message_index_table,
        "synchronous": settings.sqlite_synchronous,
        "busy_ms": settings.sqlite_busy_timeout_ms,
    }
    if settings.backend == HybridStore.name:
        apart, inline_below = settings.hybrid_payload_root, settings.hybrid_inline_below_bytes
        options["in_events"] = settings.cluster_enabled  # the others get events, and no files
        return HybridStore(settings.sqlite_db_path, files, apart, inline_below, quarantine, **options)
    return SqliteStore(settings.sqlite_db_path, **options)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a store lies: the SQLite ``database``, the directory of ``bodies`` in files of their own, the directory of
    ``messages`` as files. None for what its backend does not have."""

    database: Path | None = None
    bodies: Path | None = None
    messages: Path | None = None

    @property
    def is_persistent(self) -> bool:
        """Whether its data outlasts the daemon's process."""
        return self.database is not None or self.messages is not None

    def exists(self) -> bool:
        """Whether there is a store at all."""
        if self.messages is not None:
            return self.messages.is_dir()
        return self.database is not None and os.path.lexists(self.database)

    def has_bodies(self) -> bool:
        """Whether there are bodies in files of their own."""
        return self.bodies is not None and self.bodies.is_dir() and any(self.bodies.iterdir())


def layout_of(settings: Settings) -> Layout:
    """Where the store of ``settings.backend`` lies."""
    match settings.backend:
        case MemoryStore.name:
            return Layout()
        case FilesystemStore.name:
            return Layout(messages=settings.filesystem_root)
        case HybridStore.name:
            return Layout(database=settings.sqlite_db_path, bodies=settings.hybrid_payload_root)
        case _:
            return Layout(database=settings.sqlite_db_path)


def every_layout(settings: Settings) -> Layout:
    """Where the store of any backend may lie."""
    return Layout(settings.sqlite_db_path, settings.hybrid_payload_root, settings.filesystem_root)


def opens(backend: str, other: str) -> bool:
    """Whether a store of ``backend`` works with the files that one of ``other`` has left."""
    return backend == other or (backend, other) == (HybridStore.name, SqliteStore.name)


def folds_journal_of(backend: str, other: str) -> bool:
    """Whether a store of ``backend`` can be folded from the journal that one of ``other`` was used with."""
    return other != HybridStore.name or backend == HybridStore.name


def places(settings: Settings) -> list[Path]:
    """The files and directories of the store of ``settings.backend``, existing or not; what makes it a store comes
    last. None for a store in memory."""
    return _places(layout_of(settings))


def places_with_logs(settings: Settings) -> list[Path]:
    """``places``, and the directory of the logs."""
    return [settings.logs_root, *places(settings)]


def every_place(settings: Settings) -> list[Path]:
    """``places`` of all backends."""
    return _places(every_layout(settings))


def _places(layout: Layout) -> list[Path]:
    found = [layout.bodies] if layout.bodies else []
    if layout.database:
        found += [layout.database.with_name(layout.database.name + suffix) for suffix in ("-wal", "-shm", "")]
    return [*found, layout.messages] if layout.messages else found


def beside(settings: Settings, suffix: str) -> Settings:
    """The settings of another store next to that of ``settings``: its paths end in ``suffix``."""

    def moved(path: Path) -> Path:
        return path.with_name(path.name + suffix)

    return replace(
        settings,
        logs_root=moved(settings.logs_root),
        filesystem_root=moved(settings.filesystem_root),
        sqlite_db_path=moved(settings.sqlite_db_path),
        hybrid_payload_root=moved(settings.hybrid_payload_root),
    )
