"""What a run reports: its progress on the terminal, and its row in the table ``runs``."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal, TextIO

from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ..errors import one_line
from ..schema.table import Table
from .connect import is_connect
from .session import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .warehouse import Warehouse

_LOOK_EVERY_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


class Progress:
    """Shows each stage on a stream. A terminal gets a line that is updated; when a stage is done, its line stays. Other
    streams get only the lines that stay.
    """

    def __init__(self, session: SparkSession, stream: TextIO) -> None:
        #: A session of Spark Connect has none.
        self._tracker = None if is_connect(session) else session.sparkContext.statusTracker()
        self._stream = stream
        self._is_terminal = stream.isatty()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show the block as a stage; a block that fails gets no final line."""
        begun = time.monotonic()
        if not self._is_terminal:
            yield
        else:
            done = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(name, begun, done), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()
                self._write(_CLEAR_LINE)
        self.say(f"{name}: {time.monotonic() - begun:.1f} s")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"{text}\n")

    def _watch(self, name: str, begun: float, done: threading.Event) -> None:
        while True:
            tasks, finished = self._tasks()
            share = f"  {finished:,} of {tasks:,} tasks" if tasks else ""
            self._write(f"{_CLEAR_LINE}{name}{share}  {time.monotonic() - begun:.0f} s")
            if done.wait(_LOOK_EVERY_S):
                return

    def _tasks(self) -> tuple[int, int]:
        """How many tasks the active Spark stages have, and how many of these are done."""
        if self._tracker is None:
            return 0, 0
        stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
        active = [stage for stage in stages if stage is not None]
        return sum(stage.numTasks for stage in active), sum(stage.numCompletedTasks for stage in active)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more; the work continues
            self._is_terminal = False


RUNS: Final = Table(
    "runs",
    StructType(
        [
            StructField("run", StringType()),
            StructField("command", StringType()),
            StructField("status", StringType()),
            StructField("error", StringType()),
            StructField("started_ms", LongType()),
            StructField("seconds", DoubleType()),
            StructField("files", LongType()),
            StructField("bytes", LongType()),
            StructField("rows", LongType()),
            StructField("rejects", MapType(StringType(), LongType())),
            StructField(
                "stages",
                ArrayType(StructType([StructField("name", StringType()), StructField("seconds", DoubleType())])),
            ),
            StructField("configuration", StringType()),
            StructField("version", StringType()),
            StructField("spark_version", StringType()),
        ]
    ),
    key=("run",),
)

#: What a run counts beside its rejects.
Counted = Literal["files", "bytes", "rows"]


class Run:
    """One run of one command, in progress."""

    def __init__(self, command: str, progress: Progress) -> None:
        #: Key of the run in ``runs``.
        self.id = uuid.uuid4().hex
        self.command = command
        self.progress = progress
        self.counts: Counter[Counted] = Counter()
        self.rejects: Counter[str] = Counter()
        self.stages: list[tuple[str, float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the run, shown and timed."""
        begun = time.monotonic()
        with self.progress.stage(f"{self.command}: {name}"):
            yield
        self.stages.append((name, time.monotonic() - begun))

    def count(self, what: Counted, number: int) -> None:
        """Add to what the run has read or written."""
        self.counts[what] += number

    def reject(self, reason: str, number: int = 1) -> None:
        """Add to what the run has rejected for a reason."""
        self.rejects[reason] += number

    def summary(self) -> str:
        """The result in one line."""
        done = [f"{self.counts['files']:,} files", f"{self.counts['rows']:,} rows"]
        rejected = f"{self.rejects.total():,} rejected"
        if self.rejects:
            reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(self.rejects.items()))
            rejected += f" ({reasons})"
        return ", ".join([*done, rejected])


@contextmanager
def logged_run(
    session: SparkSession, warehouse: Warehouse, command: str, configuration: Mapping[str, object], progress: Progress
) -> Iterator[Run]:
    """A run that adds its row to ``runs``, also if it fails. A run that is killed leaves none.

    :param configuration: the arguments of the run; the row has their digest, so that equal runs can be compared.
    """
    run = Run(command, progress)
    started_ms = time.time_ns() // 1_000_000
    begun = time.monotonic()
    status, error = "failed", None
    try:
        yield run
        status = "done"
    except BaseException as problem:
        error = one_line(problem)
        if isinstance(problem, KeyboardInterrupt):
            with suppress(Exception):  # else the row would wait for the running jobs
                _cancel(session)
        raise
    finally:
        seconds = time.monotonic() - begun
        row = (
            run.id,
            command,
            status,
            error,
            started_ms,
            seconds,
            *(run.counts[what] for what in ("files", "bytes", "rows")),
            dict(run.rejects),
            [{"name": name, "seconds": taken_s} for name, taken_s in run.stages],
            _digest(configuration),
            version("postroom-pipeline"),
            session.version,
        )
        _append(warehouse, session, dict(zip(RUNS.schema.names, row, strict=True)), failed=status != "done")
    progress.say(f"{command}: {run.summary()}, {seconds:.1f} s")


def _cancel(session: SparkSession) -> None:
    if is_connect(session):
        session.interruptAll()
    else:
        session.sparkContext.cancelAllJobs()


def _append(warehouse: Warehouse, session: SparkSession, row: Mapping[str, object], *, failed: bool) -> None:
    try:
        warehouse.append(RUNS, frame_of(session, [row], RUNS.schema))
    except Exception:
        if not failed:  # else the first error is the one to report; this one follows from it
            raise


def _digest(configuration: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode()).hexdigest()
