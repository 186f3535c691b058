"""Merges many small files of tables into few large ones, and deletes lines that no run will read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ..bronze import lines
from ..bronze.inventory import INVENTORY
from ..errors import PipelineError, one_line
from ..reports import BUILT
from ..schema.table import Table
from ..silver import ALL as TABLES
from ..spark.runlog import RUNS, Run
from ..spark.warehouse import Warehouse
from .gold import note_rearranged

#: How many files ``runs`` may have: every run adds one.
LOG_FILES: Final = 16
_BATCH: Final = "batch="
#: Directories with one table for each batch, and how to make that table.
_OF_BATCHES: Final = {"bronze": lines.bronze, "unknown": lines.unknown}
#: Reject reason of a partition whose files cannot be read.
DAMAGED: Final = "damaged"


@dataclass
class Compacted:
    """The result for one table, or for the lines of one batch."""

    table: str
    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    is_dropped: bool = False
    fault: str = ""

    @property
    def described(self) -> str:
        """One line for people."""
        if self.fault:
            return f"{self.table}: left as it is: {self.fault}"
        was = f"{self.files_before:,} files, {self.bytes_before:,} bytes"
        if self.is_dropped:
            return f"{self.table}: deleted, {was}"
        now = f"{self.files_after:,} files, {self.bytes_after:,} bytes"
        return f"{self.table}: {self.partitions:,} partitions, {self.rows:,} rows: {was} -> {now}"


def compact(warehouse: Warehouse, run: Run, target_bytes: int, *, drop_bronze: bool = False) -> Iterator[Compacted]:
    """Make the files of all tables about ``target_bytes`` large; tables with such files are skipped.

    Each partition is replaced completely or not at all. Call this within ``writing`` of the warehouse.

    :param drop_bronze: delete the lines of batches whose files are all settled.
    """
    if drop_bronze:
        with run.stage("lines that are settled"):
            yield from _dropped(warehouse, run)
    tables = [*TABLES.values(), *(report.TABLE for report in BUILT.values())]
    for table in (*tables, *_batches(warehouse), RUNS):
        most = LOG_FILES if table is RUNS else 1
        work = [(part, files) for part, files in _parts(warehouse, table) if _is_scattered(files, target_bytes, most)]
        if work:
            with run.stage(table.name):
                yield from _rearranged(warehouse, run, table, work, target_bytes)
    note_rearranged(warehouse)  # else the next run would build the reports of all these days again


_Sizes = list[int]


def _parts(warehouse: Warehouse, table: Table) -> Iterator[tuple[str, _Sizes]]:
    for part, files in warehouse.parts(table):
        yield part, [file.size for file in files]


def _is_scattered(files: _Sizes, target_bytes: int, most: int) -> bool:
    """Whether files are less than half of the target size. Rewritten files are larger, so they stay."""
    return len(files) > most and len(files) * target_bytes > 2 * sum(files)


def _rearranged(
    warehouse: Warehouse, run: Run, table: Table, work: list[tuple[str, _Sizes]], target_bytes: int
) -> Iterator[Compacted]:
    done, worked = Compacted(table.name), set()
    for part, files in work:
        try:
            rows = warehouse.rearrange(table, part, max(1, round(sum(files) / target_bytes)))
        except (PipelineError, PySparkException, Py4JError) as error:
            run.reject(DAMAGED)
            yield Compacted("/".join(filter(None, (table.name, part))), fault=one_line(error))
            continue
        run.count("files", len(files))
        run.count("bytes", sum(files))
        run.count("rows", rows)
        worked.add(part)
        done.partitions += 1
        done.files_before += len(files)
        done.bytes_before += sum(files)
        done.rows += rows
    if worked:
        after = [files for part, files in _parts(warehouse, table) if part in worked]
        done.files_after, done.bytes_after = sum(map(len, after)), sum(map(sum, after))
        yield done


def _batches(warehouse: Warehouse, *names: str) -> Iterator[Table]:
    """The tables of lines of each batch."""
    for name in names or _OF_BATCHES:
        for entry in warehouse.storage.entries(warehouse.storage.join(name)):
            if entry.is_directory and entry.name.startswith(_BATCH):
                yield _OF_BATCHES[name](entry.name.removeprefix(_BATCH))


def _dropped(warehouse: Warehouse, run: Run) -> Iterator[Compacted]:
    """Delete the lines of each batch without unsettled files: it is done, or its run was killed and repeated."""
    open_ = warehouse.read(INVENTORY).where("NOT settled").select("batch").distinct().collect()
    needed = {lines.bronze(str(row["batch"])).name for row in open_}
    for table in _batches(warehouse, "bronze"):
        if table.name not in needed:
            files = [size for _, sizes in _parts(warehouse, table) for size in sizes]
            warehouse.drop(table)
            run.count("files", len(files))
            run.count("bytes", sum(files))
            yield Compacted(table.name, files_before=len(files), bytes_before=sum(files), is_dropped=True)
