"""Stores by name, each on a fresh directory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests share modules, however pytest was started

from postroom_daemon.files import Files
from postroom_daemon.quarantine import Quarantine
from postroom_daemon.stores.base import Store
from postroom_daemon.stores.filesystem import FilesystemStore
from postroom_daemon.stores.hybrid import HybridStore
from postroom_daemon.stores.memory import MemoryStore
from postroom_daemon.stores.sqlite import SqliteStore

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


@pytest.fixture(params=sorted(FACTORIES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An open store without a transaction."""
    made = FACTORIES[request.param](tmp_path)
    made.open()
    yield made
    made.close()
