"""Puts the snapshots of many files into a few bundles. A member is recompressor as it is packed if all of it is new."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from postroom_common.snapshot import SUFFIX
from postroom_common.snapshot_reader import check

from ..files import CHANGED, DUPLICATE, EMPTY, GZIP, OTHER_CONTENT, PLAIN, UNKNOWN_NAME, UNREADABLE
from .bundle_writer import PREFIX, BundleWriter, FileChanged, FileSlice, Recompressor, members_of
from .gzip_members import BLOCK_BYTES, CheckedSnapshot, GzipMember, gzip_members
from .validate import READABLE


@dataclass(frozen=True)
class Rejected:
    """A snapshot or a file that goes into no bundle, and why. It stays where it is."""

    file: str
    device: str
    snapshot: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Made:
    """A bundle that is complete and durable."""

    bundle: str
    snapshots: int
    bytes: int


@dataclass
class Counts:
    """The result of a run."""

    files: int = 0
    bundles: int = 0
    snapshots: int = 0
    already_bundled: int = 0
    rejected: int = 0
    removed: int = 0


class Bundler:
    """Reads files one by one, and calls ``report`` with each bundle made and each snapshot or file rejected."""

    def __init__(
        self,
        folder: Path,
        size_bytes: int,
        report: Callable[[Made | Rejected], None],
        *,
        remove_originals: bool = False,
    ) -> None:
        """Use this only within ``alone_in`` of the folder."""
        self._folder = folder
        self._size = size_bytes
        self._report = report
        self._removes = remove_originals
        self._bundled = BundledSnapshots(folder, thorough=remove_originals)
        self._writer: BundleWriter | None = None
        #: Files whose snapshots are all in bundles; the bundle that is being written counts.
        self._done: list[tuple[Path, os.stat_result]] = []
        self.counts = Counts()

    def run(self, files: Iterable[Path]) -> None:
        """Read the files, and finish the last bundle.

        :raises EnvironmentProblem: a bundle cannot be written. Those before it are complete; its originals still exist.
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
        if path.exists() and not path.name.endswith(READABLE):
            self._reject(path, None, UNKNOWN_NAME, f"only {GZIP} and {PLAIN} are read")
            return
        before = self._results
        try:
            with path.open("rb") as file:
                seen = os.fstat(file.fileno())
                is_taken = self._packed(path, file) if path.name.endswith(GZIP) else self._repacked(path, file)
        except OSError as error:
            self._reject(path, None, UNREADABLE, error.strerror or str(error))
            return
        if self._results == before:
            self._reject(path, None, EMPTY, "it contains no snapshot")
        elif is_taken and self._removes:
            self._done.append((path, seen))

    def _packed(self, path: Path, file: BinaryIO) -> bool:
        """Take the members of a gzip file; true if none is rejected."""
        is_taken, begin = True, -1
        for member in gzip_members(file):
            if not member.is_clean:
                begin = member.begin if begin < 0 else begin
                continue
            if begin >= 0:  # one snapshot may be packed as several members
                is_taken &= self._unpacked(path, file, begin, member.begin)
                begin = -1
            is_taken &= self._clean(path, file, member)
        return is_taken if begin < 0 else is_taken & self._unpacked(path, file, begin, None)

    def _clean(self, path: Path, file: BinaryIO, member: GzipMember) -> bool:
        """Take a member of complete snapshots: recompressor as it is, if all of them are new."""
        ids = {checked.snapshot for checked in member.snapshots}
        faults = [self._bundled.fault(checked) for checked in member.snapshots]
        assert member.end is not None  # a clean member has an end
        if len(ids) < len(faults) or (any(faults) and len(faults) > 1):
            return self._unpacked(path, file, member.begin, member.end)
        if any(faults):
            return self._reject(path, member.snapshots[0], faults[0])
        if not ids:  # the last line of a bundle, or blank lines
            return True
        if self._writer and self._writer.members and self._writer.size + member.end - member.begin > self._size:
            self._finish()
        try:
            self._open().copy(file, member.begin, member.end, member.crc)
        except FileChanged as error:
            for checked in member.snapshots:
                self._reject(path, checked, CHANGED, str(error))
            return False
        for checked in member.snapshots:
            self._add(checked)
        return True

    def _unpacked(self, path: Path, file: BinaryIO, begin: int, end: int | None) -> bool:
        part = io.BufferedReader(FileSlice(file, begin, end), BLOCK_BYTES)
        with gzip.GzipFile(fileobj=part) as lines:
            return self._repacked(path, lines)

    def _repacked(self, path: Path, lines: BinaryIO | gzip.GzipFile) -> bool:
        """Take the snapshots in the lines, each as a new member; true if none is rejected."""
        is_taken = True
        with closing(Recompressor(lines, self._open)) as recompressor:
            for member in check(cast("BinaryIO", recompressor), compressed=False):
                checked = CheckedSnapshot.of(member)
                fault = checked.reason or self._bundled.fault(checked)
                if fault:
                    recompressor.drop()
                    is_taken &= self._reject(path, checked, fault)
                else:
                    recompressor.keep()
                    self._add(checked)
                    if self._open().size >= self._size:
                        self._finish()
        return is_taken

    @property
    def _results(self) -> int:
        """How many snapshots and files have got a result so far."""
        return self.counts.snapshots + self.counts.already_bundled + self.counts.rejected

    def _open(self) -> BundleWriter:
        if self._writer is None:
            self._writer = BundleWriter(self._folder)
        return self._writer

    def _add(self, checked: CheckedSnapshot) -> None:
        self._bundled.add(checked)
        self._open().members.append(checked.snapshot)
        self.counts.snapshots += 1

    def _reject(self, path: Path, checked: CheckedSnapshot | None, reason: str, detail: str = "") -> bool:
        """Report what is not taken; true if it is in a bundle already."""
        if reason == DUPLICATE:
            self.counts.already_bundled += 1
            return True
        device, snapshot = (checked.device, checked.snapshot) if checked else ("", "")
        self.counts.rejected += 1
        self._report(Rejected(str(path), device, snapshot, reason, detail or (checked.detail if checked else "")))
        return False

    def _finish(self) -> None:
        """Finish the bundle. The files that it was made of may then be removed."""
        if self._writer and self._writer.members:
            bundle = self._writer.finish()
            snapshots, self._writer = len(self._writer.members), None
            self.counts.bundles += 1
            self._report(Made(str(bundle), snapshots, bundle.stat().st_size))
        for path, seen in self._done:
            self._remove(path, seen)
        self._done.clear()

    def _remove(self, path: Path, seen: os.stat_result) -> None:
        try:
            now = path.stat()
            if _identity(now) != _identity(seen):
                self._reject(path, None, CHANGED, "it was changed after it was read; it is not removed")
                return
            path.unlink()
            self.counts.removed += 1
        except OSError as error:
            self._reject(path, None, UNREADABLE, f"cannot remove it: {error.strerror}")


def _identity(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class BundledSnapshots:
    """The snapshots in the bundles of a folder, by id, with those of this run. Takes about 200 bytes for each."""

    def __init__(self, folder: Path, *, thorough: bool) -> None:
        """:param thorough: read a bundle before its list of snapshots is trusted."""
        self._thorough = thorough
        self._digests: dict[str, str] = {}
        self._listed: dict[str, Path] = {}
        for bundle in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")):
            self._listed.update((snapshot, bundle) for snapshot in members_of(bundle))

    def add(self, checked: CheckedSnapshot) -> None:
        """Add a snapshot of this run."""
        self._digests[checked.snapshot] = checked.digest

    def fault(self, checked: CheckedSnapshot) -> str:
        """Why a snapshot is not taken: it is in a bundle, or another one with its id is. Empty if neither is."""
        if self._thorough and checked.snapshot in self._listed:
            self._read_bundle(self._listed[checked.snapshot])
        digest = self._digests.get(checked.snapshot)
        if digest is not None:
            return DUPLICATE if digest == checked.digest else OTHER_CONTENT
        return DUPLICATE if checked.snapshot in self._listed else ""

    def _read_bundle(self, bundle: Path) -> None:
        """Replace what a bundle lists by what it contains."""
        self._listed = {snapshot: place for snapshot, place in self._listed.items() if place != bundle}
        with bundle.open("rb") as file:
            for member in check(file):
                if not member.reason:
                    self.add(CheckedSnapshot.of(member))
