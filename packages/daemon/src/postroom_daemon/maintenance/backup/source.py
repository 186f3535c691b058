"""Open an existing backup, unpack it if it is a file, and check every byte before it is used."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ...journal.segments import read_lines
from ...observe.state import STATE_BEGINS, State, read_state
from .format import JOURNAL_NAME, MANIFEST_NAME, STATE_NAME, TAR_FOLDER, BackupError, FileFacts, Manifest

_CHUNK_BYTES: Final = 2**20
#: Longest manifest (bytes); half of it names 100,000 segments.
_MANIFEST_LIMIT: Final = 2**24
_KNOWN: Final = re.compile(r"(manifest\.json|state\.jsonl|config\.json|journal/[0-9]{20}\.jsonl)")


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup in a folder. ``name`` is the path that the user gave."""

    name: str
    folder: Path
    manifest: Manifest

    @contextmanager
    def state(self) -> Iterator[State]:
        """The state; see ``read_state``."""
        with (self.folder / STATE_NAME).open("rb") as file:
            yield read_state(file, f"{self.name}: {STATE_NAME}")

    @property
    def journal(self) -> Path:
        """The directory of its segments; it may be missing."""
        return self.folder / JOURNAL_NAME

    def check(self) -> None:
        """Check that every byte is as it was written.

        Raises ``BackupError``, or ``StateError`` for a line of the state, with the place; ``OSError``.
        """
        for name, facts in self.manifest.files.items():
            path = self.folder / name
            if not path.is_file():
                raise BackupError(f"{self.name}: {name} is missing")
            size = path.stat().st_size
            if size < facts.size:
                raise BackupError(f"{self.name}: {name} is truncated: it has {size} of {facts.size} bytes")
        with self.state() as state:
            head = state.head
            for _ in state.messages:
                pass
        if (head.root, head.epoch, head.event) != (self.manifest.root, self.manifest.epoch, self.manifest.event):
            raise BackupError(f"{self.name}: {STATE_NAME} and {MANIFEST_NAME} are of different backups")
        for name, facts in self.manifest.files.items():
            if _digest(self.folder / name) != facts.sha256:
                raise BackupError(f"{self.name}: {name} is damaged{self._where(name)}")

    def _where(self, name: str) -> str:
        """The place of the damage, if it can be found."""
        if not name.startswith(JOURNAL_NAME):
            return ""
        lines = read_lines(self.folder / name)
        return next((f" at byte {line.offset}" for line in lines if line.event is None), "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def open_backup(path: Path, workspace: Path) -> Iterator[Backup]:
    """Open the backup at ``path``: a folder, a tar, or a state file. Files are unpacked to ``workspace``, which must
    not exist and is removed at the end.

    Raises ``BackupError``, or ``StateError`` for a state file, if it is not one or is truncated; ``OSError``.
    """
    if path.is_dir():
        yield _found(path, path)
        return
    if not path.is_file():
        raise BackupError(f"{path} does not exist, or is not a file or folder: name a backup with --from")
    workspace.mkdir(mode=0o700)
    try:
        if _is_state(path):
            yield _of_state(path, workspace)
        else:
            _unpack(path, workspace)
            yield _found(path, workspace)
    finally:
        shutil.rmtree(workspace)


def _found(path: Path, folder: Path) -> Backup:
    try:
        with (folder / MANIFEST_NAME).open("rb") as file:
            data = file.read(_MANIFEST_LIMIT)
    except FileNotFoundError:
        raise BackupError(f"{path}: there is no {MANIFEST_NAME}: this is not a backup, or not a complete one") from None
    return Backup(str(path), folder, Manifest.decode(data, f"{path}: {MANIFEST_NAME}"))


def _is_state(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(STATE_BEGINS)) == STATE_BEGINS


def _of_state(path: Path, folder: Path) -> Backup:
    """A backup without a journal, made from a state file, which has checksums of its own."""
    with path.open("rb") as file:
        _copy(file, folder / STATE_NAME)
    with (folder / STATE_NAME).open("rb") as file:
        state = read_state(file, str(path))
        head, lost, messages = state.head, 0, 0
        for message in state.messages:
            messages += 1
            lost += "bodyLost" in message
        size = file.tell()
    files = {STATE_NAME: FileFacts(size, _digest(folder / STATE_NAME))}
    manifest = Manifest.of_state(head, len(state.queues), messages, lost, files=files)
    return Backup(str(path), folder, manifest)


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the files of a backup; other files in the tar are ignored."""
    place = "its beginning"
    try:
        with tarfile.open(path, "r|*") as tar:
            for member in tar:
                name = member.name.removeprefix("./").removeprefix(TAR_FOLDER + "/")
                source = tar.extractfile(member) if member.isreg() else None
                if source and _KNOWN.fullmatch(name):
                    _copy(source, folder / name)
                place = f"the part behind {name}"
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupError(f"{path}: not a tar, or damaged or truncated at {place}: {error}") from None


def _copy(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        shutil.copyfileobj(source, file, _CHUNK_BYTES)
