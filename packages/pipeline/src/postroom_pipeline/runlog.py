"""The table ``runs``: what each run did, how long it took, and what it refused."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from .errors import said_by
from .progress import Progress
from .table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .io import Warehouse

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

#: What a run counts beside its refusals.
Counted = Literal["files", "bytes", "rows"]


class Run:
    """One run of one command, while it goes on."""

    def __init__(self, command: str, progress: Progress) -> None:
        #: Names the run in every table that says where a row is from.
        self.id = uuid.uuid4().hex
        self.command = command
        self.progress = progress
        self.counts: Counter[Counted] = Counter()
        self.rejects: Counter[str] = Counter()
        self.stages: list[tuple[str, float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the run that is told of while it goes on, and timed."""
        begun = time.monotonic()
        with self.progress.stage(f"{self.command}: {name}"):
            yield
        self.stages.append((name, time.monotonic() - begun))

    def count(self, what: Counted, number: int) -> None:
        """Add to what the run has read or written."""
        self.counts[what] += number

    def reject(self, reason: str, number: int = 1) -> None:
        """Add to what the run has refused for a reason."""
        self.rejects[reason] += number

    def summary(self) -> str:
        """One line on what was done."""
        done = [f"{self.counts['files']:,} files", f"{self.counts['rows']:,} rows"]
        refused = f"{self.rejects.total():,} rejected"
        if self.rejects:
            reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(self.rejects.items()))
            refused += f" ({reasons})"
        return ", ".join([*done, refused])


@contextmanager
def logged_run(
    session: SparkSession, warehouse: Warehouse, command: str, configuration: Mapping[str, object], progress: Progress
) -> Iterator[Run]:
    """A run that leaves its row in ``runs``, also where it fails; one that is killed leaves none.

    :param configuration: what the run was asked for; the row has its digest, so that like runs can be compared.
    """
    run = Run(command, progress)
    started_ms = time.time_ns() // 1_000_000
    begun = time.monotonic()
    status, error = "failed", None
    try:
        yield run
        status = "done"
    except BaseException as problem:
        error = said_by(problem)
        if isinstance(problem, KeyboardInterrupt):
            with suppress(Exception):  # the row would wait for what is going on
                session.sparkContext.cancelAllJobs()
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
            run.stages,
            _digest(configuration),
            version("postroom-pipeline"),
            session.version,
        )
        _append(warehouse, session, row, failed=status != "done")
    progress.say(f"{command}: {run.summary()}, {seconds:.1f} s")


def _append(warehouse: Warehouse, session: SparkSession, row: tuple[object, ...], *, failed: bool) -> None:
    try:
        warehouse.append(RUNS, session.createDataFrame([row], RUNS.schema))
    except Exception:
        if not failed:  # else the first problem is the one to tell; what stands in its way here follows from it
            raise


def _digest(configuration: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode()).hexdigest()
