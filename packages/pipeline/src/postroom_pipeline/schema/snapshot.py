"""The fields of the snapshot format as columns, in all versions that are read; ``postroom_common`` defines them."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, MapType, StringType, StructField, StructType

from postroom_common.snapshot import COMMON, FIELDS, RENAMED, Field, Kind, Type

_TYPES: Final[dict[Type, DataType]] = {
    Type.INTEGER: LongType(),
    Type.NUMBER: DoubleType(),
    Type.STRING: StringType(),
    Type.BOOLEAN: BooleanType(),
    Type.COUNTS: MapType(StringType(), LongType()),
    # The text as it is in the line: a value without a fixed shape stays readable for everyone.
    Type.JSON: StringType(),
}
_ALL: Final[dict[str, Field]] = {field.name: field for field in (*COMMON, *(f for kind in Kind for f in FIELDS[kind]))}
#: The column in which the JSON reader puts a line that it cannot parse.
CORRUPT: Final = "_corrupt_record"


def snake(name: str) -> str:
    """The name of a field's column: ``asOfEvent`` is ``as_of_event``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def type_of(field: Field) -> DataType:
    """The type of a field's column."""
    return _TYPES[field.type]


def column_of(field: Field) -> StructField:
    """A field as a column. Every column is nullable: a line has only the fields of its kind."""
    return StructField(snake(field.name), type_of(field), metadata={"comment": field.meaning})


def columns_of(kind: Kind) -> list[StructField]:
    """The columns of a kind without those that every line has, in the format's order."""
    return [column_of(field) for field in FIELDS[kind]]


def wide_schema() -> StructType:
    """The fields of all kinds together, by their names in the format: one row for a line of any kind."""
    return StructType([StructField(name, type_of(field)) for name, field in _ALL.items()])


def reading_schema() -> StructType:
    """The schema for the JSON reader: the current names, those of version 1, and ``CORRUPT``."""
    schema = wide_schema()
    old = {name: _ALL[new] for names in RENAMED.values() for name, new in names.items()}
    for name, field in old.items():
        if name not in schema.names:
            schema.add(name, type_of(field))
    return schema.add(StructField(CORRUPT, StringType()))


def known_names() -> dict[str, str]:
    """Every name of a field in any version that is read, with its current name."""
    return {name: name for name in _ALL} | {old: new for names in RENAMED.values() for old, new in names.items()}


def upgraded_columns() -> list[Column]:
    """The current columns from a row of ``reading_schema``, as ``postroom_common.snapshot.upgrade`` upgrades a line."""
    return [_upgraded(field).alias(snake(name)) for name, field in _ALL.items()]


def has_infinity() -> Column:
    """Whether a row has a number out of range: the JSON reader turns ``1e400`` into infinity."""
    numbers = [F.abs(F.col(name)) == F.lit(float("inf")) for name, field in _ALL.items() if field.type is Type.NUMBER]
    return F.coalesce(*[F.when(number, True) for number in numbers], F.lit(False))


def _upgraded(field: Field) -> Column:
    olds = [(kind, old) for kind, names in RENAMED.items() for old, new in names.items() if new == field.name]
    own = F.col(field.name)
    others = [str(kind) for kind, names in RENAMED.items() if field.name in names]
    if others:  # for these kinds it is an old name of another field
        own = F.when(~F.coalesce(F.col("kind").isin(others), F.lit(False)), own)
    return F.coalesce(own, *(F.when(F.col("kind") == kind, F.col(old)) for kind, old in olds))
