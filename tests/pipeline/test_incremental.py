"""Reports after several runs are those of one run over everything, whatever came in which order; and what a batch does
not touch is not written again."""

from __future__ import annotations

import copy
import io
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from postroom_pipeline.jobs import changes, gold
from postroom_pipeline.jobs.compact import compact
from postroom_pipeline.jobs.gold import mark_behind, write_reports
from postroom_pipeline.local.settled import BEHIND
from postroom_pipeline.reports import BUILT
from postroom_pipeline.silver.events import EVENTS
from postroom_pipeline.spark.runlog import Progress, Run
from postroom_pipeline.spark.warehouse import Warehouse

from . import faults, well
from .killing import Killed, take_in
from .making import DAY_MS, MORNING_MS, write
from .site import Site
from .test_ingest import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick")]

#: The stages before which runs are killed, in turn.
KILLS = ("messages", "report depth_hourly")
#: Reports of which each day can be built alone.
BY_DAY = ("hours", "rare_events", "clocks", "deliveries", "throughput", "depth", "depth_hourly", "latency_daily")


def sites() -> list[Site]:
    """Devices that have something in each report, over several days; one body is poison on two of them."""
    made = [faults.wild(1, 120), faults.device_storm(), faults.device_stuck(), faults.device_dead_consumer()]
    made += [
        faults.device_lost_dead_letter(),
        faults.device_duplicates(),
        faults.device_power_cut(),
        faults.wild_clock(),
    ]
    made += [*well.device_restored(), well.device_imports(), import_in_two_slices()]
    made += [
        faults.device_back_after_end(),
        faults.device_state_after_end(),
        well.device_goes_on_unseen(),
        ends_later(),
    ]
    later = Site("a-week-later", wall_ms=MORNING_MS + 7 * DAY_MS)
    later.hours(1)
    made.append(later)
    for name in ("poison-a", "poison-b"):
        site = faults.device_poison()
        site.name = name
        made.append(site)
        site.takes = [(name, f"{snapshot[:31]}{name[-1]}", lines) for _, snapshot, lines in site.takes]
    return made


def import_in_two_slices() -> Site:
    """Only the second one, a day later, says that the messages of the first one were brought in."""
    site = Site("import-in-two")
    first = len(site.events)
    for _ in range(3):
        site.take_in(site.new())
    for event in site.events[first:]:
        event["requestEnd"] = site._next
    site.take()
    site.wait(DAY_MS)
    site.event("imported")
    site.take()
    return site


def ends_later() -> Site:
    """Each day ends what began on the day before: a dead letter is dropped, and a message is removed twice. Another
    snapshot tells a part of that again; its last event is in the middle of a day."""
    site = Site("ends-later")
    dead, twice = site.new(), site.new("slow")
    site.take_in(dead)
    site.take()
    site.wait(DAY_MS)
    site.die(dead, "REJECTED", "")
    site.take_in(twice)
    site.ack(twice)
    site.new()
    first = copy.deepcopy(site)
    site.work(2)
    site.take()
    site.wait(DAY_MS)
    site.drop(dead, "PURGED")
    site.event("acked", queue="slow", message=twice)
    site.take()
    first.snapshots = 50
    first.take()
    site.takes.append(first.takes[-1])
    return site


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The snapshots of a fleet; also of devices that are late, set back, put back, doubled, or two nodes."""
    folder = tmp_path_factory.mktemp("fleet")
    made = history(folder)
    for number, (device, snapshot, lines) in enumerate(take for site in sites() for take in site.takes):
        made.append(write(folder, f"{device}-{number}", device, snapshot, lines))
    return made


@pytest.fixture(scope="module")
def once(spark: SparkSession, files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The tables of one run over all files."""
    place = tmp_path_factory.mktemp("once")
    return take_in(spark, arrive(place / "landing", files), place / "tables", reports=True)


@pytest.fixture(scope="module")
def at_once(once: Warehouse) -> dict[str, list[str]]:
    """Its reports."""
    return reported(once)


def silent(spark: SparkSession) -> Progress:
    return Progress(spark, io.StringIO())


def arrive(landing: Path, files: Iterable[Path]) -> Path:
    landing.mkdir(exist_ok=True)
    for path in files:
        shutil.copyfile(path, landing / path.name)
    return landing


def reported(warehouse: Warehouse) -> dict[str, list[str]]:
    """All rows of all reports, as text, in order."""
    return {name: sorted(map(str, warehouse.read(report.TABLE).collect())) for name, report in BUILT.items()}


def written(warehouse: Warehouse, name: str) -> dict[str, list[str]]:
    """The files of a report, by partition."""
    return {part: [file.name for file in files] for part, files in warehouse.parts(BUILT[name].TABLE)}


def differing(one: dict[str, list[str]], other: dict[str, list[str]]) -> list[str]:
    return [name for name in one if one[name] != other[name]]


def test_every_report_has_rows_so_that_a_difference_shows(at_once: dict[str, list[str]]) -> None:
    assert [name for name, rows in at_once.items() if not rows] == []


def test_batches_in_any_order_and_killed_runs_make_the_reports_of_one_run(
    spark: SparkSession,
    tmp_path: Path,
    files: list[Path],
    at_once: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Late days, doubled files, devices that are put back, batches of few devices; runs that are killed between two
    tables and between two reports; one without reports. What comes last contradicts what was there, and rewrites only
    its days, also of tables that were compacted before."""
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    before, after = (path for path in files if path.name.startswith("import-in-two"))
    last = [path for path in files if path.name.startswith("put-back-2")]
    chance, earlier = random.Random(7), [path for path in files if path not in last]
    coming = [path for path in chance.sample(earlier, len(earlier)) if path != after] + [after]
    with monkeypatch.context() as patched:  # touched devices are joined, as if there were many
        patched.setattr(changes, "_FEW", 0)
        patched.setattr(changes, "_MOST", 1.1)
        patched.setattr(gold, "_LONG", 0)
        arrive(landing, [before, *coming[: len(coming) // 2]])
        take_in(spark, landing, tables, reports=True)
        for kill in KILLS:
            coming = coming[-len(coming) // 2 :]
            arrive(landing, [*coming[:3], chance.choice(earlier)])
            with pytest.raises(Killed):
                take_in(spark, landing, tables, kill, reports=True)
        take_in(spark, arrive(landing, earlier), tables)
        warehouse = take_in(spark, landing, tables, reports=True)
    with warehouse.writing("compact"):
        list(compact(warehouse, Run("compact", silent(spark)), 2**20))
    were = {name: written(warehouse, name) for name in BY_DAY}
    warehouse = take_in(spark, arrive(landing, last), tables, reports=True)
    assert not (tables / BEHIND).exists()
    assert differing(reported(warehouse), at_once) == []
    events = warehouse.read(EVENTS).where("device = 'put-back'")
    touched = {f"day={row['day']}" for row in events.select("day").distinct().collect()}
    for name in BY_DAY:
        now = written(warehouse, name)
        untouched = were[name].keys() - touched
        assert untouched, name
        assert {part: now[part] for part in untouched} == {part: were[name][part] for part in untouched}, name


def test_other_thresholds_are_about_all_devices(
    spark: SparkSession, at_once: dict[str, list[str]], once: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all reports, here there is one: whether they are rebuilt is decided for all together."""
    name = "retry_storms"
    assert at_once[name]
    monkeypatch.setattr(gold, "BUILT", {name: BUILT[name]})
    with once.writing("test"):
        mark_behind(once, once.read(EVENTS).where("device = 'put-back'").withColumn("since", F.col("day")))
        write_reports(once, Run("ingest", silent(spark)), {name: {"retries_min": 1_000}})
    assert once.read(BUILT[name].TABLE).isEmpty()
