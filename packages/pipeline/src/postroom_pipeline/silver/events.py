"""Every event of every journal once, and the conflicts: events that snapshots report differently."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postroom_common.snapshot import Kind

from ..schema import columns as c
from ..schema.columns import clock_columns, day_of, time_of
from ..schema.snapshot import columns_of
from ..schema.table import Table

EVENTS: Final = Table(
    "events",
    StructType(
        [
            c.DEVICE,
            *columns_of(Kind.EVENT),
            c.column("content_digest", c.TEXT, "digest of the content; two different ones for a key are a conflict"),
            c.column("snapshot", c.TEXT, "smallest id of the snapshots with it"),
            c.WALL_AT,
            c.CLOCK_SUSPECT,
            c.DAY,
        ]
    ),
    key=("device", "root", "epoch", "event"),
    partition=("day",),
    about="Every event of every journal, once.",
    varied=(
        *("event", "engine_ms", "wall_ms", "request_end", "message", "lease", "request", "payload_digest"),
        *("content_digest", "wall_at"),
    ),
)

CONFLICTS: Final = Table(
    "conflicts",
    StructType(
        [
            c.DEVICE,
            c.ROOT,
            c.column("epoch", c.INTEGER, "epoch of the event"),
            c.column("event", c.INTEGER, "event id"),
            c.column("content_digest", c.TEXT, "digest of the content"),
            c.column(
                "kept",
                c.FLAG,
                "whether `events` has this one: the latest by a valid clock, otherwise that with the smallest digest",
            ),
            c.column("snapshot", c.TEXT, "smallest id of the snapshots with this content"),
            c.column("type", c.TEXT, "type of the event"),
            c.column("engine_ms", c.INTEGER, "engine time"),
            c.column("wall_ms", c.INTEGER, "wall clock, Unix ms"),
            c.column("queue", c.TEXT, "queue of the message"),
            c.column("message", c.TEXT, "message key"),
        ]
    ),
    key=("device", "root", "epoch", "event", "content_digest"),
    about="Events with one key and different contents: a root was copied or restored by hand, without a new epoch.",
)

#: What happened, apart from who asked for it and from what redaction leaves out: the same in every export.
_CONTENT: Final = (
    "type",
    "engine_ms",
    "wall_ms",
    "queue",
    "message",
    "lease",
    "consumer",
    "attempt",
    "reason_code",
    "to",
    "payload_digest",
    "payload_bytes",
)
_OF_LINE: Final = [column.name for column in columns_of(Kind.EVENT)]
_OF_CONFLICT: Final = [name for name in CONFLICTS.schema.names if name != "kept"]
_ROOT: Final = ["device", "root"]
_RANGE: Final = ["least_event", "greatest_event"]


def fresh(lines: DataFrame, taken: DataFrame, *, alone: bool | None = None) -> DataFrame:
    """The rows of ``EVENTS`` from lines of the snapshots that are taken in; a key may have several rows.

    :param alone: only rows whose key has no other row, or only the rest; ``taken`` is from ``contests``.
    """
    columns = [] if alone is None else ["alone_from", "alone_until"]
    of_snapshots = F.broadcast(taken.select("file", "snapshot", "arrival", *columns))
    rows = lines.select("file", "snapshot", "device", *_OF_LINE).join(of_snapshots, ["file", "snapshot"])
    if alone is not None:
        is_alone = F.coalesce(F.col("event").between(F.col("alone_from"), F.col("alone_until")), F.lit(False))
        rows = rows.where(is_alone if alone else ~is_alone)
    return rows.withColumns(
        clock_columns() | {"content_digest": content_digest(), "day": day_of(F.col("wall_ms"), F.col("arrival"))}
    ).select(*EVENTS.schema.names)


def latest(rows: DataFrame) -> DataFrame:
    """One row for each key, chosen independently of the order in which the rows came.

    Of different contents the first by ``contest`` is chosen, of equal contents the most complete row, and of those the
    one with the earliest day.
    """
    same = Window.partitionBy(*EVENTS.key, "content_digest")
    each = Window.partitionBy(*EVENTS.key).orderBy(
        *contest(), F.asc_nulls_last("payload"), F.desc_nulls_last("attributes"), *_tie_breakers()
    )
    ranked = rows.withColumns({"least": F.min("snapshot").over(same), "rank": F.row_number().over(each)})
    return ranked.where("rank = 1").withColumn("snapshot", F.col("least")).select(*EVENTS.schema.names)


def contest() -> list[Column]:
    """The order of several contents of one key; the first one counts.

    That is the latest by a sane clock, so that a device which was set back to an earlier state is described by what
    happened since; then the one with the smallest digest.
    """
    return [F.desc_nulls_last(time_of(F.col("wall_ms"))), F.asc("content_digest")]


def content_digest() -> Column:
    """The digest of what happened: 16 hex digits."""
    return F.lower(F.lpad(F.hex(F.xxhash64(*_CONTENT)), 16, "0"))


def _tie_breakers() -> list[str]:
    ordered = {*EVENTS.key, "content_digest", "payload", "attributes", "day", "wall_at", "snapshot"}
    return ["day", *(name for name in EVENTS.schema.names if name not in ordered)]


def conflicts(existing: DataFrame, events: DataFrame) -> DataFrame:
    """The rows of ``CONFLICTS``: all contents of each event that has more than one.

    :param existing: existing rows of ``CONFLICTS``.
    :param events: rows of ``EVENTS`` before ``latest`` has chosen one for each key.
    """
    key = CONFLICTS.key
    rows = existing.select(*_OF_CONFLICT).unionByName(events.select(*_OF_CONFLICT))
    rest = [name for name in _OF_CONFLICT if name not in key]
    contents = rows.groupBy(*key).agg(F.min(F.struct("snapshot", *(n for n in rest if n != "snapshot"))).alias("row"))
    each = Window.partitionBy(*EVENTS.key)
    counted = contents.select(*key, "row.*").withColumns(
        {"contents": F.count("*").over(each), "place": F.row_number().over(each.orderBy(*contest()))}
    )
    kept = F.col("place") == 1
    return counted.where("contents > 1").withColumn("kept", kept).select(*CONFLICTS.schema.names)


def overlaps(fresh: DataFrame, existing: DataFrame) -> DataFrame:
    """Ranges of events, by device and root, that a snapshot of ``fresh`` and another snapshot both cover.

    Only there can an event occur twice, or be reported in two ways. A range may come in parts, and more than once.

    :param fresh: rows of ``snapshots``, like ``existing``.
    :returns: ``device``, ``root``, ``low`` and ``high``.
    """
    columns = [*_ROOT, *_RANGE]
    both = (
        fresh.select(*columns, F.lit(True).alias("is_fresh"))
        .unionByName(existing.select(*columns, F.lit(False).alias("is_fresh")))
        .where("least_event IS NOT NULL")
    )
    before = Window.partitionBy(*_ROOT).orderBy(*_RANGE, "is_fresh").rowsBetween(Window.unboundedPreceding, -1)
    covered = both.withColumns(
        {
            "any_until": F.max("greatest_event").over(before),
            "fresh_until": F.max(F.when(F.col("is_fresh"), F.col("greatest_event"))).over(before),
        }
    )
    until = F.when(F.col("is_fresh"), F.col("any_until")).otherwise(F.col("fresh_until"))
    covered = covered.withColumn("until", until).where("until IS NOT NULL")
    ranges = covered.select(*_ROOT, F.col("least_event").alias("low"), F.least("greatest_event", "until").alias("high"))
    return ranges.where("low <= high").distinct()


def contests(accepted: DataFrame, ranges: DataFrame, unrecorded: DataFrame | None = None) -> DataFrame:
    """The snapshots that are taken in, with the range of their events that no other snapshot has: ``alone_from`` to
    ``alone_until``, null if it is not known. Outside of it are those that another one may have, and perhaps more.
    ``is_doubtful`` is whether any event of the device may be there twice.

    :param accepted: rows of ``snapshots.described``; ``ranges``: rows of ``overlaps``.
    :param unrecorded: names of devices that are doubtful in any case, from ``unrecorded``.
    """
    met = accepted.select("file", "snapshot", *_ROOT, *_RANGE).join(ranges, _ROOT)
    at_begin = F.col("low") <= F.col("least_event")
    met = met.where("low <= greatest_event AND least_event <= high")
    shared = met.groupBy("file", "snapshot").agg(
        F.max(F.when(at_begin, F.col("high"))).alias("head"), F.min(F.when(~at_begin, F.col("low"))).alias("tail")
    )
    doubt = ~_is_regular()
    if unrecorded is not None:
        accepted = accepted.join(unrecorded.withColumn("_unrecorded", F.lit(True)), "device", "left")
        doubt = doubt | F.col("_unrecorded").isNotNull()
    doubtful = F.max(doubt).over(Window.partitionBy("device"))
    rows = accepted.withColumn("is_doubtful", doubtful).join(shared, ["file", "snapshot"], "left")
    return rows.select(
        "file",
        "snapshot",
        "device",
        "arrival",
        "is_doubtful",
        F.when(~F.col("is_doubtful"), F.coalesce(F.col("head") + 1, "least_event")).alias("alone_from"),
        F.when(~F.col("is_doubtful"), F.coalesce(F.col("tail") - 1, "greatest_event")).alias("alone_until"),
    )


def unrecorded(events: DataFrame, snapshots: DataFrame) -> DataFrame:
    """The devices with events of snapshots that are not recorded: those of a run that was killed. One column,
    ``device``."""
    named = events.select("device", "snapshot").distinct()
    return (
        named.join(snapshots.select("device", "snapshot"), ["device", "snapshot"], "left_anti")
        .select("device")
        .distinct()
    )


def _is_regular() -> Column:
    """Whether a snapshot has each event from its lowest to its highest id exactly once, all of its own root.

    The ids are compared by their number and a combination of their hashes. A snapshot whose events have gaps is not
    regular either, although no event occurs twice in it.
    """
    count = F.col("greatest_event") - F.col("least_event") + 1
    is_full = (F.coalesce("copies", F.lit(0)) == 1) & (F.col("n_event") == count)
    ids = F.when(is_full, F.sequence("least_event", "greatest_event"))
    none = F.lit(0).cast("bigint")
    mark = F.aggregate(ids, none, lambda combined, one: combined.bitwiseXOR(F.xxhash64(one)))
    own = F.xxhash64("root")
    of_root = (F.col("least_root_mark") == own) & (F.col("greatest_root_mark") == own)
    return (F.col("n_event") == 0) | F.coalesce((mark == F.col("event_mark")) & of_root, F.lit(False))


def parted(existing: DataFrame, ranges: DataFrame, taken: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Existing rows of ``EVENTS`` whose key may have another row in a batch, and the others.

    :param ranges: rows of ``overlaps``; ``taken``: of ``contests``.
    """
    doubtful = taken.where("is_doubtful").select("device").distinct()
    doubtful = doubtful.select("device", *(F.lit(None).alias(name) for name in ("root", "low", "high")))
    span = ranges.unionByName(doubtful).select(F.col("device").alias("d"), F.col("root").alias("r"), "low", "high")
    is_in = (existing["device"] == span["d"]) & (
        span["low"].isNull() | ((existing["root"] == span["r"]) & existing["event"].between(span["low"], span["high"]))
    )
    return existing.join(F.broadcast(span), is_in, "left_semi"), existing.join(F.broadcast(span), is_in, "left_anti")


def days_of(ranges: DataFrame, existing: DataFrame) -> DataFrame:
    """The days on which events of the ranges may already be stored: one column, ``day``."""
    spans = existing.where("least_event IS NOT NULL").select(*_ROOT, *_RANGE, "least_day", "greatest_day")
    met = ranges.join(spans, _ROOT).where("low <= greatest_event AND least_event <= high")
    return met.select(F.explode(F.sequence("least_day", "greatest_day")).alias("day")).distinct()


def within(events: DataFrame, ranges: DataFrame) -> DataFrame:
    """The events in any of the ranges."""
    span = ranges.select(F.col("device").alias("d"), F.col("root").alias("r"), "low", "high")
    is_in = (
        events["device"].eqNullSafe(span["d"])
        & events["root"].eqNullSafe(span["r"])
        & events["event"].between(span["low"], span["high"])
    )
    return events.join(F.broadcast(span), is_in, "left_semi")
