"""Judges files of snapshots without Spark: what ``ingest`` would say of each, one file after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postroom_common.snapshot_reader import check

#: Beside the reasons of ``Reason``.
UNREADABLE: Final = "unreadable"
REFUSED_NAME: Final = "unknown_name"

_PACKED: Final = ".jsonl.gz"
_BARE: Final = ".jsonl"


@dataclass(frozen=True)
class Judgement:
    """What is said of one snapshot of a file, or of the file; ``reason`` is empty for a whole snapshot."""

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
    """Each snapshot of each file, in order; a file that cannot be read has a judgement of its own."""
    for path in files:
        try:
            with path.open("rb") as file:
                if not path.name.endswith((_PACKED, _BARE)):
                    yield _of_file(path, REFUSED_NAME, f"only {_PACKED} and {_BARE} can be looked at without Spark")
                    continue
                for member in check(file, compressed=path.name.endswith(_PACKED)):
                    reason = member.reason.value if member.reason else ""
                    yield Judgement(str(path), member.device, member.snapshot, member.lines, reason, member.detail)
        except OSError as error:
            yield _of_file(path, UNREADABLE, error.strerror or str(error))


def files_of(places: tuple[Path, ...]) -> Iterator[Path]:
    """The files that are named, and of directories the finished ones in and below them, in order of names."""
    for place in places:
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                hidden = any(part.startswith((".", "_")) for part in path.relative_to(place).parts)
                if path.name.endswith((_PACKED, _BARE)) and not hidden and path.is_file():
                    yield path
        else:
            yield place


def _of_file(path: Path, reason: str, detail: str) -> Judgement:
    return Judgement(str(path), "", "", 0, reason, detail)
