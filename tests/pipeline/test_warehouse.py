"""Tables are replaced by whole partitions, complete for every reader, and repaired after a kill."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pandas
import polars
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.testing import assertDataFrameEqual

from postroom_pipeline.doctor.checks import check_landing_elsewhere
from postroom_pipeline.errors import EnvironmentProblem, Occupied, PipelineError, SchemaMismatch
from postroom_pipeline.schema.table import Table
from postroom_pipeline.spark.hadoop_storage import HadoopStorage
from postroom_pipeline.spark.location import storage_of
from postroom_pipeline.spark.warehouse import LOCK, STAGING, Warehouse

COLUMNS = StructType(
    [StructField("device", StringType()), StructField("event", LongType()), StructField("day", StringType())]
)
EVENTS = Table("silver/events", COLUMNS, key=("device", "event"), partition=("day",))
DEVICES = Table("devices", COLUMNS, key=("device",))


@pytest.fixture
def frame_of(spark):
    """Makes a frame of rows."""
    return lambda *rows: spark.createDataFrame(list(rows), COLUMNS)


def by_duckdb(query):
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def rows_of(frame):
    return sorted(tuple(row) for row in frame.collect())


def test_a_table_that_was_never_written_is_empty(warehouse):
    frame = warehouse.read(EVENTS)
    assert (frame.schema, frame.count()) == (COLUMNS, 0)


def test_written_rows_are_read_back(warehouse, frame_of):
    rows = [("a", 1, "2026-01-01"), ("b", 2, "2026-01-02")]
    warehouse.write(EVENTS, frame_of(*rows))
    assertDataFrameEqual(warehouse.read(EVENTS), frame_of(*rows))


def test_only_the_partitions_of_the_frame_are_replaced(warehouse, frame_of):
    warehouse.write(EVENTS, frame_of(("a", 1, "2026-01-01"), ("b", 2, "2026-01-02"), ("c", 3, "2026-01-02")))
    warehouse.write(EVENTS, frame_of(("d", 4, "2026-01-02")))
    assert rows_of(warehouse.read(EVENTS)) == [("a", 1, "2026-01-01"), ("d", 4, "2026-01-02")]


def test_a_named_partition_without_rows_is_removed(warehouse, frame_of):
    rows = [("a", 1, "x=1 /ä"), ("b", 2, "2"), ("c", 3, "3")]
    warehouse.write(EVENTS, frame_of(*rows))
    warehouse.write(EVENTS, frame_of(("d", 4, "3")), replacing=[{"day": "x=1 /ä"}, {"day": "3"}, {"day": "never"}])
    assert rows_of(warehouse.read(EVENTS)) == [("b", 2, "2"), ("d", 4, "3")]


@pytest.mark.parametrize("rows", [[], [("d", 4, "2026-01-02")]], ids=["empty", "rows"])
@pytest.mark.parametrize("table", [EVENTS, DEVICES], ids=lambda table: table.name)
def test_a_table_is_replaced_as_a_whole(warehouse, frame_of, table, rows):
    warehouse.write(table, frame_of(("a", 1, "2026-01-01"), ("b", 2, "2026-01-02")))
    warehouse.write(table, frame_of(*rows), replacing="all")
    assert rows_of(warehouse.read(table)) == rows


def test_a_table_without_rows_has_its_columns(warehouse, frame_of):
    for rows in ([], [("d", 4, "2026-01-02")], []):
        if rows:
            warehouse.write(EVENTS, frame_of(*rows))
        else:
            warehouse.write(EVENTS, frame_of(), replacing="all")
        assert rows_of(warehouse.read(EVENTS)) == rows
        place = warehouse.path(EVENTS).removeprefix("file:")
        question = f"select * from read_parquet('{place}/**/*.parquet', hive_partitioning = true)"
        assert [row[:2] for row in by_duckdb(question)] == [row[:2] for row in rows]
        lazy = polars.scan_parquet(f"{place}/**/*.parquet", hive_partitioning=True)
        assert lazy.collect().columns == [*pandas.read_parquet(place).columns] == COLUMNS.names


def test_a_table_can_be_computed_from_itself(warehouse, frame_of):
    warehouse.write(DEVICES, frame_of(("a", 1, "x")))
    for event in (2, 3):
        warehouse.write(DEVICES, warehouse.read(DEVICES).union(frame_of(("a", event, "x"))))
    assert rows_of(warehouse.read(DEVICES)) == [("a", 1, "x"), ("a", 2, "x"), ("a", 3, "x")]


def test_a_log_is_appended_to(warehouse, frame_of):
    warehouse.append(DEVICES, frame_of(("a", 1, "x")))
    before = {path: path.stat().st_mtime_ns for path in files_of(warehouse, DEVICES)}
    warehouse.append(DEVICES, frame_of(("b", 2, "x")))
    assert rows_of(warehouse.read(DEVICES)) == [("a", 1, "x"), ("b", 2, "x")]
    assert len(before) == 1
    assert before.items() <= {path: path.stat().st_mtime_ns for path in files_of(warehouse, DEVICES)}.items()
    with pytest.raises(PipelineError, match="silver/events: cannot append to a table with partitions"):
        warehouse.append(EVENTS, frame_of(("a", 1, "x")))


def files_of(warehouse, table):
    return list(warehouse.storage.local(warehouse.path(table)).rglob("*.parquet"))


def test_a_column_that_older_files_do_not_have_is_null(warehouse, frame_of, spark):
    warehouse.write(DEVICES, frame_of(("a", 1, "x")))
    wider = Table("devices", StructType([*COLUMNS.fields, StructField("city", StringType())]), key=("device",))
    assert rows_of(warehouse.read(wider)) == [("a", 1, "x", None)]


def test_a_frame_that_does_not_match_the_table_is_refused_with_every_difference(warehouse, spark):
    frame = spark.sql("SELECT 1 AS device, 'x' AS day, 'y' AS more")
    with pytest.raises(SchemaMismatch) as refused:
        warehouse.write(EVENTS, frame)
    assert str(refused.value) == "table silver/events: event is missing; more is unexpected; device is int, not string"
    assert not warehouse.exists(EVENTS)


def test_a_table_is_one_directory_of_zstd_files_in_the_order_of_the_key(warehouse, frame_of):
    warehouse.write(EVENTS, frame_of(*[("d", event, "2026-01-01") for event in (3, 1, 2)]))
    (file,) = files_of(warehouse, EVENTS)
    assert file.name.endswith(".zstd.parquet")
    assert by_duckdb(f"SELECT event FROM '{file}'") == [(1,), (2,), (3,)]
    names = {path.name for path in warehouse.storage.local(warehouse.storage.location).rglob("*")}
    assert not [name for name in names if name.startswith("_SUCCESS")]


def test_other_readers_read_the_table_as_it_is(warehouse, frame_of):
    rows = [("a", 1, "2026-01-01"), ("b", 2, "2026-01-02")]
    warehouse.write(EVENTS, frame_of(*rows))
    place = warehouse.storage.local(warehouse.path(EVENTS))
    query = f"SELECT device, event, CAST(day AS VARCHAR) FROM read_parquet('{place}/**/*.parquet') ORDER BY event"
    assert by_duckdb(query) == rows
    by_polars = polars.read_parquet(f"{place}/**/*.parquet", hive_partitioning=True).sort("event")
    assert by_polars.select("device", "event").rows() == [("a", 1), ("b", 2)]
    by_pandas = pandas.read_parquet(place).sort_values("event")
    assert list(by_pandas["device"]) == ["a", "b"]
    assert list(by_pandas["day"].astype(str)) == ["2026-01-01", "2026-01-02"]


class Killed(BaseException):
    """Ends a run where it stands, as a kill does: nobody catches it."""


@pytest.mark.parametrize("renames", [True, False], ids=["a file system", "an object store"])
def test_a_run_that_is_killed_anywhere_in_its_moves_is_finished_by_the_next(
    spark, frame_of, tmp_path, monkeypatch, renames
):
    monkeypatch.setattr(HadoopStorage, "renames_directories", renames)
    old = [("a", 1, "1"), ("b", 2, "2"), ("c", 3, "3")]
    new = [("x", 7, "2"), ("y", 8, "4")]
    finished = [("a", 1, "1"), *new]
    template = Warehouse(spark, str(tmp_path / "template"))
    template.write(EVENTS, frame_of(*old))
    frame = frame_of(*new).cache()
    seen = set()
    for calls in range(1, 100):
        home = tmp_path / str(calls)
        shutil.copytree(tmp_path / "template", home)
        warehouse = Warehouse(spark, str(home))
        left = [calls]
        for name in ("rename", "delete", "write_text"):
            copies = name == "rename" and not renames
            monkeypatch.setattr(warehouse.storage, name, dying(getattr(warehouse.storage, name), left, copies))
        try:
            warehouse.write(EVENTS, frame, replacing=[{"day": "3"}])
            break
        except Killed:
            after = Warehouse(spark, str(home))
            with after.writing("test"):
                pass
            assert [path.name for path in home.iterdir() if path.name != LOCK] == ["silver"]
            rows = rows_of(after.read(EVENTS))
            assert rows in (old, finished)
            seen.add(rows == finished)
    assert seen == {False, True}
    assert rows_of(warehouse.read(EVENTS)) == finished
    frame.unpersist()


def dying(call, left, copies=False):
    """``call``, which kills the run when nothing is left; a copying rename has then copied and not deleted."""

    def instead(*arguments):
        left[0] -= 1
        if left[0] == 0:
            if copies:
                source, target = (Path(path.removeprefix("file:")) for path in arguments)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
            raise Killed
        return call(*arguments)

    return instead


def test_files_staged_without_a_plan_are_removed_by_the_next_writer(warehouse, frame_of, tmp_path):
    leftover = tmp_path / "tables" / STAGING / "left"
    (leftover / "new").mkdir(parents=True)
    with warehouse.writing("test"):
        assert not leftover.exists()


def test_a_second_writer_is_refused_and_sees_who_is_first(spark, warehouse):
    other = Warehouse(spark, warehouse.storage.location)
    reported = r"is being written by ingest \(process \d+ on .*, since 20"
    with warehouse.writing("ingest"), pytest.raises(Occupied, match=reported), other.writing("follow"):
        pass
    with warehouse.writing("follow"):
        pass


@pytest.fixture
def elsewhere(spark, tmp_path):
    """A location on a file system that is not the local one: Hadoop's own, of mounted places."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    name = "fs.viewfs.mounttable.fleet.link./data"
    configuration.set(name, tmp_path.as_uri())
    configuration.setBoolean("fs.viewfs.impl.disable.cache", True)  # else the next test would find this test's place
    yield "viewfs://fleet/data"
    configuration.unset(name)


def test_tables_are_on_any_file_system_of_hadoop(spark, elsewhere, frame_of):
    warehouse = Warehouse(spark, f"{elsewhere}/tables")
    with warehouse.writing("test"):
        warehouse.write(EVENTS, frame_of(("a", 1, "1"), ("b", 2, "2")))
        warehouse.write(EVENTS, frame_of(("c", 3, "2")), replacing=[{"day": "1"}])
        warehouse.append(DEVICES, frame_of(("a", 1, "x")))
    assert rows_of(warehouse.read(EVENTS)) == [("c", 3, "2")]
    assert rows_of(warehouse.read(DEVICES)) == [("a", 1, "x")]
    assert warehouse.storage.local(warehouse.storage.location) is None


def test_a_remote_lock_is_a_file_that_the_error_names(spark, elsewhere):
    warehouse = Warehouse(spark, elsewhere)
    path = warehouse.storage.join(LOCK)
    with warehouse.writing("ingest"):
        assert json.loads(warehouse.storage.read_text(path))["who"] == "ingest"
        with pytest.raises(Occupied, match=f"by ingest .* or delete {path} if"), warehouse.writing("follow"):
            pass
    assert not warehouse.storage.exists(path)


def test_the_doctor_checks_a_remote_landing_place(spark, elsewhere, tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz.part", "dt=2026-01-01/c.jsonl.gz._COPYING_", "dt=2026-01-01/d.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    first, *others = check_landing_elsewhere(storage_of(spark, elsewhere))
    assert (first.verdict, first.seen) == ("ok", f"{elsewhere} (org.apache.hadoop.fs.viewfs.ViewFileSystem): 3 entries")
    assert [one.seen for one in others] == [
        f"left over from copying: {elsewhere}/b.jsonl.gz.part, {elsewhere}/dt=2026-01-01/c.jsonl.gz._COPYING_",
        f"archives, which are not read: {elsewhere}/dt=2026-01-01/d.tar",
    ]
    (missing,) = check_landing_elsewhere(storage_of(spark, f"{elsewhere}/nothing"))
    assert (missing.verdict, missing.seen) == ("fail", f"{elsewhere}/nothing does not exist")


def test_a_place_without_a_known_file_system_is_an_error_that_names_it(spark):
    with pytest.raises(EnvironmentProblem, match=r'^s3a://bucket/tables: .*(S3AFileSystem|scheme "s3a")'):
        Warehouse(spark, "s3a://bucket/tables")


def test_a_place_where_nothing_can_be_written_is_an_error_that_names_it(spark, frame_of, tmp_path):
    (tmp_path / "file").touch()
    warehouse = Warehouse(spark, str(tmp_path / "file" / "tables"))
    with pytest.raises(EnvironmentProblem, match="the tables cannot be written"), warehouse.writing("test"):
        pass


@pytest.mark.parametrize("wrong", [{"key": ("nobody",)}, {"key": (), "partition": ("device",)}], ids=["key", "order"])
def test_an_invalid_table_cannot_be_defined(wrong):
    with pytest.raises(ValueError, match=r"no column nobody|come last"):
        Table("t", COLUMNS, **wrong)
