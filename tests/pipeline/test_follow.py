"""``follow``: whatever comes into the directory is in the tables once, however often the run is killed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from postroom_common.stop_flag import StopFlag
from postroom_pipeline.bronze.rejects import REJECTS
from postroom_pipeline.cli import main
from postroom_pipeline.errors import EnvironmentProblem
from postroom_pipeline.jobs.follow import FULL_LOOK_EVERY_S, Follower
from postroom_pipeline.jobs.ingest import ingest
from postroom_pipeline.silver import ALL
from postroom_pipeline.silver.snapshots import SNAPSHOTS
from postroom_pipeline.spark.runlog import RUNS, Progress, Run
from postroom_pipeline.spark.warehouse import Warehouse
from tests.pipeline.conftest import QUICK, TEST_SETTINGS
from tests.pipeline.killing import killed_at_rename
from tests.pipeline.making import DAY_MS, Device

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("quick")

LONG_AGO_S = 1_000_000_000
CUT = 40


def device_with(folder: Path) -> list[Path]:
    """Two snapshots, a day apart."""
    device = Device("press")
    for key in ("msg:long", "msg:short"):
        device.publish(key)
        device.lease(key)
    device.request("publish")
    made = [device.export(folder)]
    device.wait(DAY_MS)
    device.ack("msg:short")
    device.die("msg:long")
    return [*made, device.export(folder)]


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two whole snapshots, one of them years old, and one that is cut."""
    folder = tmp_path_factory.mktemp("landing")
    first, _ = device_with(folder)
    os.utime(first, (LONG_AGO_S, LONG_AGO_S))
    cut = Device("cut").export(folder)
    cut.write_bytes(cut.read_bytes()[:-CUT])
    return folder


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, landing: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The tables of one run that nothing disturbs."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("once") / "tables"))
    with warehouse.writing("test"):
        ingest(spark, str(landing), warehouse, Run("ingest", silent(spark)), reports=False)
    return exported(warehouse)


def silent(spark: SparkSession) -> Progress:
    return Progress(spark, io.StringIO())


def exported(warehouse: Warehouse) -> dict[str, list[str]]:
    """All rows of all tables as text, in order."""
    return {name: sorted(map(str, warehouse.read(table).collect())) for name, table in ALL.items()}


def follower(spark: SparkSession, landing: Path, tables: Path, **options: Any) -> Follower:
    return Follower(spark, str(landing), Warehouse(spark, str(tables)), silent(spark), reports=False, **options)


@pytest.mark.slow
def test_a_follower_that_is_killed_repeatedly_has_the_tables_of_one_run(
    spark: SparkSession, landing: Path, at_once: dict[str, list[str]], tmp_path: Path
) -> None:
    for number in (11, 20):
        with killed_at_rename(number):
            follower(spark, landing, tmp_path).round()
    follower(spark, landing, tmp_path).round()
    assert exported(Warehouse(spark, str(tmp_path))) == at_once


def started(landing: Path, tables: Path, *more: str) -> subprocess.Popen[str]:
    """The command, in a process group of its own."""
    command = [
        sys.executable,
        "-m",
        "postroom_pipeline",
        "follow",
        "--in",
        str(landing),
        "--out",
        str(tables),
        "--no-reports",
    ]
    for name, value in (TEST_SETTINGS | QUICK).items():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        [*command, *more], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    """Until it says something that begins so."""
    assert process.stderr is not None
    seen = []
    for said in process.stderr:
        seen.append(said)
        if said.startswith(line):
            return
    raise AssertionError("".join(seen))


def test_an_interrupt_ends_it_even_if_its_starter_ignores_interrupts() -> None:
    program = """
import signal
from postroom_pipeline.cli.tables import until_terminated
try:
    with until_terminated():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    run = subprocess.run([*ignoring, sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("interrupted True\n", "")


@pytest.mark.slow
def test_kill_9_in_mid_batch_costs_nothing_and_sigterm_lets_the_batch_end(
    spark: SparkSession, landing: Path, at_once: dict[str, list[str]], tmp_path: Path
) -> None:
    with started(landing, tmp_path, "--available-now") as first:
        wait_for(first, "follow: inventory: ")
        os.killpg(first.pid, signal.SIGKILL)  # Java too: it is in the middle of the lines
    assert first.returncode == -signal.SIGKILL
    with started(landing, tmp_path, "--every", "1d") as second:
        wait_for(second, "follow: inventory: ")
        os.kill(second.pid, signal.SIGTERM)
        second.wait(600)
    assert second.returncode == 0
    assert exported(Warehouse(spark, str(tmp_path))) == at_once


def test_late_rewritten_renamed_and_old_files_are_taken_once_and_an_invalid_one_blocks_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file that is copied under its name is taken when it is whole; one that has no name yet is left alone."""
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    first, second = device_with(tmp_path / "made")
    landing.mkdir()
    old, slow = landing / "old.jsonl.gz", landing / "slow.jsonl.gz"
    old.write_bytes(first.read_bytes())
    os.utime(old, (LONG_AGO_S, LONG_AGO_S))
    slow.write_bytes(second.read_bytes()[:-CUT])
    (landing / "coming.jsonl.gz.part").write_bytes(second.read_bytes()[:-CUT])
    clock = [0.0]
    follow = follower(spark, landing, tables, clock=lambda: clock[0])
    warehouse = Warehouse(spark, str(tables))

    def taken() -> int:
        return warehouse.read(SNAPSHOTS).count()

    def runs() -> int:
        return warehouse.read(RUNS).count()

    follow.round()
    assert (taken(), [row["reason"] for row in warehouse.read(REJECTS).collect()]) == (1, ["truncated"])
    slow.write_bytes(second.read_bytes())
    os.utime(slow, (LONG_AGO_S, LONG_AGO_S))
    old.rename(landing / "renamed.jsonl.gz")
    follow.round()
    assert (taken(), runs()) == (2, 2)
    follow.round()
    assert runs() == 2  # nothing looks different
    clock[0] = FULL_LOOK_EVERY_S
    follow.round()
    assert (taken(), runs()) == (2, 3)


def test_a_failed_batch_is_reported_and_retried(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    said, looks = io.StringIO(), []

    class Visited(Follower):
        def round(self) -> None:
            looks.append(landing.exists())
            super().round()
            if len(looks) == 1:
                landing.rmdir()
            else:
                ended.set()

    class Mended(io.StringIO):
        def write(self, text: str) -> int:
            if "no such directory" in text:
                landing.mkdir()
            return said.write(text)

    warehouse = Warehouse(spark, str(tmp_path / "tables"))
    with StopFlag() as ended:
        Visited(spark, str(landing), warehouse, Progress(spark, Mended()), reports=False).run(0, ended)
    assert looks == [True, False, True]
    assert f"follow: {landing}: there is no such directory; next try in 0 s" in said.getvalue()


def test_a_directory_that_was_never_there_ends_the_run(spark: SparkSession, tmp_path: Path) -> None:
    with StopFlag() as ended, pytest.raises(EnvironmentProblem, match="no such directory"):
        follower(spark, tmp_path / "none", tmp_path / "tables").run(1, ended)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--available-now", "--every", "1h"], "one of them"),
        (["--every", "1"], "'1' is not a duration such as 90s"),
        (["--every", "0s"], "'0s' is not a duration such as 90s"),
    ],
)
def test_invalid_usage_is_reported_before_spark_starts(options: list[str], reported: str) -> None:
    run = CliRunner().invoke(main, ["follow", "--in", "x", "--out", "y", *options])
    assert (run.exit_code, reported in run.stderr) == (2, True)
