"""Checks everything that a run needs, and says what to repair."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import PipelineError, one_line
from ..files import ARCHIVES, STAGED
from ..spark.connect import is_connect, remote_of
from ..spark.session import GATEWAY
from .environment import (
    Finding,
    Verdict,
    bad,
    check_java,
    check_landing,
    check_memory,
    check_python,
    check_scratch,
    check_tables,
    doubtful,
    good,
    judge_leftovers,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark.storage import Storage

#: The checks that ``--only`` selects, in the order in which they run.
CHECKS: Final = ("java", "python", "memory", "scratch", "in", "out", "spark")
_ROWS: Final = 1000


@dataclass(frozen=True)
class Wanted:
    """What is checked."""

    landing: str = ""
    tables: str = ""
    #: The user's Spark settings.
    given: Mapping[str, str] | None = None


def examine(wanted: Wanted, only: tuple[str, ...] = ()) -> Iterator[Finding]:
    """The findings, each as soon as it is known.

    Spark is started only if that is selected, if Java already runs because of spark-submit, or if a directory can be
    reached only by Spark; and only if no check before it failed.
    """
    heap = (wanted.given or {}).get("spark.driver.memory", "1g")
    remote = remote_of(wanted.given)
    landing, tables = _local(wanted.landing), _local(wanted.tables)
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "java": check_java,
        "python": check_python,
        "memory": lambda: check_memory(heap),
        "scratch": check_scratch,
    }
    if remote:  # these are matters of the server
        checks = {"python": check_python}
    if landing:
        checks["in"] = lambda: check_landing(landing)
    if tables:
        checks["out"] = lambda: check_tables(tables)
    is_fit = True
    for name, check in checks.items():
        if not only or name in only:
            for finding in check():
                is_fit = is_fit and finding.verdict is not Verdict.BAD
                yield finding
    if only and "spark" not in only:
        return
    if not is_fit:
        yield bad("spark", "not tried", "repair the failed checks first")
    elif only or remote or GATEWAY in os.environ or not (_is_here(wanted.landing) and _is_here(wanted.tables)):
        yield from _check_spark(wanted)
    else:
        yield Finding("spark", Verdict.GOOD, "not started", "--only spark starts it, writes a table and reads it")


def _local(location: str) -> Path | None:
    """The path of a local location, with or without scheme; None for others."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location) if location and "://" not in location else None


def _is_here(location: str) -> bool:
    """Whether a location needs no Spark to be looked at: it is local, or not given."""
    return not location or _local(location) is not None


def _check_spark(wanted: Wanted) -> Iterator[Finding]:
    """A tiny run: a table is written and read, and Python workers compute something."""
    from ..spark.session import cores_of, session

    remote = remote_of(wanted.given)
    begun = time.monotonic()
    try:
        with session("postroom-pipeline doctor", wanted.given) as started:
            where = remote or f"{started.sparkContext.master}, {cores_of(started)} cores"
            yield good("spark", f"{started.version} on {where}, started in {time.monotonic() - begun:.1f} s")
            yield from _check_storage(started, wanted)
            if not remote:
                yield from _check_executors(started)
    except PipelineError as error:
        yield bad("spark", str(error), "see the message; the checks above show what Spark was started with")


def _check_storage(session: SparkSession, wanted: Wanted) -> Iterator[Finding]:
    """Write and read Parquet in the directory of the tables."""
    from pyspark.sql.types import LongType, StructField, StructType

    from ..schema.table import Table
    from ..spark.location import storage_of
    from ..spark.warehouse import Warehouse

    if wanted.landing and not _local(wanted.landing):
        yield from check_landing_elsewhere(storage_of(session, wanted.landing))
    if not wanted.tables and not _is_local(session):
        yield doubtful(
            "tables", "not tried: executors do not share this machine's files", "give a directory with --out"
        )
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
        yield bad("tables", f"{place}: {one_line(error)}", "check whether every executor can write there")
        return
    if total is None or total[0] != _ROWS * (_ROWS - 1) // 2:
        yield bad("tables", f"{place}: the rows read are not the rows written", "never use this file system")
    else:
        yield good("tables", f"written and read at {place} in {time.monotonic() - begun:.1f} s")


def _is_local(session: SparkSession) -> bool:
    """Whether all of Spark is in this process, so that it can write what this process can."""
    return not is_connect(session) and str(session.sparkContext.master).startswith("local")


def check_landing_elsewhere(landing: Storage) -> Iterator[Finding]:
    """A directory of snapshots that is not local: its own entries, and those one level below."""
    if not landing.exists(landing.location):
        yield bad("in", f"{landing.location} does not exist", "give the directory of the snapshots with --in")
        return
    entries = landing.entries(landing.location)
    many = len(entries)
    yield good("in", f"{landing.location} ({landing.kind}): {many:,} {'entry' if many == 1 else 'entries'}")
    below = [entry for one in entries if one.is_directory for entry in landing.entries(one.path)]
    yield from judge_leftovers(
        sorted(one.path for one in (*entries, *below) if one.name.endswith((*STAGED, *ARCHIVES)))
    )


def _scratch(session: SparkSession) -> str:
    """Spark's own temporary directory, which it deletes at the end."""
    return str(session.sparkContext._temp_dir)


def _check_executors(session: SparkSession) -> Iterator[Finding]:
    """Run Python workers on the executors."""
    context = session.sparkContext
    tasks = context.defaultParallelism
    try:
        # Workers import the function by its name: if the pipeline is not installed there, it must have been shipped.
        workers = context.parallelize(range(tasks), tasks).map(_worker).collect()
    except Exception as error:
        if "ModuleNotFoundError" in str(error):
            mend = "ship it: spark-submit --py-files postroom_pipeline.zip (postroom-pipeline package makes it)"
            yield bad("executors", "the pipeline cannot be imported there", mend)
        elif "PYTHON_VERSION_MISMATCH" in str(error):
            mend = "set PYSPARK_PYTHON to the same Python on every machine"
            yield bad("executors", f"their Python is not {platform.python_version()}", mend)
        else:
            yield bad("executors", f"Python workers fail: {one_line(error)}", "see an executor's log")
        return
    versions = ", ".join(sorted({version for _, version in workers}))
    hosts = len({host for host, _ in workers})
    yield good("executors", f"Python {versions} on {hosts} {'machine' if hosts == 1 else 'machines'}")


def _worker(number: int) -> tuple[str, str]:
    """The host and the Python version of a task."""
    return platform.node(), platform.python_version()
