"""Delta tables, by delta-rs: files of tables are copied as they are, and one commit makes them the table's content."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ..errors import EnvironmentProblem, PipelineError, UsageError
from ..schema.table import Table
from ..spark.arrow_storage import ArrowStorage
from .listing import Listed, partition_of
from .mirror import Changed, Overtaken, Version
from .statistics import statistics_of

HOW_TO_GET_IT: Final = "pip install 'postroom-pipeline[delta]'"
#: By this name a table's log says that it is a mirror, and of which run.
_APPLICATION: Final = "postroom-pipeline"
#: Files that are copied at the same time.
_COPIES: Final = 4


class DeltaLake:
    """The Delta tables in one directory, one in each of its subdirectories.

    Credentials and addresses of object stores come from the environment, as delta-rs and pyarrow define them.
    """

    def __init__(self, location: str) -> None:
        """:raises EnvironmentProblem: delta-rs is not installed, or there is no file system for the location."""
        try:
            import deltalake  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise EnvironmentProblem(f"{error.name} is not installed: {HOW_TO_GET_IT}") from None
        self._storage = ArrowStorage(location)

    def replace(self, source: ArrowStorage, listed: Listed, version: Callable[[], Version]) -> Changed | None:
        """Make a table's files the content of its Delta table, in one commit; None if they are already.

        :param version: the run that has left the files.
        :raises Overtaken: a file was replaced meanwhile, or somebody else has committed.
        :raises UsageError: the table there was not made by this method.
        :raises PipelineError: it has columns of another type, and some of the same files.
        """
        from deltalake.transaction import CommitProperties, RemoveAction, create_table_with_add_actions

        place = self._place(listed.table)
        with _translated(place):
            table = self._table(place)
            present = {} if table is None else _files_of(table)
        fresh = [path for path in listed.files if path not in present]
        stale = [path for path in present if path not in listed.files]
        is_other = table is not None and not _is_like(table, listed.table)
        if is_other and len(fresh) < len(listed.files):
            raise PipelineError(f"{place} has other columns or partitions; delete that table, then mirror again")
        if table is not None and not is_other and not fresh and not stale and not _new_columns(table, listed.table):
            return None
        run = version()
        with ThreadPoolExecutor(_COPIES) as pool:
            added = [*pool.map(lambda path: self._brought(source, listed, path), fresh)]
        with _translated(place):
            properties = CommitProperties(
                custom_metadata=dict(run.described), max_commit_retries=0, app_transactions=[_transaction(run)]
            )
            schema, by = _schema_of(listed.table), [*listed.table.partition]
            if table is None or is_other:
                create_table_with_add_actions(
                    place,
                    schema,
                    added,
                    mode="overwrite" if is_other else "error",
                    partition_by=by,
                    description=listed.table.about,
                    commit_properties=properties,
                )
            else:
                if columns := _new_columns(table, listed.table):
                    table.alter.add_columns(columns)
                now_ms = time.time_ns() // 1_000_000
                removed = [RemoveAction(path, True, now_ms, *present[path]) for path in stale]
                table.create_write_transaction([*added, *removed], "append", schema, by, commit_properties=properties)
            after = self._table(place)
        assert after is not None  # it was just written
        sizes = sum(listed.files[path] for path in fresh)
        return Changed(listed.table.name, after.version(), len(added), len(stale), sizes)

    def _place(self, table: Table) -> str:
        """The location of a table, as delta-rs takes it."""
        path = self._storage.join(table.name)
        local = self._storage.local(path)
        return path if local is None else str(local)

    def _table(self, place: str) -> Any:
        """A Delta table; None if it does not exist."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(place)
        except TableNotFoundError:
            return None
        if table.transaction_version(_APPLICATION) is None:
            raise UsageError(f"{place} is a Delta table that was not made by mirror; name another directory")
        return table

    def _brought(self, source: ArrowStorage, listed: Listed, path: str) -> Any:
        """Copy a file to its place; the action that adds it to the table."""
        from deltalake.transaction import AddAction

        name, size = listed.table.name, listed.files[path]
        origin, target = source.join(name, path), self._storage.join(name, path)
        try:
            source.copy(origin, self._storage, target)
            footer = self._storage.footer(target)
        except EnvironmentProblem:
            if source.exists(origin):
                raise
            raise Overtaken(f"{origin} was replaced while it was copied") from None
        stats = statistics_of(footer)
        text = json.dumps(
            {
                "numRecords": stats.rows,
                "minValues": stats.lowest,
                "maxValues": stats.highest,
                "nullCount": stats.nulls,
            },
            default=_plain,
        )
        return AddAction(path, size, partition_of(path), time.time_ns() // 1_000_000, True, text)


def _files_of(table: Any) -> Mapping[str, tuple[int, dict[str, str | None]]]:
    """Size and partition of each file of a Delta table, by its path."""
    import pyarrow

    return {
        row["path"]: (row["size_bytes"], {name: _text(value) for name, value in (row.get("partition") or {}).items()})
        for row in pyarrow.table(table.get_add_actions()).to_pylist()
    }


def _is_like(table: Any, ours: Table) -> bool:
    """Whether a Delta table has our partitions, and no column of another type."""
    kinds = {field.name: field.type for field in _schema_of(ours).fields}
    is_equal = all(kinds.get(field.name, field.type) == field.type for field in table.schema().fields)
    return is_equal and [*table.metadata().partition_columns] == [*ours.partition]


def _new_columns(table: Any, ours: Table) -> list[Any]:
    """The columns that a Delta table lacks."""
    names = {field.name for field in table.schema().fields}
    return [field for field in _schema_of(ours).fields if field.name not in names]


def _schema_of(table: Table) -> Any:
    """The columns of a table with their meanings: Spark writes them as Delta does."""
    from deltalake import Schema

    return Schema.from_json(table.schema.json())


def _transaction(run: Version) -> Any:
    from deltalake import Transaction

    return Transaction(_APPLICATION, run.started_ms)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(value: Any) -> str:
    """A time or day, as the protocol of Delta writes it in statistics."""
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value)


@contextlib.contextmanager
def _translated(place: str) -> Iterator[None]:
    """Translate errors of delta-rs to one that names the place."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise Overtaken(f"{place}: another program has committed: {error}") from error
    except (DeltaError, OSError, ValueError) as error:
        raise EnvironmentProblem(f"{place}: {error}") from error
