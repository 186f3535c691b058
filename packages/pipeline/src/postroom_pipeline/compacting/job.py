"""Rewrites what lies in many small files, and drops lines that no run will read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row

from ..errors import PipelineError, said_by
from ..ingest import raw
from ..io import Warehouse
from ..reports import BUILT
from ..runlog import RUNS, Run
from ..table import Table
from ..tables import ALL as TABLES
from ..tables import inventory

#: Of ``runs``, of which every run adds a file: so many do no harm.
LOG_FILES: Final = 16
_BATCH: Final = "batch="
#: Directories of batches, and what the table of one is.
_OF_BATCHES: Final = {"bronze": raw.bronze, "unknown": raw.unknown}
#: Refusal of a partition whose files cannot be read.
DAMAGED: Final = "damaged"


@dataclass
class Compacted:
    """What became of one table, or of the lines of one batch."""

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
            return f"{self.table}: dropped, {was}"
        now = f"{self.files_after:,} files, {self.bytes_after:,} bytes"
        return f"{self.table}: {self.partitions:,} partitions, {self.rows:,} rows: {was} -> {now}"


def compact(warehouse: Warehouse, run: Run, target_bytes: int, *, drop_bronze: bool = False) -> Iterator[Compacted]:
    """Make the files of all tables about as large as wanted; tables that are well are passed over.

    Of each partition all is exchanged at once, or nothing. Within ``writing`` of the warehouse.

    :param drop_bronze: take the lines of batches away whose files are all settled.
    """
    if drop_bronze:
        with run.stage("lines that are settled"):
            yield from _dropped(warehouse, run)
    known = [module.TABLE for module in (*TABLES.values(), *BUILT.values())]
    for table in (*known, *_batches(warehouse), RUNS):
        most = LOG_FILES if table is RUNS else 1
        work = [(part, files) for part, files in _parts(warehouse, table) if _is_scattered(files, target_bytes, most)]
        if work:
            with run.stage(table.name):
                yield from _rearranged(warehouse, run, table, work, target_bytes)


_Sizes = list[int]


def _parts(warehouse: Warehouse, table: Table) -> Iterator[tuple[str, _Sizes]]:
    for part, files in warehouse.parts(table):
        yield part, [file.size for file in files]


def _is_scattered(files: _Sizes, target_bytes: int, most: int) -> bool:
    """Whether files are less than half as large as they shall be. What was rewritten is not, so it rests."""
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
            yield Compacted("/".join(filter(None, (table.name, part))), fault=said_by(error))
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
    """The tables of lines that runs have left, of each batch."""
    for name in names or _OF_BATCHES:
        for entry in warehouse.storage.entries(warehouse.storage.join(name)):
            if entry.is_directory and entry.name.startswith(_BATCH):
                yield _OF_BATCHES[name](entry.name.removeprefix(_BATCH))


def _dropped(warehouse: Warehouse, run: Run) -> Iterator[Compacted]:
    """Drop the lines of each batch that no file waits in: it is done, or the run was killed and had another one."""
    open_ = warehouse.read(inventory.TABLE).where("NOT settled").select("batch").distinct().collect()
    kept = {raw.bronze(_batch_of(row)).name for row in open_}
    for table in _batches(warehouse, "bronze"):
        if table.name not in kept:
            files = [size for _, sizes in _parts(warehouse, table) for size in sizes]
            warehouse.drop(table)
            run.count("files", len(files))
            run.count("bytes", sum(files))
            yield Compacted(table.name, files_before=len(files), bytes_before=sum(files), is_dropped=True)


def _batch_of(row: Row) -> str:
    return str(row["batch"])
