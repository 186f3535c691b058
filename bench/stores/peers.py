"""The peers, each used as its documentation says, with the settings that make it durable if it has any.

They are imported when they are asked for: their packages are in an environment of their own, ours are not.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from .queue import Taken

_FILL_GROUP = 1000


class PersistQueue:
    """``SQLiteAckQueue``. Each call is a transaction of its own; there are none of several calls."""

    def __init__(self, directory: Path) -> None:
        self._queue: Any = import_module("persistqueue").SQLiteAckQueue(str(directory))
        self.prepare(durable=True)

    def prepare(self, durable: bool) -> None:
        self._queue._putter.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    def publish(self, bodies: list[str]) -> None:
        for body in bodies:
            self._queue.put(body)

    def consume(self, count: int) -> list[Taken]:
        taken = [self._queue.get(block=False, raw=True) for _ in range(count)]
        return [(one["data"], one["pqid"]) for one in taken]

    def ack(self, handles: list[Any]) -> None:
        for handle in handles:
            if self._queue.ack(id=handle) != handle:
                raise RuntimeError(f"not acknowledged: {handle}")

    def fill(self, bodies: Iterator[str]) -> None:
        self.prepare(durable=False)
        for body in bodies:
            self._queue.put(body)
        self.prepare(durable=True)

    def tidy(self) -> None:
        self._queue.clear_acked_data(max_delete=0, keep_latest=0)

    def left(self) -> int:
        return int(self._queue.size + self._queue.unack_count())

    def versions(self) -> dict[str, str]:
        return {"persist-queue": version("persist-queue"), "its SQLite": sqlite3.sqlite_version}

    def close(self) -> None:
        self._queue.close()


class LiteQueue:
    """litequeue sets ``synchronous=NORMAL``, which may lose what it has answered: durable with ``FULL``. A group is one
    of its transactions; ``pop`` opens its own, so that a group of them cannot be one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._queue: Any = import_module("litequeue").LiteQueue(directory / "queue.db")
        self.prepare(durable=True)

    def prepare(self, durable: bool) -> None:
        self._queue.conn.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    def publish(self, bodies: list[str]) -> None:
        with self._queue.transaction() if len(bodies) > 1 else nullcontext():
            for body in bodies:
                self._queue.put(body)

    def consume(self, count: int) -> list[Taken]:
        taken = [self._queue.pop() for _ in range(count)]
        return [(one.data, one) for one in taken]

    def ack(self, handles: list[Any]) -> None:
        with self._queue.transaction() if len(handles) > 1 else nullcontext():
            for one in handles:
                if not self._queue.done(one.message_id, claim_id=one.claim_id):
                    raise RuntimeError(f"not acknowledged: {one.message_id}")

    def fill(self, bodies: Iterator[str]) -> None:
        self.prepare(durable=False)
        while group := list(islice(bodies, _FILL_GROUP)):
            self.publish(group)
        self.prepare(durable=True)

    def tidy(self) -> None:
        self._queue.prune()

    def left(self) -> int:
        return int(self._queue.ready_count() + self._queue.locked_count())

    def versions(self) -> dict[str, str]:
        return {"litequeue": version("litequeue"), "its SQLite": sqlite3.sqlite_version}

    def close(self) -> None:
        self._queue.close()


class DirQueue:
    """``QueueSimple`` syncs nothing. To be durable, its caller must sync: each new file, and after a group the
    directories that the group has changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._queue: Any = import_module("dirq.QueueSimple").QueueSimple(str(directory))
        self._durable = True
        self._known: set[str] = set()

    def prepare(self, durable: bool) -> None:
        self._durable = durable

    def publish(self, bodies: list[str]) -> None:
        names = [self._queue.add(body) for body in bodies]
        if self._durable:
            for name in names:
                _sync(self._directory / name)
            self._sync_directories(names)

    def consume(self, count: int) -> list[Taken]:
        taken = []
        for _ in range(count):
            name = self._queue.next() or self._queue.first()
            if not self._queue.lock(name):
                raise RuntimeError(f"not locked: {name}")
            taken.append((self._queue.get(name).decode(), name))
        if self._durable:
            self._sync_directories([name for _, name in taken])
        return taken

    def ack(self, handles: list[Any]) -> None:
        for name in handles:
            self._queue.remove(name)
        if self._durable:
            self._sync_directories(handles)

    def _sync_directories(self, names: list[str]) -> None:
        for directory in {name.partition("/")[0] for name in names}:
            _sync(self._directory / directory)
            if directory not in self._known:
                self._known.add(directory)
                _sync(self._directory)

    def fill(self, bodies: Iterator[str]) -> None:
        for body in bodies:
            self._queue.add(body)

    def tidy(self) -> None:
        self._queue.purge()

    def left(self) -> int:
        return int(self._queue.count())

    def versions(self) -> dict[str, str]:
        return {"dirq": version("dirq")}

    def close(self) -> None:
        return


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
