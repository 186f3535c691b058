"""What the pipeline asks of a file system."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

#: File systems that rename a directory in one step. Object stores copy each file of it and delete the originals.
RENAMING: Final = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss")
#: How many bytes are written at once.
_PIECE: Final = 1 << 20
#: How many bytes are collected in memory; more of them on the disk.
_COLLECTED: Final = 16 << 20
#: What Spark escapes in the names of partitions.
_ESCAPED: Final = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")


@dataclass(frozen=True)
class Entry:
    """One file or directory as its parent lists it."""

    name: str
    path: str
    is_directory: bool
    size: int
    mtime_ms: int


class Storage(Protocol):
    """The file system of one location. What it raises of its own is an ``EnvironmentProblem`` that names the path."""

    #: The full location, with its scheme.
    location: str

    @property
    def kind(self) -> str:
        """The name of the class that implements the file system, for people."""

    @property
    def renames_directories(self) -> bool:
        """Whether a directory is renamed in one step, so that nobody ever sees a part of it under the new name."""

    def join(self, *names: str) -> str:
        """A path below the location; empty names are skipped."""

    def local(self, path: str) -> Path | None:
        """The path for the operating system; None if the file system is not local."""

    def exists(self, path: str) -> bool:
        """Whether the file or directory exists."""

    def entries(self, path: str) -> list[Entry]:
        """What a directory contains, sorted by name; nothing if it does not exist."""

    def size(self, path: str) -> int:
        """The bytes of all files below a directory; 0 if it does not exist."""

    def files_below(self, path: str) -> list[str]:
        """The relative paths of all files below a directory, sorted; none if it does not exist."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; one that exists is no error."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and make the parent of the new name, which must be free."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; if it does not exist, nothing happens."""

    def read_text(self, path: str) -> str:
        """The text of a small file."""

    def parquet_rows(self, path: str) -> int:
        """How many rows a Parquet file has, by its last bytes; no job of Spark is needed."""

    def write_text(self, path: str, text: str) -> None:
        """Write a small file, completely or not at all."""

    def write_lines(self, path: str, lines: Iterable[str]) -> None:
        """Write a file of any size as the lines come, completely or not at all."""


def partition_name(column: str, value: str) -> str:
    """The directory name of a partition, escaped like Spark's."""
    return f"{column}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value)}"


def replace_locally(source: Path, target: Path) -> None:
    """Give a local file the name of another one, which it replaces in one step.

    Hadoop's sums beside local files go: a file without is read as it is, one with those of another file is refused.
    """
    sum_beside(target).unlink(missing_ok=True)
    source.replace(target)
    sum_beside(source).unlink(missing_ok=True)


def sum_beside(path: Path) -> Path:
    """Where Hadoop writes the sums of a local file."""
    return path.with_name(f".{path.name}.crc")


def pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines, joined to pieces of about ``_PIECE`` bytes."""
    piece = bytearray()
    for line in lines:
        piece += line.encode()
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


@contextmanager
def collected(lines: Iterable[str]) -> Iterator[Iterator[bytes]]:
    """The lines in pieces, of which all are there before the first is given: for an object store, where a file appears
    when its writer closes it, whatever the reason. It uses local scratch space."""
    with tempfile.SpooledTemporaryFile(_COLLECTED) as file:
        for piece in pieces(lines):
            file.write(piece)
        file.seek(0)
        yield iter(lambda: file.read(_PIECE), b"")
