"""The store that the settings choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config.settings import Settings
from ..platform.files import Files
from ..platform.quarantine import Quarantine
from .base import Store
from .filesystem import names as fs_names
from .filesystem.store import FilesystemStore
from .hybrid.store import HybridStore
from .memory import MemoryStore
from .sqlite.store import SqliteStore


def make_store(settings: Settings, files: Files, quarantine: Quarantine) -> Store:
    """The store of ``settings.backend``, not opened yet."""
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
        return HybridStore(settings.sqlite_db_path, files, apart, inline_below, quarantine, **options)
    return SqliteStore(settings.sqlite_db_path, **options)


def places(settings: Settings) -> list[Path]:
    """What the store of ``settings.backend`` lies in, missing files too; what makes it a store comes last."""
    if settings.backend == FilesystemStore.name:
        return [settings.filesystem_root]
    database = settings.sqlite_db_path
    files = [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "")]
    return [settings.hybrid_payload_root, *files] if settings.backend == HybridStore.name else files


def beside(settings: Settings, suffix: str) -> Settings:
    """The settings of a store beside that of ``settings``: the names of its places end in ``suffix``."""

    def moved(path: Path) -> Path:
        return path.with_name(path.name + suffix)

    return replace(
        settings,
        filesystem_root=moved(settings.filesystem_root),
        sqlite_db_path=moved(settings.sqlite_db_path),
        hybrid_payload_root=moved(settings.hybrid_payload_root),
    )
