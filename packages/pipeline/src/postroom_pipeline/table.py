"""What a table is: its name, its columns, the key that no two rows share, and how its files are laid out."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from .errors import SchemaMismatch


@dataclass(frozen=True)
class Table:
    """One table, as data."""

    #: Its directory below the place of all tables; may have several parts (``bronze/lines``).
    name: str
    schema: StructType
    key: tuple[str, ...]
    #: The columns that are directories. They come last in the schema, as every reader of such directories shows them.
    partition: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = self.schema.names
        unknown = [column for column in (*self.key, *self.partition) if column not in columns]
        if unknown:
            raise ValueError(f"{self.name}: no column {', '.join(unknown)}")
        if self.partition and tuple(columns[-len(self.partition) :]) != self.partition:
            raise ValueError(f"{self.name}: the columns of the partition come last")

    def fitted(self, frame: DataFrame) -> DataFrame:
        """The frame with exactly the table's columns, in their order.

        :raises SchemaMismatch: columns are missing, too many, or of another type; all of them are named.
        """
        has = {field.name: field.dataType for field in frame.schema.fields}
        wants = {field.name: field.dataType for field in self.schema.fields}
        wrong = [f"{name} is missing" for name in wants if name not in has]
        wrong += [f"{name} is not known" for name in has if name not in wants]
        wrong += [
            f"{name} is {has[name].simpleString()}, not {wants[name].simpleString()}"
            for name in wants
            if name in has and not _same(has[name], wants[name])
        ]
        if len(has) != len(frame.columns):
            wrong.append("a column is there twice")
        if wrong:
            raise SchemaMismatch(f"table {self.name}: {'; '.join(wrong)}")
        return frame.select(*self.schema.names)


def _same(one: DataType, other: DataType) -> bool:
    """Whether two types are the same but for what may be null: files say that everything may."""
    return one.simpleString() == other.simpleString()
