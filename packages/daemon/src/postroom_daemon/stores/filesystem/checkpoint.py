"""Checkpoints of the filesystem store: the event that all files durably hold, and queues and key-values as of then.

``meta/checkpoint-<event id>.json``, one line with a checksum. The last two are kept: if the newer one is damaged, the
journal is folded from the older one on.
"""

from __future__ import annotations

import errno
import logging
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from threading import Thread
from typing import Any, Final, Protocol

import orjson

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ...model.records import QueueRecord
from ...platform.files import LOST_ERRNOS, READ_FLAGS, Files
from ..base import Disk
from ..errors import StoreError, StoreFull
from .content import FORMAT
from .files import MessageFiles
from .tree import Tree

log = logging.getLogger(__name__)

KEPT: Final = 2
#: Facts that are encoded at once.
_PIECE: Final = 1000
_READ_BYTES: Final = 2**20
_NAME: Final = re.compile(r"checkpoint-([0-9]{20})\.json")


@dataclass(slots=True)
class Checkpoint:
    """The content of a checkpoint besides the message files, as of event ``applied``."""

    applied: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    queues: list[QueueRecord] = field(default_factory=list)

    def messages(self) -> dict[str, int]:
        """How many messages each queue had."""
        return {record.name: sum(record.counts.values()) for record in self.queues}

    def encode(self) -> bytes:
        """The checkpoint as a file holds it. The facts may be very many: they are encoded in pieces, between which
        other threads have their turn."""
        names = iter(self.facts)
        pieces = iter(lambda: {name: self.facts[name] for name in islice(names, _PIECE)}, {})
        facts = b",".join(orjson.dumps(piece)[1:-1] for piece in pieces)
        return encode_line(
            {
                "id": self.applied,
                "format": FORMAT,
                "facts": orjson.Fragment(b"{" + facts + b"}"),
                "queues": [record.to_json() for record in self.queues],
            }
        )


class Checkpoints:
    """The directory that holds them."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory

    def read(self) -> tuple[Checkpoint, list[Path]]:
        """The newest intact checkpoint (an empty one if there is none), and the damaged ones.

        Raises ``OSError``, and ``StoreError`` for one of a newer format.
        """
        damaged: list[Path] = []
        for name in reversed(self._names()):
            path = self._directory / name
            try:
                return _decode(self._content(path), path), damaged
            except (DamagedRecord, KeyError, TypeError, AttributeError):
                damaged.append(path)
            except OSError as error:
                if error.errno not in LOST_ERRNOS | {errno.EACCES}:
                    raise
                damaged.append(path)
        return Checkpoint(), damaged

    def _content(self, path: Path) -> bytes:
        """All of a file. Raises ``DamagedRecord`` for a directory or a pipe, which nobody would end; ``OSError``."""
        fd = self._files.open(path, READ_FLAGS)
        try:
            if not S_ISREG(self._files.fstat(fd).st_mode):
                raise DamagedRecord("no file")
            content = b""
            while chunk := self._files.read(fd, _READ_BYTES):
                content += chunk
            return content
        finally:
            self._files.close(fd)

    def write(self, applied: int, line: bytes) -> None:
        """Make one durable, and remove those before the last two. Raises ``OSError``."""
        directory = self._files.open_directory(self._directory)
        try:
            self._files.put(directory, f"checkpoint-{applied:020d}.json", line, durable=True)
            for old in self._names()[:-KEPT]:
                self._files.unlink(old, dir_fd=directory)
        finally:
            self._files.close(directory)

    def _names(self) -> list[str]:
        try:
            found = self._files.listdir(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if _NAME.fullmatch(name))


class CheckpointTask:
    """The part of a checkpoint that takes time, in a thread, or not: files synced, checkpoint written, and the files of
    messages that it knows to be done removed. Nobody else may change what is in ``checkpoint``.

    What it syncs may be further than ``applied`` by then: each file says for itself how far. When it ``is_over``,
    ``removed`` and ``left`` tell what became of the files, and ``error`` what went wrong.
    """

    def __init__(
        self, tree: Tree, checkpoints: Checkpoints, checkpoint: Checkpoint, done: list[tuple[str, str]]
    ) -> None:
        self.applied = checkpoint.applied
        self.removed: list[tuple[str, str]] = []
        self.left = done
        self.error: OSError | None = None
        self.is_over = False
        self._tree = tree
        self._checkpoints = checkpoints
        self._checkpoint = checkpoint
        self._thread: Thread | None = None

    def start(self) -> None:
        """Run in a thread."""
        self._thread = Thread(target=self.run, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it is over."""
        if self._thread:
            self._thread.join()

    def run(self) -> None:
        """Do it, if it was not done."""
        if self.is_over:
            return
        try:
            self._tree.sync()
            self._checkpoints.write(self.applied, self._checkpoint.encode())
            while self.left:
                self._tree.unlink(*self.left[-1])
                self.removed.append(self.left.pop())
        except OSError as error:
            self.error = error
        self.is_over = True


def _decode(line: bytes, path: Path) -> Checkpoint:
    data = decode_line(line)
    if data["format"] > FORMAT:
        raise StoreError(
            f"{path}: format {data['format']} is newer than this version of postroomd knows ({FORMAT}):"
            " upgrade postroomd"
        )
    return Checkpoint(data["id"], data["facts"], [QueueRecord.from_json(queue) for queue in data["queues"]])


class _Checkpointed(Protocol):
    """What a store gives to its disk."""

    tree: Tree
    message_files: MessageFiles
    applied: int
    commits: int

    def errors(self) -> AbstractContextManager[None]: ...

    def flush(self) -> None: ...

    def space_needed(self) -> int: ...

    def snapshot(self) -> Checkpoint: ...

    def remove_deleted_queues(self) -> None: ...


class FilesystemDisk(Disk):
    """The files of a store, and their checkpoints. ``durable`` is the event of the last one."""

    def __init__(self, store: _Checkpointed, checkpoints: Checkpoints) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self.start_from(0)

    def start_from(self, applied: int) -> None:
        """The store is open, as of a checkpoint at this event."""
        self.durable = applied
        self._commits = self._begun = self._store.commits  # those that are durable, and will be
        self._task: CheckpointTask | None = None

    def close(self) -> None:
        """Wait for the checkpoint that is under way."""
        if self._task:
            self._task.wait()
            self._task = None

    def files(self) -> list[Path]:
        return [self._store.tree.root]

    def probe(self) -> None:
        with self._store.errors():
            self._store.tree.probe()

    def space_needed(self, events: int) -> int:
        return self._store.space_needed()

    def tidy(self) -> None:
        try:
            self._store.flush()
        except StoreFull as error:
            log.warning("%s; the changes stay in memory", error)

    def checkpoint(self) -> int:
        # A state that is loaded is all of one event.
        while self.durable < self._store.applied or self._commits < self._store.commits:
            self._begin().run()
            self._settle()
        return self.durable

    def checkpoint_step(self) -> int | None:
        if self._task is None and self.durable < self._store.applied:
            self._begin().start()
        if self._task and self._task.is_over:
            self._settle()
        return None if self._task else self.durable

    def _begin(self) -> CheckpointTask:
        if self._task:
            self._task.wait()
            return self._task
        store = self._store
        self._begun = store.commits
        store.flush()
        checkpoint = store.snapshot()
        done, store.message_files.done = store.message_files.done, []
        self._task = CheckpointTask(store.tree, self._checkpoints, checkpoint, done)
        # From here on the end of a message that this checkpoint knows must be seen.
        store.message_files.durable = store.applied
        return self._task

    def _settle(self) -> None:
        task, self._task = self._task, None
        assert task is not None
        store = self._store
        store.message_files.done += task.left
        for directory, place in task.removed:
            store.tree.forget(directory, place)
        with store.errors():
            if task.error:
                raise task.error
            self.durable, self._commits = task.applied, self._begun
            store.tree.tidy()
        store.remove_deleted_queues()
