"""A session has the settings that the pipeline needs, where the user gave no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from postroom_pipeline.errors import one_line
from postroom_pipeline.spark.compilers import diagnose
from postroom_pipeline.spark.session import chooses_collector, collector_for, lightly
from postroom_pipeline.spark.settings import (
    MODERATE_INPUT_BYTES,
    MODERATE_SETTINGS,
    SHORT_SETTINGS,
    SMALL_INPUT_BYTES,
    SMALL_SETTINGS,
    SPARK_SETTINGS,
)
from tests.pipeline.conftest import TEST_SETTINGS, java_variables

PROGRAM = """
import datetime, json, signal, sys
from pyspark.sql.functions import timestamp_millis, lit
from postroom_pipeline.spark.session import session
from tests.pipeline.test_session import collectors
with session("postroom-pipeline try", dict(pair.split("=", 1) for pair in sys.argv[2:])) as spark:
    found = {name: spark.conf.get(name) for name in sys.argv[1].split(",")}
    (row,) = spark.range(1).select(timestamp_millis(lit(0)).alias("time")).collect()
    worker = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()
    found["collectors"] = collectors(spark)
    found["name"], found["interrupt"] = spark.sparkContext.appName, signal.getsignal(signal.SIGINT).__module__
    print(json.dumps(found | {"epoch": str(row.time), "worker": worker[0]}))
"""


def collectors(spark):
    """The collectors that Java uses."""
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return sorted(bean.getName() for bean in beans)


def test_a_session_has_every_setting_that_nobody_gave(spark):
    given = {name: TEST_SETTINGS.get(name) for name in (known.name for known in SPARK_SETTINGS)}
    for known in SPARK_SETTINGS:
        assert spark.conf.get(known.name) == (given[known.name] or known.value_for(1)), known.name


def test_java_is_asked_once_for_the_classes_that_every_column_of_a_plan_needs(spark):
    assert {"functions", "PythonUtils", "PythonSQLUtils"} <= vars(spark.sparkContext._jvm).keys()


def test_settings_by_cores_grow_with_them():
    by_name = {known.name: known for known in SPARK_SETTINGS}
    shuffle = by_name["spark.sql.shuffle.partitions"]
    assert [shuffle.value_for(cores) for cores in (1, 4, 5, 100)] == ["8", "8", "10", "200"]
    assert by_name["spark.sql.session.timeZone"].value_for(100) == "UTC"


def test_settings_of_the_user_s_file_and_command_line_stay_and_times_are_utc(tmp_path):
    """Also: nothing but the answer on the output, and of Spark's log nothing where nothing is wrong."""
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 3\nspark.sql.parquet.compression.codec gzip\nspark.ui.enabled false\n"
        "spark.driver.extraJavaOptions -XX:+UseSerialGC\n"
    )
    names = "spark.sql.shuffle.partitions,spark.sql.parquet.compression.codec,spark.sql.files.openCostInBytes"
    names += ",spark.sql.sources.partitionOverwriteMode"
    environment = java_variables() | {
        "HOME": str(tmp_path),
        "PYTHONPATH": os.getcwd(),
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "Asia/Tokyo",
    }
    given = [f"{name}={value}" for name, value in TEST_SETTINGS.items() if name != "spark.sql.shuffle.partitions"]
    command = [sys.executable, "-W", "error", "-c", PROGRAM, names, *given, "spark.sql.files.openCostInBytes=77"]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.parquet.compression.codec": "gzip",
        "spark.sql.files.openCostInBytes": "77",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "name": "postroom-pipeline try",
        "interrupt": "_signal",
        "collectors": ["Copy", "MarkSweepCompact"],
        "epoch": "1970-01-01 00:00:00",
        "worker": sys.executable,
    }
    assert [line for line in run.stderr.splitlines() if "incubator" not in line] == []


def test_steps_over_few_rows_use_lighter_settings_unless_the_user_chose(spark):
    chosen = {known.name: known.value for known in (*SMALL_SETTINGS, *SHORT_SETTINGS)}

    def now():
        return {name: spark.conf.get(name, None) for name in chosen}

    before = now()
    theirs = {name: value for name, value in before.items() if spark.sparkContext.getConf().contains(name)}
    assert theirs.keys() < chosen.keys()
    with lightly(spark, SMALL_INPUT_BYTES):
        assert now() == chosen | theirs
    cores = spark.sparkContext.defaultParallelism
    moderate = {known.name: known.value_for(cores) for known in MODERATE_SETTINGS}
    for read_bytes in (SMALL_INPUT_BYTES + 1, MODERATE_INPUT_BYTES):
        with lightly(spark, read_bytes):
            assert now() == before | moderate | theirs
    with lightly(spark, MODERATE_INPUT_BYTES + 1):
        assert now() == before
    with lightly(spark, SMALL_INPUT_BYTES), lightly(spark, SMALL_INPUT_BYTES + 1):  # there is less already
        assert now() == chosen | theirs
    assert now() == before


def test_the_second_compiler_leaves_out_what_prepares_plans_and_in_moderate_steps_their_programs(spark):
    def left_out():
        told = diagnose(spark, "compilerDirectivesPrint") or ""
        return {name: name in told for name in ("org/codehaus/*.*", "GeneratedClass*.*")}

    before = {"org/codehaus/*.*": True, "GeneratedClass*.*": False}
    assert left_out() == before
    with lightly(spark, MODERATE_INPUT_BYTES):
        assert left_out() == dict.fromkeys(before, True)
        with lightly(spark):
            assert left_out() == dict.fromkeys(before, True)
    assert left_out() == before
    assert diagnose(spark, "compilerNone") is None


def test_a_collector_that_is_chosen_in_any_place_is_the_only_one(tmp_path, monkeypatch):
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert not chooses_collector({"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseStringDeduplication"})
    assert chooses_collector({"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseG1GC"})
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseZGC\n")
    assert chooses_collector({})
    (tmp_path / "spark-defaults.conf").unlink()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC")
    assert chooses_collector({})


def test_few_cores_collect_garbage_with_one_thread():
    assert [collector_for(cores)[0] for cores in (1, 2, 3, 64)] == ["-XX:+UseSerialGC"] * 2 + ["-XX:+UseParallelGC"] * 2


def test_the_root_cause_is_reported_with_the_failure(spark, tmp_path):
    with pytest.raises(PySparkException) as caught:
        spark.range(1).selectExpr("raise_error('no room') as x").write.parquet(str(tmp_path / "out"))
    said = one_line(caught.value)
    assert said.count("\n") == 0
    assert "no room" in said
