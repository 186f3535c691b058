"""Files in any file system that Hadoop supports, through the session's Java: local, HDFS, and those of added jars."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EnvironmentProblem, one_line
from .storage import RENAMING, Entry, collected, pieces, replace_locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopStorage:
    """The storage of a session that runs in this process's Java. A relative location starts at Hadoop's working
    directory."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """:raises EnvironmentProblem: Hadoop has no file system for the location, or it does not answer."""
        jvm: Any = session.sparkContext._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        with _translated(location):
            self._fs = self._path(location).getFileSystem(configuration)
            #: The full location, with its scheme.
            self.location = str(self._fs.makeQualified(self._path(location)).toString())

    @property
    def kind(self) -> str:
        """The name of the class that implements the file system, for people."""
        return str(self._fs.getClass().getName())

    @property
    def renames_directories(self) -> bool:
        """Whether a directory is renamed in one step, so that nobody ever sees a part of it under the new name."""
        return str(self._path(self.location).toUri().getScheme()) in RENAMING

    def join(self, *names: str) -> str:
        """A path below the location; empty names are skipped."""
        return "/".join([self.location.rstrip("/"), *(name for name in names if name)])

    def local(self, path: str) -> Path | None:
        """The path for the operating system; None if the file system is not local."""
        if self._path(path).toUri().getScheme() not in ("file", None):
            return None
        return Path(str(self._path(path).toUri().getPath()))

    def exists(self, path: str) -> bool:
        """Whether the file or directory exists."""
        with _translated(path):
            return bool(self._fs.exists(self._path(path)))

    def entries(self, path: str) -> list[Entry]:
        """What a directory contains, sorted by name; nothing if it does not exist."""
        with _translated(path):
            if not self._fs.exists(self._path(path)):
                return []
            statuses = self._fs.listStatus(self._path(path))
        entries = [
            Entry(
                str(one.getPath().getName()),
                str(one.getPath().toString()),
                bool(one.isDirectory()),
                int(one.getLen()),
                int(one.getModificationTime()),
            )
            for one in statuses
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def size(self, path: str) -> int:
        """The bytes of all files below a directory; 0 if it does not exist."""
        with _translated(path):
            return int(self._fs.getContentSummary(self._path(path)).getLength()) if self.exists(path) else 0

    def files_below(self, path: str) -> list[str]:
        """The relative paths of all files below a directory, sorted; none if it does not exist."""
        found: list[str] = []
        for entry in self.entries(path):
            below = self.files_below(entry.path) if entry.is_directory else [""]
            found += [f"{entry.name}/{name}".rstrip("/") for name in below]
        return sorted(found)

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; one that exists is no error."""
        with _translated(path):
            if not self._fs.mkdirs(self._path(path)):
                raise EnvironmentProblem(f"{path}: cannot make this directory")

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and make the parent of the new name.

        The new name must be free: Hadoop would move a directory *into* an existing one.

        :raises EnvironmentProblem: the new name is in use, or the file system refuses.
        """
        parent = target.rpartition("/")[0]
        self.make_directory(parent)
        if self.exists(target):
            raise EnvironmentProblem(f"{target} already exists: another program writes here")
        with _translated(target):
            if not self._fs.rename(self._path(source), self._path(target)):
                raise EnvironmentProblem(f"cannot rename {source} to {target}")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; if it does not exist, nothing happens."""
        with _translated(path):
            self._fs.delete(self._path(path), True)

    def read_text(self, path: str) -> str:
        """The text of a small file."""
        with _translated(path):
            stream = self._fs.open(self._path(path))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def parquet_rows(self, path: str) -> int:
        """How many rows a Parquet file has, by its last bytes; no job of Spark is needed."""
        # By their whole names: Java would look for each part of a name in all archives.
        inputs = getattr(self._jvm, "org.apache.parquet.hadoop.util.HadoopInputFile")
        readers = getattr(self._jvm, "org.apache.parquet.hadoop.ParquetFileReader")
        with _translated(path):
            reader = readers.open(inputs.fromPath(self._path(path), self._fs.getConf()))
            try:
                return int(reader.getRecordCount())
            finally:
                reader.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file, completely or not at all: under a hidden name first."""
        self.write_lines(path, [text])

    def write_lines(self, path: str, lines: Iterable[str]) -> None:
        """Write a file of any size as the lines come, completely or not at all: under a hidden name first, except on
        an object store, where the file is written when there are all lines."""
        parent, _, name = path.rpartition("/")
        hidden = f"{parent}/.{name}.part" if self.renames_directories else path
        self.make_directory(parent)
        with (
            _translated(path),
            contextlib.nullcontext(pieces(lines)) if self.renames_directories else collected(lines) as written,
        ):
            stream = self._fs.create(self._path(hidden), True)
            try:
                for piece in written:
                    stream.write(bytearray(piece))
            finally:
                stream.close()
        here = self.local(path)
        if hidden != path and here:
            replace_locally(here.with_name(f".{name}.part"), here)
        elif hidden != path:
            self.delete(path)
            self.rename(hidden, path)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate Java's exceptions to an error that names the path."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise EnvironmentProblem(f"{path}: {one_line(error)}") from error
