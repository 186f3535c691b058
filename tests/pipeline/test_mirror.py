"""The tables are mirrored as Delta tables: what has changed, in one commit for each table, and nothing else."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import uuid
from pathlib import Path

import duckdb
import polars
import pyarrow
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from postroom_pipeline.cli import main
from postroom_pipeline.errors import EnvironmentProblem
from postroom_pipeline.lake.delta import DeltaLake
from postroom_pipeline.lake.listing import TABLES
from postroom_pipeline.lake.mirror import mirror
from postroom_pipeline.spark.arrow_storage import ArrowStorage
from postroom_pipeline.spark.warehouse import LOCK, PLAN, STAGING, locked_locally

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


class Tables:
    """Tables as a run leaves them, made without Spark: some columns of ``events`` and ``snapshots``."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.storage = ArrowStorage(location)

    def put(self, directory: str, *rows: tuple[str, int], **more: object) -> str:
        """Replace the files of a directory by a new one."""
        self.storage.delete(self.storage.join(directory))
        self.storage.make_directory(self.storage.join(directory))
        columns = {
            "device": pyarrow.array([row[0] for row in rows], "string"),
            "event": pyarrow.array([row[1] for row in rows], "int64"),
        }
        if "event" not in TABLES[directory.partition("/")[0]].schema.names:
            del columns["event"]
        columns |= {name: pyarrow.array([value] * len(rows)) for name, value in more.items()}
        path = self.storage.join(directory, f"part-00000-{uuid.uuid4()}.c000.zstd.parquet")
        with self.storage._fs.open_output_stream(self.storage._of(path)) as stream:
            parquet.write_table(pyarrow.table(columns), stream)
        return path

    def events(self, day: int, *rows: tuple[str, int], **more: object) -> str:
        return self.put(f"events/day=2026-11-{day:02}", *rows, **more)

    def run(self, name: str, started_ms: int, status: str = "done") -> None:
        row = {"run": name, "command": "ingest", "status": status, "started_ms": started_ms, "version": "1"}
        parquet.write_table(pyarrow.Table.from_pylist([row]), self.storage.local(self.storage.join("runs", name)))


def two_days(place: Path) -> Tables:
    """Events of two days, and the row of a run."""
    made = Tables(str(place))
    made.events(27, ("a", 1), ("a", 2))
    made.events(28, ("a", 3))
    made.storage.make_directory(made.storage.join("runs"))
    made.run("first", 1_000)
    return made


@pytest.fixture
def tables(tmp_path):
    return two_days(tmp_path / "tables")


@pytest.fixture
def lake(tmp_path):
    return str(tmp_path / "lake")


def mirrored(tables, lake):
    """Mirror; what was reported of each table."""
    return {one.table: (one.version, one.added, one.removed) for one in mirror(tables.location, DeltaLake(lake))}


def events_of(lake):
    """Device, event and day of the events, by DuckDB."""
    events = DeltaTable(f"{lake}/events").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("events", events)
        return connection.execute("SELECT device, event, day(day) FROM events ORDER BY ALL").fetchall()


def contents(directory):
    return {path: path.stat().st_mtime_ns for path in Path(directory).rglob("*")}


@pytest.mark.slow
def test_every_table_of_a_run_has_the_same_rows_in_the_lake(taken_in, lake, tmp_path):
    """Mirrored after each of two runs; the second one replaces rows, and builds the reports."""
    place, seen = tmp_path / "tables", {"events", "messages", "snapshots", "runs"}
    for made, new in ((taken_in.first, seen), (taken_in.tables, {*seen, "audit"})):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made, place)
        changed = [one.table for one in mirror(str(place), DeltaLake(lake))]
        assert new <= {*changed}
        assert DeltaTable(f"{lake}/events").history(1)[0]["postroom.command"] == "ingest"
    rows = 0
    for name, table in TABLES.items():
        mirrored = DeltaTable(f"{lake}/{name}")
        columns = ", ".join(f'"{column}"' for column in table.schema.names)
        ours = f"SELECT {columns} FROM read_parquet('{place}/{name}/**/*.parquet', hive_partitioning = true)"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("mirrored", mirrored.to_pyarrow_dataset())
            theirs = f"SELECT {columns} FROM mirrored"
            for one, other in ((ours, theirs), (theirs, ours)):
                assert connection.execute(f"{one} EXCEPT ALL {other}").fetchall() == [], name
            rows += len(connection.execute(theirs).fetchall())
        comments = {field.name: field.metadata.get("comment") for field in mirrored.schema().fields}
        assert comments == {field.name: field.metadata.get("comment") for field in table.schema.fields}
        assert mirrored.metadata().partition_columns == [*table.partition]
    assert rows > 100


def test_only_partitions_that_have_changed_are_replaced(tables, lake):
    assert mirrored(tables, lake) == {"events": (0, 2, 0), "runs": (0, 1, 0)}
    old = DeltaTable(f"{lake}/events").file_uris()
    tables.events(28, ("a", 3), ("b", 1))
    tables.events(29, ("b", 2))
    assert mirrored(tables, lake) == {"events": (1, 2, 1)}
    assert events_of(lake) == [("a", 1, 27), ("a", 2, 27), ("a", 3, 28), ("b", 1, 28), ("b", 2, 29)]
    assert len({*old} & {*DeltaTable(f"{lake}/events").file_uris()}) == 1


def test_a_partition_that_is_gone_is_removed(tables, lake):
    mirrored(tables, lake)
    tables.storage.delete(tables.storage.join("events/day=2026-11-27"))
    assert mirrored(tables, lake) == {"events": (1, 0, 1)}
    assert events_of(lake) == [("a", 3, 28)]


def test_if_nothing_has_changed_nothing_is_written(tables, lake):
    tables.put("snapshots")
    mirrored(tables, lake)
    before = contents(lake)
    assert mirrored(tables, lake) == {}
    assert contents(lake) == before


def test_a_reader_of_the_old_version_still_has_its_rows(tables, lake):
    mirrored(tables, lake)
    old = DeltaTable(f"{lake}/events")
    tables.events(28, ("b", 9))
    mirrored(tables, lake)
    assert old.version() == 0
    assert sorted(old.to_pyarrow_table()["event"].to_pylist()) == [1, 2, 3]
    assert polars.read_delta(f"{lake}/events", version=0).height == 3
    assert sorted(polars.read_delta(f"{lake}/events")["event"]) == [1, 2, 9]


def test_a_commit_names_the_last_run_that_was_completed(tables, lake):
    mirrored(tables, lake)
    tables.run("second", 2_000)
    tables.run("third", 3_000, status="failed")
    tables.events(28, ("b", 9))
    mirrored(tables, lake)
    newest, first = DeltaTable(f"{lake}/events").history()
    assert (newest["postroom.run"], newest["postroom.started"]) == ("second", "1970-01-01T00:00:02+00:00")
    assert (first["postroom.run"], first["postroom.command"], first["postroom.version"]) == ("first", "ingest", "1")
    assert DeltaTable(f"{lake}/events").transaction_version("postroom-pipeline") == 2_000


def test_readers_skip_files_by_the_range_of_their_columns(tables, lake):
    tables.events(28, ("c", 3), ("b", -7))
    tables.put("anomalies/day=2026-11-28", ("a", 1), begins_at=NOON, value=float("nan"))
    mirrored(tables, lake)

    def file_of(table):
        found = pyarrow.table(DeltaTable(f"{lake}/{table}").get_add_actions(flatten=True)).to_pylist()
        (file,) = (row for row in found if str(row["partition.day"]) == "2026-11-28")
        return file

    file = file_of("events")
    assert (file["num_records"], file["min.device"], file["max.device"]) == (2, "b", "c")
    assert (file["min.event"], file["max.event"], file["null_count.event"]) == (-7, 3, 0)
    file = file_of("anomalies")
    assert file["min.begins_at"] == file["max.begins_at"] == NOON
    assert file.get("min.value") is None
    assert polars.scan_delta(f"{lake}/anomalies").filter(begins_at=NOON).collect().height == 1


def test_new_columns_are_added(tables, lake, monkeypatch):
    events = TABLES["events"]
    columns = type(events.schema)([field for field in events.schema if field.name != "cause"])
    narrow = type(events)(events.name, columns, events.key, ("day",))
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "events", narrow)
        mirrored(tables, lake)
    assert "cause" not in [field.name for field in DeltaTable(f"{lake}/events").schema().fields]
    tables.events(29, ("b", 2), cause="why")
    assert mirrored(tables, lake)["events"][1:] == (1, 0)
    rows = DeltaTable(f"{lake}/events").to_pyarrow_table(columns=["device", "event", "cause"]).to_pylist()
    assert sorted(tuple(map(str, row.values())) for row in rows) == [
        ("a", "1", "None"),
        ("a", "2", "None"),
        ("a", "3", "None"),
        ("b", "2", "why"),
    ]


def test_a_table_with_other_columns_or_partitions_is_replaced_in_one_commit(tables, lake, monkeypatch):
    events = TABLES["events"]
    kinds = {field.name: field.dataType for field in events.schema} | {"event": events.schema["device"].dataType}
    columns = type(events.schema)([type(field)(field.name, kinds[field.name]) for field in events.schema])
    with monkeypatch.context() as patch:  # a version before had no partitions, and texts instead of numbers
        patch.setitem(TABLES, "events", type(events)(events.name, columns, events.key))
        tables.storage.delete(tables.storage.join("events"))
        tables.put("events", ("a", 1))
        mirrored(tables, lake)
    tables.storage.delete(tables.storage.join("events"))
    tables.events(28, ("a", 1), ("b", 2))
    assert mirrored(tables, lake) == {"events": (1, 1, 1)}
    assert events_of(lake) == [("a", 1, 28), ("b", 2, 28)]
    assert DeltaTable(f"{lake}/events").metadata().partition_columns == ["day"]
    assert DeltaTable(f"{lake}/events", version=0).to_pyarrow_dataset().schema.field("event").type == "string"
    assert mirrored(tables, lake) == {}


def test_a_table_with_a_column_of_another_type_and_the_same_files_is_refused(tables, lake, monkeypatch):
    events = TABLES["events"]
    kinds = {field.name: field.dataType for field in events.schema} | {"event": events.schema["wall_at"].dataType}
    columns = type(events.schema)([type(field)(field.name, kinds[field.name]) for field in events.schema])
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "events", type(events)(events.name, columns, events.key, ("day",)))
        mirrored(tables, lake)
    tables.events(29, ("b", 2))
    status, said = run(tables, lake)
    assert status == 1
    assert said.endswith("/events has other columns or partitions; delete that table, then mirror again\n")
    assert DeltaTable(f"{lake}/events").version() == 0


def run(tables, lake, *more):
    """Exit status and error output of the command."""
    result = CliRunner().invoke(main, ["mirror", "--from", tables.location, "--to", lake, *more])
    return result.exit_code, result.stderr


def test_the_command_shows_what_has_changed(tables, lake):
    result = CliRunner().invoke(main, ["mirror", "--from", tables.location, "--to", lake, "--only", "events"])
    assert result.exit_code == 0
    assert result.stdout.startswith("events: version 0, 2 files added, 0 removed, ")
    assert [path.name for path in Path(lake).iterdir()] == ["events"]
    status, said = run(tables, lake, "--only", "events")
    assert (status, said.partition(",")[0]) == (0, "mirror: nothing is new")


def test_an_unknown_table_is_refused(tables, lake):
    status, said = run(tables, lake, "--only", "event")
    assert status == 2
    assert said.startswith("postroom-pipeline: there is no table event; the tables are anomalies, audit,")


def test_a_delta_table_of_somebody_else_is_not_touched(tables, lake):
    write_deltalake(f"{lake}/events", pyarrow.table({"mine": [1]}))
    status, said = run(tables, lake)
    assert status == 2
    assert said.endswith(f"{lake}/events is a Delta table that was not made by mirror; name another directory\n")
    assert DeltaTable(f"{lake}/events").to_pyarrow_table()["mine"].to_pylist() == [1]


@pytest.mark.parametrize("name", ["deltalake", "pyarrow"])
def test_a_missing_package_is_an_error_that_says_how_to_get_it(tables, lake, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    expected = f"postroom-pipeline: {name} is not installed: pip install 'postroom-pipeline[delta]'\n"
    assert run(tables, lake) == (3, expected)


def test_while_a_run_writes_nothing_is_mirrored(tables, lake):
    with locked_locally(tables.storage.local(tables.storage.join(LOCK)), "ingest"):
        status, said = run(tables, lake)
    assert status == 3
    assert "is being written by ingest" in said
    assert not Path(lake).exists()


def test_after_a_run_that_was_killed_while_it_replaced_files_nothing_is_mirrored(tables, lake):
    tables.storage.write_text(tables.storage.join(STAGING, "left", PLAN), "{}")
    status, said = run(tables, lake)
    assert status == 3
    assert said.endswith("a run was killed while it replaced files; run ingest again first\n")


@pytest.mark.parametrize("made", [False, True])
def test_a_place_without_tables_is_an_error(tmp_path, lake, made):
    place = Tables(str(tmp_path / "none"))
    if made:
        place.storage.make_directory(place.storage.location)
    status, said = run(place, lake)
    assert status == 3
    assert ("there are no tables" if made else "there is no such directory") in said


def on_copy(monkeypatch, *actions):
    """Before the first files are copied, one of these actions is done for each."""
    left, copy = [*actions], ArrowStorage.copy

    def instead(self, path, other, target):
        if left:
            left.pop(0)()
        copy(self, path, other, target)

    monkeypatch.setattr(ArrowStorage, "copy", instead)


def test_if_files_are_replaced_meanwhile_the_new_ones_are_mirrored(tables, lake, monkeypatch):
    mirrored(tables, lake)
    tables.events(27, ("b", 1))
    tables.events(28, ("b", 2))

    def replaced():
        tables.events(27, ("c", 1))
        tables.events(28, ("c", 2))

    on_copy(monkeypatch, replaced)
    assert mirrored(tables, lake) == {"events": (1, 2, 2)}
    assert events_of(lake) == [("c", 1, 27), ("c", 2, 28)]


def test_if_files_are_replaced_again_and_again_it_gives_up_and_the_lake_is_as_before(tables, lake, monkeypatch):
    mirrored(tables, lake)
    tables.events(28, ("b", 0))
    on_copy(monkeypatch, *[lambda: tables.events(28, ("b", 1))] * 3)
    with pytest.raises(EnvironmentProblem, match=r"changed in each of 3 tries, .* was replaced while it was copied"):
        mirrored(tables, lake)
    assert events_of(lake) == [("a", 1, 27), ("a", 2, 27), ("a", 3, 28)]
    assert mirrored(tables, lake) == {"events": (1, 1, 1)}


def test_of_two_that_mirror_at_once_none_undoes_what_the_other_did(tables, lake, monkeypatch):
    mirrored(tables, lake)
    tables.events(28, ("old", 1))

    copy = ArrowStorage.copy
    late: list[str] = []

    def instead(self, path, other, target):
        copy(self, path, other, target)
        if not late:  # all is copied and not committed, when another one begins and ends
            late.append(path)
            tables.events(28, ("new", 2))
            assert mirrored(tables, lake)["events"] == (1, 1, 1)

    monkeypatch.setattr(ArrowStorage, "copy", instead)
    assert mirrored(tables, lake) == {}
    assert [row[0] for row in events_of(lake)] == ["a", "a", "new"]


def test_a_table_that_was_optimized_by_its_users_is_replaced_when_it_changes(tables, lake):
    tables.put("snapshots", ("a", 1))
    mirrored(tables, lake)
    tables.put("snapshots", ("a", 1), ("b", 2))
    DeltaTable(f"{lake}/snapshots").delete("device = 'a'")
    mirrored(tables, lake)
    assert DeltaTable(f"{lake}/snapshots").to_pyarrow_table().num_rows == 2


class Killed(BaseException):
    """Ends the command where it stands, as a kill does."""


def test_a_killed_one_is_repeated(tables, lake, monkeypatch):
    mirrored(tables, lake)
    tables.events(27, ("b", 1))
    tables.events(28, ("b", 2))

    def die():
        raise Killed

    with monkeypatch.context() as patch:
        on_copy(patch, lambda: None, die)
        with pytest.raises(Killed):
            mirrored(tables, lake)
    assert len(events_of(lake)) == 3
    assert mirrored(tables, lake) == {"events": (1, 2, 2)}
    assert events_of(lake) == [("b", 1, 27), ("b", 2, 28)]


def test_tables_in_an_object_store_are_mirrored_into_another_place_of_it(bucket, lake):
    made = Tables(f"{bucket}/tables")
    made.events(27, ("a", 1))
    target = f"{bucket}/lake"
    assert mirrored(made, target) == {"events": (0, 1, 0)}
    made.events(27, ("a", 1), ("b", 2))
    made.events(28, ("b", 3))
    assert mirrored(made, target) == {"events": (1, 2, 1)}
    assert events_of(target) == [("a", 1, 27), ("b", 2, 27), ("b", 3, 28)]
    assert mirrored(made, target) == {}
    assert mirrored(made, lake) == {"events": (0, 2, 0)}
    assert made.storage.entries(f"{bucket}/tables/{LOCK}") == []


def test_local_tables_are_mirrored_into_an_object_store(tables, bucket):
    assert mirrored(tables, bucket) == {"events": (0, 2, 0), "runs": (0, 1, 0)}
    assert events_of(bucket) == [("a", 1, 27), ("a", 2, 27), ("a", 3, 28)]


def test_a_bucket_that_does_not_exist_is_an_error_that_names_it(tables, object_store):
    status, said = run(tables, "s3://nobody-has-this/lake")
    assert status == 3
    assert said.startswith("postroom-pipeline: s3://nobody-has-this/lake/")
