"""What each queue gained and lost by events, between the snapshots of a day: the audit need not read all events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..spark.session import materialized
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: Reasons for which a message is dropped, by flow; any other reason is ``dropped_failed``.
DROPS: Final = {"dropped_expired": "MESSAGE_EXPIRED", "dropped_purged": "PURGED", "dropped_limits": "QUEUE_FULL"}
#: What is counted of the events of a queue.
COUNTS: Final = {
    "events": "events",
    "published": "messages published",
    "acked": "messages acknowledged and not kept",
    "acked_events": "messages acknowledged",
    "died": "messages that died",
    "dropped_expired": "messages expired",
    "dropped_purged": "messages purged",
    "dropped_limits": "messages dropped by a limit",
    "dropped_failed": "messages dropped for another reason",
    "moved": "messages moved to the queue `to`",
    "deleted": "deletions of the queue",
}

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("epoch", c.INTEGER, "epoch of the events"),
        c.column("first_event", c.INTEGER, "the first of these events"),
        c.column("last_event", c.INTEGER, "the last of them"),
        c.column("queue", c.TEXT, "queue that they name; empty if they name none"),
        c.column("to", c.TEXT, "queue to which they moved messages; empty if they moved none"),
        *(c.column(name, c.INTEGER, f"number of {meaning}") for name, meaning in COUNTS.items()),
        c.column("day", c.DATE, "day of the events"),
    ]
)
KEY: Final = ("device", "root", "epoch", "first_event")
PARTITION: Final = ("day",)
TABLE: Final = Table("flows", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "queue_depth")
SCOPE: Final = Scope(by_day_of=("events", "queue_depth"))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"

#: The columns of events that are read: plans of few columns are prepared faster.
READ: Final = ("device", "root", "epoch", "event", "type", "queue", "to", "reason_code", "keep")
_EPOCH: Final = ("device", "root", "epoch", "day")
_FIRST: Final = -1
_LAST: Final = 2**62
#: So many ranges of events can be sent to every task.
_FEW_RANGES: Final = 200_000


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """One row for the events of each queue up to each snapshot of their day, and for those after the last one."""
    chosen(THRESHOLDS, given)
    ranges, events = materialized(_ranges(frames["queue_depth"])), frames["events"].select(*READ, "day")
    few = F.broadcast(ranges) if ranges.count() <= _FEW_RANGES else ranges
    is_in = (F.col("event") > F.col("_after")) & (F.col("event") <= F.col("_until"))
    own = [events[name] == few[name] for name in _EPOCH]
    placed = events.join(few, [*own, is_in], "left").select(*(events[name] for name in events.columns), "_until")
    extent = (F.min("event").alias("first_event"), F.max("event").alias("last_event"))
    return counted(placed, *_EPOCH, "_until", more=extent).select(*SCHEMA.names)


def _ranges(of_queues: DataFrame) -> DataFrame:
    """The events up to each snapshot, and those after the last one, by the day of the snapshot."""
    ends = of_queues.select(*_EPOCH, F.explode(F.array("as_of_event", F.lit(_LAST))).alias("_until")).distinct()
    before = F.lag("_until", 1, _FIRST).over(Window.partitionBy(*_EPOCH).orderBy("_until"))
    return ends.withColumn("_after", before)


def counted(events: DataFrame, *keys: str, more: Iterable[Column] = (), by: Column | None = None) -> DataFrame:
    """``COUNTS`` of events by some columns, their ``queue``, and the queue ``to`` which they moved messages.

    :param more: further sums; ``by``: how often an event counts, if not once.
    """
    kind, reason, times = F.col("type"), F.coalesce("reason_code", F.lit("")), F.lit(1) if by is None else by
    moves = kind.isin("moved", "reprocessed") & (F.col("to") != F.col("queue"))
    dropped = kind == "dropped"
    what = {name: kind == name for name in ("published", "died")}
    what |= {"acked": (kind == "acked") & F.col("keep").isNull(), "acked_events": kind == "acked", "moved": moves}
    what |= {name: dropped & (reason == code) for name, code in DROPS.items()}
    what |= {"dropped_failed": dropped & ~reason.isin(*DROPS.values())}
    queues = {"queue": F.coalesce("queue", F.lit("")), "to": F.when(moves, F.col("to")).otherwise("")}
    sums = [F.sum(F.when(is_so, times).otherwise(0)).alias(name) for name, is_so in what.items()]
    sums += [F.sum(times).alias("events"), F.count_if(kind == "queue_deleted").alias("deleted")]
    return events.groupBy(*keys, *(queue.alias(name) for name, queue in queues.items())).agg(*more, *sums)
