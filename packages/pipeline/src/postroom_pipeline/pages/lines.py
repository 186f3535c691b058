"""What pages hold, as one frame of lines: each part of a page is cut to its first rows while it is still in Spark.

A line has ``device`` (null: of the fleet together), ``part``, ``number`` (from 1 in the part), ``total`` (rows that the
part would have), ``place``, by which rows of a part are ordered, and ``cells``; the last two are JSON. So all pages are
one query, which is read device by device however many there are. What the page of the fleet shows of its devices needs
no query of its own: the first rows of all are among the first ones of each.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StringType, StructType, TimestampType

from ..schema.table import Frames
from .findings import ORDER, found
from .series import Series


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


FINDINGS: Final = "findings"
Cells = dict[str, Any]


@dataclass
class Part:
    """The rows of one part of a page that are shown, and how many there are."""

    rows: list[Cells] = field(default_factory=list)
    total: int = 0
    #: By which they are ordered, one for each.
    places: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self.total - len(self.rows)

    def take(self, other: Part, top: int) -> None:
        """Add the rows of another device, and keep the first ones."""
        self.total += other.total
        both = heapq.merge(
            zip(self.places, self.rows, strict=True), zip(other.places, other.rows, strict=True), key=lambda one: one[0]
        )
        first = [one for one, _ in zip(both, range(top), strict=False)]
        self.places, self.rows = [place for place, _ in first], [row for _, row in first]


class Lines:
    """The lines of all pages."""

    def __init__(
        self,
        frames: Frames,
        sections: Sequence[Section],
        series: Sequence[Series],
        top: int,
        *,
        with_fleet: bool,
    ) -> None:
        """
        :param frames: the reports that are there, by name; a part whose report is not has no lines.
        :param top: rows that a part shows at most.
        :param with_fleet: whether there is a page of the fleet.
        """
        self.top = top
        self._kinds: dict[tuple[bool, str], StructType] = {}
        parts = []
        findings = found(frames)
        if findings is not None:
            cells = {name: F.col(name) for name in findings.columns}
            parts.append(self._lines(FINDINGS, findings, map(F.expr, ORDER), cells, F.col("device")))
        for of_fleet in (False, True) if with_fleet else (False,):
            device = F.lit(None).cast("string") if of_fleet else F.col("device")
            for section in sections:
                if section.report in frames and (
                    section.whole or section.of_fleet if of_fleet else not section.of_fleet
                ):
                    parts.append(self._of_section(section, frames[section.report], device, of_fleet=of_fleet))
            for one in series:
                if one.report in frames:
                    rows = one.rows(frames[one.report], by_device=not of_fleet)
                    cells = {"name": F.col("name"), "points": F.col("points")}
                    parts.append(self._lines(one.name, rows, [F.col("place"), F.col("name")], cells, device))
        #: Names of the parts that the reports tell of.
        self.names = frozenset(name for _, name in self._kinds)
        self._frame = reduce(DataFrame.unionByName, parts)

    def __iter__(self) -> Iterator[tuple[str | None, dict[str, Part]]]:
        """The parts of each device's page, and of the fleet's (None) those that are of all devices together.

        They come in no order; a few devices are held at a time.
        """
        whose = Window.partitionBy("device", "part")
        # All lines of a device come to one task, and stay there.
        told = self._frame.repartition("device").withColumns(
            {"number": F.row_number().over(whose.orderBy("place")), "total": F.count(F.lit(1)).over(whose)}
        )
        shown = told.where(F.col("number") <= self.top).withColumn("place", F.to_json("place"))
        for device, lines in groupby(shown.toLocalIterator(), key=lambda line: line["device"]):
            yield device, self._parts(device, lines)

    def _of_section(self, section: Section, report: DataFrame, device: Column, *, of_fleet: bool) -> DataFrame:
        frame = report.where(section.where)
        is_whole = section.whole and of_fleet
        if section.together:
            frame = section.together(frame, section.by if is_whole else ("device", *section.by))
        cells = {f"c{number}": F.expr(shown.of) for number, shown in enumerate(section.columns)}
        if not is_whole:
            cells["device"] = F.col("device")
        return self._lines(section.name, frame, map(F.expr, section.order), cells, device)

    def _lines(
        self, part: str, frame: DataFrame, order: Iterable[Column], cells: Mapping[str, Column], device: Column
    ) -> DataFrame:
        rows = frame.select(
            device.alias("device"),
            F.struct(*(one.alias(f"o{number}") for number, one in enumerate(order))).alias("_order"),
            F.struct(*(of.alias(name) for name, of in cells.items())).alias("_cells"),
        )
        places, kind = rows.schema["_order"].dataType, rows.schema["_cells"].dataType
        assert isinstance(kind, StructType) and isinstance(places, StructType)
        self._kinds["device" in cells, part] = kind
        # One type for the order of all parts: numbers, or texts.
        place = F.array(*(_place(F.col("_order")[one.name], one.dataType) for one in places.fields))
        return rows.select(
            "device", F.lit(part).alias("part"), place.alias("place"), F.to_json("_cells").alias("cells")
        )

    def _parts(self, device: str | None, lines: Iterable[Row]) -> dict[str, Part]:
        parts: dict[str, Part] = {}
        for line in lines:
            part = parts.setdefault(line["part"], Part(total=line["total"]))
            cells = json.loads(line["cells"])
            kinds = self._kinds["device" in cells, line["part"]]
            part.rows.append({one.name: _value(cells.get(one.name), one.dataType) for one in kinds.fields})
            part.places.append(tuple(map(_comparable, json.loads(line["place"]))))
        return parts


def _place(value: Column, kind: DataType) -> Column:
    is_text = isinstance(kind, StringType)
    none = F.lit(None)
    return F.struct(
        (none if is_text else value).cast("double").alias("number"),
        (value if is_text else none).cast("string").alias("text"),
    )


def _comparable(place: Mapping[str, Any]) -> tuple[Any, ...]:
    """As Spark compares it: nulls, which JSON leaves out, come first."""
    return ("number" in place, place.get("number", 0), place.get("text", ""))


def _value(value: Any, kind: DataType) -> Any:
    """A value as it was before it was told in JSON."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return dt.datetime.fromisoformat(value)
    if isinstance(kind, DateType):
        return dt.date.fromisoformat(value)
    return value
