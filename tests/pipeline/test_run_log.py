"""A run reports its progress, and leaves a row that describes it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from postroom_pipeline.errors import PipelineError
from postroom_pipeline.spark.runlog import RUNS, Progress, logged_run


class Reported(io.StringIO):
    """A stream that is, or is not, a terminal; and does something when it is written to."""

    def __init__(self, is_terminal=False, on_write=None):
        super().__init__()
        self.is_terminal = is_terminal
        self.on_write = on_write

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        if self.on_write is not None:
            self.on_write(text)
        return super().write(text)


def test_a_run_leaves_its_row_and_says_what_it_did(spark, warehouse):
    reported = Reported()
    begun_ms = time.time_ns() // 1_000_000
    with logged_run(spark, warehouse, "ingest", {"in": "landing"}, Progress(spark, reported)) as run:
        with run.stage("reading"):
            run.count("files", 1200)
            run.count("bytes", 5)
            run.count("rows", 20)
            run.count("rows", 22)
        run.reject("truncated", 2)
        run.reject("not_json")
    (row,) = warehouse.read(RUNS).collect()
    assert (row.run, row.command, row.status, row.error) == (run.id, "ingest", "done", None)
    assert (row.files, row.bytes, row.rows, row.rejects) == (1200, 5, 42, {"truncated": 2, "not_json": 1})
    assert [stage.name for stage in row.stages] == ["reading"]
    assert row.started_ms >= begun_ms
    assert 0 <= row.stages[0].seconds <= row.seconds
    assert row.spark_version == spark.version
    first, last = reported.getvalue().splitlines()
    assert first.startswith("ingest: reading: ")
    assert last.startswith("ingest: 1,200 files, 42 rows, 3 rejected (not_json 1, truncated 2), ")


def test_a_run_that_fails_leaves_its_row_with_the_first_line_of_the_error(spark, warehouse):
    reported = Reported()
    progress = Progress(spark, reported)
    with pytest.raises(PipelineError, match="half of it"), logged_run(spark, warehouse, "ingest", {}, progress) as run:
        with run.stage("reading"):
            run.count("files", 1)
        with run.stage("writing"):
            raise PipelineError("\nhalf of it\nis missing")
    (row,) = warehouse.read(RUNS).collect()
    assert (row.status, row.error, row.files) == ("failed", "half of it", 1)
    assert [stage.name for stage in row.stages] == ["reading"]
    (line,) = reported.getvalue().splitlines()
    assert line.startswith("ingest: reading: ")


def test_a_log_that_cannot_be_written_does_not_hide_why_a_run_failed(spark, warehouse):
    warehouse.storage.write_text(warehouse.path(RUNS), "a file where the table should be")
    progress = Progress(spark, Reported())
    with pytest.raises(PipelineError, match="first"), logged_run(spark, warehouse, "ingest", {}, progress):
        raise PipelineError("first")
    with pytest.raises(PipelineError, match="runs"), logged_run(spark, warehouse, "ingest", {}, progress):
        pass


def test_runs_that_were_asked_the_same_have_the_same_digest(spark, warehouse):
    for configuration in ({"in": "a", "out": "b"}, {"out": "b", "in": "a"}, {"in": "a", "out": "c"}):
        with logged_run(spark, warehouse, "ingest", configuration, Progress(spark, Reported())):
            pass
    digests = [row.configuration for row in warehouse.read(RUNS).orderBy("started_ms").collect()]
    assert len(digests) == 3
    assert len(set(digests)) == 2


def test_a_terminal_shows_how_many_tasks_are_done(spark, tmp_path):
    go = tmp_path / "go"

    def let_go(text):
        if "0 of 2 tasks" in text:
            go.touch()

    def wait_for_it(number):
        deadline = time.monotonic() + 60
        while not Path(go).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return go.exists()

    reported = Reported(is_terminal=True, on_write=let_go)
    with Progress(spark, reported).stage("ingest: reading"):
        seen = spark.sparkContext.parallelize(range(2), 2).map(wait_for_it).collect()
    assert seen == [True, True]
    moving, _, staying = reported.getvalue().rpartition("\r\x1b[K")
    assert "\r\x1b[Kingest: reading  0 of 2 tasks  " in moving
    assert "\n" not in moving
    assert staying.startswith("ingest: reading: ")
    assert staying.endswith(" s\n")


def test_work_continues_when_nobody_reads_the_output(spark):
    def gone(text):
        raise BrokenPipeError

    with Progress(spark, Reported(is_terminal=True, on_write=gone)).stage("ingest: reading"):
        assert spark.range(3).count() == 3
