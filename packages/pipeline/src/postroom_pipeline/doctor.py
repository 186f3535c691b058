"""Looks at everything that a run needs, and says what to mend."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import PipelineError, said_by
from .findings import Finding, Verdict, bad, doubtful, good
from .surroundings import (
    ARCHIVES,
    UNFINISHED,
    judge_leftovers,
    look_at_java,
    look_at_landing,
    look_at_memory,
    look_at_python,
    look_at_scratch,
    look_at_tables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .storage import Storage

#: What can be asked for by name, in the order in which it is looked at.
CHECKS: Final = ("java", "python", "memory", "scratch", "in", "out", "spark")
_ROWS: Final = 1000


@dataclass(frozen=True)
class Wanted:
    """What a look is about."""

    landing: str = ""
    tables: str = ""
    #: Settings of Spark's that the user gave.
    given: Mapping[str, str] | None = None


def examine(wanted: Wanted, only: tuple[str, ...] = ()) -> Iterator[Finding]:
    """The findings, each as soon as it is known. Spark is started only if nothing that it needs is missing."""
    heap = (wanted.given or {}).get("spark.driver.memory", "1g")
    landing, tables = _local(wanted.landing), _local(wanted.tables)
    looks: dict[str, Callable[[], Iterator[Finding]]] = {
        "java": look_at_java,
        "python": look_at_python,
        "memory": lambda: look_at_memory(heap),
        "scratch": look_at_scratch,
    }
    if landing:
        looks["in"] = lambda: look_at_landing(landing)
    if tables:
        looks["out"] = lambda: look_at_tables(tables)
    is_fit = True
    for name, look in looks.items():
        if not only or name in only:
            for finding in look():
                is_fit = is_fit and finding.verdict is not Verdict.BAD
                yield finding
    if only and "spark" not in only:
        return
    if is_fit:
        yield from _look_at_spark(wanted)
    else:
        yield bad("spark", "not tried", "mend the others first")


def _local(location: str) -> Path | None:
    """The path of a location without a scheme, or with that of local files."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location) if location and "://" not in location else None


def _look_at_spark(wanted: Wanted) -> Iterator[Finding]:
    """A tiny run from one end to the other: a table is written, read, and computed with by Python workers."""
    from .spark import cores_of, session

    begun = time.monotonic()
    try:
        with session("postroom-pipeline doctor", wanted.given) as started:
            context = started.sparkContext
            seen = f"{started.version} on {context.master}, {cores_of(started)} cores"
            yield good("spark", f"{seen}, started in {time.monotonic() - begun:.1f} s")
            yield from _look_at_storage(started, wanted)
            yield from _look_at_executors(started)
    except PipelineError as error:
        yield bad("spark", str(error), "see the message; the checks above tell what Spark was started with")


def _look_at_storage(session: SparkSession, wanted: Wanted) -> Iterator[Finding]:
    """Parquet there and back, where the tables shall be."""
    from pyspark.sql.types import LongType, StructField, StructType

    from .io import Warehouse
    from .storage import Storage
    from .table import Table

    if wanted.landing and not _local(wanted.landing):
        yield from look_at_landing_elsewhere(Storage(session, wanted.landing))
    if not wanted.tables and not str(session.sparkContext.master).startswith("local"):
        yield doubtful("tables", "not tried: executors do not share this machine's files", "name a place by --out")
        return
    place = wanted.tables or Path(_scratch(session)).as_uri()
    table = Table("_doctor", StructType([StructField("number", LongType())]), key=("number",))
    begun = time.monotonic()
    warehouse = Warehouse(session, place)
    try:
        with warehouse.writing("doctor"):
            warehouse.write(table, session.range(_ROWS).withColumnRenamed("id", "number"))
            total = warehouse.read(table).groupBy().sum("number").first()
            warehouse.storage.delete(warehouse.path(table))
    except PipelineError:
        raise
    except Exception as error:
        yield bad("tables", f"{place}: {said_by(error)}", "see whether every executor can write there")
        return
    if total is None or total[0] != _ROWS * (_ROWS - 1) // 2:
        yield bad("tables", f"{place}: what was read is not what was written", "do not trust this file system")
    else:
        yield good("tables", f"written and read at {place} in {time.monotonic() - begun:.1f} s")


def look_at_landing_elsewhere(landing: Storage) -> Iterator[Finding]:
    """A place of snapshots elsewhere: directly in it, and in its directories of days."""
    if not landing.exists(landing.location):
        yield bad("in", f"{landing.location} is not there", "name the directory of the snapshots by --in")
        return
    many = len(landing.entries(landing.location))
    yield good("in", f"{landing.location} ({landing.kind}): {many:,} {'entry' if many == 1 else 'entries'}")
    yield from judge_leftovers(landing.matching(f"{{*,*/*}}{{{','.join((*UNFINISHED, *ARCHIVES))}}}"))


def _scratch(session: SparkSession) -> str:
    """A directory of Spark's own, which it deletes when it ends."""
    return str(session.sparkContext._temp_dir)


def _look_at_executors(session: SparkSession) -> Iterator[Finding]:
    """Python workers, on every executor that takes part."""
    context = session.sparkContext
    tasks = context.defaultParallelism
    try:
        # The function is looked up by its name there: where the pipeline is not installed, it has to have been sent.
        found = context.parallelize(range(tasks), tasks).map(_worker).collect()
    except Exception as error:
        if "ModuleNotFoundError" in str(error):
            mend = "ship it: spark-submit --py-files postroom_pipeline.zip (postroom-pipeline package makes it)"
            yield bad("executors", "the pipeline cannot be imported there", mend)
        elif "PYTHON_VERSION_MISMATCH" in str(error):
            mend = "let PYSPARK_PYTHON name the same Python on every machine"
            yield bad("executors", f"their Python is not {platform.python_version()}", mend)
        else:
            yield bad("executors", f"Python workers fail: {said_by(error)}", "see the log of an executor")
        return
    versions = ", ".join(sorted({version for _, version in found}))
    hosts = len({host for host, _ in found})
    yield good("executors", f"Python {versions} on {hosts} {'machine' if hosts == 1 else 'machines'}")


def _worker(number: int) -> tuple[str, str]:
    """Where a task runs, and on which Python."""
    return platform.node(), platform.python_version()
