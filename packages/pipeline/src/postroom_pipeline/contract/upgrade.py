"""Lines as they are read, and the columns of today's format that are made of them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from postroom_common.snapshot import COMMON, FIELDS, RENAMED, Field, Kind, Type

from .schema import snake, type_of, wide_schema

#: Where the reader of JSON puts a line that it cannot make columns of.
CORRUPT: Final = "_corrupt_record"

_ALL: Final[dict[str, Field]] = {field.name: field for field in (*COMMON, *(f for kind in Kind for f in FIELDS[kind]))}


def reading_schema() -> StructType:
    """What the reader of JSON is asked for: today's names, those of version 1, and what it could not read."""
    schema = wide_schema()
    old = {name: _ALL[new] for names in RENAMED.values() for name, new in names.items()}
    for name, field in old.items():
        if name not in schema.names:
            schema.add(name, type_of(field))
    return schema.add(StructField(CORRUPT, StringType()))


def known_names() -> dict[str, str]:
    """Every name that a field may have, in any version that is read, and the one of today."""
    return {name: name for name in _ALL} | {old: new for names in RENAMED.values() for old, new in names.items()}


def upgraded_columns() -> list[Column]:
    """Today's columns, of a row of ``reading_schema``: what ``postroom_common.snapshot.upgrade`` does to a line."""
    return [_upgraded(field).alias(snake(name)) for name, field in _ALL.items()]


def boundless_number() -> Column:
    """Whether a row has a number that no number can hold; the reader of JSON takes ``1e400`` for infinity."""
    numbers = [F.abs(F.col(name)) == F.lit(float("inf")) for name, field in _ALL.items() if field.type is Type.NUMBER]
    return F.coalesce(*[F.when(number, True) for number in numbers], F.lit(False))


def _upgraded(field: Field) -> Column:
    olds = [(kind, old) for kind, names in RENAMED.items() for old, new in names.items() if new == field.name]
    own = F.col(field.name)
    others = [str(kind) for kind, names in RENAMED.items() if field.name in names]
    if others:  # an old name of theirs, and no field of theirs any more
        own = F.when(~F.coalesce(F.col("kind").isin(others), F.lit(False)), own)
    return F.coalesce(own, *(F.when(F.col("kind") == kind, F.col(old)) for kind, old in olds))
