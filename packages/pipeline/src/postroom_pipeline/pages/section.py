"""What a part of a page is, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class Shown(NamedTuple):
    """A column of a page: its head, the expression (SQL) it shows, and how (see ``text.told``)."""

    head: str
    of: str
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """Rows of one report, in the order in which they matter."""

    name: str
    title: str
    #: What the numbers mean, for who reads them the first time.
    lead: str
    report: str
    columns: tuple[Shown, ...]
    order: tuple[str, ...]
    where: str = "true"
    #: What is said where there is no row.
    well: str = "None."
    #: Puts rows together by the columns that it is given, before any are chosen.
    together: Callable[[DataFrame, tuple[str, ...]], DataFrame] | None = None
    #: Columns beside the device that rows are put together by.
    by: tuple[str, ...] = ()
    #: On the page of the fleet its rows are of all devices together.
    whole: bool = False
    #: Only the page of the fleet has it.
    of_fleet: bool = False


def sums(*aggregates: str) -> Callable[[DataFrame, tuple[str, ...]], DataFrame]:
    return lambda frame, by: frame.groupBy(*by).agg(*map(F.expr, aggregates))


QUEUE: Final = Shown("queue", "queue")
