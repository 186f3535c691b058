"""Files in the file systems that pyarrow supports: local, S3, Google Cloud, Azure and HDFS; without Java but for HDFS.

The server of Spark Connect has its own way to the same files: a local directory must be at the same place there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ..errors import EnvironmentProblem
from ..files import local_path
from .storage import RENAMING, Entry, collected, pieces, replace_locally, sum_beside

#: Hadoop's names of schemes that have another one in pyarrow.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
#: How many bytes of a file are copied at once.
_COPIED: Final = 8 << 20


class ArrowStorage:
    """The storage of a session of Spark Connect, and of commands without Spark. A relative location starts at this
    process's working directory."""

    def __init__(self, location: str) -> None:
        """:raises EnvironmentProblem: pyarrow has no file system for the location."""
        from pyarrow import fs

        self._fs: Any
        here = local_path(location)
        with _translated(location):
            if here is not None:
                self._scheme, self._fs = "file", fs.LocalFileSystem()
                self._above, place = "file:", str(here.absolute())
            else:
                self._scheme, _, rest = location.partition("://")
                named = f"{_SCHEMES.get(self._scheme, self._scheme)}://{rest}"
                self._fs, place = fs.FileSystem.from_uri(named)
                # Everything before the path that pyarrow uses: ``s3a://``, or ``hdfs://host:port``.
                self._above = location.rstrip("/").removesuffix(place.rstrip("/"))
        #: The full location, with its scheme.
        self.location = self._above + (place.rstrip("/") or "/")

    @property
    def kind(self) -> str:
        return f"pyarrow.fs.{type(self._fs).__name__}"

    @property
    def renames_directories(self) -> bool:
        return self._scheme in RENAMING

    def join(self, *names: str) -> str:
        return "/".join([self.location.rstrip("/"), *(name for name in names if name)])

    def local(self, path: str) -> Path | None:
        return local_path(path)

    def exists(self, path: str) -> bool:
        from pyarrow import fs

        with _translated(path):
            return bool(self._fs.get_file_info(self._of(path)).type != fs.FileType.NotFound)

    def entries(self, path: str) -> list[Entry]:
        return sorted(self._found(path), key=lambda entry: entry.name)

    def size(self, path: str) -> int:
        return sum(entry.size for entry in self._found(path, recursive=True))

    def files_below(self, path: str) -> list[str]:
        above = f"{path.rstrip('/')}/"
        found = self._found(path, recursive=True)
        return sorted(entry.path.removeprefix(above) for entry in found if not entry.is_directory)

    def sizes_below(self, path: str) -> dict[str, int]:
        """The sizes of all files below a directory, by their relative paths."""
        above = f"{path.rstrip('/')}/"
        found = self._found(path, recursive=True)
        return {entry.path.removeprefix(above): entry.size for entry in found if not entry.is_directory}

    def footer(self, path: str) -> Any:
        """What a Parquet file says of itself: pyarrow's ``FileMetaData``."""
        from pyarrow import parquet

        with _translated(path):
            return parquet.read_metadata(self._of(path), filesystem=self._fs)

    def rows(self, paths: Iterable[str], columns: list[str]) -> Iterator[dict[str, Any]]:
        """The rows of Parquet files, small enough for memory one file at a time."""
        from pyarrow import parquet

        for path in paths:
            with _translated(path), self._fs.open_input_file(self._of(path)) as file:
                yield from parquet.ParquetFile(file).read(columns).to_pylist()

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """A file, to be read in pieces."""
        with _translated(path), self._fs.open_input_stream(self._of(path), compression=None) as stream:
            yield stream

    def copy(self, path: str, other: ArrowStorage, target: str) -> None:
        """Copy a file into another storage, in pieces; a store that is the same one copies it itself."""
        from pyarrow import fs

        other.make_directory(target.rpartition("/")[0])
        with _translated(path):
            fs.copy_files(
                self._of(path),
                other._of(target),
                source_filesystem=self._fs,
                destination_filesystem=other._fs,
                chunk_size=_COPIED,
                use_threads=False,
            )

    def make_directory(self, path: str) -> None:
        with _translated(path):
            self._fs.create_dir(self._of(path), recursive=True)

    def rename(self, source: str, target: str) -> None:
        """:raises EnvironmentProblem: the new name is in use, or the file system refuses."""
        self.make_directory(target.rpartition("/")[0])
        if self.exists(target):
            raise EnvironmentProblem(f"{target} already exists: another program writes here")
        with _translated(target):
            self._fs.move(self._of(source), self._of(target))

    def delete(self, path: str) -> None:
        from pyarrow import fs

        with _translated(path):
            kind = self._fs.get_file_info(self._of(path)).type
            if kind == fs.FileType.Directory:
                self._fs.delete_dir(self._of(path))
            elif kind != fs.FileType.NotFound:
                self._fs.delete_file(self._of(path))
        self._forget_sum(path)

    def read_text(self, path: str) -> str:
        with _translated(path), self._fs.open_input_stream(self._of(path), compression=None) as stream:
            return str(stream.read().decode())

    def parquet_rows(self, path: str) -> int:
        return int(self.footer(path).num_rows)

    def write_text(self, path: str, text: str) -> None:
        self.write_lines(path, [text])

    def write_lines(self, path: str, lines: Iterable[str]) -> None:
        parent, _, name = path.rpartition("/")
        hidden = f"{parent}/.{name}.part" if self.renames_directories else path
        self.make_directory(parent)
        with (
            _translated(path),
            contextlib.nullcontext(pieces(lines)) if self.renames_directories else collected(lines) as written,
            self._fs.open_output_stream(self._of(hidden), compression=None) as stream,
        ):
            for piece in written:
                stream.write(piece)
        if self._scheme == "file":
            replace_locally(Path(self._of(hidden)), Path(self._of(path)))
        elif hidden != path:
            self.delete(path)
            self.rename(hidden, path)

    def _of(self, path: str) -> str:
        """The path as pyarrow names it."""
        here = local_path(path) if self._scheme == "file" else None
        return path.removeprefix(self._above) if here is None else str(here)

    def _found(self, path: str, *, recursive: bool = False) -> Iterator[Entry]:
        from pyarrow import fs

        with _translated(path):
            selector = fs.FileSelector(self._of(path), allow_not_found=True, recursive=recursive)
            for info in self._fs.get_file_info(selector):
                is_directory = info.type == fs.FileType.Directory
                size, mtime_ms = info.size or 0, (info.mtime_ns or 0) // 1_000_000
                yield Entry(info.base_name, self._above + info.path, is_directory, size, mtime_ms)

    def _forget_sum(self, path: str) -> None:
        """Delete the sums that Hadoop has written beside a local file: for another content they would be wrong."""
        if self._scheme == "file":
            sum_beside(Path(self._of(path))).unlink(missing_ok=True)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate pyarrow's exceptions to an error that names the path."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own are among these
        raise EnvironmentProblem(f"{path}: {error}") from error
