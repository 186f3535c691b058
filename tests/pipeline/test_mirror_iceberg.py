"""The tables are mirrored as Iceberg tables, in a catalog of their users."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pyarrow
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from postroom_pipeline.cli import main
from postroom_pipeline.lake.iceberg import IcebergLake
from postroom_pipeline.lake.listing import TABLES
from postroom_pipeline.lake.mirror import mirror
from postroom_pipeline.spark.arrow_storage import ArrowStorage
from tests.pipeline.test_mirror import NOON, two_days

TARGET = "lake.fleet"


@pytest.fixture
def tables(tmp_path):
    return two_days(tmp_path / "tables")


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog of the user: in SQLite, by the variables of pyiceberg."""
    place = tmp_path / "lake"
    place.mkdir()
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{place}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{place}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it reads them when it is imported
    return load_catalog("lake")


def mirrored(tables):
    return {one.table: (one.added, one.removed) for one in mirror(tables.location, IcebergLake(TARGET))}


def events_of(catalog):
    rows = catalog.load_table("fleet.events").scan().to_arrow().select(["device", "event", "day"]).to_pylist()
    return sorted((row["device"], row["event"], row["day"].day) for row in rows)


def test_what_has_changed_is_replaced_in_one_commit_that_names_the_run(tables, catalog):
    assert mirrored(tables) == {"events": (2, 0), "runs": (1, 0)}
    old = catalog.load_table("fleet.events")
    tables.events(28, ("a", 3), ("b", 1))
    tables.events(29, ("b", 2))
    tables.run("second", 2_000)
    assert mirrored(tables) == {"events": (2, 1), "runs": (1, 0)}
    assert events_of(catalog) == [("a", 1, 27), ("a", 2, 27), ("a", 3, 28), ("b", 1, 28), ("b", 2, 29)]
    events = catalog.load_table("fleet.events")
    assert [one.summary["postroom.run"] for one in events.snapshots()] == ["first", "second"]
    assert old.scan().to_arrow().num_rows == 3
    assert events.scan(row_filter="day = '2026-11-27' and event > 1").to_arrow().num_rows == 1
    assert events.schema().find_field("event").doc == TABLES["events"].schema["event"].metadata["comment"]


def test_if_nothing_has_changed_nothing_is_written(tables, catalog, tmp_path):
    tables.put("snapshots")
    mirrored(tables)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake" / "warehouse").rglob("*")}
    assert mirrored(tables) == {}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "lake" / "warehouse").rglob("*")} == before


def test_readers_skip_files_by_the_range_of_their_columns(tables, catalog):
    tables.put("anomalies/day=2026-11-28", ("a", 1), begins_at=NOON, value=2.5)
    tables.put("anomalies/day=2026-11-29", ("b", 1), begins_at=NOON + dt.timedelta(days=1), value=2.5)
    mirrored(tables)
    table = catalog.load_table("fleet.anomalies")
    for condition in ("device = 'b'", "begins_at > '2026-11-28T12:00:00+00:00'", "day = '2026-11-29'"):
        scan = table.scan(row_filter=condition)
        assert len([*scan.plan_files()]) == scan.to_arrow().num_rows == 1


def test_new_columns_are_added_in_the_commit_of_their_rows(tables, catalog, monkeypatch):
    events = TABLES["events"]
    columns = type(events.schema)([field for field in events.schema if field.name != "cause"])
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "events", type(events)(events.name, columns, events.key, ("day",)))
        mirrored(tables)
    tables.events(29, ("b", 2), cause="why")
    assert mirrored(tables) == {"events": (1, 0)}
    rows = catalog.load_table("fleet.events").scan().to_arrow().select(["event", "cause"]).to_pylist()
    assert sorted((row["event"], str(row["cause"])) for row in rows) == [
        (1, "None"),
        (2, "None"),
        (2, "why"),
        (3, "None"),
    ]


def test_every_table_can_be_made(tables, catalog):
    for name in TABLES:
        tables.storage.make_directory(tables.storage.join(name))
    assert mirrored(tables).keys() == TABLES.keys()
    assert mirrored(tables) == {}


def test_of_two_that_mirror_at_once_none_undoes_what_the_other_did(tables, catalog, monkeypatch):
    mirrored(tables)
    tables.events(29, ("old", 1))
    opened = ArrowStorage.opened
    late: list[str] = []

    def instead(self, path):
        if not late:
            late.append(path)
            assert mirrored(tables)["events"] == (1, 0)
            tables.events(29, ("new", 2))
            assert mirrored(tables)["events"] == (1, 1)
        return opened(self, path)

    monkeypatch.setattr(ArrowStorage, "opened", instead)
    assert mirrored(tables) == {}
    assert [row[0] for row in events_of(catalog)] == ["a", "a", "a", "new"]


def run(tables, target=TARGET):
    result = CliRunner().invoke(main, ["mirror", "--from", tables.location, "--to", target, "--format", "iceberg"])
    return result.exit_code, result.stderr


def test_the_command_mirrors_into_a_catalog(tables, catalog):
    status, said = run(tables)
    assert (status, said.partition(",")[0]) == (0, "mirror: 2 tables changed")
    assert len(events_of(catalog)) == 3


def test_an_iceberg_table_of_somebody_else_is_not_touched(tables, catalog):
    catalog.create_namespace("fleet")
    catalog.create_table("fleet.events", pyarrow.schema([("mine", pyarrow.int64())]))
    status, said = run(tables)
    assert status == 2
    assert said.endswith("lake.fleet.events is an Iceberg table that was not made by mirror; name another namespace\n")


def test_a_table_with_other_columns_is_refused(tables, catalog, monkeypatch):
    events = TABLES["events"]
    kinds = {field.name: field.dataType for field in events.schema} | {"cause": events.schema["wall_at"].dataType}
    columns = type(events.schema)([type(field)(field.name, kinds[field.name]) for field in events.schema])
    with monkeypatch.context() as patch:
        patch.setitem(TABLES, "events", type(events)(events.name, columns, events.key, ("day",)))
        mirrored(tables)
    status, said = run(tables)
    assert status == 1
    assert said.endswith("lake.fleet.events has other columns or partitions; drop that table, then mirror again\n")


def test_a_file_with_a_column_that_the_table_does_not_have_is_refused(tables, catalog):
    tables.events(29, ("b", 2), newer=1)
    status, said = run(tables)
    assert status == 1
    assert said.endswith("has columns of another version, which pyiceberg cannot read: newer\n")
    assert not catalog.table_exists("fleet.events")


@pytest.mark.parametrize("target", ["lake", "/tmp/lake.d/x", ".fleet"])
def test_a_target_that_is_no_namespace_is_refused(tables, catalog, target):
    status, said = run(tables, target)
    assert status == 2
    assert f"{target} is not CATALOG.NAMESPACE" in said


def test_a_catalog_that_nobody_has_configured_is_an_error_that_names_it(tables):
    status, said = run(tables, "nobody.fleet")
    assert status == 3
    assert said.startswith("postroom-pipeline: nobody.fleet: ")


def test_a_missing_package_is_an_error_that_says_how_to_get_it(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    assert run(tables) == (
        3,
        "postroom-pipeline: pyiceberg.catalog is not installed: pip install 'postroom-pipeline[iceberg]'\n",
    )


def test_a_catalog_whose_database_is_gone_is_an_error(tables, catalog, tmp_path):
    for path in (tmp_path / "lake").iterdir():
        path.unlink()
    Path(tmp_path / "lake").rmdir()
    assert run(tables)[0] == 3
