"""The snapshots that were taken in, and the file each was taken from."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.columns import clock_columns, day_of
from ..schema.snapshot import columns_of
from ..schema.table import Table

SNAPSHOTS: Final = Table(
    "snapshots",
    StructType(
        [
            c.DEVICE,
            c.SNAPSHOT,
            *columns_of(Kind.HEADER),
            c.column("lines", c.INTEGER, "number of its lines, without the trailer"),
            c.column("events", c.INTEGER, "number of event lines among them"),
            c.column("least_event", c.INTEGER, "lowest id of its event lines"),
            c.column("greatest_event", c.INTEGER, "highest id of its event lines"),
            c.column("least_day", c.DATE, "first day of its events"),
            c.column("greatest_day", c.DATE, "last day of its events"),
            c.column("unknown_lines", c.INTEGER, "number of lines of unknown kinds"),
            c.column("unknown_fields", c.INTEGER, "number of unknown fields in all lines"),
            c.WALL_AT,
            c.CLOCK_SUSPECT,
            c.DAY,
        ]
    ),
    key=("device", "snapshot"),
    about="Every admitted snapshot, once: its header, and the extent of its content.",
)

#: Apart from ``SNAPSHOTS``, whose rows do not depend on how the snapshots were transported.
ORIGINS: Final = Table(
    "origins",
    StructType(
        [
            c.DEVICE,
            c.SNAPSHOT,
            c.column("sha256", c.TEXT, "SHA-256 of the file's bytes"),
            c.column("path", c.TEXT, "path of the file"),
            c.column("digest", c.TEXT, "SHA-256 of its lines, from the trailer"),
            c.column("batch", c.TEXT, "id of its batch"),
        ]
    ),
    key=("device", "snapshot"),
    about="The file from which each snapshot was admitted. `snapshots` does not depend on files.",
)


def described(accepted: DataFrame) -> DataFrame:
    """The accepted snapshots with the columns of ``SNAPSHOTS`` beside those of ``admission.verdicts``.

    A file that contains a snapshot twice counts its lines twice; the result counts them once.
    """
    return accepted.withColumns(
        clock_columns()
        | {
            "day": day_of(F.col("wall_ms"), F.col("arrival")),
            "events": (F.col("n_event") / F.col("copies")).cast("bigint"),
            "lines": (F.col("lines") / F.col("copies")).cast("bigint"),
        }
    )


def origins(existing: DataFrame, accepted: DataFrame) -> DataFrame:
    """The rows of ``ORIGINS``: existing ones, replaced by those of the accepted snapshots."""
    columns = ORIGINS.schema.names
    fresh = accepted.select(*columns)
    return existing.join(fresh, list(ORIGINS.key), "left_anti").select(*columns).unionByName(fresh)
