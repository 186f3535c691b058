"""Reads and writes the tables: Parquet in plain directories, which every other reader of Parquet can read too.

Nobody else writes a table. A write is staged beside the tables and moved into place by renames when it is whole: what
it replaces is a whole table or whole partitions, and a reader meets the old files or the new ones, for a moment perhaps
none, never a part. A run that is killed leaves its staged files; the next one that writes finishes the moves if they
had begun, and clears the rest away.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from .errors import PipelineError
from .lock import locked
from .storage import Entry, Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .table import Table

#: Below the place of the tables, and no table: names that begin so are no data.
STAGING: Final = "_staging"
#: Held by the one process that writes.
LOCK: Final = "_lock"
_NEW: Final = "new"
_OLD: Final = "old"
_PLAN: Final = "moves.json"
#: The one file of a table by partitions that has no row: columns, for who reads it. It goes with the first partition.
_EMPTY: Final = "empty.parquet"

#: A partition by the values of its columns.
Partition = Mapping[str, str]


class Warehouse:
    """The place of all tables of one fleet. Whoever writes does it within ``writing``; readers need nothing."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """:raises EnvironmentProblem: the location is in no file system that can be reached."""
        self._session = session
        self._moving = threading.Lock()
        self.storage = Storage(session, location)

    @contextmanager
    def writing(self, who: str) -> Iterator[None]:
        """The time in which this process alone writes here; what a killed one had begun is finished first.

        :raises Occupied: another one is writing; the text says who.
        """
        with locked(self.storage, self.storage.join(LOCK), who):
            self._recover()
            yield

    def path(self, table: Table) -> str:
        """Where a table's files lie."""
        return self.storage.join(table.name)

    def exists(self, table: Table) -> bool:
        """Whether the table was ever written."""
        return self.storage.exists(self.path(table))

    def read(self, table: Table) -> DataFrame:
        """The table as it is now; an empty frame of its columns where it was never written.

        A column that the files do not have yet is null; a damaged file is an error, not rows that are silently missing.
        Keep the frame no longer than the table stays: a write replaces the files under it.
        """
        if not self.exists(table):
            return self._session.createDataFrame([], table.schema)
        reader = self._session.read.schema(table.schema).option("ignoreCorruptFiles", False)
        return reader.parquet(self.path(table)).select(*table.schema.names)

    def write(
        self,
        table: Table,
        frame: DataFrame,
        *,
        replacing: Literal["all"] | Iterable[Partition] | None = None,
        as_it_comes: bool = False,
    ) -> None:
        """Replace the partitions that the frame has rows of; a table without partitions as a whole.

        A table may be computed from itself: it is replaced when all new files are written.

        A table that has no row has its columns all the same, in a file.

        :param replacing: partitions that are replaced also where the frame has no row of them (they go then), or
            ``all`` of the table.
        :param as_it_comes: write the rows where they are computed and in that order, for what is read once as a whole.
        :raises SchemaMismatch: the frame is not what the table holds.
        """
        name = uuid.uuid4().hex
        fresh = self._stage(table, frame, name, as_it_comes=as_it_comes)
        named = () if replacing is None or replacing == "all" else replacing
        whole = replacing == "all" or not table.partition
        found = [""] if whole else list(self._partitions_below(fresh, len(table.partition)))
        gone = set() if whole else {self._named(table, values) for values in named} - {*found}
        if not whole:
            gone.add(_EMPTY)
        elif table.partition and not any(self._partitions_below(fresh, 1)):
            self._put_columns(table, fresh)
        self._plan_and_move(name, table, replace=found, remove=gone)

    def append(self, table: Table, frame: DataFrame) -> None:
        """Add a few rows as one file more; nothing that is there is touched. For logs, not for what may come twice."""
        if table.partition:
            raise PipelineError(f"table {table.name}: only a table without partitions is appended to")
        name = uuid.uuid4().hex
        fresh = self._stage(table, frame.coalesce(1), name)
        for entry in self.storage.entries(fresh):
            if not entry.name.startswith((".", "_")):
                self.storage.rename(entry.path, self.storage.join(table.name, entry.name))
        self.storage.delete(self.storage.join(STAGING, name))

    def parts(self, table: Table) -> Iterator[tuple[str, list[Entry]]]:
        """Each partition as its relative path, with its files; of a table without partitions one, named by nothing."""
        paths = self._partitions_below(self.path(table), len(table.partition)) if table.partition else [""]
        for part in paths:
            entries = self.storage.entries(self.storage.join(table.name, part))
            yield part, [one for one in entries if not one.is_directory and not one.name.startswith((".", "_"))]

    def rearrange(self, table: Table, part: str, files: int) -> int:
        """Write the rows of a partition into so many files, or fewer, in the order of the key; how many rows it has.

        Columns that the files have stay, also those that this version does not know.

        :raises PipelineError: not all of them could be read; nothing is replaced then.
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
        """Take a table away as a whole."""
        self._plan_and_move(uuid.uuid4().hex, table, remove=[""])

    def _plan_and_move(
        self, name: str, table: Table, *, replace: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        plan = json.dumps({"table": table.name, "replace": sorted(replace), "remove": sorted(remove)})
        with self._moving:
            self._finish_moves()
            self.storage.write_text(self.storage.join(STAGING, name, _PLAN), plan)
            self._move(name)

    def _recover(self) -> None:
        """Finish the moves that were begun, and clear away what was not even planned."""
        self._finish_moves()
        self.storage.delete(self.storage.join(STAGING))

    def _finish_moves(self) -> None:
        for entry in self.storage.entries(self.storage.join(STAGING)):
            if self.storage.exists(f"{entry.path}/{_PLAN}"):
                self._move(entry.name)

    def _stage(self, table: Table, frame: DataFrame, name: str, *, as_it_comes: bool = False) -> str:
        """Write the frame where no reader looks; the directory of it."""
        ordered = table.fitted(frame)
        if not as_it_comes:
            # Rows of a partition come to one task, or to some more where they are many; small ones share a task.
            ordered = ordered.hint("rebalance", *(table.partition or table.key))
            ordered = ordered.sortWithinPartitions(*table.partition, *table.key)
        return self._put(table, ordered, name)

    def _put(self, table: Table, frame: DataFrame, name: str) -> str:
        target = self.storage.join(STAGING, name, _NEW)
        writer = frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if table.partition:
            writer = writer.partitionBy(*table.partition)
        writer.parquet(target)
        return target

    def _put_columns(self, table: Table, target: str) -> None:
        """A file without rows where there is no partition, so that others find the table and its columns."""
        beside = f"{target}.columns"
        self._session.createDataFrame([], table.schema).coalesce(1).write.parquet(beside)
        (file,) = (entry for entry in self.storage.entries(beside) if entry.name.endswith(".parquet"))
        self.storage.rename(file.path, f"{target}/{_EMPTY}")

    def _partitions_below(self, directory: str, depth: int, above: str = "") -> Iterator[str]:
        """The partitions that a directory holds, as relative paths."""
        for entry in self.storage.entries(directory):
            if entry.is_directory and "=" in entry.name:
                path = f"{above}/{entry.name}".lstrip("/")
                if depth == 1:
                    yield path
                else:
                    yield from self._partitions_below(entry.path, depth - 1, path)

    def _named(self, table: Table, values: Partition) -> str:
        """The relative path of a partition."""
        return "/".join(self.storage.partition_name(column, values[column]) for column in table.partition)

    def _move(self, name: str) -> None:
        """Put staged files into place. A move may be found half done, and is then finished; done twice is done once."""
        staged = self.storage.join(STAGING, name)
        plan = json.loads(self.storage.read_text(f"{staged}/{_PLAN}"))
        for part in plan["replace"]:
            fresh = "/".join(filter(None, [staged, _NEW, part]))
            if self.storage.exists(fresh):  # else it is in place already
                self._put_aside(plan["table"], part, staged)
                self.storage.rename(fresh, self.storage.join(plan["table"], part))
        for part in plan["remove"]:
            self._put_aside(plan["table"], part, staged)
        self.storage.delete(staged)

    def _put_aside(self, table: str, part: str, staged: str) -> None:
        place = self.storage.join(table, part)
        if self.storage.exists(place):
            self.storage.rename(place, "/".join(filter(None, [staged, _OLD, part])))
