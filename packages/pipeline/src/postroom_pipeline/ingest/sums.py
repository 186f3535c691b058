"""What the lines of each snapshot of each file come to: the numbers that a trailer can be compared with."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind

from ..tables.clock import day_of
from .raw import BLANK, BROKEN, OTHER

#: The kinds that a trailer counts.
COUNTED: Final = [kind.value for kind in Kind if kind not in (Kind.TRAILER, Kind.BUNDLE)]


def sums(lines: DataFrame, files: DataFrame) -> DataFrame:
    """One row for each snapshot of each file, and one of each file for lines that are of no snapshot.

    ``bytes`` with trailer and newlines; ``crc``; ``glued``: lines that are not one object alone; ``last``: greater for
    what stands further back in the file; the rest as its name says.

    :param lines: rows of ``raw.bronze``; ``files``: of ``inventory.fresh``.
    """
    arrivals = files.select("file", F.col("arrival").alias("file_arrival"))
    owner = F.when(F.col("kind") != Kind.BUNDLE.value, F.col("snapshot"))
    rows = lines.withColumn("snapshot", owner).join(F.broadcast(arrivals), "file")
    counted = _counted()
    # By the device too: a text cannot be summed up without sorting all lines.
    per_device = rows.groupBy("file", "snapshot", "device").agg(*(sum_.alias(name) for name, sum_ in counted.items()))
    summed = [_again(name).alias(name) for name in counted]
    devices = [F.min("device").alias("least_device"), F.max("device").alias("greatest_device")]
    return per_device.groupBy("file", "snapshot").agg(*summed, *devices)


def _counted() -> dict[str, Column]:
    kind = F.col("kind")
    is_header = (kind == Kind.HEADER.value) | ((kind == BROKEN) & F.col("major").isNotNull())
    has_clock = F.col("wall_ms").isNotNull() & F.col("engine_ms").isNotNull()
    is_event = kind == Kind.EVENT.value
    day = day_of(F.col("wall_ms"), F.col("file_arrival"))
    return {
        "lines": F.count_if(~kind.isin(Kind.TRAILER.value, BLANK)),
        **{f"n_{name}": F.count_if(is_header if name == Kind.HEADER.value else kind == name) for name in COUNTED},
        "unknown_lines": F.count_if(kind == OTHER),
        "broken": F.count_if((kind == BROKEN) & ~(is_header & ~has_clock)),
        "of_nobody": F.count_if(F.col("device").isNull() & ~kind.isin(BROKEN, BLANK)),
        "glued": F.count_if("is_glued"),
        "unknown_fields": F.sum("unknown_fields"),
        "bytes": F.sum("bytes"),
        "crc": F.coalesce(F.sum("crc"), F.lit(0)),
        "least_event": F.min(F.when(is_event, F.col("event"))),
        "greatest_event": F.max(F.when(is_event, F.col("event"))),
        "least_day": F.min(F.when(is_event, day)),
        "greatest_day": F.max(F.when(is_event, day)),
        "last": F.max("place"),
    }


def _again(name: str) -> Column:
    """A sum of a snapshot, of those of its devices."""
    if name.startswith("least"):
        return F.min(name)
    return F.max(name) if name.startswith("greatest") or name == "last" else F.sum(name)
