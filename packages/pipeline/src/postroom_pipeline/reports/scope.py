"""Which rows of its tables a row of a report is made of: what is rebuilt when some have changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..schema.columns import is_one_of


@dataclass(frozen=True)
class Scope:
    """A report has one. Whatever it says of other rows than these has to follow from these alone."""

    #: Whether a row is made of rows of its own device only.
    by_device: bool = True
    #: The tables of which a row has the rows of its own ``day`` only; none if it may have those of any day.
    by_day_of: tuple[str, ...] = ()
    #: So many days before its own count as well.
    days_before: int = 0
    #: Tables without days: a change in one of them may change all days of a device.
    any_day_if: tuple[str, ...] = ()
    #: The tables of which rows have those up to a moment: if a device's changed days are its last, those before stay.
    by_end_of: tuple[str, ...] = ()
    #: If not ``by_device``: the tables of which a row has the rows of its own day, and earlier ones of its own device.
    by_past_of: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[str, ...]:
        """The tables whose changed days are of interest."""
        return (*self.by_day_of, *self.any_day_if, *self.by_past_of, *self.by_end_of)

    @property
    def described(self) -> str:
        """What is rebuilt when rows of a device have changed, for people."""
        if self.by_past_of:
            return "all rows of that day, and the device's rows of later days"
        if not self.by_device:
            return "all rows"
        if self.by_end_of:
            return "the device's rows of that day if no later day is known; otherwise all of the device's rows"
        if not self.by_day_of:
            return "the device's rows"
        days = f", and of the {self.days_before} days after it" if self.days_before else ""
        more = f"; all of the device's rows if {' or '.join(f'`{name}`' for name in self.any_day_if)} changes"
        return f"the device's rows of that day{days}{more if self.any_day_if else ''}"


@dataclass(frozen=True)
class Changed:
    """What has changed in the tables of ``Scope.by_past_of``."""

    #: The days with changed rows of any device.
    days: Collection[str]
    #: ``device`` and ``since``: the first day with changed rows of that device.
    since: DataFrame

    def marked(self, frame: DataFrame) -> DataFrame:
        """A frame with ``is_later``: whether the row's day is one with changed rows of its device, or a later one."""
        later = F.col("day") >= F.col("_since")
        marked = frame.join(F.broadcast(self.since.withColumnRenamed("since", "_since")), "device", "left")
        return marked.withColumn("is_later", F.coalesce(later, F.lit(False))).drop("_since")

    def is_on_day(self) -> Column:
        """Whether a row is of one of the days."""
        return is_one_of(self.days)


OF_FLEET: Final = Scope(by_device=False)
OF_DEVICE: Final = Scope()
