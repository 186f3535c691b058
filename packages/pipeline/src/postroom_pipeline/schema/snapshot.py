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
#: The bytes of a value in a line, by its type. JSON is left out: Spark writes its numbers in its own way.
_LENGTHS: Final = {
    Type.INTEGER: "octet_length(cast({0} AS string))",
    Type.STRING: "octet_length({0}) + 2",
    Type.BOOLEAN: "if({0}, 4, 5)",
}
#: The same of a text of JSON, in which quotes are escaped.
_LENGTH_OF_SHAPE: Final = "2 * octet_length({0}) - octet_length(replace({0}, '\"')) + 2"
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


def event_schema() -> StructType:
    """The fields of events in all versions, and those that every line has. With ``CORRUPT``, Spark would look up each
    field of each line by its name."""
    return StructType([*(StructField(field.name, type_of(field)) for field in COMMON), *schema_of(Kind.EVENT).fields])


def length_of_event() -> Column:
    """The bytes of an event with the fields in the columns of ``event_schema``, as devices write it. With these fields
    alone, no line is shorter: a number has no fewer digits, and a character may be escaped, but takes more bytes then.
    A line with a body, or with JSON, is longer."""
    known = {field.name: field for field in (*COMMON, *FIELDS[Kind.EVENT])}
    renamed = RENAMED.get(Kind.EVENT, {})
    lengths = {name: _LENGTHS.get(known[renamed.get(name, name)].type, "") for name in event_schema().names}
    lengths |= {"payload": "", "payloadShape": _LENGTH_OF_SHAPE}  # a body may be any JSON
    # Each with its name in quotes, a colon, and the comma or brace behind it.
    terms = (
        f"if(`{name}` IS NULL, 0D, {len(name) + 4}D + {length.format(f'`{name}`')})"
        for name, length in lengths.items()
        if length
    )
    return F.expr(" + ".join(["1D", *terms]))


def schema_of(kind: Kind) -> StructType:
    """The schema for the JSON reader of the lines of one kind, without the common fields: the current names, and those
    of version 1."""
    current = {field.name: field for field in FIELDS[kind]}
    old = {name: current[new] for name, new in RENAMED.get(kind, {}).items()}
    return StructType([StructField(name, type_of(field)) for name, field in (current | old).items()])


def upgraded_columns(kind: Kind, within: str = "") -> list[Column]:
    """The current columns of a kind, as ``postroom_common.snapshot.upgrade`` upgrades a line of it. The columns of
    another line are not what its fields mean.

    :param within: begins the names of the columns from which they are made, which have those of ``schema_of``.
    """
    olds = {new: old for old, new in RENAMED.get(kind, {}).items()}
    names = ((field.name, [field.name, *([olds[field.name]] if field.name in olds else ())]) for field in FIELDS[kind])
    return [F.coalesce(*(f"{within}{one}" for one in both)).alias(snake(name)) for name, both in names]


def has_infinity(within: str) -> Column:
    """Whether a row of ``reading_schema`` has a number out of range: the JSON reader turns ``1e400`` into infinity.

    :param within: begins the names of its columns.
    """
    names = [f"{within}{name}" for name, field in _ALL.items() if field.type is Type.NUMBER]
    numbers = [F.abs(F.col(name)) == F.lit(float("inf")) for name in names]
    return F.coalesce(*[F.when(number, True) for number in numbers], F.lit(False))
