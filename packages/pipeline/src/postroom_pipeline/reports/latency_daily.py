"""How long messages wait and are processed, by queue and day, in engine time of one root."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from .histogram import COLUMNS, summarised
from .lineage import ROOT, imported_messages
from .scope import Scope
from .thresholds import Given, Threshold, chosen

SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.column("queue", c.TEXT, "queue to which the messages were published"),
        c.column("measure", c.TEXT, "`publish_to_lease`, `lease_to_ack` (of the last lease) or `publish_to_ack`"),
        *COLUMNS,
        c.column("day", c.DATE, "day on which the messages were published"),
    ]
)
KEY: Final = ("device", "queue", "measure", "day")
PARTITION: Final = ("day",)
TABLE: Final = Table("latency_daily", SCHEMA, KEY, PARTITION)
NEEDS: Final = ("events", "imports", "messages")
SCOPE: Final = Scope(by_day_of=("messages",), any_day_if=("imports",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
#: Nothing here is a trouble by itself: ``anomalies`` judges it.
TROUBLE: Final = "false"

_GROUP: Final = ("device", "queue", "day")
#: The columns of messages that are read.
_READ: Final = (
    "published_engine_ms",
    "first_leased_engine_ms",
    "last_leased_engine_ms",
    "acked_engine_ms",
)


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Imported and reprocessed messages are not measured, because they waited elsewhere, or for a person."""
    chosen(THRESHOLDS, given)
    own = frames["messages"].where(F.coalesce("reprocessed", F.lit(0)) == 0)
    own = own.join(imported_messages(frames["events"], frames["imports"]), [*ROOT, "message"], "left_anti")
    spans = {
        "publish_to_lease": F.col("first_leased_engine_ms") - F.col("published_engine_ms"),
        "lease_to_ack": F.col("acked_engine_ms") - F.col("last_leased_engine_ms"),
        "publish_to_ack": F.col("acked_engine_ms") - F.col("published_engine_ms"),
    }
    measured = F.array(*(F.struct(F.lit(name).alias("measure"), span.alias("ms")) for name, span in spans.items()))
    # The messages of a queue and day meet before each becomes three rows.
    met = own.select(*_GROUP, *_READ).repartition(*_GROUP)
    lengths = met.select(*_GROUP, F.inline(measured)).where("ms >= 0")
    return summarised(lengths, KEY)
