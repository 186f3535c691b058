"""One session of Spark for all tests: its start costs as much as twenty of them, and so they are run by one worker."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from postroom_pipeline.jobs.ingest import ingest
from postroom_pipeline.spark.java import find_java
from postroom_pipeline.spark.runlog import Progress, logged_run
from postroom_pipeline.spark.session import session
from postroom_pipeline.spark.warehouse import Warehouse
from tests.pipeline.making import bundle, fleet
from tests.pipeline.object_store import BUCKET, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Small, and reachable from this machine alone.
TEST_SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A run of a minute never earns back what the second compiler costs, nor threads that collect garbage.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
}
#: Of small frames, most of the time is spent on compiling.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
}


def java_variables() -> dict[str, str]:
    """The variables by which children find the Java of these tests."""
    names = ("PATH", "JAVA_HOME", "POSTROOM_JAVA")
    return {name: os.environ[name] for name in names if name in os.environ} | dict(find_java().variables)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this worker; a test leaves no setting, view or cached frame in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("TZ", os.environ.get("TZ", ""))
        home = tmp_path_factory.mktemp("spark")
        places = {"spark.sql.warehouse.dir": str(home / "warehouse"), "spark.local.dir": str(home / "local")}
        with session("postroom-tests", TEST_SETTINGS | places) as started:
            yield started


@contextmanager
def compiling_nothing(spark: SparkSession) -> Iterator[None]:
    """Spark compiles nothing during the block, as in the pipeline's small runs."""
    before = {name: str(spark.conf.get(name)) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture(scope="module")
def quick(spark: SparkSession) -> Iterator[None]:
    """For the tests of a module, Spark compiles nothing."""
    with compiling_nothing(spark):
        yield


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path) -> Warehouse:
    """A place for tables, in a fresh directory."""
    return Warehouse(spark, str(tmp_path / "tables"))


class TakenIn(NamedTuple):
    """What two runs in this process made of a directory."""

    #: What there is when the first run begins.
    early: Path
    #: A snapshot that comes before the second run, of a device that has another one.
    late: Path
    #: Both together, as they are at the end.
    landing: Path
    #: The tables of the first run, which builds no reports.
    first: Path
    #: The tables of both, with the reports.
    tables: Path


@pytest.fixture(scope="session")
def taken_in(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TakenIn:
    """A small fleet: some of it in a bundle, and three files that are rejected. Tests only read it."""
    place = tmp_path_factory.mktemp("taken-in")
    made = TakenIn(*(place / name for name in ("early", "late", "in", "first", "tables")))
    files = fleet(made.early)
    bundle(made.early / "bundle.jsonl.gz", files[:2])
    for path in files[:2]:
        path.unlink()
    files[2].write_bytes(files[2].read_bytes()[:-40])  # cut
    (made.early / "empty.jsonl.gz").touch()
    (made.early / "old.tar").write_bytes(b"an archive")
    made.late.mkdir()
    files[5].rename(made.late / files[5].name)
    shutil.copytree(made.early, made.landing)
    warehouse = Warehouse(spark, str(made.tables))
    for reports in (False, True):
        logged = logged_run(spark, warehouse, "ingest", {}, Progress(spark, io.StringIO()))
        with compiling_nothing(spark), warehouse.writing("test"), logged as run:
            ingest(spark, str(made.landing), warehouse, run, reports=reports)
        if not reports:
            shutil.copytree(made.tables, made.first)
            shutil.copytree(made.late, made.landing, dirs_exist_ok=True)
    return made


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """A bucket of S3, and the variables by which this process reaches it."""
    with serving() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"


@pytest.fixture
def bucket(object_store: str, request: pytest.FixtureRequest) -> str:
    """A place of a test's own in the bucket."""
    return f"{object_store}/{re.sub('[^a-z_]+', '-', request.node.name)}"
