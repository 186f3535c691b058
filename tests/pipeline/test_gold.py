"""The reports, on a fleet in which every device has one fault or something that only looks like one: built twice, from
tables in order and from tables in disorder. What each report holds is also asked in SQL of another engine, of the same
files (``oracle``)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import polars
import pytest

from postroom_pipeline.errors import UsageError
from postroom_pipeline.io import Warehouse
from postroom_pipeline.reports import ALL, build_all
from postroom_pipeline.reports.histogram import merged
from postroom_pipeline.reports.thresholds import Threshold, chosen
from postroom_pipeline.tables import ALL as TABLES

from .faults import fleet
from .silver import Row, Rows, frames_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postroom_pipeline.table import Table

#: Of small frames, most of the time is spent on compiling.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
ORACLE = Path(__file__).parent / "oracle"
READ = ("events", "messages", "snapshots", "queue_depth", "leases", "dead_letters", "consumers", "conflicts")


@pytest.fixture(scope="module", autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, str(value))


@pytest.fixture(scope="module")
def silver() -> Rows:
    return rows_of(fleet())


@pytest.fixture(scope="module")
def place(spark: SparkSession, silver: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tables lie, as the pipeline writes them."""
    target = tmp_path_factory.mktemp("fleet")
    warehouse = Warehouse(spark, str(target))
    frames = frames_of(spark, silver)
    for name in READ:
        warehouse.write(TABLES[name].TABLE, frames[name])

    def keep(table: Table, frame: DataFrame) -> DataFrame:
        warehouse.write(table, frame)
        return warehouse.read(table)

    build_all({name: warehouse.read(TABLES[name].TABLE) for name in READ}, keep)
    return target


@pytest.fixture(scope="module")
def gold(place: Path) -> dict[str, list[Row]]:
    """Rows of each report."""
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    return {name: _rows(database, f"select * from {_files(place, name)}") for name in ALL}


def _files(place: Path, name: str) -> str:
    return f"read_parquet('{place}/{name}/**/*.parquet', hive_partitioning = true)"


def _rows(database: duckdb.DuckDBPyConnection, question: str) -> list[Row]:
    found = database.sql(question)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def troubles(place: Path, name: str) -> set[str]:
    """Devices that a report shows a trouble of."""
    found = duckdb.sql(f"select distinct device from {_files(place, name)} where {ALL[name].TROUBLE}")
    return {device for (device,) in found.fetchall()}


#: On which devices each report shows a trouble. Whatever is not named here shows none.
FOUND = {
    "dead_reasons_daily": {"poison", "lost-dead-letter", "sudden-deaths"},
    "depth_hourly": set(),
    "latency_daily": set(),
    "throughput": set(),
    "retry_storms": {"storm"},
    "poison_messages": {"poison"},
    "stuck_leases": {"stuck"},
    "consumer_health": {"dead-consumer", "recovered-consumer"},
    "clock_trouble": {"clock-step", "wrong-year", "power-cut"},
    "journal_gaps": {"lost-events", "reported-hole"},
    "audit": {"lost-message", "lost-dead-letter", "ended-twice", "back-after-end"},
    "audit_messages": {"lost-message", "lost-dead-letter", "ended-twice", "back-after-end"},
    "duplicate_publishes": {"duplicates"},
    "anomalies": {"recovered-consumer", "sudden-deaths"},
}


@pytest.mark.parametrize("report", FOUND)
def test_a_report_finds_its_faults_and_nothing_else(place: Path, report: str) -> None:
    assert troubles(place, report) == FOUND[report]


def test_devices_that_are_well_have_no_score(place: Path) -> None:
    assert troubles(place, "device_health") == set().union(*FOUND.values())
