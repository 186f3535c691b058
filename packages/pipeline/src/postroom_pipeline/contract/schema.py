"""The columns of a snapshot's lines, derived from the format's own fields. Nothing is named here a second time."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, MapType, StringType, StructField, StructType

from postroom_common.snapshot import COMMON, FIELDS, Field, Kind, Type

_TYPES: Final[dict[Type, DataType]] = {
    Type.INTEGER: LongType(),
    Type.NUMBER: DoubleType(),
    Type.STRING: StringType(),
    Type.BOOLEAN: BooleanType(),
    Type.COUNTS: MapType(StringType(), LongType()),
    # Its text, as it stands in the line: what has no fixed shape can be read by everyone so.
    Type.JSON: StringType(),
}


def snake(name: str) -> str:
    """The name of a field's column: ``asOfEvent`` is ``as_of_event``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def type_of(field: Field) -> DataType:
    """The type of a field's column."""
    return _TYPES[field.type]


def column_of(field: Field) -> StructField:
    """A field as a column; everything may be null, for a line has the fields of its kind alone."""
    return StructField(snake(field.name), type_of(field), metadata={"comment": field.meaning})


def columns_of(kind: Kind, without: Container[str] = ()) -> list[StructField]:
    """The columns of a kind behind those that every line has, in the format's order."""
    return [column for column in map(column_of, FIELDS[kind]) if column.name not in without]


def common_columns() -> list[StructField]:
    """The columns of every line."""
    return [column_of(field) for field in COMMON]


def wide_schema() -> StructType:
    """One row for a line of any kind: the fields of all kinds, by their names in the format."""
    fields = {field.name: field for field in (*COMMON, *(field for kind in Kind for field in FIELDS[kind]))}
    return StructType([StructField(name, type_of(field)) for name, field in fields.items()])
