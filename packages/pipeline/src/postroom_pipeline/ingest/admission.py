"""Judges each snapshot that was read: it is whole, or there is a reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postroom_common.snapshot import FIELDS, FORMAT_MAJOR, OLDEST_MAJOR, Kind
from postroom_common.snapshot_reader import CLOCK_RANGE_MS, Reason

from ..contract.schema import snake
from ..reasons import DUPLICATE, OTHER_CONTENT
from .raw import BROKEN
from .sums import COUNTED

_HEADER: Final = [snake(field.name) for field in FIELDS[Kind.HEADER]]
_OF: Final = ["file", "snapshot"]


def judged(lines: DataFrame, sums: DataFrame, files: DataFrame, origins: DataFrame) -> DataFrame:
    """One row for each snapshot of each file: ``reason`` is null for one to be taken, ``detail`` says more for people.

    :param lines: rows of ``raw.bronze``; ``sums``: of ``sums.sums``; ``files``: of ``endings.read_files``.
    :param origins: of what was taken before.
    """
    told = files.select("file", "path", "sha256", "arrival", "ending", "last_snapshot", "orphans")
    rows = _gathered(lines, sums).join(F.broadcast(told), "file")
    reason, detail = _verdict()
    rows = rows.withColumns({"reason": reason, "detail": detail}).withColumn("device", F.coalesce("device", F.lit("")))
    return _once(rows, origins)


def _gathered(lines: DataFrame, sums: DataFrame) -> DataFrame:
    """All that is known of each snapshot of each file, in one row: its head, its tail, and what its lines sum to."""
    body = F.struct(*(name for name in sums.columns if name not in _OF))
    parts = {
        "body": sums.where("snapshot IS NOT NULL").select(*_OF, body.alias("body")),
        "head": _heads(lines),
        "tail": _tails(lines),
    }
    rows = parts["body"]
    for name in ("head", "tail"):
        rows = rows.unionByName(parts[name], allowMissingColumns=True)
    counted = [F.count("head").alias("copies"), F.count("tail").alias("endings")]
    gathered = rows.groupBy(*_OF).agg(*(F.min(name).alias(name) for name in parts), *counted)
    return gathered.where("body IS NOT NULL").select(
        *_OF, *(f"{name}.*" for name in parts), F.when(F.col("copies") > 0, F.col("copies")).alias("copies"), "endings"
    )


def _heads(lines: DataFrame) -> DataFrame:
    heads = lines.where(F.col("kind").isin(Kind.HEADER.value, BROKEN)).where("major IS NOT NULL")
    return heads.select(*_OF, F.struct("device", *_HEADER).alias("head"))


def _tails(lines: DataFrame) -> DataFrame:
    said = F.struct(
        F.col("device").alias("trailer_device"),
        F.col("lines").alias("said_lines"),
        F.array_sort(F.map_entries("counts")).alias("said_counts"),
        F.col("line_crc").alias("said_crc"),
        F.col("digest"),
    )
    return lines.where(F.col("kind") == Kind.TRAILER.value).select(*_OF, said.alias("tail"))


def _verdict() -> tuple[Column, Column]:
    """Reason and detail of a row, in the order of ``Reason``."""
    copies = F.col("copies")
    numbers = F.map_from_entries("said_counts")
    said = {name: F.coalesce(F.try_element_at(numbers, F.lit(name)), F.lit(0)) for name in COUNTED}
    total = F.aggregate(
        F.map_values(numbers), F.lit(0).cast("bigint"), lambda sum_, one: sum_ + F.coalesce(one, F.lit(0))
    )
    same = [F.col(f"n_{name}") == copies * number for name, number in said.items()]
    counts_same = (F.col("lines") == copies * F.col("said_lines")) & (F.col("lines") == copies * total)
    for one in same:
        counts_same = counts_same & one
    counts_differ = ~F.coalesce(counts_same, F.lit(False))
    foreign = (
        (F.coalesce("least_device", F.lit("")) != F.coalesce("device", F.lit("")))
        | (F.coalesce("greatest_device", F.lit("")) != F.coalesce("device", F.lit("")))
        | (F.col("of_nobody") > 0)
    )
    low, high = CLOCK_RANGE_MS
    clock = F.coalesce(F.col("wall_ms").between(low, high) & F.col("engine_ms").between(low, high), F.lit(False))
    crc_differs = F.col("said_crc").isNotNull() & ~F.coalesce(F.col("crc") == copies * F.col("said_crc"), F.lit(False))
    broken = (F.col("broken") > 0) | (F.coalesce("glued", F.lit(0)) > 0)
    lines = F.format_string
    cases: list[tuple[Column, Reason, Column]] = [
        (copies.isNull(), Reason.NO_HEADER, lines("%s lines that no header stands before", "lines")),
        (
            ~F.coalesce(F.col("major").between(OLDEST_MAJOR, FORMAT_MAJOR), F.lit(False)),
            Reason.UNKNOWN_MAJOR,
            lines(f"format %s, this version reads {OLDEST_MAJOR} to {FORMAT_MAJOR}", "major"),
        ),
        (
            F.coalesce(F.col("endings"), F.lit(0)) < copies,
            Reason.TRUNCATED,
            lines("it has no trailer; %s lines were read", "lines"),
        ),
        (
            broken | (counts_differ & (F.coalesce("orphans", F.lit(0)) > 0)),
            Reason.CORRUPT_LINES,
            lines(
                "%s lines that are not one JSON object each with fields of their types; %s that have no owner",
                F.greatest("broken", F.coalesce("glued", F.lit(0))),
                F.coalesce("orphans", F.lit(0)),
            ),
        ),
        (foreign, Reason.FOREIGN_LINES, lines("lines of %s and of %s", "least_device", "greatest_device")),
        (
            counts_differ,
            Reason.COUNTS_DIFFER,
            lines("%s lines, trailer: %s %s", "lines", "said_lines", F.to_json(numbers)),
        ),
        (crc_differs, Reason.CHECKSUM_DIFFERS, lines("%s, trailer: %s", "crc", "said_crc")),
        (~clock, Reason.BAD_CLOCK, lines("wallMs is %s, engineMs is %s", "wall_ms", "engine_ms")),
        (
            (F.col("ending") == "bare") & F.col("snapshot").eqNullSafe(F.col("last_snapshot")),
            Reason.NO_FINAL_NEWLINE,
            F.lit("the last line has no newline"),
        ),
    ]
    reason = detail = F.lit(None).cast("string")
    for condition, why, text in reversed(cases):
        reason = F.when(condition, why.value).otherwise(reason)
        detail = F.when(condition, text).otherwise(detail)
    return reason, detail


def _once(rows: DataFrame, origins: DataFrame) -> DataFrame:
    """Of several whole copies one is taken: the one that was taken before, else of the file with the least hash."""
    taken = origins.select(
        "device", "snapshot", F.col("sha256").alias("taken_from"), F.col("digest").alias("taken_digest")
    )
    is_other = F.coalesce(F.col("taken_from") != F.col("sha256"), F.lit(False))
    each = Window.partitionBy("device", "snapshot", F.col("reason").isNull()).orderBy(is_other, "sha256")
    ranked = rows.join(taken, ["device", "snapshot"], "left").withColumns(
        {"rank": F.row_number().over(each), "first_digest": F.first("digest").over(each)}
    )
    is_again = F.col("reason").isNull() & ((F.col("rank") > 1) | is_other)
    differs = ~F.col("digest").eqNullSafe(F.coalesce("taken_digest", "first_digest"))
    reason = F.when(is_again, F.when(differs, OTHER_CONTENT).otherwise(DUPLICATE)).otherwise(F.col("reason"))
    text = F.when(differs, "a snapshot of this id was taken from another file, with other content").otherwise(
        "the same snapshot was taken from another file"
    )
    detail = F.when(is_again, text).otherwise(F.col("detail"))
    judged = ranked.withColumns({"reason": reason, "detail": detail})
    return judged.drop("rank", "first_digest", "taken_from", "taken_digest")
