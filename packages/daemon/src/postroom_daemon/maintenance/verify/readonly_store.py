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
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ...root.preflight import is_cpp_database
from ...stores.backends import layout_of, make_store
from ...stores.base import Store

#: What the copy of a database is called.
COPY_NAME: Final = "store.db"
#: What stands in the place of a missing directory of bodies.
PAYLOADS_NAME: Final = "payloads"
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class LookingFiles(Files):
    """File calls that only read. What would remove a file is noted in ``removed``; all else that would change one
    raises ``OSError``."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []
        self.open = _open
        self.mkdir = _mkdir
        self.flock = lambda fd, operation: None  # it may look at what another works on
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


class NotedQuarantine(Quarantine):
    """Notes what would be kept, with the reason."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, LookingFiles())
        self.noted: list[tuple[str, str]] = []

    def keep(self, name: str, data: bytes, reason: str) -> None:
        self.noted.append((name, reason))

    def keep_file(self, path: Path, reason: str, name: str = "") -> None:
        self.noted.append((str(path), reason))


@dataclass(slots=True)
class Look:
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
def look(quarantine_root: Path, settings: Settings) -> Iterator[Look]:
    """Open a store to look at it; a database must be a copy. Raises ``StoreError``, ``OSError``."""
    files, quarantine = LookingFiles(), NotedQuarantine(quarantine_root)
    store = make_store(settings, files, quarantine)
    store.open()
    try:
        yield Look(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()
