"""``compact``: many small files become few, with the same rows, whatever happens meanwhile."""

from __future__ import annotations

import datetime as dt
import io
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from postroom_pipeline.bronze import lines as bronze_lines
from postroom_pipeline.bronze.inventory import INVENTORY
from postroom_pipeline.cli import main
from postroom_pipeline.cli.damage import advice
from postroom_pipeline.errors import one_line
from postroom_pipeline.jobs.compact import LOG_FILES, Compacted, compact
from postroom_pipeline.silver.state import QUEUE_DEPTH
from postroom_pipeline.spark.runlog import RUNS, Progress, Run
from postroom_pipeline.spark.warehouse import Warehouse
from tests.pipeline.killing import killed_at_rename

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postroom_pipeline.schema.table import Table

pytestmark = pytest.mark.usefixtures("quick")

MB = 1_000_000
DAYS = (dt.date(2026, 11, 27), dt.date(2026, 11, 28))
DEPTH = QUEUE_DEPTH


def frame_of(spark: SparkSession, table: Table, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a table; what a row does not name is null."""
    names = list(rows[0])
    values = ", ".join(f"({', '.join(_literal(row[name]) for name in names)})" for row in rows)
    named = spark.sql(f"SELECT * FROM VALUES {values} AS told({', '.join(names)})")
    columns = [F.col(one.name) if one.name in names else F.lit(None) for one in table.schema.fields]
    return named.select(
        *(column.cast(one.dataType).alias(one.name) for column, one in zip(columns, table.schema.fields, strict=True))
    )


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"'{value}'"


def scatter(warehouse: Warehouse, table: Table, frame: DataFrame, files: int) -> None:
    warehouse.write(table, frame.repartition(files), as_it_comes=True)


def depths(spark: SparkSession) -> DataFrame:
    rows = [{"device": f"d{n % 4}", "snapshot": f"s{n}", "queue": "q", "day": DAYS[n % 2]} for n in range(40)]
    return frame_of(spark, DEPTH, *rows)


def made(warehouse: Warehouse, spark: SparkSession, **options: Any) -> list[Compacted]:
    with warehouse.writing("test"):
        return list(compact(warehouse, Run("compact", Progress(spark, io.StringIO())), MB, **options))


def files_of(warehouse: Warehouse, table: Table) -> list[Path]:
    place = warehouse.storage.local(warehouse.path(table))
    assert place is not None
    return sorted(place.rglob("*.parquet"))


def rows_of(warehouse: Warehouse, table: Table) -> list[str]:
    return sorted(map(str, warehouse.read(table).collect()))


def test_small_files_become_one_a_day_with_the_same_rows_and_a_second_run_does_nothing(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    scatter(warehouse, DEPTH, depths(spark), 5)
    rows, scattered = rows_of(warehouse, DEPTH), files_of(warehouse, DEPTH)
    (done,) = made(warehouse, spark)
    files = files_of(warehouse, DEPTH)
    assert [file.parent.name for file in files] == [f"day={day}" for day in DAYS]
    assert (done.partitions, done.files_before, done.files_after, done.rows) == (2, len(scattered), 2, 40)
    assert rows_of(warehouse, DEPTH) == rows
    in_order = [(row["device"], row["snapshot"]) for row in spark.read.parquet(str(files[0])).collect()]
    assert in_order == sorted(in_order)
    assert made(warehouse, spark) == []
    assert files_of(warehouse, DEPTH) == files


def test_columns_unknown_to_this_version_stay(spark: SparkSession, warehouse: Warehouse) -> None:
    scatter(warehouse, INVENTORY, frame_of(spark, INVENTORY, {"sha256": "a"}), 1)
    newer = frame_of(spark, INVENTORY, {"sha256": "b"}).withColumn("more", F.lit(7))
    newer.write.mode("append").parquet(warehouse.path(INVENTORY))
    assert [done.rows for done in made(warehouse, spark)] == [2]
    (file,) = files_of(warehouse, INVENTORY)
    assert spark.read.parquet(str(file)).select("sha256", "more").collect() == [("a", None), ("b", 7)]


def test_a_damaged_file_is_reported_and_its_partition_stays_as_it_is(spark: SparkSession, warehouse: Warehouse) -> None:
    scatter(warehouse, DEPTH, depths(spark), 3)
    files = files_of(warehouse, DEPTH)
    files[0].write_bytes(b"PAR1" + bytes(200))
    (files[0].parent / f".{files[0].name}.crc").unlink(missing_ok=True)
    fault, done = made(warehouse, spark)
    assert fault.table == f"queue_depth/day={DAYS[0]}"
    assert "left as it is" in fault.described
    assert (done.partitions, done.files_after) == (1, 1)
    assert files_of(warehouse, DEPTH)[:-1] == [file for file in files if file.parent.name == f"day={DAYS[0]}"]
    with pytest.raises((PySparkException, Py4JError)) as error:
        warehouse.read(DEPTH).collect()
    assert advice(one_line(error.value)) == (
        f"{files[0]} is damaged: bring it back from a backup, or take all snapshots in again, into a new directory"
    )


def test_a_run_that_is_killed_in_its_moves_leaves_the_old_files_or_the_new_ones(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    frame = frame_of(spark, INVENTORY, *({"sha256": str(n)} for n in range(9)))
    seen = set()
    for number in (1, 2, 3):
        scatter(warehouse, INVENTORY, frame, 3)
        rows = rows_of(warehouse, INVENTORY)
        with killed_at_rename(number):
            made(warehouse, spark)
        with warehouse.writing("test"):
            assert rows_of(warehouse, INVENTORY) == rows
        seen.add(len(files_of(warehouse, INVENTORY)))
    assert seen == {1, 3}


def test_bronze_lines_are_removed_only_on_request_and_if_no_file_of_their_batch_is_waiting(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    files = [{"sha256": "a", "batch": "done", "settled": True}, {"sha256": "b", "batch": "open", "settled": True}]
    files.append({"sha256": "c", "batch": "open", "settled": False})
    warehouse.write(INVENTORY, frame_of(spark, INVENTORY, *files))
    for batch in ("done", "open", "killed"):
        table = bronze_lines.bronze(batch)
        scatter(warehouse, table, frame_of(spark, table, {"file": "f", "kind": "event"}), 1)
        newer = bronze_lines.unknown(batch)
        scatter(warehouse, newer, frame_of(spark, newer, {"file": "f", "line": "{}"}), 1)
    assert made(warehouse, spark) == []
    dropped = made(warehouse, spark, drop_bronze=True)
    assert [(one.table, one.is_dropped) for one in dropped] == [
        ("bronze/batch=done", True),
        ("bronze/batch=killed", True),
    ]
    assert [warehouse.exists(bronze_lines.bronze(batch)) for batch in ("done", "open", "killed")] == [
        False,
        True,
        False,
    ]
    assert all(warehouse.exists(bronze_lines.unknown(batch)) for batch in ("done", "open", "killed"))


def test_the_log_of_runs_is_compacted_from_time_to_time(spark: SparkSession, warehouse: Warehouse) -> None:
    runs = frame_of(spark, RUNS, *({"run": f"{n:03}"} for n in range(5 * LOG_FILES)))
    scatter(warehouse, RUNS, runs, LOG_FILES)
    assert made(warehouse, spark) == []
    scatter(warehouse, RUNS, runs, LOG_FILES + 1)
    assert [(done.table, done.files_after, done.rows) for done in made(warehouse, spark)] == [("runs", 1, 80)]


def test_a_missing_directory_is_not_created(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom_pipeline.spark.session.session", lambda name, given: nullcontext(spark))
    run = CliRunner().invoke(main, ["compact", "--out", str(tmp_path / "gone")])
    assert (run.exit_code, "gone: there is no such directory" in run.stderr) == (3, True)
    assert not (tmp_path / "gone").exists()
