"""Where a backup is written: a folder, a tar, or a tar on standard output."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from ...config.config import Config
from ...platform.atomic_create import PlaceTaken, new_file, new_folder
from ...platform.files import CREATE_FLAGS, Files
from .form import TAR_FOLDER, FileFacts

#: What stands for a tar on standard output.
STDOUT: Final = "-"
_BUFFER_BYTES: Final = 2**20
#: Compression that is as strong as it is worth the time.
_LEVEL: Final = 6
_PACKED: Final = (".tar.gz", ".tgz")


def check_apart(path: Path, config: Config) -> None:
    """Raise ``PlaceTaken`` for a place among the daemon's own files, where what is strange is set aside or removed."""
    settings, real = config.settings, Path(os.path.realpath(path))
    owned = (
        settings.journal_root,
        settings.filesystem_root,
        settings.hybrid_payload_root,
        settings.ipc_root,
        settings.traffic_root,
        settings.snapshots_root,
        config.quarantine_root,
    )
    for directory in owned:
        if real.is_relative_to(os.path.realpath(directory)):
            raise PlaceTaken(f"{path} lies in {directory}, among the daemon's own files: name a place elsewhere")


class Sink(ABC):
    """Takes a backup's files. ``workspace`` is a directory with room for them, ``files`` are those taken so far."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.files: dict[str, FileFacts] = {}

    @contextmanager
    def file(self, name: str) -> Iterator[IO[bytes]]:
        """A file to be written, which is taken when the block ends. Raises ``OSError``."""
        with self._place(name) as file:
            hashed = _Hashed(file)
            with io.BufferedWriter(hashed, _BUFFER_BYTES) as writer:
                yield writer
        self.files[name] = hashed.facts()

    @abstractmethod
    def _place(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """An empty file, which is kept under ``name`` when the block ends."""

    @abstractmethod
    def finish(self) -> None:
        """All files are taken: make them durable. Raises ``OSError``."""


class _Hashed(io.RawIOBase):
    """Knows the length and the digest of what is written through it."""

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
    """Into a directory that is there and empty."""

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
    """Into a tar that is written from its beginning to its end. Each file is first written to the workspace, since a
    tar tells lengths beforehand."""

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
    """Where a backup named ``to`` goes. When the block ends it is there, whole and durable; when it fails, it is not.

    ``workspace`` is used for a tar on standard output: there, the reader has to look whether the tar is whole. Raises
    ``PlaceTaken`` when there is something of that name, ``OSError``.
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
