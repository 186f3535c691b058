"""How much goes through each queue, by hour."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.columns import hour_of_row
from ..schema.table import Frames, Table
from .scope import Scope
from .thresholds import Given, Threshold, chosen

#: What is counted, by the type of its event.
COUNTED: Final = {
    "published": "messages published",
    "leased": "deliveries, without those of dead letters",
    "acked": "messages acknowledged",
    "released": "deliveries released without counting",
    "retried": "failed deliveries that are retried",
    "died": "messages that died",
    "dropped": "messages removed without being processed",
    "reprocessed": "dead letters reprocessed",
    "moved": "messages moved to another queue",
}

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("queue", c.TEXT, "queue of the messages"),
        c.column("hour", c.MOMENT, "hour of the wall clock; the start of the day if the clock is suspect"),
        *(c.column(name, c.INTEGER, meaning) for name, meaning in COUNTED.items()),
        c.column("published_bytes", c.INTEGER, "size of the published bodies in bytes"),
        c.column("busiest_minute", c.INTEGER, "messages published in the busiest minute of engine time"),
        c.DAY,
    ]
)
KEY: Final = ("device", "root", "queue", "hour", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("throughput", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events",)
SCOPE: Final = Scope(by_day_of=("events",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"

_MINUTE_MS: Final = 60_000
#: So many minutes are counted together.
_MINUTES: Final = 15


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Events that a restore undid count, too, because the work was done."""
    chosen(THRESHOLDS, given)
    kind = F.col("type")
    columns = ("device", "root", "queue", "type", "of_dead", "engine_ms", "wall_at", "payload_bytes", "day")
    events = frames["events"].select(*columns).withColumn("hour", hour_of_row())
    counted = events.where(kind.isin(*COUNTED) & ~((kind == "leased") & F.coalesce("of_dead", F.lit(False))))
    # Counted by quarters of an hour first, with a sum for each minute: single minutes would be many rows.
    minute = F.expr(f"engine_ms div {_MINUTE_MS}")
    quarters = counted.groupBy(*KEY, F.expr(f"engine_ms div {_MINUTE_MS * _MINUTES}").alias("quarter")).agg(
        *(F.count_if(kind == name).alias(name) for name in COUNTED),
        F.sum(F.when(kind == "published", F.col("payload_bytes"))).alias("published_bytes"),
        *(F.count_if((kind == "published") & (minute % _MINUTES == one)).alias(f"_{one}") for one in range(_MINUTES)),
    )
    busiest = F.greatest(*(F.col(f"_{one}") for one in range(_MINUTES)))
    return quarters.groupBy(*KEY).agg(
        *(F.sum(name).alias(name) for name in COUNTED),
        F.coalesce(F.sum("published_bytes"), F.lit(0)).alias("published_bytes"),
        F.max(busiest).alias("busiest_minute"),
    )
