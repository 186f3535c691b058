"""The run that takes snapshots in: from a landing directory to tables and reports."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import EnvironmentProblem, PipelineError
from ..held import held
from ..io import Warehouse
from ..runlog import Run
from ..spark import lightly
from ..storage import Storage
from ..tables import inventory as inventory_table
from ..tables import origins, rejects
from . import inventory, raw, refusals
from .admission import judged
from .endings import read_files
from .gold import are_behind, mark_behind, write_reports
from .silver import Silver
from .sums import sums


@dataclass(frozen=True)
class Batch:
    """The files of one run that are new by what they hold."""

    id: str
    count: int
    #: Rows of ``inventory.fresh``.
    files: DataFrame
    #: Rows of ``inventory.refused``.
    refused: DataFrame
    #: Rows of ``inventory.others``.
    others: DataFrame


def ingest(session: SparkSession, landing: str, warehouse: Warehouse, run: Run, *, reports: bool = True) -> None:
    """Take in what is new in a directory. The same again changes nothing; the next run makes a killed one good.

    :raises EnvironmentProblem: there is no such directory.
    :raises PipelineError: a file of the directory could not be accounted for.
    """
    if not Storage(session, landing).exists(landing):
        raise EnvironmentProblem(f"{landing}: there is no such directory")
    with run.stage("inventory"), lightly(session):  # a row a file
        listed = inventory.listed(session, landing)
        named = held(inventory.names(listed))
        seen = held(inventory.hashed(session, listed, named))
        refused = held(inventory.refused(session, listed, named, seen))
        batch = _batch(warehouse, run, seen, refused)
    if batch.count:
        _take_in(session, landing, warehouse, run, batch, reports=reports)
    else:
        _write_refused(warehouse, run, batch)
        if reports and are_behind(warehouse):
            write_reports(warehouse, run)


def _batch(warehouse: Warehouse, run: Run, seen: DataFrame, refused: DataFrame) -> Batch:
    files = held(inventory.fresh(seen, warehouse.read(inventory_table.TABLE)))
    told = inventory.batch_id(files).first()
    assert told is not None  # an aggregate has one row
    run.count("files", told["files"])
    run.count("bytes", told["bytes"])
    return Batch(told["batch"], told["files"], files, refused, inventory.others(seen, files, refused))


def _take_in(
    session: SparkSession,
    landing: str,
    warehouse: Warehouse,
    run: Run,
    batch: Batch,
    *,
    reports: bool,
) -> None:
    files = raw.files_of(session, landing, batch.files, batch.count, batch.others)
    table = raw.bronze(batch.id)
    with run.stage("lines"):
        warehouse.write(table, raw.lines(files), replacing="all", as_it_comes=True)
        lines = warehouse.read(table)
    with run.stage("admission"):
        summed = held(sums(lines, batch.files))
        read = held(read_files(batch.files, lines, summed))
        rows = held(judged(lines, summed, read, warehouse.read(origins.TABLE)))
        accepted = rows.where("reason IS NULL").withColumn("batch", F.lit(batch.id))
        refused = refusals.rejects(rows, lines, read, batch.refused)
        refused = held(refused.withColumn("batch", F.lit(batch.id)))
        _account(batch, rows, refused)
        _keep_unknown(warehouse, files, lines, rows, batch)
    if not accepted.isEmpty():
        mark_behind(warehouse)
        Silver(warehouse, run, lines, accepted).write()
    if reports and are_behind(warehouse):
        write_reports(warehouse, run)
    with run.stage("inventory of files"):
        _write_rejects(warehouse, run, batch, refused)
        frames = {
            "known": warehouse.read(inventory_table.TABLE),
            "files": batch.files.withColumn("batch", F.lit(batch.id)),
            "accepted": accepted,
            "rejects": refused,
        }
        warehouse.write(inventory_table.TABLE, inventory_table.build(frames))


def _account(batch: Batch, rows: DataFrame, refused: DataFrame) -> None:
    """Each file has told of a snapshot, or has a row that says why not."""
    told = rows.select("sha256").unionByName(refused.select("sha256"))
    silent = batch.files.join(told, "sha256", "left_anti").select("path").limit(1).collect()
    if silent:
        raise PipelineError(f"{silent[0]['path']}: nothing was read of this file, and nothing says why")


def _keep_unknown(warehouse: Warehouse, files: raw.Files, lines: DataFrame, rows: DataFrame, batch: Batch) -> None:
    """Keep the lines that have fields or kinds of a newer version, as they are."""
    newer = rows.where("unknown_fields > 0 OR unknown_lines > 0").select("file", "snapshot")
    if not newer.isEmpty():
        warehouse.write(raw.unknown(batch.id), raw.unknown_lines(files, newer))


def _write_refused(warehouse: Warehouse, run: Run, batch: Batch) -> None:
    refused = refusals.by_name(batch.refused)
    refused = refused.withColumns({"retryable": F.col("reason").isin(list(refusals.RETRYABLE)), "batch": F.lit("")})
    if not refused.isEmpty():
        _write_rejects(warehouse, run, batch, refused)


def _write_rejects(warehouse: Warehouse, run: Run, batch: Batch, refused: DataFrame) -> None:
    for row in refused.groupBy("reason").count().collect():
        run.reject(row["reason"], row["count"])
    looked_at = batch.files.select("path", "sha256").unionByName(
        batch.refused.select("path", F.lit("").alias("sha256"))
    )
    unreadable = batch.files.select("path", F.lit("").alias("sha256"))  # it can be read now
    frames = {
        "known": warehouse.read(rejects.TABLE),
        "files": looked_at.unionByName(unreadable).distinct(),
        "fresh": refused,
    }
    warehouse.write(rejects.TABLE, rejects.build(frames))
