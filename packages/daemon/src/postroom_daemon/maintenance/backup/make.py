"""Write a backup of a root, whose daemon works on meanwhile, or which is stopped."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from ...config.config import Config
from ...journal.ranges import content, event_at, segments_until
from ...observe.state import write_state
from ...observe.state.model import Message
from ...platform.atomic_create import PathTaken, new_file, new_folder
from ...platform.files import CREATE_FLAGS, Files
from ..connect import nothing_done, reach
from .format import CONFIG_NAME, JOURNAL_NAME, MANIFEST_NAME, STATE_NAME, TAR_FOLDER, BackupError, FileFacts, Manifest

#: The name that means a tar on standard output.
STDOUT: Final = "-"
_BUFFER_BYTES: Final = 2**20
#: Compression level; a higher one takes more time than it saves space.
_LEVEL: Final = 6
_PACKED: Final = (".tar.gz", ".tgz")


def check_apart(path: Path, config: Config) -> None:
    """Raise ``PathTaken`` for a path in a directory of the daemon, which sets aside or removes unknown files there."""
    settings, real = config.settings, Path(os.path.realpath(path))
    owned = (
        settings.journal_root,
        settings.filesystem_root,
        settings.hybrid_payload_root,
        settings.logs_root,
        settings.ipc_root,
        settings.traffic_root,
        settings.snapshots_root,
        config.quarantine_root,
    )
    for directory in owned:
        if real.is_relative_to(os.path.realpath(directory)):
            raise PathTaken(f"{path} lies in {directory}, among the daemon's own files: name a place elsewhere")


class Sink(ABC):
    """Takes the files of a backup: ``files`` so far. ``workspace`` is a directory with space for them."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.files: dict[str, FileFacts] = {}

    @contextmanager
    def file(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write, which is added when the block ends. Raises ``OSError``."""
        with self._place(name) as file:
            hashed = _Hashed(file)
            with io.BufferedWriter(hashed, _BUFFER_BYTES) as writer:
                yield writer
        self.files[name] = hashed.facts()

    @abstractmethod
    def _place(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """An empty file, which is stored under ``name`` when the block ends."""

    @abstractmethod
    def finish(self) -> None:
        """Make all files durable. Raises ``OSError``."""


class _Hashed(io.RawIOBase):
    """Counts and digests what is written through it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._size = 0
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._size += len(data)
        self._digest.update(data)
        return len(data)

    def facts(self) -> FileFacts:
        return FileFacts(self._size, self._digest.hexdigest())


class FolderSink(Sink):
    """Writes into an existing, empty directory."""

    @contextmanager
    def _place(self, name: str) -> Iterator[IO[bytes]]:
        path = self.workspace / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(path, CREATE_FLAGS, 0o600), "wb", buffering=0) as file:
            yield file
            os.fsync(file.fileno())

    def finish(self) -> None:
        for directory in {(self.workspace / name).parent for name in self.files}:
            Files().sync_directory(directory)


class TarSink(Sink):
    """Writes a tar as a stream. Each file is first written to the workspace, since a tar has lengths in front."""

    def __init__(self, target: IO[bytes], packed: bool, workspace: Path) -> None:
        super().__init__(workspace)
        self._packed = gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_LEVEL) if packed else None
        self._tar = tarfile.open(fileobj=self._packed or target, mode="w|")  # noqa: SIM115 - closed by finish

    @contextmanager
    def _place(self, name: str) -> Iterator[IO[bytes]]:
        with TemporaryFile(dir=self.workspace, prefix="backup-") as file:
            yield file
            member = tarfile.TarInfo(f"{TAR_FOLDER}/{name}")
            member.size, member.mode, member.mtime = file.tell(), 0o600, int(time.time())
            file.seek(0)
            self._tar.addfile(member, file)

    def finish(self) -> None:
        self._tar.close()
        if self._packed:
            self._packed.close()


@contextmanager
def open_sink(to: str, workspace: Path) -> Iterator[Sink]:
    """A sink for a backup named ``to``, which exists, complete and durable, only if the block ends without an error.

    ``workspace`` is used for a tar on standard output, whose reader must check that it is complete. Raises
    ``PathTaken`` if something of that name exists, ``OSError``.
    """
    path = Path(os.path.abspath(to))
    with ExitStack() as place:
        sink: Sink
        if to == STDOUT:
            sink = TarSink(sys.stdout.buffer, False, workspace)
        elif path.name.endswith((".tar", *_PACKED)):
            sink = TarSink(place.enter_context(new_file(path)), path.name.endswith(_PACKED), path.parent)
        else:
            sink = FolderSink(place.enter_context(new_folder(path)))
        yield sink
        sink.finish()
    if to == STDOUT:
        sys.stdout.buffer.flush()


def make_backup(config: Config, to: str, with_journal: bool, versions: dict[str, str]) -> Manifest:
    """Write the state of a root as of one event to ``to``: a new folder, a new tar by the ending of its name, or ``-``.

    ``versions`` go into the manifest. Raises ``BackupError``, ``PathTaken``, ``StartError``, ``StateError``,
    ``OSError``, and ``NotReached`` if the daemon does not answer. Nothing is left at ``to`` then.
    """
    journal = config.settings.journal_root
    if why := nothing_done(config):
        raise BackupError(f"{config.root}: nothing to back up: {why}")
    if to != STDOUT:
        check_apart(Path(to), config)
    with open_sink(to, config.root) as sink, reach(config) as reached:
        with reached.state(config, sink.workspace) as state:
            counted = _Counted()
            with sink.file(STATE_NAME) as file:
                totals = write_state(replace(state, messages=counted.through(state.messages)), file)
        manifest = Manifest.of_state(
            state.head,
            totals.queues,
            totals.messages,
            counted.lost,
            event_at(journal, state.head.event),
            config.settings.node_id,
            versions,
        )
        if with_journal:
            _add_journal(journal, state.head.event, sink)
        if config.file:
            with sink.file(CONFIG_NAME) as file:
                file.write(config.file.read_bytes())
        manifest = replace(manifest, files=dict(sink.files))
        with sink.file(MANIFEST_NAME) as file:  # last: a backup with a manifest is complete
            file.write(manifest.encode())
    return manifest


@dataclass(slots=True)
class _Counted:
    """Counts the messages whose bodies are lost."""

    lost: int = 0

    def through(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            self.lost += "bodyLost" in message
            yield message


def _add_journal(journal: Path, event_id: int, sink: Sink) -> None:
    """Copy the events up to ``event_id`` that the journal still has.

    The newest segments first: the daemon may remove the oldest ones meanwhile, and the copy must have no gap.
    """
    segments = segments_until(journal, event_id)
    for index in reversed(range(len(segments))):
        chunks = content(segments, index, event_id)
        try:
            first = next(chunks, b"")
        except FileNotFoundError:
            return
        with sink.file(f"{JOURNAL_NAME}/{segments[index].name}") as file:
            file.write(first)
            file.writelines(chunks)
