"""One session of Spark for all tests: its start costs as much as twenty of them, and so they are run by one worker."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from postroom_pipeline.spark.java import find_java
from postroom_pipeline.spark.session import session
from postroom_pipeline.spark.warehouse import Warehouse
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
