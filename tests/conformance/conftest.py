"""Stores by name, each on a fresh directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests share modules, however pytest was started

from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.base import Store
from postroom_daemon.stores.filesystem.store import FilesystemStore
from postroom_daemon.stores.hybrid.store import HybridStore
from postroom_daemon.stores.memory import MemoryStore
from postroom_daemon.stores.sqlite.store import SqliteStore

#: How each store is made in a directory. A new store joins the suite here.
FOLDERS = {"p": "inbox", "d": "delayed", "u": "processing", "x": "dlq", "h": "held", "a": "archive"}
FACTORIES: dict[str, Callable[[Path], Store]] = {
    "filesystem": lambda directory: FilesystemStore(
        directory / "fs", Files(), Quarantine(directory / "quarantine", Files()), FOLDERS
    ),
    "hybrid": lambda directory: HybridStore(
        directory / "store.db", Files(), directory / "payloads", 0, Quarantine(directory / "quarantine", Files())
    ),
    "memory": lambda directory: MemoryStore(),
    "sqlite": lambda directory: SqliteStore(directory / "store.db"),
}


#: Where a directory is on a disk, on most machines.
DISK = "/var/tmp"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A fresh directory on a disk, other than in all other tests: the contract holds on a file system that writes."""
    with TemporaryDirectory(prefix="postroom-", dir=DISK if os.access(DISK, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(params=sorted(FACTORIES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store without a transaction."""
    made = FACTORIES[request.param](tmp_path)
    made.open()
    yield made
    made.close()
