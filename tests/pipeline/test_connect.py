"""Spark in a server: the commands need no Java, and make the same tables as with Spark in their own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from postroom_pipeline.bronze.inventory import INVENTORY
from postroom_pipeline.bronze.rejects import REJECTS
from postroom_pipeline.errors import EnvironmentProblem
from postroom_pipeline.reports import BUILT
from postroom_pipeline.silver import ALL
from postroom_pipeline.spark.arrow_storage import ArrowStorage
from postroom_pipeline.spark.hadoop_storage import HadoopStorage
from postroom_pipeline.spark.settings import START_SETTINGS
from postroom_pipeline.spark.storage import Storage, partition_name
from postroom_pipeline.spark.warehouse import Warehouse
from tests.pipeline.conftest import QUICK, TEST_SETTINGS, java_variables
from tests.pipeline.test_cluster import DEADLINE_S, SPARK, reported

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
#: Tables of what was found in the directory, without the reports.
FOUND = [*ALL.values(), INVENTORY, REJECTS]
TABLES = [*FOUND, *(report.TABLE for report in BUILT.values())]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server on this machine."""
    home = tmp_path_factory.mktemp("server")
    settings = TEST_SETTINGS | QUICK | {"spark.connect.grpc.binding.port": "0"}
    settings |= {setting.name: setting.value for setting in START_SETTINGS}
    settings |= {"spark.local.dir": str(home / "local"), "spark.sql.warehouse.dir": str(home / "warehouse")}
    command = [str(SPARK / "bin" / "spark-submit"), "--class", SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = home / "log"
    environment = java_variables() | {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=home)
    try:
        yield f"sc://127.0.0.1:{reported(log, r'Spark Connect server started at: .*:([0-9]+)')}"
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def run(server, tmp_path, *arguments):
    """A command where no program is found, and so no Java."""
    nothing = tmp_path / "nothing"
    nothing.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(nothing), "SPARK_REMOTE": server, "POSTROOM_DEBUG": "1"}
    command = [sys.executable, "-m", "postroom_pipeline", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)


def rows_of(spark, tables, landing, names):
    """All rows of these tables, as text, in order; paths without the directory that was taken in."""
    warehouse = Warehouse(spark, str(tables))
    rows = {table.name: map(str, warehouse.read(table).collect()) for table in names}
    return {name: sorted(row.replace(str(landing), "") for row in found) for name, found in rows.items()}


@pytest.mark.slow
def test_a_run_on_a_server_makes_the_same_tables_as_one_in_this_process(spark, server, taken_in, tmp_path):
    """There the reports are rebuilt for the device with the late snapshot; here they were built once, of everything."""
    landing, there = tmp_path / "in", tmp_path / "there"
    shutil.copytree(taken_in.early, landing)
    result = run(server, tmp_path, "ingest", "--in", landing, "--out", there)
    assert result.returncode == 0, result.stderr
    expected = rows_of(spark, taken_in.first, taken_in.landing, FOUND)
    assert len(expected["rejects"]) == 3
    assert expected["events"]
    first = rows_of(spark, there, landing, TABLES)
    assert {name: first[name] for name in expected} == expected
    result = run(server, tmp_path, "compact", "--out", there)
    assert result.returncode == 0, result.stderr
    assert rows_of(spark, there, landing, TABLES) == first
    shutil.copytree(taken_in.late, landing, dirs_exist_ok=True)
    result = run(server, tmp_path, "ingest", "--in", landing, "--out", there)
    assert result.returncode == 0, result.stderr
    expected = rows_of(spark, taken_in.tables, taken_in.landing, TABLES)
    assert expected["throughput"] != first["throughput"]
    assert rows_of(spark, there, landing, TABLES) == expected
    result = run(server, tmp_path, "report", "--from", there, "--out", tmp_path / "pages", "--format", "json")
    assert result.returncode == 0, result.stderr
    told = (tmp_path / "pages" / "throughput.json").read_text().splitlines()
    assert len([json.loads(line) for line in told]) == len(expected["throughput"])


@pytest.mark.slow
def test_the_doctor_writes_and_reads_a_table_through_a_server(server, tmp_path):
    result = run(server, tmp_path, "doctor", "--out", tmp_path / "tables", "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, result.stderr + result.stdout
    assert [one["check"] for one in found if one["check"] in ("java", "spark", "tables")] == ["spark", "tables"]
    assert not list((tmp_path / "tables").glob("_doctor*"))


def test_what_is_no_address_and_where_no_server_is_are_errors_that_say_so(tmp_path):
    for none in ("spark://127.0.0.1:1", "sc://127.0.0.1:port", "sc://:15002"):
        result = run(none, tmp_path, "doctor", "--only", "spark")
        assert f"{none}; it must be the address of a server, sc://HOST:PORT" in result.stdout
    result = run("sc://127.0.0.1:1", tmp_path, "doctor", "--only", "spark")
    assert "sc://127.0.0.1:1: no server of Spark Connect answers" in result.stdout
    assert result.returncode == 3


@pytest.mark.parametrize("value", ["2026-11-28", "a b", "a/b=c:d%e", "x[y]{z}^'\"#*?\\", "\t\x7f", "é"])
def test_partitions_have_the_names_that_spark_gives_them(spark, value):
    names = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    assert partition_name("day", value) == names.getPartitionPathString("day", value)


def test_both_ways_to_local_files_show_the_same(spark, tmp_path):
    (tmp_path / "a b" / "day=1%3A").mkdir(parents=True)
    (tmp_path / "a b" / "day=1%3A" / "x").write_text("text é")
    storages: list[Storage] = [
        HadoopStorage(spark, str(tmp_path)),
        ArrowStorage(str(tmp_path)),
        ArrowStorage(tmp_path.as_uri()),
    ]
    for storage in storages:
        assert storage.location == f"file:{tmp_path}"
        (entry,) = storage.entries(storage.join("a b"))
        assert storage.read_text(f"{entry.path}/x") == "text é"
        assert storage.files_below(storage.location) == ["a b/day=1%3A/x"]
        assert storage.entries(storage.join("none")) == []
    seen = [
        [
            [(one.path, one.is_directory, one.mtime_ms) for one in storage.entries(storage.location)],
            storage.entries(storage.join("a b", "day=1%3A")),
            storage.size(storage.location),
        ]
        for storage in storages
    ]
    assert seen[1:] == [seen[0], seen[0]]


def test_a_file_that_hadoop_has_written_is_replaced_together_with_its_sum(spark, tmp_path):
    before, after = HadoopStorage(spark, str(tmp_path)), ArrowStorage(str(tmp_path))
    path = before.join("note")
    before.write_text(path, "old")
    after.write_text(path, "another")
    assert before.read_text(path) == after.read_text(path) == "another"
    after.delete(path)
    assert not before.exists(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("java", [True, False])
def test_a_small_file_that_is_replaced_is_there_all_the_time(java, spark, tmp_path, monkeypatch):
    storage = HadoopStorage(spark, str(tmp_path)) if java else ArrowStorage(str(tmp_path))
    path = storage.join("note")
    storage.write_text(path, "old")

    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", killed)
        storage.write_text(path, "new")
    assert storage.read_text(path) == "old"
    storage.write_text(path, "new")
    assert storage.read_text(path) == "new"
    assert {one.name for one in tmp_path.iterdir()} == {"note"}


def test_a_new_name_must_be_free(tmp_path):
    storage = ArrowStorage(str(tmp_path))
    storage.make_directory(storage.join("a"))
    storage.make_directory(storage.join("b"))
    with pytest.raises(EnvironmentProblem, match="/b already exists"):
        storage.rename(storage.join("a"), storage.join("b"))
    storage.rename(storage.join("a"), storage.join("c", "d"))
    assert storage.exists(storage.join("c", "d"))


def test_a_place_that_pyarrow_does_not_know_is_an_error_that_names_it():
    with pytest.raises(EnvironmentProblem, match=r"^ftp://host/tables: "):
        ArrowStorage("ftp://host/tables")


def test_paths_of_other_file_systems_keep_their_scheme():
    storage = ArrowStorage("mock:///fleet/tables")
    storage.write_text(storage.join("a", "b"), "text")
    assert [entry.path for entry in storage.entries(storage.location)] == ["mock:///fleet/tables/a"]
    assert storage.read_text("mock:///fleet/tables/a/b") == "text"
    assert storage.local(storage.location) is None
    assert not storage.renames_directories
