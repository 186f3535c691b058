"""Decides for each snapshot that was read whether it is taken in: it is complete and intact, or there is a reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postroom_common.snapshot import FIELDS, FORMAT_MAJOR, OLDEST_MAJOR, Kind
from postroom_common.snapshot_reader import CLOCK_RANGE_MS, Reason

from ..files import DUPLICATE, OTHER_CONTENT
from ..schema.columns import day_of
from ..schema.snapshot import snake
from .lines import BLANK, BROKEN, OTHER, of_kind

_HEADER: Final = [snake(field.name) for field in FIELDS[Kind.HEADER]]
_OF: Final = ["file", "snapshot"]
_SIZE_MODULUS: Final = 2**32
#: The kinds that a trailer counts.
COUNTED: Final = [kind.value for kind in Kind if kind not in (Kind.TRAILER, Kind.BUNDLE)]


def verdicts(lines: DataFrame, sums: DataFrame, files: DataFrame, origins: DataFrame) -> DataFrame:
    """One row for each snapshot of each file. ``reason`` is null if it is accepted; ``detail`` explains it to people.

    :param lines: rows of ``lines.bronze``; ``sums``: of ``sums``; ``files``: of ``with_endings``.
    :param origins: rows of ``ORIGINS``: what was taken in before.
    """
    of_file = files.select("file", "path", "sha256", "arrival", "ending", "last_snapshot", "orphans")
    rows = _gathered(lines, sums).join(F.broadcast(of_file), "file")
    reason, detail = _verdict()
    rows = rows.withColumns({"reason": reason, "detail": detail}).withColumn("device", F.coalesce("device", F.lit("")))
    return _once(rows, origins)


def _gathered(lines: DataFrame, sums: DataFrame) -> DataFrame:
    """One row for each snapshot of each file: its header, its trailer, and the sums of its lines."""
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
    heads = of_kind(lines.where(F.col("kind").isin(Kind.HEADER.value, BROKEN)).where("major IS NOT NULL"), Kind.HEADER)
    return heads.select(*_OF, F.struct("device", *_HEADER).alias("head"))


def _tails(lines: DataFrame) -> DataFrame:
    trailer = F.struct(
        F.col("device").alias("trailer_device"),
        F.col("lines").alias("said_lines"),
        F.array_sort(F.map_entries("counts")).alias("said_counts"),
        F.col("line_crc").alias("said_crc"),
        F.col("digest"),
    )
    tails = of_kind(lines.where(F.col("kind") == Kind.TRAILER.value), Kind.TRAILER)
    return tails.select(*_OF, trailer.alias("tail"))


def _verdict() -> tuple[Column, Column]:
    """Reason and detail of a row; reasons are tried in the order of ``Reason``."""
    copies = F.col("copies")
    numbers = F.map_from_entries("said_counts")
    counts_of_trailer = {name: F.coalesce(F.try_element_at(numbers, F.lit(name)), F.lit(0)) for name in COUNTED}
    total = F.aggregate(
        F.map_values(numbers), F.lit(0).cast("bigint"), lambda sum_, one: sum_ + F.coalesce(one, F.lit(0))
    )
    same = [F.col(f"n_{name}") == copies * number for name, number in counts_of_trailer.items()]
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
        (copies.isNull(), Reason.NO_HEADER, lines("%s lines without a header before them", "lines")),
        (
            ~F.coalesce(F.col("major").between(OLDEST_MAJOR, FORMAT_MAJOR), F.lit(False)),
            Reason.UNKNOWN_MAJOR,
            lines(f"format %s; this version reads {OLDEST_MAJOR} to {FORMAT_MAJOR}", "major"),
        ),
        (
            F.coalesce(F.col("endings"), F.lit(0)) < copies,
            Reason.TRUNCATED,
            lines("no trailer; %s lines were read", "lines"),
        ),
        (
            broken | (counts_differ & (F.coalesce("orphans", F.lit(0)) > 0)),
            Reason.CORRUPT_LINES,
            lines(
                "%s lines are not one JSON object with fields of the right types; %s belong to no snapshot",
                F.greatest("broken", F.coalesce("glued", F.lit(0))),
                F.coalesce("orphans", F.lit(0)),
            ),
        ),
        (foreign, Reason.FOREIGN_LINES, lines("lines of devices %s and %s", "least_device", "greatest_device")),
        (
            counts_differ,
            Reason.COUNTS_DIFFER,
            lines("%s lines; the trailer says %s: %s", "lines", "said_lines", F.to_json(numbers)),
        ),
        (crc_differs, Reason.CHECKSUM_DIFFERS, lines("%s; the trailer says %s", "crc", "said_crc")),
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
    """Accept one of several complete copies: the one taken in before, else that of the file with the smallest hash."""
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
    text = F.when(differs, "a snapshot with this id and other content was taken from another file").otherwise(
        "the same snapshot was taken from another file"
    )
    detail = F.when(is_again, text).otherwise(F.col("detail"))
    verdicts = ranked.withColumns({"reason": reason, "detail": detail})
    return verdicts.drop("rank", "first_digest", "taken_from", "taken_digest")


def sums(lines: DataFrame, files: DataFrame) -> DataFrame:
    """The sums of the lines of each snapshot of each file, to compare with its trailer; and one row for each file with
    lines that belong to no snapshot.

    ``bytes`` counts the trailer and newlines too; ``glued`` the lines that are not exactly one object; ``last`` is
    greater for what is further back in the file; ``event_mark`` combines the ids of the events, independent of their
    order, and the ``root_mark`` columns are hashes of their roots; the others are what their names say.

    :param lines: rows of ``lines.bronze``; ``files``: of ``inventory.fresh``.
    """
    arrivals = files.select("file", F.col("arrival").alias("file_arrival"))
    owner = F.when(F.col("kind") != Kind.BUNDLE.value, F.col("snapshot"))
    rows = lines.withColumn("snapshot", owner).join(F.broadcast(arrivals), "file")
    counted = _counted()
    # Grouped by device too: aggregating a text would sort all lines.
    per_device = rows.groupBy("file", "snapshot", "device").agg(*(sum_.alias(name) for name, sum_ in counted.items()))
    summed = [_merged(name).alias(name) for name in counted]
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
        "event_mark": F.bit_xor(F.when(is_event, F.xxhash64("event"))),
        "least_root_mark": F.min(F.when(is_event, F.xxhash64("root"))),
        "greatest_root_mark": F.max(F.when(is_event, F.xxhash64("root"))),
        "last": F.max("place"),
    }


def _merged(name: str) -> Column:
    """The aggregate that merges a sum of several devices."""
    if name.startswith("least"):
        return F.min(name)
    if name == "event_mark":
        return F.bit_xor(name)
    return F.max(name) if name.startswith("greatest") or name == "last" else F.sum(name)


def with_endings(files: DataFrame, lines: DataFrame, sums: DataFrame) -> DataFrame:
    """The files with what was read from each: ``ending``, ``last_snapshot``, ``read_bytes``; ``orphans``, how many
    lines belong to no snapshot, of which ``shown`` is one; ``bundles``, how many lines describe a bundle.

    :param files: rows of ``inventory.fresh``; ``lines``: of ``lines.bronze``; ``sums``: of ``sums``.
    """
    is_bundle = F.col("kind") == Kind.BUNDLE.value
    strange = lines.where(is_bundle | (F.col("snapshot").isNull() & (F.col("kind") != BLANK))).groupBy("file")
    counted = strange.agg(
        F.nullif(F.count_if(~is_bundle), F.lit(0)).alias("orphans"),
        F.min(F.when(~is_bundle, F.substring("line", 1, 80))).alias("shown"),
        F.count_if(is_bundle).alias("bundles"),
    )
    return files.join(_ends(sums, files), "file", "left").join(counted, "file", "left")


def _ends(sums: DataFrame, files: DataFrame) -> DataFrame:
    """For each file ``ending`` (``whole``, ``bare`` without the last newline, or ``cut``) and its ``last_snapshot``.

    The last member of a gzip file says how long its content is. If no number of the last snapshots that were read has
    this length, something behind them was not read.
    """
    behind = (
        Window.partitionBy("file").orderBy(F.desc("last")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    tails = sums.withColumn("behind", F.sum("bytes").over(behind))
    sizes = F.collect_set("behind")
    of_files = tails.join(files.select("file", "name", "length", "is_gzip", "size_mark"), "file")
    per_file = of_files.groupBy("file").agg(
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
