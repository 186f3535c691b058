"""Histograms of durations: exact percentiles of a group, and buckets that can be merged over groups.

A bucket is named by its upper end. Below 128 ms each duration has its own bucket; above, each doubling has 64 buckets,
so that the end of a bucket is at most 1/64 above what is in it. Buckets do not depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from ..schema.columns import INTEGER, column

#: The percentiles, by column.
PERCENTILES: Final = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99}
_PRECISION_BITS: Final = 7

BUCKETS: Final = ArrayType(
    StructType([column("upto_ms", INTEGER, "upper end of the bucket"), column("count", INTEGER, "how many it holds")])
)
#: The columns that ``summarised`` and ``merged`` add to those of their groups.
COLUMNS: Final = (
    column("count", INTEGER, "number of measured messages"),
    column("p50_ms", INTEGER, "median"),
    column("p90_ms", INTEGER, "90th percentile"),
    column("p99_ms", INTEGER, "99th percentile"),
    column("max_ms", INTEGER, "maximum"),
    column("buckets", BUCKETS, "counts by duration, from which percentiles of longer times can be computed"),
)


def bucket_of(length: Column) -> Column:
    """The upper end of the bucket of a duration (ms, not negative)."""
    shift = F.greatest(F.length(F.bin(length)) - _PRECISION_BITS, F.lit(0))
    width = F.call_function("shiftleft", F.lit(1).cast("bigint"), shift)
    return length - length % width + width - 1


def summarised(lengths: DataFrame, by: Sequence[str]) -> DataFrame:
    """A row for each group with ``COLUMNS``, percentiles exact (nearest rank).

    :param lengths: the columns of ``by``, and ``ms``: a duration that is not negative.
    """
    # Most durations are different: counting equal ones would only cost.
    each = lengths.select(*by, "ms", F.lit(1).cast("bigint").alias("n"), F.col("ms").alias("most"))
    return _summary(each, by)


def merged(summaries: DataFrame, by: Sequence[str]) -> DataFrame:
    """Rows of ``summarised``, or of ``latency_daily``, merged by fewer columns: percentiles of a week, a device or the
    fleet. They are at most 1/64 above the exact ones; the maximum is exact.

    :param by: columns of the rows; none merges all rows.
    """
    buckets = summaries.select(*by, "max_ms", F.inline("buckets"))
    counted = buckets.groupBy(*by, F.col("upto_ms").alias("ms")).agg(
        F.sum("count").alias("n"), F.max("max_ms").alias("most")
    )
    return _summary(counted, by)


def _summary(counted: DataFrame, by: Sequence[str]) -> DataFrame:
    group = Window.partitionBy(*by).orderBy("ms")
    total = F.sum("n").over(group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    reached = F.sum("n").over(group.rowsBetween(Window.unboundedPreceding, 0))
    ranked = counted.select(*by, "ms", "n", "most", total.alias("total"), reached.alias("reached"))
    marked = ranked.groupBy(*by, bucket_of(F.col("ms")).alias("upto_ms")).agg(
        F.sum("n").alias("n"),
        F.max("most").alias("most"),
        *(
            F.min(F.when(F.col("reached") * 100 >= F.col("total") * percent, F.col("ms"))).alias(name)
            for name, percent in PERCENTILES.items()
        ),
    )
    buckets = F.sort_array(F.collect_list(F.struct("upto_ms", F.col("n").alias("count"))))
    return marked.groupBy(*by).agg(
        F.sum("n").alias("count"),
        *(F.least(F.min(name), F.max("most")).alias(name) for name in PERCENTILES),
        F.max("most").alias("max_ms"),
        buckets.alias("buckets"),
    )
