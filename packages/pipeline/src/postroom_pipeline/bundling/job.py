"""Makes bundles of files of snapshots."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from postroom_common.snapshot_reader import check

from ..reasons import DUPLICATE
from ..validate import REFUSED_NAME, UNREADABLE
from .known import Known
from .members import BLOCK_BYTES, Stretch, Told, stretches
from .repack import Copied, Part
from .writer import PREFIX, BundleWriter, FileChanged

#: Reasons beside those of ``Reason`` and of ``reasons``.
CHANGED: Final = "changed"
EMPTY: Final = "empty"
_PACKED: Final = ".jsonl.gz"
_BARE: Final = ".jsonl"


@dataclass(frozen=True)
class Refused:
    """A snapshot, or a file, that is in no bundle, and why. It stays where it is."""

    file: str
    device: str
    snapshot: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Made:
    """A bundle that is durable."""

    bundle: str
    snapshots: int
    bytes: int


@dataclass
class Counts:
    """What a run came to."""

    files: int = 0
    bundles: int = 0
    snapshots: int = 0
    again: int = 0
    refused: int = 0
    removed: int = 0


class Bundler:
    """Takes files one by one. As it goes on, ``tell`` is called with what was made and what was refused."""

    def __init__(
        self, folder: Path, size_bytes: int, tell: Callable[[Made | Refused], None], *, remove_originals: bool = False
    ) -> None:
        """Of the process that holds ``alone_in`` of the folder."""
        self._folder = folder
        self._size = size_bytes
        self._tell = tell
        self._removes = remove_originals
        self._known = Known(folder, thorough=remove_originals)
        self._writer: BundleWriter | None = None
        #: Files all of whose snapshots are in bundles, the one that is being written among them.
        self._done: list[tuple[Path, os.stat_result]] = []
        self.counts = Counts()

    def run(self, files: Iterable[Path]) -> None:
        """Take the files, and end the last bundle.

        :raises EnvironmentProblem: a bundle cannot be written; those before it are whole, no original of it is gone.
        """
        try:
            for path in files:
                if not (path.name.startswith(PREFIX) and path.parent.resolve() == self._folder.resolve()):
                    self.counts.files += 1
                    self._take(path)
            self._finish()
        finally:
            if self._writer:
                self._writer.abandon()

    def _take(self, path: Path) -> None:
        if path.exists() and not path.name.endswith((_PACKED, _BARE)):
            self._refuse(path, None, REFUSED_NAME, f"only {_PACKED} and {_BARE} are read")
            return
        before = self._seen
        try:
            with path.open("rb") as file:
                seen = os.fstat(file.fileno())
                is_taken = self._packed(path, file) if path.name.endswith(_PACKED) else self._repacked(path, file)
        except OSError as error:
            self._refuse(path, None, UNREADABLE, error.strerror or str(error))
            return
        if self._seen == before:
            self._refuse(path, None, EMPTY, "it holds no snapshot")
        elif is_taken and self._removes:
            self._done.append((path, seen))

    def _packed(self, path: Path, file: BinaryIO) -> bool:
        """Take the members of a gzip file; whether none is refused."""
        is_taken, begin = True, -1
        for stretch in stretches(file):
            if not stretch.is_clean:
                begin = stretch.begin if begin < 0 else begin
                continue
            if begin >= 0:  # together they may be more than each is: a snapshot may be packed as several members
                is_taken &= self._unpacked(path, file, begin, stretch.begin)
                begin = -1
            is_taken &= self._clean(path, file, stretch)
        return is_taken if begin < 0 else is_taken & self._unpacked(path, file, begin, None)

    def _clean(self, path: Path, file: BinaryIO, stretch: Stretch) -> bool:
        """Take a member of whole snapshots: as it is, if all of them are new."""
        ids = {told.snapshot for told in stretch.snapshots}
        faults = [self._known.fault(told) for told in stretch.snapshots]
        assert stretch.end is not None  # it is clean
        if len(ids) < len(faults) or (any(faults) and len(faults) > 1):
            return self._unpacked(path, file, stretch.begin, stretch.end)
        if any(faults):
            return self._refuse(path, stretch.snapshots[0], faults[0])
        if not ids:  # the last line of a bundle, or blank ones
            return True
        if self._writer and self._writer.members and self._writer.size + stretch.end - stretch.begin > self._size:
            self._finish()
        try:
            self._open().copy(file, stretch.begin, stretch.end, stretch.crc)
        except FileChanged as error:
            for told in stretch.snapshots:
                self._refuse(path, told, CHANGED, str(error))
            return False
        for told in stretch.snapshots:
            self._took(told)
        return True

    def _unpacked(self, path: Path, file: BinaryIO, begin: int, end: int | None) -> bool:
        part = io.BufferedReader(Part(file, begin, end), BLOCK_BYTES)
        with gzip.GzipFile(fileobj=part) as lines:
            return self._repacked(path, lines)

    def _repacked(self, path: Path, lines: BinaryIO | gzip.GzipFile) -> bool:
        """Take what lines tell of, each snapshot as a member of its own; whether none is refused."""
        is_taken = True
        with closing(Copied(lines, self._open)) as copied:
            for member in check(cast("BinaryIO", copied), compressed=False):
                told = Told.of(member)
                fault = told.reason or self._known.fault(told)
                if fault:
                    copied.drop()
                    is_taken &= self._refuse(path, told, fault)
                else:
                    copied.keep()
                    self._took(told)
                    if self._open().size >= self._size:
                        self._finish()
        return is_taken

    @property
    def _seen(self) -> int:
        """Snapshots that were judged, and files that were refused."""
        return self.counts.snapshots + self.counts.again + self.counts.refused

    def _open(self) -> BundleWriter:
        if self._writer is None:
            self._writer = BundleWriter(self._folder)
        return self._writer

    def _took(self, told: Told) -> None:
        self._known.add(told)
        self._open().members.append(told.snapshot)
        self.counts.snapshots += 1

    def _refuse(self, path: Path, told: Told | None, reason: str, detail: str = "") -> bool:
        """Tell of what is not taken; whether all of it is in a bundle all the same."""
        if reason == DUPLICATE:
            self.counts.again += 1
            return True
        device, snapshot = (told.device, told.snapshot) if told else ("", "")
        self.counts.refused += 1
        self._tell(Refused(str(path), device, snapshot, reason, detail or (told.detail if told else "")))
        return False

    def _finish(self) -> None:
        """End the bundle; what it was made of is in no danger any more."""
        if self._writer and self._writer.members:
            bundle = self._writer.finish()
            snapshots, self._writer = len(self._writer.members), None
            self.counts.bundles += 1
            self._tell(Made(str(bundle), snapshots, bundle.stat().st_size))
        for path, seen in self._done:
            self._remove(path, seen)
        self._done.clear()

    def _remove(self, path: Path, seen: os.stat_result) -> None:
        try:
            now = path.stat()
            if _identity(now) != _identity(seen):
                self._refuse(path, None, CHANGED, "it was changed after it was read, and stays")
                return
            path.unlink()
            self.counts.removed += 1
        except OSError as error:
            self._refuse(path, None, UNREADABLE, f"it cannot be removed: {error.strerror}")


def _identity(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
