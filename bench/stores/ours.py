"""Our stores behind the broker, called in this process; and the least that any durable queue must do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from postroom_common.protocol import State
from postroom_daemon.root.open_root import OpenRoot

from .. import engine
from .queue import Taken

_QUEUE = "contest"
_FILL_GROUP = 100  # the bodies of a larger group hybrid syncs in parts
#: About what an event says beside the body.
_EVENT_BYTES = 380
_FLOOR_FILE_BYTES = 4 * 1024 * 1024


class OurQueue:
    """The broker with one of the stores: the journal is synced once a group (``journal.durability``: ``commit``). The
    traffic log is off, since no peer has one."""

    def __init__(self, directory: Path, backend: str) -> None:
        self._directory = directory
        self._backend = backend
        self._open = ExitStack()
        self._root = self._opened("commit")

    def _opened(self, durability: str) -> OpenRoot:
        flags = {"backend": self._backend, "traffic__enabled": "false", "journal__durability": durability}
        return self._open.enter_context(engine.opened(self._directory, **flags))

    def prepare(self, durable: bool) -> None:
        if not durable:
            raise ValueError("our stores are measured durable")

    def publish(self, bodies: list[str]) -> None:
        engine.run_requests(self._root, "publish", [{"queue": _QUEUE, "message": body} for body in bodies])

    def consume(self, count: int) -> list[Taken]:
        answers = engine.run_requests(self._root, "consume_next", [{"queue": _QUEUE}] * count)
        return [(answer["message"].all_parts()[0].data.decode(), answer["lease"]) for answer in answers]

    def ack(self, handles: list[Any]) -> None:
        payloads = [{"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]} for lease in handles]
        engine.run_requests(self._root, "ack", payloads)

    def fill(self, bodies: Iterator[str]) -> None:
        self._open.close()
        self._root = self._opened("none")
        while group := list(islice(bodies, _FILL_GROUP)):
            self.publish(group)
        self._open.close()  # with a checkpoint
        self._root = self._opened("commit")

    def tidy(self) -> None:
        self._root.store.disk.checkpoint()

    def left(self) -> int:
        record = self._root.store.queue(_QUEUE)
        return record.counts[State.READY] + record.counts[State.INFLIGHT] if record else 0

    def versions(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        self._open.close()


class Floor:
    """The floor: as many bytes as our journal gets are written to a file and synced, once a group; nothing else. It is
    no queue that could be used: what was published is in memory.

    A file that grows has new metadata at each sync. ``overwrite`` goes round in a file that was written before, as the
    log of a database does: then only data go to the disk.
    """

    def __init__(self, directory: Path, overwrite: bool) -> None:
        directory.mkdir(parents=True)
        self._fd = os.open(directory / "written", os.O_WRONLY | os.O_CREAT, 0o600)
        self._overwrite = overwrite
        self._offset = 0
        if overwrite:
            for _ in range(0, _FLOOR_FILE_BYTES, 4096):  # of larger pieces the kernel would count all at each change
                os.write(self._fd, bytes(4096))
            os.fsync(self._fd)
        self._bodies: deque[str] = deque()
        self._taken = 0

    def prepare(self, durable: bool) -> None:
        if not durable:
            raise ValueError("the floor is that of durable work")

    def _write(self, data: bytes) -> None:
        if self._overwrite and self._offset + len(data) > _FLOOR_FILE_BYTES:
            self._offset = 0
        self._offset += os.pwrite(self._fd, data, self._offset)
        os.fdatasync(self._fd)

    def publish(self, bodies: list[str]) -> None:
        self._write(b"".join([body.encode().ljust(len(body) + _EVENT_BYTES) for body in bodies]))
        self._bodies.extend(bodies)

    def consume(self, count: int) -> list[Taken]:
        self._write(b" " * (count * _EVENT_BYTES))
        self._taken += count
        return [(self._bodies.popleft(), None) for _ in range(count)]

    def ack(self, handles: list[Any]) -> None:
        self._write(b" " * (len(handles) * _EVENT_BYTES))
        self._taken -= len(handles)

    def fill(self, bodies: Iterator[str]) -> None:
        self._bodies.extend(bodies)

    def tidy(self) -> None:
        return

    def left(self) -> int:
        return len(self._bodies) + self._taken

    def versions(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        os.close(self._fd)
