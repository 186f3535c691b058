"""The reports, on a fleet in which every device has one fault or something that only looks like one: built twice, from
tables in order and from tables in disorder. What each report holds is also asked in SQL of another engine, of the same
files (``oracle``)."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyspark.sql import functions as F

from postroom_pipeline.errors import UsageError
from postroom_pipeline.reports import ALL, BUILT, anomalies, depth
from postroom_pipeline.reports.histogram import PERCENTILES, merged
from postroom_pipeline.reports.scope import Changed
from postroom_pipeline.reports.thresholds import Threshold, chosen
from postroom_pipeline.silver import ALL as TABLES
from postroom_pipeline.silver.messages import build as build_messages
from postroom_pipeline.spark.session import materialized
from postroom_pipeline.spark.warehouse import Warehouse

from .faults import fleet
from .making import HOUR_MS
from .silver import Row, Rows, frames_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick")]

ORACLE = Path(__file__).parent / "oracle"
VIEWS = Path(__file__).parent / "depth_views.sql"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reports.md"
READ = ("events", "messages", "snapshots", "queue_depth", "leases", "dead_letters", "consumers", "conflicts")


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
        warehouse.write(TABLES[name], frames[name])

    tables = TABLES | {name: report.TABLE for name, report in BUILT.items()}
    for module in BUILT.values():
        known = {need: warehouse.read(tables[need]) for need in module.NEEDS}
        warehouse.write(module.TABLE, module.build(known))
    return target


@pytest.fixture(scope="module")
def gold(database: duckdb.DuckDBPyConnection) -> dict[str, list[Row]]:
    """Rows of each report."""
    return {name: _rows(database, f"select * from {name}") for name in ALL}


def _files(place: Path, name: str) -> str:
    return f"read_parquet('{place}/{name}/**/*.parquet', hive_partitioning = true)"


def _rows(database: duckdb.DuckDBPyConnection, question: str) -> list[Row]:
    found = database.execute(question)
    names = [name for name, *_ in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _reported(rows: list[Row], columns: set[str]) -> list[str]:
    """Rows in an order of their own, with such columns alone."""
    return sorted(repr([(name, row[name]) for name in sorted(columns)]) for row in rows)


@pytest.fixture(scope="module")
def database(place: Path) -> duckdb.DuckDBPyConnection:
    """All tables by their names, for another engine."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    for name in (*READ, *BUILT):
        connection.execute(f"create view {name} as select * from {_files(place, name)}")
    connection.execute(f"create view native as {NATIVE}")
    connection.execute(VIEWS.read_text())
    return connection


def troubles(database: duckdb.DuckDBPyConnection, name: str) -> set[str]:
    """Devices that a report shows a trouble of, without those to which anything happens."""
    found = database.execute(f"select distinct device from {name} where {ALL[name].TROUBLE}").fetchall()
    return {device for (device,) in found if not device.startswith("wild")}


#: Events without those that an import brought in.
NATIVE = """
select * from events e where type = 'imported' or not exists (
    from events i where i.type = 'imported'
        and (i.device, i.root, i.epoch, i.request_end) = (e.device, e.root, e.epoch, e.request_end))
"""

#: What of a report its question in SQL is about, where that is not all.
SCOPE = {
    "audit": "span = 'between' and queue <> '' and [opening, published, acked, moved_in, present] <> [0, 0, 0, 0, 0]",
    "audit_messages": "device <> 'well-restored' and finding in ('ended_twice', 'back_after_end', 'dead_but_gone')",
    "anomalies": "period = 'hour'",
}

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
    "audit_messages": {"lost-message", "lost-dead-letter", "ended-twice", "back-after-end", "state-after-end"},
    "duplicate_publishes": {"duplicates"},
    "anomalies": {"recovered-consumer", "storm", "sudden-deaths"},
}


@pytest.mark.parametrize("report", FOUND)
def test_a_report_finds_its_faults_and_nothing_else(database: duckdb.DuckDBPyConnection, report: str) -> None:
    assert troubles(database, report) == FOUND[report]


def test_devices_that_are_well_have_no_score(database: duckdb.DuckDBPyConnection) -> None:
    assert troubles(database, "device_health") == set().union(*FOUND.values())


@pytest.mark.parametrize("report", BUILT)
def test_no_two_rows_of_a_report_have_the_same_key(database: duckdb.DuckDBPyConnection, report: str) -> None:
    key = ", ".join(BUILT[report].TABLE.key)
    twice = database.execute(f"select {key} from {report} group by {key} having count(*) > 1")
    assert twice.fetchall() == []


@pytest.mark.parametrize("report", sorted(path.stem for path in ORACLE.glob("*.sql")))
def test_another_engine_says_the_same(database: duckdb.DuckDBPyConnection, report: str) -> None:
    asked = _rows(database, (ORACLE / f"{report}.sql").read_text())
    shown = _rows(database, f"select * from {report} where {SCOPE.get(report, 'true')}")
    columns = set(asked[0]) & set(shown[0])
    assert set(BUILT[report].TABLE.key) - {"span", "day"} <= columns
    assert _reported(shown, columns) == _reported(asked, columns)


@pytest.mark.parametrize("relative_floor", [0.25, 0.01])
def test_a_higher_threshold_only_leaves_anomalies_out(spark: SparkSession, place: Path, relative_floor: float) -> None:
    """Figures that cannot be anomalies are not compared: with a low threshold, nearly all of them are."""
    warehouse, few = Warehouse(spark, str(place)), {"own_hours_min": 2, "own_days_min": 1, "peers_min": 2}
    frames = {need: warehouse.read(BUILT[need].TABLE) for need in anomalies.SCOPE.by_past_of}

    def above(z_min: float) -> list[Row]:
        given = {**few, "relative_floor": relative_floor, "z_min": z_min}
        return [row.asDict() for row in anomalies.build(frames, given).collect()]

    rows, both = above(0), {(one.name, one.period) for one in anomalies.METRICS if one.both_ways}
    assert {row["z"] < 0 for row in rows} == {True, False}
    for z_min in (1, 4):
        wanted = [row for row in rows if row["z"] >= z_min or (row["z"] <= -z_min and _metric(row) in both)]
        assert wanted
        assert sorted(map(repr, above(z_min))) == sorted(map(repr, wanted))


def test_depths_of_the_last_days_are_those_of_all_days(spark: SparkSession, place: Path) -> None:
    """They start from what the table has of the days before."""
    warehouse, tables = Warehouse(spark, str(place)), TABLES | {name: report.TABLE for name, report in BUILT.items()}
    frames, old = {need: warehouse.read(tables[need]) for need in depth.NEEDS}, warehouse.read(depth.TABLE)
    known = sorted(row["day"] for row in old.select("day").distinct().collect())
    went_on = set()
    for begin in known[1:]:
        is_new = F.col("day") >= F.lit(begin)
        marked = {name: frame.withColumn("is_new", is_new) for name, frame in frames.items() if "day" in frame.columns}
        ends = materialized(depth.ends(old.withColumn("is_new", is_new)))
        devices = materialized(depth.going_on(frames | marked, ends))
        of_these = {name: frame.join(devices, "device", "left_semi") for name, frame in (frames | marked).items()}
        built = depth.build_on(of_these, ends.join(devices, "device", "left_semi")).select(*old.columns)
        wanted = old.join(devices, "device", "left_semi").where(is_new).select(*old.columns)
        rows, of_all = ([row.asDict() for row in frame.collect()] for frame in (built, wanted))
        assert sorted(map(repr, rows)) == sorted(map(repr, of_all))
        went_on |= {row["device"] for row in rows} & {row["device"] for row in ends.collect()}
    assert len(went_on) > 2
    assert "well-restored" not in went_on


@pytest.mark.parametrize("z_min", [1, 6])
def test_anomalies_of_what_has_changed_are_those_of_all_rows(spark: SparkSession, place: Path, z_min: float) -> None:
    """With a low threshold, a figure may be too small: then the absence of events counts as well."""
    warehouse = Warehouse(spark, str(place))
    given = {"own_hours_min": 2, "own_days_min": 1, "peers_min": 2, "z_min": z_min}
    frames = {need: warehouse.read(BUILT[need].TABLE) for need in anomalies.SCOPE.by_past_of}
    of_day = frames["hours"].select("device", "day").distinct().groupBy("day").count()
    day = max(of_day.collect(), key=lambda row: row["count"])["day"]
    since = frames["hours"].where("device > 'm'").select("device", F.lit(day).alias("since")).distinct()
    changed = Changed({str(day)}, materialized(since))
    wanted = anomalies.in_change(anomalies.build(frames, given), changed).where("is_in_change").drop("is_in_change")
    rows = [row.asDict() for row in wanted.collect()]
    assert {row["against"] for row in rows} == {"own", "fleet"}
    assert {row["day"] for row in rows} > {day}
    built = [row.asDict() for row in anomalies.build(frames, given, changed).collect()]
    assert sorted(map(repr, built)) == sorted(map(repr, rows))


def test_messages_are_what_their_events_say(spark: SparkSession, silver: Rows) -> None:
    """Here are messages that are published again, removed twice, and go on afterwards."""
    frames, columns = frames_of(spark, silver), {name for row in silver["messages"] for name in row}
    built, wanted = (
        [row.asDict() for row in rows.collect()] for rows in (build_messages(frames["events"]), frames["messages"])
    )
    assert _reported(built, columns) == _reported(wanted, columns)
    assert {row["fate"] for row in built} == {"waiting", "inflight", "dead", "gone"}
    assert [name for name in ("was_dead", "went_on", "ended_again_event") if not any(row[name] for row in built)] == []


def test_messages_of_an_earlier_version_give_the_same_reports(spark: SparkSession, place: Path) -> None:
    """They lack columns; what these would say is read from the events."""
    warehouse, tables = Warehouse(spark, str(place)), TABLES | {name: report.TABLE for name, report in BUILT.items()}
    known = {need: warehouse.read(tables[need]) for need in (*READ, *BUILT)}
    messages, new = (
        tables["messages"].schema,
        ("fate", "was_dead", "went_on", "first_event", "last_event", "ended_event"),
    )
    known["messages"] = known["messages"].withColumns({name: F.lit(None).cast(messages[name].dataType) for name in new})
    known["fates"] = materialized(BUILT["fates"].build(known))
    for name in ("depth", "audit_messages"):
        columns = tables[name].schema.names
        built, wanted = BUILT[name].build(known), warehouse.read(tables[name])
        assert sorted(map(repr, built.select(*columns).collect())) == sorted(map(repr, wanted.collect())), name


def _metric(row: Row) -> tuple[str, str]:
    return row["metric"], row["period"]


def test_the_order_of_rows_and_their_parts_change_nothing(spark: SparkSession, place: Path, silver: Rows) -> None:
    warehouse, chance = Warehouse(spark, str(place)), random.Random(6)
    mixed = frames_of(spark, {name: chance.sample(rows, len(rows)) for name, rows in silver.items()})

    known = {name: materialized(mixed[name].repartition(3)) for name in READ}
    for name, module in BUILT.items():
        known[name] = materialized(module.TABLE.fitted(module.build(known)))
        rows = known[name].collect()
        assert sorted(map(repr, rows)) == sorted(map(repr, warehouse.read(module.TABLE).collect())), name


def of(gold: dict[str, list[Row]], report: str, device: str, **wanted: Any) -> list[Row]:
    """Rows of a device that have such values."""
    rows = (row for row in gold[report] if row["device"] == device)
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_an_audit_balances_over_moves_removals_and_limits(gold: dict[str, list[Row]]) -> None:
    (whole,) = of(gold, "audit", "well-uses-everything", span="all", queue="")
    assert whole["status"] == "balanced"
    assert (whole["dropped_purged"], whole["dropped_expired"], whole["dropped_limits"]) == (1, 1, 1)
    (slow,) = of(gold, "audit", "well-uses-everything", span="all", queue="orders.slow")
    assert (slow["moved_in"], slow["acked"], slow["dropped_limits"], slow["present"]) == (1, 1, 1, 0)


def test_an_audit_balances_over_cut_slices_once_the_rest_has_arrived(gold: dict[str, list[Row]]) -> None:
    assert {row["status"] for row in of(gold, "audit", "well-cut")} == {"balanced"}
    assert {row["status"] for row in of(gold, "audit", "well-cut-short")} == {"incomplete"}


def test_an_audit_balances_over_a_restore(gold: dict[str, list[Row]]) -> None:
    spans = of(gold, "audit", "well-restored", span="between", queue="")
    assert {row["status"] for row in spans} == {"balanced"}
    (last,) = (row for row in spans if row["to_epoch"] == 2)
    # Four were acked in the past that was undone, three anew.
    assert (last["opening"], last["acked"], last["present"]) == (0, -1, 1)


def test_a_loss_names_the_message_that_can_be_identified(gold: dict[str, list[Row]]) -> None:
    (row,) = of(gold, "audit_messages", "lost-message")
    assert (row["finding"], row["kind"], row["queue"], row["published_event"]) == (
        "waiting_but_gone",
        "lost",
        "slow",
        21,
    )
    assert row["evidence"].endswith(
        "counts 1 fewer in the queue than events say; number 1 by age of 3 that may be meant"
    )


def test_a_message_that_ended_twice_is_reported_with_both_events(gold: dict[str, list[Row]]) -> None:
    (row,) = of(gold, "audit_messages", "ended-twice")
    assert row["evidence"] == "ended by event 22 and again by event 23"


def test_a_gap_of_the_journal_says_who_recorded_it(gold: dict[str, list[Row]]) -> None:
    (lost,) = of(gold, "journal_gaps", "lost-events")
    (reported,) = of(gold, "journal_gaps", "reported-hole")
    (left,) = of(gold, "journal_gaps", "well-not-exported")
    assert [(row["gap"], row["events"]) for row in (lost, reported, left)] == [
        ("lost", 4),
        ("reported", 6),
        ("not_exported", 6),
    ]


def test_a_step_of_the_clock_is_reported_with_its_length(gold: dict[str, list[Row]]) -> None:
    (row,) = of(gold, "clock_trouble", "clock-step")
    assert (row["trouble"], row["step_ms"]) == ("step", -2 * HOUR_MS)
    assert {row["trouble"] for row in of(gold, "clock_trouble", "wrong-year")} == {"step", "wrong_year"}
    assert [row["trouble"] for row in of(gold, "clock_trouble", "power-cut")] == ["power_cut"]
    assert [row["trouble"] for row in of(gold, "clock_trouble", "well-boots")] == ["boot"]


def test_a_dead_consumer_is_reported_with_the_backlog_that_grew(gold: dict[str, list[Row]]) -> None:
    (dead,) = of(gold, "consumer_health", "dead-consumer")
    (back,) = of(gold, "consumer_health", "recovered-consumer")
    assert (dead["status"], dead["backlog_from"], dead["backlog_to"]) == ("dead", 1, 30)
    assert (back["status"], back["others_took"]) == ("recovered", 0)


def test_of_a_consumers_signs_of_life_only_the_last_ones_count(
    spark: SparkSession, place: Path, gold: dict[str, list[Row]]
) -> None:
    warehouse = Warehouse(spark, str(place))
    tables = TABLES | {name: report.TABLE for name, report in BUILT.items()}
    module = BUILT["consumer_health"]
    frames = {need: warehouse.read(tables[need]) for need in module.NEEDS}
    rows = [row.asDict() for row in module.build(frames, {"signs_max": 1}).collect()]
    assert {row["usual_ms"] for row in rows} == {None}
    (dead,) = (row for row in rows if row["device"] == "dead-consumer")
    (before,) = of(gold, "consumer_health", "dead-consumer")
    same = ("active", "last_active_engine_ms", "status", "silent_ms")
    assert [dead[name] for name in same] == [before[name] for name in same]


def test_an_anomaly_is_reported_with_the_numbers_behind_it(gold: dict[str, list[Row]]) -> None:
    (row,) = of(gold, "anomalies", "sudden-deaths", period="hour", metric="died", against="own")
    assert (row["value"], row["median"], row["mad"], row["n"], row["z"]) == (25.0, 0.0, 0.0, 26, 25 / 3)


def test_a_duplicate_that_was_recognised_is_not_a_finding(gold: dict[str, list[Row]]) -> None:
    rows = of(gold, "duplicate_publishes", "duplicates")
    assert sorted((row["outcome"], row["apart_ms"]) for row in rows) == [("published", 3_003), ("recognised", 3_003)]


def test_percentiles_of_longer_periods_are_combined_from_days(spark: SparkSession, place: Path, silver: Rows) -> None:
    of_days = Warehouse(spark, str(place)).read(ALL["latency_daily"].TABLE)
    (row,) = merged(of_days.where("measure = 'publish_to_ack'"), []).collect()
    imported = {event["message"] for event in silver["events"] if event["request_end"] != event["event"]}
    exact = sorted(
        message["acked_engine_ms"] - message["published_engine_ms"]
        for message in silver["messages"]
        if message.get("acked_engine_ms") and not message["reprocessed"] and message["message"] not in imported
    )
    assert (row["count"], row["max_ms"]) == (len(exact), exact[-1])
    for name, percent in PERCENTILES.items():
        wanted = exact[-(-len(exact) * percent // 100) - 1]
        assert wanted <= row[name] <= wanted * 65 / 64


def test_the_users_threshold_overrides_the_default() -> None:
    known = (Threshold("held_ms", 10, "so long"), Threshold("seen_min", 2, "so often"))
    assert chosen(known, {"held_ms": 5}) == {"held_ms": 5, "seen_min": 2}
    with pytest.raises(UsageError, match="no threshold held_s; there are held_ms, seen_min"):
        chosen(known, {"held_s": 5})


def test_the_documents_examples_read_the_tables(place: Path) -> None:
    text = DOCUMENT.read_text().replace("DIR", str(place))
    question, *programs = re.findall(r"<!-- run with \w+ -->\n\n```\w+\n(.*?)```", text, re.DOTALL)
    assert len(duckdb.execute(question).fetchall()) > 10
    found: dict[str, Any] = {}
    for program in programs:
        exec(program, found)
    assert found["deaths"]["deaths"].to_list()[0] == 25
    assert set(found["wrong"]["device"]) >= {"lost-message", "lost-dead-letter"}
