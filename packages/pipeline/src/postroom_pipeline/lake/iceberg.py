"""Iceberg tables, by pyiceberg: files of tables are copied as they are, and one commit makes them its content."""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final

from pyspark.sql import types

from ..errors import EnvironmentProblem, PipelineError, UsageError
from ..schema.table import Table
from ..spark.arrow_storage import ArrowStorage
from .listing import Listed, partition_of
from .mirror import Changed, Overtaken, Version
from .statistics import statistics_of

HOW_TO_GET_IT: Final = "pip install 'postroom-pipeline[iceberg]'"
#: By this property a table says that it is a mirror.
_MARK: Final = "postroom.mirror"
_COPIES: Final = 4
_PIECE: Final = 8 << 20


class IcebergLake:
    """The Iceberg tables in one namespace of a catalog, which pyiceberg's own configuration describes."""

    def __init__(self, target: str) -> None:
        """:param target: ``CATALOG.NAMESPACE``

        :raises EnvironmentProblem: pyiceberg is not installed, or the catalog cannot be reached.
        :raises UsageError: the target is no such pair.
        """
        try:
            import pyarrow  # noqa: F401
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise EnvironmentProblem(f"{error.name} is not installed: {HOW_TO_GET_IT}") from None
        name, _, namespace = target.partition(".")
        if not name or not namespace or "/" in target:
            raise UsageError(f"{target} is not CATALOG.NAMESPACE, by which Iceberg's tables are named")
        self._namespace = tuple(namespace.split("."))
        self._target = target
        with _translated(target):
            self._catalog = load_catalog(name)
            self._catalog.create_namespace_if_not_exists(self._namespace)

    def replace(self, source: ArrowStorage, listed: Listed, version: Callable[[], Version]) -> Changed | None:
        """Make a table's files the content of its Iceberg table, in one commit; None if they are already.

        :param version: the run that has left the files.
        :raises Overtaken: a file was replaced meanwhile, or somebody else has committed.
        :raises UsageError: the table there was not made by this method.
        :raises PipelineError: it has other partitions, or columns of another type; or a file has unknown columns.
        """
        ours, name = listed.table, f"{self._target}.{listed.table.name}"
        with _translated(name):
            table = self._table(ours, name)
            present = {} if table is None else _files_of(table)
        fresh = [path for path in listed.files if path not in present]
        stale = [path for path in present if path not in listed.files]
        if table is not None and not fresh and not stale and not _new_columns(table, ours):
            return None
        run = version()
        with _translated(name):
            if table is None:
                change = self._catalog.create_table_transaction(
                    (*self._namespace, ours.name),
                    _schema_of(ours),
                    partition_spec=_partitions_of(ours),
                    properties={_MARK: "true", "commit.retry.num-retries": "0", "comment": ours.about},
                )
            else:
                change = table.transaction()
                with change.update_schema() as update:
                    for field in _new_columns(table, ours):
                        update.add_column(field.name, _kind(field.dataType, count(1)), _comment(field))
            # The columns of our files have no ids of Iceberg: readers find them by name.
            names = change.table_metadata.schema().name_mapping.model_dump_json()
            change.set_properties({"schema.name-mapping.default": names})
            with ThreadPoolExecutor(_COPIES) as pool:
                added = [*pool.map(lambda path: _brought(source, change, listed, path), fresh)]
            if added or stale:
                snapshot = change.update_snapshot(snapshot_properties=dict(run.described))
                with snapshot.overwrite() if stale else snapshot.fast_append() as files:
                    for path in stale:
                        files.delete_data_file(present[path])
                    for file in added:
                        files.append_data_file(file)
            after = change.commit_transaction().current_snapshot()
        made = "" if after is None else after.snapshot_id
        return Changed(ours.name, made, len(added), len(stale), sum(listed.files[path] for path in fresh))

    def _table(self, ours: Table, name: str) -> Any:
        """An Iceberg table; None if it does not exist."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table((*self._namespace, ours.name))
        except NoSuchTableError:
            return None
        if _MARK not in table.properties:
            raise UsageError(f"{name} is an Iceberg table that was not made by mirror; name another namespace")
        kinds = {field.name: field.dataType for field in ours.schema.fields}
        partitions = tuple(field.name for field in table.spec().fields)
        same = all(
            str(_kind(kinds[field.name], count(1))) == str(_renumbered(field.field_type))
            for field in table.schema().fields
            if field.name in kinds
        )
        if partitions != ours.partition or not same:
            raise PipelineError(f"{name} has other columns or partitions; drop that table, then mirror again")
        return table


def _brought(source: ArrowStorage, change: Any, listed: Listed, path: str) -> Any:
    """Copy a file to its place; what Iceberg notes of it."""
    from pyarrow import parquet
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    metadata, io = change.table_metadata, change._table.io  # a table that is being created has no other way to it
    origin, target = source.join(listed.table.name, path), f"{metadata.location}/data/{path}"
    try:
        with source.opened(origin) as file, io.new_output(target).create(overwrite=True) as copy:
            shutil.copyfileobj(file, copy, _PIECE)
    except EnvironmentProblem:
        if source.exists(origin):
            raise
        raise Overtaken(f"{origin} was replaced while it was copied") from None
    with io.new_input(target).open() as stream:
        footer = parquet.read_metadata(stream)
    fields = {field.name: field for field in metadata.schema().fields}
    if unknown := [name for name in footer.schema.to_arrow_schema().names if name not in fields]:
        raise PipelineError(
            f"{origin} has columns of another version, which pyiceberg cannot read: {', '.join(unknown)}"
        )
    seen = statistics_of(footer)

    def by_id(of: Mapping[str, Any], stored: Callable[[Any, Any], Any]) -> dict[int, Any]:
        """Figures of columns, as Iceberg stores them."""
        return {fields[name].field_id: stored(fields[name].field_type, figure) for name, figure in of.items()}

    values = partition_of(path)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=target,
        file_format=FileFormat.PARQUET,
        partition=Record(*(_day(values[column]) for column in listed.table.partition)),
        file_size_in_bytes=listed.files[path],
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        record_count=seen.rows,
        column_sizes={},
        value_counts=by_id(seen.nulls, lambda kind, nulls: seen.rows),
        null_value_counts=by_id(seen.nulls, lambda kind, nulls: nulls),
        nan_value_counts={},
        lower_bounds=by_id(seen.lowest, to_bytes),
        upper_bounds=by_id(seen.highest, to_bytes),
        split_offsets=None,
    )


def _day(value: str | None) -> int | None:
    """A day as Iceberg stores it: the number of days since 1970. All partitions of tables are days."""
    return None if value is None else (dt.date.fromisoformat(value) - dt.date(1970, 1, 1)).days


def _files_of(table: Any) -> dict[str, Any]:
    """The files of an Iceberg table, by their paths below the directory of its data. A scan leaves out those without
    rows."""
    above, snapshot = f"{table.location()}/data/", table.current_snapshot()
    files = (
        entry.data_file
        for manifest in (snapshot.manifests(table.io) if snapshot else ())
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {file.file_path.removeprefix(above): file for file in files}


def _new_columns(table: Any, ours: Table) -> list[types.StructField]:
    """The columns that an Iceberg table lacks."""
    names = {field.name for field in table.schema().fields}
    return [field for field in ours.schema.fields if field.name not in names]


def _schema_of(table: Table) -> Any:
    """The columns of a table with their meanings."""
    from pyiceberg.schema import Schema

    return Schema(*_fields(table.schema, count(1)))


def _fields(columns: types.StructType, numbers: Iterator[int]) -> list[Any]:
    from pyiceberg.types import NestedField

    return [
        NestedField(next(numbers), field.name, _kind(field.dataType, numbers), required=False, doc=_comment(field))
        for field in columns.fields
    ]


def _comment(field: types.StructField) -> str | None:
    return (field.metadata or {}).get("comment")


def _kind(kind: types.DataType, numbers: Iterator[int]) -> Any:
    """The type of Iceberg for one of Spark."""
    from pyiceberg import types as iceberg

    if isinstance(kind, types.StructType):
        return iceberg.StructType(*_fields(kind, numbers))
    if isinstance(kind, types.ArrayType):
        number = next(numbers)
        return iceberg.ListType(number, _kind(kind.elementType, numbers), element_required=False)
    if isinstance(kind, types.MapType):
        key, value = next(numbers), next(numbers)
        return iceberg.MapType(key, _kind(kind.keyType, numbers), value, _kind(kind.valueType, numbers), False)
    plain = {
        "string": iceberg.StringType,
        "bigint": iceberg.LongType,
        "int": iceberg.IntegerType,
        "double": iceberg.DoubleType,
        "boolean": iceberg.BooleanType,
        "date": iceberg.DateType,
        "timestamp": iceberg.TimestamptzType,
    }
    return plain[kind.simpleString()]()


def _renumbered(kind: Any) -> Any:
    """A type of Iceberg whose parts are numbered as if it stood alone, so that it can be compared."""
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField

    numbers = count(0)
    alone = assign_fresh_schema_ids(Schema(NestedField(1, "x", kind, required=False)), lambda: next(numbers))
    return alone.fields[0].field_type


def _partitions_of(table: Table) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    ids = {field.name: field.field_id for field in _schema_of(table).fields}
    return PartitionSpec(
        *(
            PartitionField(ids[column], number, IdentityTransform(), column)
            for number, column in enumerate(table.partition, 1000)
        )
    )


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    """Translate errors of pyiceberg to one that names the table."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError, ValidationException

    try:
        yield
    except PipelineError:
        raise
    except (CommitFailedException, TableAlreadyExistsError, ValidationException) as error:
        raise Overtaken(f"{name}: another program has committed: {error}") from error
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module not in ("pyiceberg", "pydantic", "sqlalchemy") and not isinstance(error, OSError | ValueError):
            raise
        raise EnvironmentProblem(f"{name}: {error}") from error
