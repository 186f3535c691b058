"""Files of any file system that Hadoop knows, by the session's own Java: local, hdfs, and what the user's jars add."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import EnvironmentProblem, said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes that are sent to Java at once.
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One file or directory as its parent lists it."""

    name: str
    path: str
    is_directory: bool
    size: int
    mtime_ms: int


class Storage:
    """The file system of one location; a relative one begins where Hadoop says (locally: the working directory)."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """:raises EnvironmentProblem: no file system is known for the location, or it does not answer."""
        jvm: Any = session.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        with _translated(location):
            self._fs = self._path(location).getFileSystem(configuration)
            #: The location in full, with its scheme.
            self.location = str(self._fs.makeQualified(self._path(location)).toString())

    @property
    def kind(self) -> str:
        """The class that does the work, for people."""
        return str(self._fs.getClass().getName())

    def join(self, *names: str) -> str:
        """A path below the location; empty names are left out."""
        return "/".join([self.location.rstrip("/"), *(name for name in names if name)])

    def local(self, path: str) -> Path | None:
        """The path for the operating system; none where the files are elsewhere."""
        if self._path(path).toUri().getScheme() not in ("file", None):
            return None
        return Path(str(self._path(path).toUri().getPath()))

    def partition_name(self, column: str, value: str) -> str:
        """The directory of a partition, escaped as Spark does it."""
        return str(
            self._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.getPartitionPathString(column, value)
        )

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        with _translated(path):
            return bool(self._fs.exists(self._path(path)))

    def entries(self, path: str) -> list[Entry]:
        """What a directory holds, in the order of the names; nothing where there is none."""
        with _translated(path):
            if not self._fs.exists(self._path(path)):
                return []
            found = self._fs.listStatus(self._path(path))
        entries = [
            Entry(
                str(one.getPath().getName()),
                str(one.getPath().toString()),
                bool(one.isDirectory()),
                int(one.getLen()),
                int(one.getModificationTime()),
            )
            for one in found
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def matching(self, pattern: str) -> list[str]:
        """The paths below the location that fit a pattern of Hadoop's: ``{*,*/*}.part``."""
        with _translated(pattern):
            found = self._fs.globStatus(self._path(self.join(pattern)))
        return sorted(str(one.getPath().toString()) for one in found or ())

    def make_directory(self, path: str) -> None:
        """A directory, and those above it; one that is there already is no error."""
        with _translated(path):
            if not self._fs.mkdirs(self._path(path)):
                raise EnvironmentProblem(f"{path}: the directory cannot be made")

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, and make the directory above it.

        The new name must be free: Hadoop would move a directory *into* one that is there.
        """
        parent = target.rpartition("/")[0]
        self.make_directory(parent)
        if self.exists(target):
            raise EnvironmentProblem(f"{target} is there already: somebody else writes here")
        with _translated(target):
            if not self._fs.rename(self._path(source), self._path(target)):
                raise EnvironmentProblem(f"{source} cannot be renamed to {target}")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all in it; nothing there is no error."""
        with _translated(path):
            self._fs.delete(self._path(path), True)

    def read_text(self, path: str) -> str:
        """A small file as text."""
        with _translated(path):
            stream = self._fs.open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write_text(self, path: str, text: str) -> None:
        """A small file, whole or not at all: written under a hidden name first."""
        self.write_lines(path, [text])

    def write_lines(self, path: str, lines: Iterable[str]) -> None:
        """A file of any size, whole or not at all: written under a hidden name first, as the lines come."""
        parent, _, name = path.rpartition("/")
        hidden = f"{parent}/.{name}.part"
        self.make_directory(parent)
        with _translated(path):
            stream = self._fs.create(self._path(hidden), True)
            try:
                for piece in _pieces(lines):
                    stream.write(bytearray(piece))
            finally:
                stream.close()
        self.delete(path)
        self.rename(hidden, path)

    def create_text(self, path: str, text: str) -> bool:
        """A new small file; false where there is one of this name, which stays as it is."""
        self.make_directory(path.rpartition("/")[0])
        with _translated(path):
            if self._fs.exists(self._path(path)):
                return False
            stream = self._fs.create(self._path(path), False)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        return True


def _pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines, as few as may be put together."""
    piece = bytearray()
    for line in lines:
        piece += line.encode()
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Java's exceptions as a sentence that names the path."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise EnvironmentProblem(f"{path}: {said_by(error)}") from error
