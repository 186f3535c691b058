"""Checks files of snapshots without Spark, one after another, with the reasons of ``ingest``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postroom_common.snapshot_reader import check

from ..files import GZIP, PLAIN, UNKNOWN_NAME, UNREADABLE

#: The endings of the files that can be read without Spark.
READABLE: Final = (GZIP, PLAIN)


@dataclass(frozen=True)
class Judgement:
    """The result for a snapshot of a file, or for the file; ``reason`` is empty for a complete and intact snapshot."""

    file: str
    device: str
    snapshot: str
    lines: int
    reason: str
    detail: str

    @property
    def described(self) -> str:
        """One line for people."""
        whose = f"{self.device} {self.snapshot}".strip() or "-"
        fault = f"  {self.reason}: {self.detail}" if self.reason else ""
        return f"{'bad ' if self.reason else 'ok  '}  {self.file}  {whose}  {self.lines} lines{fault}"


def validate(files: Iterator[Path]) -> Iterator[Judgement]:
    """A judgement for each snapshot of each file, in order, and one for each file that cannot be read."""
    for path in files:
        try:
            with path.open("rb") as file:
                if not path.name.endswith(READABLE):
                    yield _of_file(path, UNKNOWN_NAME, f"only {GZIP} and {PLAIN} can be read without Spark")
                    continue
                for member in check(file, compressed=path.name.endswith(GZIP)):
                    reason = member.reason.value if member.reason else ""
                    yield Judgement(str(path), member.device, member.snapshot, member.lines, reason, member.detail)
        except OSError as error:
            yield _of_file(path, UNREADABLE, error.strerror or str(error))


def files_of(places: tuple[Path, ...]) -> Iterator[Path]:
    """The given files, and the finished files in and below the given directories, sorted by name."""
    for place in places:
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                hidden = any(part.startswith((".", "_")) for part in path.relative_to(place).parts)
                if path.name.endswith(READABLE) and not hidden and path.is_file():
                    yield path
        else:
            yield place


def _of_file(path: Path, reason: str, detail: str) -> Judgement:
    return Judgement(str(path), "", "", 0, reason, detail)
