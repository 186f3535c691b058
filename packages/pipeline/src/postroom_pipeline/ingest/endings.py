"""How the files that were read end: what is missing at an end leaves no other trace."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from postroom_common.snapshot import Kind

from .raw import BLANK

_SIZE_MODULUS: Final = 2**32


def read_files(files: DataFrame, lines: DataFrame, sums: DataFrame) -> DataFrame:
    """The files with what was read of each: ``ending``, ``last_snapshot``, ``read_bytes``; ``orphans``, lines that are
    of no snapshot, of which ``shown`` is one; ``bundles``, lines that tell of a bundle.

    :param files: rows of ``inventory.fresh``; ``lines``: of ``raw.bronze``; ``sums``: of ``sums.sums``.
    """
    is_bundle = F.col("kind") == Kind.BUNDLE.value
    strange = lines.where(is_bundle | (F.col("snapshot").isNull() & (F.col("kind") != BLANK))).groupBy("file")
    found = strange.agg(
        F.nullif(F.count_if(~is_bundle), F.lit(0)).alias("orphans"),
        F.min(F.when(~is_bundle, F.substring("line", 1, 80))).alias("shown"),
        F.count_if(is_bundle).alias("bundles"),
    )
    return files.join(_ends(sums, files), "file", "left").join(found, "file", "left")


def _ends(sums: DataFrame, files: DataFrame) -> DataFrame:
    """For each file ``ending``, ``whole``, ``bare`` (without the last newline) or ``cut``, and its ``last_snapshot``.

    The last member of a gzip file says how long it is: as long as some of the last snapshots that were read, or what
    stood behind them was not read.
    """
    behind = (
        Window.partitionBy("file").orderBy(F.desc("last")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    tails = sums.withColumn("behind", F.sum("bytes").over(behind))
    sizes = F.collect_set("behind")
    known = tails.join(files.select("file", "name", "length", "is_gzip", "size_mark"), "file")
    per_file = known.groupBy("file").agg(
        F.transform(sizes, lambda size: size % _SIZE_MODULUS).alias("sizes"),
        F.max(F.struct("last", "snapshot")).getField("snapshot").alias("last_snapshot"),
        F.max("behind").alias("read_bytes"),
        *(F.first(name).alias(name) for name in ("name", "length", "is_gzip", "size_mark")),
    )
    packed = F.when(F.array_contains("sizes", F.col("size_mark")), "whole").when(
        F.array_contains("sizes", (F.col("size_mark") + 1) % _SIZE_MODULUS), "bare"
    )
    plain = F.when(F.col("read_bytes") == F.col("length"), "whole").when(
        F.col("read_bytes") == F.col("length") + 1, "bare"
    )
    ending = F.when(F.endswith("name", F.lit(".gz")), packed).when(F.endswith("name", F.lit(".zst")), "whole")
    return per_file.select(
        "file",
        F.coalesce(ending, F.when(F.endswith("name", F.lit(".jsonl")), plain), F.lit("cut")).alias("ending"),
        "last_snapshot",
        "read_bytes",
    )
