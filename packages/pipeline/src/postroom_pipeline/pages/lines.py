"""The content of all pages as one frame of lines: each part of a page is reduced to its first rows in Spark.

A line has ``device`` (null for the fleet as a whole), ``part``, ``number`` (from 1 in the part), ``total`` (rows of the
part before the cut), ``place``, by which the rows of a part are ordered, and ``cells``; the last two are JSON. So all
pages are one query, which is read device by device. What the fleet's page shows of its devices needs no query of its
own: the first rows of all devices are among the first rows of each.
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
from .findings import ORDER, findings
from .series import Series


class Shown(NamedTuple):
    """A column of a page: its head, the SQL expression it shows, and how (``kind`` of ``text.formatted``)."""

    head: str
    of: str
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: rows of one report, the most important first."""

    name: str
    title: str
    #: What the numbers mean, for first-time readers.
    lead: str
    report: str
    columns: tuple[Shown, ...]
    order: tuple[str, ...]
    where: str = "true"
    #: The text if there is no row.
    well: str = "None."
    #: Aggregates the rows by the given columns, before the first ones are chosen.
    together: Callable[[DataFrame, tuple[str, ...]], DataFrame] | None = None
    #: Columns beside the device by which rows are aggregated.
    by: tuple[str, ...] = ()
    #: On the fleet's page its rows are of all devices together.
    whole: bool = False
    #: Only the fleet's page has it.
    of_fleet: bool = False


def sums(*aggregates: str) -> Callable[[DataFrame, tuple[str, ...]], DataFrame]:
    return lambda frame, by: frame.groupBy(*by).agg(*map(F.expr, aggregates))


QUEUE: Final = Shown("queue", "queue")


FINDINGS: Final = "findings"
Cells = dict[str, Any]


@dataclass
class Part:
    """The rows of one part of a page that are shown, and how many there are in all."""

    rows: list[Cells] = field(default_factory=list)
    total: int = 0
    #: The sort key of each row.
    places: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many rows are not shown."""
        return self.total - len(self.rows)

    def take(self, other: Part, top: int) -> None:
        """Merge the rows of another device, and keep the first ``top``."""
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
        :param frames: the existing reports, by name; a part without its report has no lines.
        :param top: maximum rows in a part.
        :param with_fleet: whether there is a page of the fleet.
        """
        self.top = top
        self._kinds: dict[tuple[bool, str], StructType] = {}
        parts = []
        rows_of_findings = findings(frames)
        if rows_of_findings is not None:
            cells = {name: F.col(name) for name in rows_of_findings.columns}
            parts.append(self._lines(FINDINGS, rows_of_findings, map(F.expr, ORDER), cells, F.col("device")))
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
        #: Names of the parts whose reports exist.
        self.names = frozenset(name for _, name in self._kinds)
        self._frame = reduce(DataFrame.unionByName, parts)

    def __iter__(self) -> Iterator[tuple[str | None, dict[str, Part]]]:
        """The parts of each device's page, and those parts of the fleet's page (None) that are of all devices together.

        In no particular order; only a few devices are in memory at a time.
        """
        whose = Window.partitionBy("device", "part")
        # All lines of a device go to one task, and stay there.
        numbered = self._frame.repartition("device").withColumns(
            {"number": F.row_number().over(whose.orderBy("place")), "total": F.count(F.lit(1)).over(whose)}
        )
        shown = numbered.where(F.col("number") <= self.top).withColumn("place", F.to_json("place"))
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
        # The sort keys of all parts have one type: numbers or texts.
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
    """A sort key that compares as in Spark: nulls, which JSON leaves out, come first."""
    return ("number" in place, place.get("number", 0), place.get("text", ""))


def _value(value: Any, kind: DataType) -> Any:
    """A value of the type that it had before it became JSON."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return dt.datetime.fromisoformat(value)
    if isinstance(kind, DateType):
        return dt.date.fromisoformat(value)
    return value
