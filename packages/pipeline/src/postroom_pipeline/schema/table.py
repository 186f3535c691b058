"""A table as data: its name, its columns, its key and how its files are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from ..errors import SchemaMismatch

#: What a table is built from: data frames by name.
Frames = Mapping[str, DataFrame]


@dataclass(frozen=True)
class Table:
    """One table."""

    #: Its directory below the warehouse's location; may have several parts (``bronze/lines``).
    name: str
    schema: StructType
    #: Columns that no two rows share.
    key: tuple[str, ...]
    #: Columns that are directories. They come last in the schema, where every reader of such directories puts them.
    partition: tuple[str, ...] = ()
    #: What the documents say of it.
    about: str = ""
    #: Columns whose values hardly repeat: Parquet makes no dictionaries of them, which it would give up later.
    varied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = self.schema.names
        unknown = [column for column in (*self.key, *self.partition, *self.varied) if column not in columns]
        if unknown:
            raise ValueError(f"{self.name}: no column {', '.join(unknown)}")
        if self.partition and tuple(columns[-len(self.partition) :]) != self.partition:
            raise ValueError(f"{self.name}: partition columns must come last")

    def fitted(self, frame: DataFrame) -> DataFrame:
        """The frame with exactly the table's columns, in their order.

        :raises SchemaMismatch: columns are missing, unexpected or of another type; the text lists all of them.
        """
        has = {field.name: field.dataType for field in frame.schema.fields}
        wants = {field.name: field.dataType for field in self.schema.fields}
        wrong = [f"{name} is missing" for name in wants if name not in has]
        wrong += [f"{name} is unexpected" for name in has if name not in wants]
        wrong += [
            f"{name} is {has[name].simpleString()}, not {wants[name].simpleString()}"
            for name in wants
            if name in has and not _same(has[name], wants[name])
        ]
        if len(has) != len(frame.columns):
            wrong.append("a column occurs twice")
        if wrong:
            raise SchemaMismatch(f"table {self.name}: {'; '.join(wrong)}")
        return frame.select(*self.schema.names)


def _same(one: DataType, other: DataType) -> bool:
    """Whether two types are equal except for nullability: in files every column is nullable."""
    return one.simpleString() == other.simpleString()
