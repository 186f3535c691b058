"""The whole run: whatever order, names, bundles and interruptions snapshots come in, the tables are the same."""

from __future__ import annotations

import copy
import datetime as dt
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from postroom_pipeline.bronze.inventory import INVENTORY
from postroom_pipeline.bronze.rejects import REJECTS
from postroom_pipeline.jobs import gold
from postroom_pipeline.local.settled import is_settled
from postroom_pipeline.reports import ALL as REPORTS
from postroom_pipeline.schema.columns import day_of, is_suspect, time_of
from postroom_pipeline.silver import ALL, events, messages
from postroom_pipeline.spark.warehouse import Warehouse
from tests.pipeline.conftest import compiling_nothing
from tests.pipeline.killing import Killed, take_in
from tests.pipeline.making import DAY_MS, HOUR_MS, MORNING_MS, Device, bundle, write
from tests.pipeline.silver import frames_of, messages_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tables that tell of files, not of devices.
OF_FILES = ("inventory", "rejects", "origins")


def exported(warehouse: Warehouse) -> dict[str, list[str]]:
    """All rows of the tables of devices, as text, in order."""
    reported = {name: warehouse.read(table) for name, table in ALL.items() if name not in OF_FILES}
    return {name: sorted(map(str, frame.collect())) for name, frame in reported.items()}


def put_back(folder: Path) -> list[Path]:
    """A device that forgets how its message ended, and gives the number of that event to another end a day later."""
    device = Device("put-back")
    device.publish("msg:kept")
    device.publish("msg:other")
    back = copy.deepcopy(device)
    device.lease("msg:kept")
    device.ack("msg:kept")
    made = [device.export(folder)]
    back.snapshots = device.snapshots
    back.wait(DAY_MS)
    back.lease("msg:other")
    back.drop("msg:other")
    return [*made, back.export(folder)]


def history(folder: Path) -> list[Path]:
    """Five devices, three days: messages end on other days than they began, slices overlap, a clock is set back, one is
    put back to what it was, one reports an event twice, and one is a cluster, two of whose nodes report the same
    events."""
    made = put_back(folder)
    for number in range(2):
        device = Device(f"press-{number}")
        device.publish("msg:long")
        device.publish("msg:short")
        device.lease("msg:short")
        device.request("publish")
        made.append(device.export(folder))
        device.ack("msg:short")
        device.wait(DAY_MS)
        device.lease("msg:long")
        device.retry("msg:long")
        made.append(device.export(folder, since=3))
        device.wait(DAY_MS)
        if number:
            device.set_clock(HOUR_MS)
        device.lease("msg:long", "worker-2")
        device.die("msg:long")
        device.request("ack")
        made.append(device.export(folder, since=4))
    repeating = Device("repeating")
    repeating.publish("msg:repeated")
    lines = repeating.lines()
    made.append(write(folder, "repeating", repeating.name, "0" * 32, [*lines, lines[-1]]))
    plant = Device("plant")
    plant.publish("msg:once")
    plant.lease("msg:once")
    made.append(plant.export(folder, header={"node": "b", "role": "follows"}))
    plant.ack("msg:once")
    return [*made, plant.export(folder, since=0, header={"node": "a", "role": "leads"})]


def test_the_same_snapshots_make_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    """At once, by compiled plans; and in another order, bundled, twice, renamed, with runs that were killed between two
    tables, by plans that are not compiled, as in small runs."""
    landing, other = tmp_path / "landing", tmp_path / "other"
    paths = history(landing)
    at_once = exported(take_in(spark, landing, tmp_path / "a"))
    assert {name: len(rows) for name, rows in at_once.items()} == {
        "snapshots": 11,
        "events": 24,
        "conflicts": 4,
        "messages": 8,
        "queue_depth": 11,
        "leases": 3,
        "dead_letters": 2,
        "consumers": 12,
        "metrics": 11,
        "traffic": 4,
    }
    other.mkdir()
    bundle(other / "late.jsonl.gz", [paths[4], paths[1], paths[2]])
    with compiling_nothing(spark):
        with pytest.raises(Killed):
            take_in(spark, other, tmp_path / "b", killed_at="inventory of files")
        (other / "renamed.jsonl.gz").write_bytes(paths[4].read_bytes())
        bundle(other / "rest.jsonl.gz", [paths[5], paths[0], paths[0], paths[6], paths[3], paths[7], *paths[8:]])
        with pytest.raises(Killed):
            take_in(spark, other, tmp_path / "b", killed_at="messages")
        warehouse = take_in(spark, other, tmp_path / "b")
        assert exported(warehouse) == at_once
        nodes = warehouse.read(ALL["snapshots"]).where("device = 'plant'").select("node", "role").collect()
        assert sorted(map(tuple, nodes)) == [("a", "leads"), ("b", "follows")]
        before = {name: warehouse.read(table).count() for name, table in ALL.items()}
        (other / "read me.txt").write_text("not a snapshot")
        assert not is_settled(str(other), str(tmp_path / "b"), "test", reports=False)
        take_in(spark, other, tmp_path / "b")
        assert is_settled(str(other), str(tmp_path / "b"), "test", reports=False)
        assert not is_settled(str(other), str(tmp_path / "b"), "test", reports=True), "they were never built"
        assert {name: warehouse.read(table).count() for name, table in ALL.items()} == before | {"rejects": 2}
        assert {row["reason"] for row in warehouse.read(REJECTS).collect()} == {"duplicate", "unknown_name"}
        assert warehouse.read(INVENTORY).where("settled").count() == 3


def test_outdated_reports_are_built_once_by_the_next_run_that_may(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports take long, and are built alike: here there is one."""
    name = "throughput"
    monkeypatch.setattr(gold, "BUILT", {name: REPORTS[name]})
    landing, tables, at = tmp_path / "landing", tmp_path / "tables", f"report {name}"
    with compiling_nothing(spark):
        history(landing)
        warehouse = take_in(spark, landing, tables)
        assert not warehouse.exists(REPORTS[name].TABLE)
        with pytest.raises(Killed):
            take_in(spark, landing, tables, killed_at=at, reports=True)
        take_in(spark, landing, tables, reports=True)
        assert warehouse.read(REPORTS[name].TABLE).where("died > 0").count() == 2, "one message of each device died"
        take_in(spark, landing, tables, killed_at=at, reports=True)


def test_a_message_follows_from_its_events_in_any_order(spark: SparkSession) -> None:
    """Each fate, the publishing unknown, moved, back from the dead; told anew in plain Python."""
    device = Device("press")
    device.publish("msg:before")
    known_from = len(device.events)
    device.lease("msg:before")
    device.ack("msg:before")
    for key in ("acked", "dead", "dropped", "open", "back"):
        device.publish(f"msg:{key}")
    device.lease("msg:acked")
    device.retry("msg:acked")
    device.wait(DAY_MS)
    device.lease("msg:acked", "worker-2")
    device.ack("msg:acked")
    for key in ("dead", "back"):
        device.lease(f"msg:{key}")
        device.die(f"msg:{key}")
    device.drop("msg:dropped")
    device.move("msg:open", "other")
    device.reprocess("msg:back")
    rows = rows_of([("press", "s1", device.lines(since=known_from))])
    frames = frames_of(spark, {**rows, "events": rows["events"][::-1]})
    built = {row["message"]: row.asDict() for row in messages.build(frames["events"]).collect()}
    assert built == {row["message"]: row.asDict() for row in frames["messages"].collect()}
    assert {key: row["state"] for key, row in built.items()} == {
        "msg:before": "acked",
        "msg:acked": "acked",
        "msg:dead": "dead",
        "msg:dropped": "dropped",
        "msg:open": "open",
        "msg:back": "open",
    }


def test_events_of_a_message_count_in_their_order_wherever_they_are(spark: SparkSession) -> None:
    """A later epoch gives lower numbers. The first and the last value of a column depend on the order of rows."""
    device = Device("press")
    for key in ("msg:acked", "msg:dead", "msg:again"):
        device.publish(key)
        device.lease(key)
        device.retry(key)
        device.lease(key, "worker-2")
    before = len(device.events)
    device.publish("msg:again")
    device.lease("msg:again")
    device.ack("msg:again")
    device.lease("msg:again")
    device.ack("msg:acked")
    device.die("msg:dead")
    told = rows_of([("press", "s1", device.lines(since=0))])["events"]
    for row in told[:before]:
        row["event"] += 1_000
    for row in told[before:]:
        row["epoch"] += 1
    wanted = messages_of(told)
    columns = sorted({name for row in wanted for name in row})
    for turn in range(3):
        mixed = random.Random(turn).sample(told, len(told))
        frames = frames_of(spark, {"events": mixed, "messages": wanted})
        built = messages.build(frames["events"].repartition(4), parts=3)
        rows, expected = (sorted(map(str, one.select(*columns).collect())) for one in (built, frames["messages"]))
        assert rows == expected


def test_two_contents_of_one_event_are_a_conflict_whoever_came_first(spark: SparkSession) -> None:
    """A copied data directory: two devices of one name go on from the same event."""
    first, second = Device("press"), Device("press")
    for device in (first, second):
        device.publish("msg:shared")
    first.publish("msg:of-one")
    second.wait(1)
    second.publish("msg:of-the-other")
    reported = []
    for order in ((first, second), (second, first)):
        rows: list[dict[str, Any]] = []
        for number, device in enumerate(order):
            rows += rows_of([("press", f"s{number}", device.lines(since=0))])["events"]
        digest = events.content_digest()
        frame = frames_of(spark, {"events": rows})["events"].withColumn("content_digest", digest)
        kept = {(row["event"], row["message"]) for row in events.latest(frame).collect()}
        built = events.conflicts(spark.createDataFrame([], events.CONFLICTS.schema), frame)
        found = {(row["event"], row["message"], row["kept"]) for row in built.collect()}
        reported.append((kept, found))
        assert {(event, message) for event, message, is_kept in found if is_kept} <= kept
    assert reported[0] == reported[1]
    assert (2, "msg:of-the-other") in reported[0][0], "what happened later counts"
    assert {(event, message) for event, message, _ in reported[0][1]} == {(2, "msg:of-one"), (2, "msg:of-the-other")}


def test_a_clock_that_was_never_set_makes_no_days(spark: SparkSession) -> None:
    arrival = dt.date(2026, 12, 1)
    walls = [None, 0, -(2**62), 2**62, MORNING_MS, 1_420_070_399_999, 1_420_070_400_000]
    frame = spark.createDataFrame([(wall, arrival) for wall in walls], "wall bigint, arrival date")
    wall = F.col("wall")
    rows = frame.select(is_suspect(wall), time_of(wall).isNull(), day_of(wall, F.col("arrival"))).collect()
    assert [row[0] for row in rows] == [row[1] for row in rows] == [True, True, True, True, False, True, False]
    assert [row[2] for row in rows] == [
        arrival,
        arrival,
        arrival,
        arrival,
        dt.date(2026, 11, 28),
        arrival,
        dt.date(2015, 1, 1),
    ]
