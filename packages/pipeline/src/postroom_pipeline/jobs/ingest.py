"""The run that takes snapshots in: from a landing directory to tables and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..bronze import inventory
from ..bronze import lines as bronze_lines
from ..bronze import rejects as bronze_rejects
from ..bronze.admission import sums, verdicts, with_endings
from ..bronze.inventory import INVENTORY
from ..bronze.rejects import REJECTS
from ..errors import EnvironmentProblem, PipelineError
from ..local.settled import DIGEST, FOR_GOOD, NOTE, PART, note_of
from ..schema.columns import day_of
from ..silver.snapshots import ORIGINS
from ..spark.location import storage_of
from ..spark.runlog import Run
from ..spark.session import lightly, materialized
from ..spark.warehouse import Warehouse
from .gold import are_behind, mark_behind, write_reports
from .silver import TRAILERS, SilverWriter

#: About what a file takes in the tables of files.
_ROW_BYTES: Final = 100


@dataclass(frozen=True)
class Batch:
    """The files of one run whose content is new."""

    id: str
    count: int
    bytes: int
    #: Rows of ``inventory.fresh``.
    files: DataFrame
    #: Rows of ``inventory.unread``.
    unread: DataFrame
    #: Rows of ``inventory.others``.
    others: DataFrame


def ingest(session: SparkSession, landing: str, warehouse: Warehouse, run: Run, *, reports: bool = True) -> None:
    """Take in what is new in a directory. It can be repeated: nothing is taken in twice, and a run completes what a
    killed one left unfinished.

    :raises EnvironmentProblem: the directory does not exist.
    :raises PipelineError: a file of the directory is neither taken in nor rejected.
    """
    if not storage_of(session, landing).exists(landing):
        raise EnvironmentProblem(f"{landing}: there is no such directory")
    with run.stage("inventory"):
        listed = inventory.listed(session, landing)
        few_bytes = _ROW_BYTES * inventory.number_of(listed)
        with lightly(session, few_bytes):  # one row for each file
            named = materialized(inventory.names(listed))
            seen = materialized(inventory.hashed(session, listed, named))
            unread = materialized(inventory.unread(session, listed, named, seen))
            batch = _batch(warehouse, run, seen, unread)
    if batch.count:
        _take_in(session, landing, warehouse, run, batch, reports=reports)
    else:
        _reject_unread(warehouse, run, batch)
        if reports and are_behind(warehouse):
            write_reports(warehouse, run)
    with lightly(session, few_bytes):
        _note_settled(warehouse, seen, unread)


def _note_settled(warehouse: Warehouse, seen: DataFrame, unread: DataFrame) -> None:
    """Note what is in the directory if all of it is settled, so that the next run can end before it starts Spark."""
    storage, note = warehouse.storage, warehouse.storage.join(NOTE)
    line = F.concat(F.coalesce("length", F.lit(0)).cast("string"), F.lit(" "), F.col("name"))
    read = seen.select("sha256").distinct().agg(*_sums("sha256")).first()
    named = unread.withColumn("line", F.sha2(line, 256))
    others = named.agg(*_sums("line"), F.count_if(~F.col("reason").isin(*FOR_GOOD)).alias("pending")).first()
    assert read is not None and others is not None  # an aggregate has one row
    if others["pending"] or not warehouse.read(INVENTORY).where("NOT settled").isEmpty():
        storage.delete(note)
        return
    entries = [one for one in storage.entries(warehouse.path(INVENTORY)) if not one.name.startswith((".", "_"))]
    storage.write_text(
        note, note_of([*map(int, read)], [*map(int, others[:-1])], [(one.name, one.size) for one in entries])
    )


def _sums(digest: str) -> list[Column]:
    """The sums that ``settled.sums_of`` makes of a column of digests, whatever their number and order."""
    parts = (F.substring(digest, 1 + place, PART) for place in range(0, DIGEST, PART))
    numbers = (F.conv(part, 16, 10).cast("decimal(20, 0)") for part in parts)
    return [F.coalesce(F.sum(number), F.lit(0)).alias(f"sum_{place}") for place, number in enumerate(numbers)]


def _batch(warehouse: Warehouse, run: Run, seen: DataFrame, unread: DataFrame) -> Batch:
    files = materialized(inventory.fresh(seen, warehouse.read(INVENTORY)))
    row = inventory.batch_of(files).first()
    assert row is not None  # an aggregate has one row
    run.count("files", row["files"])
    run.count("bytes", row["bytes"])
    return Batch(row["batch"], row["files"], row["bytes"], files, unread, inventory.others(seen, files, unread))


def _take_in(
    session: SparkSession, landing: str, warehouse: Warehouse, run: Run, batch: Batch, *, reports: bool
) -> None:
    files = bronze_lines.files_of(session, landing, batch.files, batch.count, batch.others)
    table = bronze_lines.bronze(batch.id)
    with run.stage("lines"), lightly(session, batch.bytes):
        rows = bronze_lines.lines(files)
        warehouse.write(table, rows, replacing="all", as_it_comes=True, options=bronze_lines.WRITING)
        lines = warehouse.read(table)
    sizes = warehouse.sizes(table)
    with run.stage("admission"):
        with lightly(session, sum(sizes.values())):
            summed = materialized(sums(lines, batch.files))
        with lightly(session, sizes.get(TRAILERS, 0)):  # from here on one row for each snapshot or file
            read = materialized(with_endings(batch.files, lines, summed))
            rows = materialized(verdicts(lines, summed, read, warehouse.read(ORIGINS)))
            accepted = rows.where("reason IS NULL").withColumn("batch", F.lit(batch.id))
            rejects = bronze_rejects.rejects(rows, lines, read, batch.unread)
            rejects = materialized(rejects.withColumn("batch", F.lit(batch.id)))
            _check_complete(batch, rows, rejects)
        _store_unknown(warehouse, files, rows, batch)
    if not accepted.isEmpty():
        since = F.least("least_day", day_of(F.col("wall_ms"), F.col("arrival")))
        mark_behind(warehouse, accepted.withColumn("since", since))
        SilverWriter(warehouse, run, lines, accepted, sizes).write()
    if reports and are_behind(warehouse):
        write_reports(warehouse, run)
    with run.stage("inventory of files"), lightly(session, sizes.get(TRAILERS, 0)):
        _write_rejects(warehouse, run, batch, rejects)
        files_of_batch = batch.files.withColumn("batch", F.lit(batch.id))
        warehouse.write(INVENTORY, inventory.updated(warehouse.read(INVENTORY), files_of_batch, accepted, rejects))


def _check_complete(batch: Batch, rows: DataFrame, rejects: DataFrame) -> None:
    """Every file has a snapshot, or a row that says why it has none."""
    explained = rows.select("sha256").unionByName(rejects.select("sha256"))
    silent = batch.files.join(explained, "sha256", "left_anti").select("path").limit(1).collect()
    if silent:
        raise PipelineError(f"{silent[0]['path']}: nothing was read from this file, and no reason is known")


def _store_unknown(warehouse: Warehouse, files: bronze_lines.Files, rows: DataFrame, batch: Batch) -> None:
    """Store the lines that have fields or kinds of a newer version, as they are."""
    newer = rows.where("unknown_fields > 0 OR unknown_lines > 0").select("file", "snapshot")
    if not newer.isEmpty():
        warehouse.write(bronze_lines.unknown(batch.id), bronze_lines.unknown_lines(files, newer))


def _reject_unread(warehouse: Warehouse, run: Run, batch: Batch) -> None:
    rejects = bronze_rejects.of_unread(batch.unread).withColumn("batch", F.lit(""))
    if not rejects.isEmpty():
        _write_rejects(warehouse, run, batch, rejects)


def _write_rejects(warehouse: Warehouse, run: Run, batch: Batch, rejects: DataFrame) -> None:
    for row in rejects.groupBy("reason").count().collect():
        run.reject(row["reason"], row["count"])
    no_hash = F.lit("").alias("sha256")
    examined = batch.files.select("path", "sha256").unionByName(batch.unread.select("path", no_hash))
    examined = examined.unionByName(batch.files.select("path", no_hash)).distinct()  # unreadable before, readable now
    warehouse.write(REJECTS, bronze_rejects.updated(warehouse.read(REJECTS), examined, rejects))
