"""The messages that were not simply published once and removed once: those that are there, were dead, or are odd."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..schema import columns as c
from ..schema.table import Frames, Table
from ..silver.messages import MESSAGES
from .scope import Scope
from .thresholds import Given, Threshold, chosen

_OF_MESSAGE: Final = (
    *("published_count", "published_event", "published_again_event", "ended_count", "ended_event", "ended_again_event"),
    *("fate", "was_dead", "went_on", "first_event", "last_event", "last_type", "last_at"),
)
SCHEMA: Final = StructType(
    [
        c.DEVICE,
        c.ROOT,
        c.column("message", c.TEXT, "key of the message"),
        c.column("queue", c.TEXT, "its last known queue"),
        *(MESSAGES.schema[name] for name in (*_OF_MESSAGE, "day")),
    ]
)
KEY: Final = ("device", "root", "message")
PARTITION: Final = ("day",)
TABLE: Final = Table("fates", SCHEMA, KEY, PARTITION, varied=("message",))
NEEDS: Final = ("messages",)
SCOPE: Final = Scope(by_day_of=("messages",))
THRESHOLDS: Final[tuple[Threshold, ...]] = ()
TROUBLE: Final = "false"


def build(frames: Frames, given: Given | None = None) -> DataFrame:
    """Nearly all messages of a healthy fleet are gone as they should be, and have no row."""
    chosen(THRESHOLDS, given)
    return of_messages(frames["messages"].where(~is_plain()))


def of_messages(messages: DataFrame) -> DataFrame:
    """Rows of ``messages`` as this table has them."""
    return messages.select(*KEY, F.col("last_queue").alias("queue"), *_OF_MESSAGE, "day")


def is_plain() -> Column:
    """Whether a row of ``messages`` is of one that was published and removed, and nothing else."""
    once = (F.col("published_count") == 1) & (F.col("ended_count") == 1)
    return F.coalesce((F.col("fate") == "gone") & once & ~F.col("was_dead") & ~F.col("went_on"), F.lit(False))
