"""Which files the tables have: listed while no run writes, so that they belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from ..errors import EnvironmentProblem
from ..reports import BUILT
from ..schema.table import Table
from ..silver import ALL
from ..spark.arrow_storage import ArrowStorage
from ..spark.runlog import RUNS
from ..spark.warehouse import EMPTY, LOCK, PLAN, STAGING, locked

#: The tables of a lake by name. Lines as they were read (``bronze``, ``unknown``) are not among them.
TABLES: Final[dict[str, Table]] = ALL | {name: report.TABLE for name, report in BUILT.items()} | {RUNS.name: RUNS}
#: What Spark names the partition of rows without a value.
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"

#: The sizes of a table's files, by their paths below its directory.
Files = dict[str, int]


@dataclass(frozen=True)
class Listed:
    """A table and its files. A file never changes, and no other one ever has its name."""

    table: Table
    files: Files


def listed(storage: ArrowStorage, names: frozenset[str], who: str) -> list[Listed]:
    """The tables that exist, as one run has left them.

    :param names: which tables; all if there is none.
    :param who: the name of the caller, for the message that a run gets which wants to write meanwhile.
    :raises Occupied: a run writes the tables.
    :raises EnvironmentProblem: there are no tables, or a run was killed while it replaced some of them.
    """
    if not storage.exists(storage.location):
        raise EnvironmentProblem(f"{storage.location}: there is no such directory")
    with locked(storage, storage.join(LOCK), who):
        if any(storage.exists(f"{one.path}/{PLAN}") for one in storage.entries(storage.join(STAGING))):
            raise EnvironmentProblem(
                f"{storage.location}: a run was killed while it replaced files; run ingest again first"
            )
        tables = [Listed(table, _files(storage, table)) for name, table in TABLES.items() if not names or name in names]
        found = [one for one in tables if one.files or storage.exists(storage.join(one.table.name))]
    if not found:
        raise EnvironmentProblem(f"{storage.location}: there are no tables; postroom-pipeline ingest --out makes them")
    return found


def partition_of(path: str) -> dict[str, str | None]:
    """The values of a file's partition, by its path below the directory of its table."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {column: None if value == _NO_VALUE else unquote(value) for column, _, value in pairs}


def _files(storage: ArrowStorage, table: Table) -> Files:
    """The files; without that of a table without rows, whose only purpose is to have the columns."""
    sizes = storage.sizes_below(storage.join(table.name))
    names = {path: path.rpartition("/")[2] for path in sizes}
    return {path: sizes[path] for path, name in names.items() if not name.startswith((".", "_")) and name != EMPTY}
