"""Reads and writes the tables: Parquet in plain directories, which any reader of Parquet can read.

Only this module writes tables. A write is staged beside the tables and moved into place by renames when it is complete:
it replaces a whole table or whole partitions, and a reader sees the old files or the new ones, for a moment perhaps
none, but never some of them. Object stores have no rename of directories: there, files are moved one by one, and a
reader may meanwhile see some of them. A run that is killed leaves its staged files; the next run that writes finishes
the moves if they had begun, and deletes the rest.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import EnvironmentProblem, Occupied, PipelineError
from .location import storage_of
from .session import frame_of
from .storage import Entry, Storage, partition_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..schema.table import Table

#: A directory beside the tables; to Spark, names that begin with ``_`` are no data.
STAGING: Final = "_staging"
#: The lock of the one process that writes.
LOCK: Final = "_lock"
_NEW: Final = "new"
_OLD: Final = "old"
PLAN: Final = "moves.json"
#: The level of compression. At Spark's default of 3, files are a twentieth smaller and take more CPU to write.
_ZSTD_LEVEL: Final = "parquet.compression.codec.zstd.level"
#: How long the texts of a column are, for each page: no reader here asks for it.
_SIZE_STATISTICS: Final = "parquet.size.statistics.enabled"
_DICTIONARY: Final = "parquet.enable.dictionary"
#: A table of at most so many bytes is asked whether it has any row; a file without one has about 1 kB.
_EMPTY_BYTES: Final = 16_384
#: The only file of a partitioned table without rows: it gives readers the columns, and goes with the first partition.
EMPTY: Final = "empty.parquet"

#: A partition: the values of its columns.
Partition = Mapping[str, str]


class Warehouse:
    """The tables of one fleet. Write only within ``writing``; readers need no lock."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """:raises EnvironmentProblem: the location's file system cannot be reached."""
        self._session = session
        self._moving = threading.Lock()
        self.storage = storage_of(session, location)

    @contextmanager
    def writing(self, who: str) -> Iterator[None]:
        """Let only this process write during the block; what a killed one had begun is finished first.

        :param who: the name of this writer, for the message that others get.
        :raises Occupied: another process is writing; the text names it.
        """
        with locked(self.storage, self.storage.join(LOCK), who):
            self._recover()
            yield

    def path(self, table: Table) -> str:
        """The directory of a table."""
        return self.storage.join(table.name)

    def exists(self, table: Table) -> bool:
        """Whether the table was ever written."""
        return self.storage.exists(self.path(table))

    def read(self, table: Table) -> DataFrame:
        """The table as it is now; an empty frame with its columns if it was never written.

        A column that the files do not have yet is null. A damaged file is an error; its rows are not silently missing.
        Never use the frame after a write to its table: the write replaces the files under it.
        """
        if not self.exists(table) or self._has_columns_only(table):
            # Spark knows before it starts that a frame with this condition has no row, and leaves out what needs one.
            return frame_of(self._session, [], table.schema).where("false")
        reader = self._session.read.schema(table.schema).option("ignoreCorruptFiles", False)
        return reader.parquet(self.path(table)).select(*table.schema.names)

    def _has_columns_only(self, table: Table) -> bool:
        """Whether the table is known to have no row, by what its only file says."""
        entries = [one for one in self.storage.entries(self.path(table)) if not one.name.startswith((".", "_"))]
        if len(entries) != 1 or entries[0].is_directory or entries[0].size > _EMPTY_BYTES:
            return False
        return self.storage.parquet_rows(entries[0].path) == 0

    def write(
        self,
        table: Table,
        frame: DataFrame,
        *,
        replacing: Literal["all"] | Iterable[Partition] | None = None,
        as_it_comes: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Replace the partitions of which the frame has rows; a table without partitions as a whole.

        A table may be computed from itself: it is replaced after all new files are written. A table without rows gets
        a file with its columns.

        :param replacing: more partitions to replace; those without rows in the frame are removed. Or ``all``.
        :param as_it_comes: write rows where they are computed and in that order, for tables that are read once.
        :param options: for the writer of Parquet.
        :raises SchemaMismatch: the frame does not have the table's columns.
        """
        name = uuid.uuid4().hex
        fresh = self._stage(table, frame, name, as_it_comes=as_it_comes, options=options or {})
        named = () if replacing is None or replacing == "all" else replacing
        whole = replacing == "all" or not table.partition
        written = [""] if whole else list(self._partitions_below(fresh, len(table.partition)))
        gone = set() if whole else {self._named(table, values) for values in named} - {*written}
        if not whole:
            gone.add(EMPTY)
        elif table.partition and not any(self._partitions_below(fresh, 1)):
            self._put_columns(table, fresh)
        self._plan_and_move(name, table, replace=written, remove=gone)

    def create(self, table: Table) -> None:
        """Make a table without rows, in which readers find the columns."""
        name = uuid.uuid4().hex
        self._put_columns(table, self.storage.join(STAGING, name, _NEW))
        self._plan_and_move(name, table, replace=[""])

    @property
    def partitions_at_once(self) -> int:
        """How many partitions of a table a task can write at the same time."""
        return int(self._session.conf.get("spark.sql.maxConcurrentOutputFileWriters") or 0)

    def writes_in_order(self, table: Table) -> bool:
        """Whether a task can write all partitions of a table at the same time: its rows then stay in their order."""
        return sum(1 for _ in self._partitions_below(self.path(table), len(table.partition))) <= self.partitions_at_once

    def append(self, table: Table, frame: DataFrame) -> None:
        """Add a few rows as one more file. For logs; never for rows that may come twice."""
        if table.partition:
            raise PipelineError(f"table {table.name}: cannot append to a table with partitions")
        name = uuid.uuid4().hex
        fresh = self._stage(table, frame.coalesce(1), name)
        for entry in self.storage.entries(fresh):
            if not entry.name.startswith((".", "_")):
                self.storage.rename(entry.path, self.storage.join(table.name, entry.name))
        self.storage.delete(self.storage.join(STAGING, name))

    def parts(self, table: Table) -> Iterator[tuple[str, list[Entry]]]:
        """The relative path of each partition, with its files. A table without partitions has one: an empty path."""
        paths = self._partitions_below(self.path(table), len(table.partition)) if table.partition else [""]
        for part in paths:
            entries = self.storage.entries(self.storage.join(table.name, part))
            yield part, [one for one in entries if not one.is_directory and not one.name.startswith((".", "_"))]

    def size(self, table: Table) -> int:
        """The bytes of a table."""
        return self.storage.size(self.path(table))

    def sizes(self, table: Table) -> dict[str, int]:
        """The bytes of each partition, by its relative path; nothing if the table was never written."""
        return {part: sum(file.size for file in files) for part, files in self.parts(table)}

    def rearrange(self, table: Table, part: str, files: int) -> int:
        """Rewrite a partition as at most this many files, sorted by key; the number of its rows.

        All columns of the files stay, also those that this version does not know.

        :param part: the relative path of the partition, from ``parts``.
        :raises PipelineError: not all rows were written; nothing is replaced then.
        """
        reader = self._session.read.option("ignoreCorruptFiles", False).option("ignoreMissingFiles", False)
        reader = reader.option("mergeSchema", True).option("basePath", self.path(table))
        frame = reader.parquet(self.storage.join(table.name, part))
        spread = frame.coalesce(1) if files == 1 else frame.repartitionByRange(files, *table.key)
        name = uuid.uuid4().hex
        fresh = self._put(table, spread.sortWithinPartitions(*table.key), name)
        rows, written = frame.count(), self._session.read.parquet(fresh).count()
        if rows != written:
            raise PipelineError(f"{self.storage.join(table.name, part)}: {written} of {rows} rows were written")
        self._plan_and_move(name, table, replace=[part])
        return rows

    def drop(self, table: Table) -> None:
        """Delete a table."""
        self._plan_and_move(uuid.uuid4().hex, table, remove=[""])

    def _plan_and_move(
        self, name: str, table: Table, *, replace: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        plan: dict[str, Any] = {"table": table.name, "replace": sorted(replace), "remove": sorted(remove)}
        if not self.storage.renames_directories:
            fresh = self.storage.join(STAGING, name, _NEW)
            plan["files"] = self.storage.files_below(fresh)
        with self._moving:
            self._finish_moves()
            self.storage.write_text(self.storage.join(STAGING, name, PLAN), json.dumps(plan))
            self._move(name)

    def _recover(self) -> None:
        """Finish moves that had begun, and delete what was only staged."""
        self._finish_moves()
        self.storage.delete(self.storage.join(STAGING))

    def _finish_moves(self) -> None:
        for entry in self.storage.entries(self.storage.join(STAGING)):
            if self.storage.exists(f"{entry.path}/{PLAN}"):
                self._move(entry.name)

    def _stage(
        self,
        table: Table,
        frame: DataFrame,
        name: str,
        *,
        as_it_comes: bool = False,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Write the frame where no reader looks; returns its directory."""
        ordered = table.fitted(frame)
        if not as_it_comes:
            # The rows of a partition go to one task, or to a few if there are many; small partitions share a task.
            if str(self._session.conf.get("spark.sql.adaptive.enabled")) == "true":
                ordered = ordered.hint("rebalance", *(table.partition or table.key))
            else:  # nobody sees how many there are: without a column more, one task would sort all rows of a day
                ordered = ordered.repartition(*table.partition, *(table.key[:1] if table.partition else table.key))
            ordered = ordered.sortWithinPartitions(*table.partition, *table.key)
        return self._put(table, ordered, name, options)

    def _put(self, table: Table, frame: DataFrame, name: str, options: Mapping[str, str] = MappingProxyType({})) -> str:
        target = self.storage.join(STAGING, name, _NEW)
        writer = frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.option(_ZSTD_LEVEL, 1).option(_SIZE_STATISTICS, "false").options(**options)
        writer = writer.options(**{f"{_DICTIONARY}#{column}": "false" for column in table.varied})
        if table.partition:
            writer = writer.partitionBy(*table.partition)
        writer.parquet(target)
        return target

    def _put_columns(self, table: Table, target: str) -> None:
        """Write a file without rows for a table without partitions on disk, so that readers get its columns."""
        beside = f"{target}.columns"
        frame_of(self._session, [], table.schema).coalesce(1).write.parquet(beside)
        (file,) = (entry for entry in self.storage.entries(beside) if entry.name.endswith(".parquet"))
        self.storage.rename(file.path, f"{target}/{EMPTY}")

    def _partitions_below(self, directory: str, depth: int, above: str = "") -> Iterator[str]:
        """The partitions in a directory, as relative paths."""
        for entry in self.storage.entries(directory):
            if entry.is_directory and "=" in entry.name:
                path = f"{above}/{entry.name}".lstrip("/")
                if depth == 1:
                    yield path
                else:
                    yield from self._partitions_below(entry.path, depth - 1, path)

    def _named(self, table: Table, values: Partition) -> str:
        """The relative path of a partition."""
        return "/".join(partition_name(column, values[column]) for column in table.partition)

    def _move(self, name: str) -> None:
        """Move staged files into place. A half-done move is completed; repeating it changes nothing."""
        staged = self.storage.join(STAGING, name)
        plan = json.loads(self.storage.read_text(f"{staged}/{PLAN}"))
        if "files" in plan:
            self._move_files(plan, staged)
            return
        for part in plan["replace"]:
            fresh = "/".join(filter(None, [staged, _NEW, part]))
            if self.storage.exists(fresh):  # else it is already in place
                self._put_aside(plan["table"], part, staged)
                self.storage.rename(fresh, self.storage.join(plan["table"], part))
        for part in plan["remove"]:
            self._put_aside(plan["table"], part, staged)
        self.storage.delete(staged)

    def _move_files(self, plan: Mapping[str, Any], staged: str) -> None:
        """Move staged files into place one by one, for stores that have no rename of directories. The plan names the
        files, because nothing else tells new from old ones after a kill."""
        fresh, table, storage = f"{staged}/{_NEW}", plan["table"], self.storage
        for part in (*plan["replace"], *plan["remove"]):
            for name in storage.files_below(storage.join(table, part)):
                path = "/".join(filter(None, [part, name]))
                if path not in plan["files"]:
                    storage.delete(storage.join(table, path))
                    parent = storage.join(table, path.rpartition("/")[0])
                    if not storage.files_below(parent):
                        storage.delete(parent)
        for path in storage.files_below(fresh):
            target = storage.join(table, path)
            storage.delete(target)  # what a killed run copied and did not delete
            storage.rename(f"{fresh}/{path}", target)
        for part in plan["remove"]:
            storage.delete(storage.join(table, part))
        storage.delete(staged)

    def _put_aside(self, table: str, part: str, staged: str) -> None:
        place = self.storage.join(table, part)
        if self.storage.exists(place):
            self.storage.rename(place, "/".join(filter(None, [staged, _OLD, part])))


@contextmanager
def locked(storage: Storage, path: str, who: str) -> Iterator[None]:
    """Hold a lock during the block.

    On a local file system the lock ends with its process, however that ends. Elsewhere it is a file that stays if the
    process is killed; then somebody has to delete it, and the error says which file.

    :raises Occupied: another process has the lock.
    """
    local = storage.local(path)
    with locked_locally(local, who) if local else _locked_by_file(storage, path, _note_of(who)):
        yield


def _note_of(who: str) -> str:
    """What the lock says about this process."""
    return json.dumps(
        {
            "who": who,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


@contextmanager
def locked_locally(path: Path, who: str) -> Iterator[None]:
    """``locked`` for a path of this machine: needs no Spark."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{path}: {error.strerror}; the tables cannot be written") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Occupied(f"{path.parent} is being written by {_described(file.read())}; try again later") from None
        file.truncate(0)
        file.write(_note_of(who))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def _locked_by_file(storage: Storage, path: str, note: str) -> Iterator[None]:
    other = _other_holder(storage, path, note)
    if other:
        said = ""
        with suppress(EnvironmentProblem):  # it may just have left
            said = storage.read_text(other)
        raise Occupied(
            f"{storage.location} is being written by {_described(said)}; try again later,"
            f" or delete {other} if that process is gone"
        )
    try:
        yield
    finally:
        storage.delete(path)


def _other_holder(storage: Storage, path: str, note: str) -> str | None:
    """Write the lock; or the path by which another process has it, or claims it.

    Object stores have no exclusive creation that Hadoop and pyarrow both use. So everyone first writes a claim under a
    name of its own, and then looks: who sees a claim of another one, or the lock, withdraws. A store that lists
    everything written before shows the earlier claim to the later one of two; the lock is written before its claim is
    deleted. Perhaps both withdraw, but never do both stay.
    """
    if storage.exists(path):
        return path
    above, _, name = path.rpartition("/")
    claim = f"{path}.{uuid.uuid4().hex}"
    try:
        storage.write_text(claim, note)
        for entry in storage.entries(above):
            if entry.name.startswith(f"{name}.") and entry.path != claim:
                return entry.path
        if storage.exists(path):
            return path
        storage.write_text(path, note)
        return None
    finally:
        storage.delete(claim)


def _described(note: str) -> str:
    try:
        holder = json.loads(note)
        return f"{holder['who']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):  # it is just being written
        return "another process"
