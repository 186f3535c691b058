"""What pages hold, as one frame of lines: each part of a page is cut to its first rows while it is still in Spark.

A line has ``device`` (empty: of the fleet), ``part``, ``number`` (from 1 in the part), ``total`` (rows that the part
would have) and ``cells``, a JSON object. So a page of the fleet is one query, and the pages of all devices are another,
which is read device by device however many there are.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StructType, TimestampType

from ..tables.columns import Frames
from .findings import ORDER, found
from .sections import Section
from .series import Series

FINDINGS: Final = "findings"


@dataclass
class Part:
    """The rows of one part of a page that are shown, and how many there are."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self.total - len(self.rows)


class Lines:
    """The lines of the pages of a fleet, or of its devices."""

    def __init__(
        self, frames: Frames, sections: Sequence[Section], series: Sequence[Series], top: int, *, by_device: bool
    ) -> None:
        """
        :param frames: the reports that are there, by name; a part whose report is not has no lines.
        :param top: rows that a part shows at most.
        """
        self._top, self._by_device = top, by_device
        self._types: dict[str, StructType] = {}
        cuts = []
        findings = found(frames)
        if findings is not None:
            cells = {name: F.col(name) for name in findings.columns}
            cuts.append(self._cut(FINDINGS, findings, [F.expr(one) for one in ORDER], cells))
        for section in sections:
            if section.report in frames:
                cuts.append(self._of_section(section, frames[section.report]))
        for one in series:
            if one.report in frames:
                rows = one.rows(frames[one.report], by_device=by_device)
                cells = {"name": F.col("name"), "points": F.col("points")}
                cuts.append(self._cut(one.name, rows, [F.col("place"), F.col("name")], cells))
        #: Names of the parts that the reports tell of.
        self.names = frozenset(self._types)
        order = ("device", "part", "number") if by_device else ("part", "number")
        self.frame = reduce(DataFrame.unionByName, cuts).orderBy(*order)

    def of_fleet(self) -> dict[str, Part]:
        """The parts of the page of the fleet."""
        return self._parts(self.frame.collect())

    def of_devices(self) -> Iterator[tuple[str, dict[str, Part]]]:
        """The parts of each device's page, in the order of their names; a few devices are held at a time."""
        for device, lines in groupby(self.frame.toLocalIterator(), key=lambda line: str(line["device"])):
            yield device, self._parts(lines)

    def _of_section(self, section: Section, report: DataFrame) -> DataFrame:
        frame = report.where(section.where)
        is_whole = section.whole and not self._by_device
        if section.together:
            frame = section.together(frame, section.by if is_whole else ("device", *section.by))
        cells = {f"c{number}": F.expr(shown.of) for number, shown in enumerate(section.columns)}
        if not is_whole:
            cells["device"] = F.col("device")
        return self._cut(section.name, frame, [F.expr(one) for one in section.order], cells)

    def _cut(self, part: str, frame: DataFrame, order: Sequence[Column], cells: Mapping[str, Column]) -> DataFrame:
        device = F.col("device") if self._by_device else F.lit("")
        rows = frame.select(
            device.alias("device"),
            F.struct(*(one.alias(f"o{number}") for number, one in enumerate(order))).alias("_order"),
            F.struct(*(of.alias(name) for name, of in cells.items())).alias("_cells"),
        )
        kind = rows.schema["_cells"].dataType
        assert isinstance(kind, StructType)
        self._types[part] = kind
        if self._by_device:
            whose = Window.partitionBy("device")
            numbered = rows.withColumns(
                {"number": F.row_number().over(whose.orderBy("_order")), "total": F.count(F.lit(1)).over(whose)}
            ).where(F.col("number") <= self._top)
        else:
            # Of few rows: a window over all of them is one task's work.
            first = rows.orderBy("_order").limit(self._top)
            numbered = first.withColumns(
                {"number": F.row_number().over(Window.orderBy("_order")), "total": F.lit(0).cast("bigint")}
            )
            count = rows.agg(F.count(F.lit(1)).alias("total")).withColumns({"device": F.lit(""), "number": F.lit(0)})
            numbered = numbered.unionByName(count, allowMissingColumns=True)
        return numbered.select(
            "device", F.lit(part).alias("part"), "number", "total", F.to_json("_cells").alias("cells")
        )

    def _parts(self, lines: Iterable[Row]) -> dict[str, Part]:
        parts: dict[str, Part] = {}
        for line in lines:
            part = parts.setdefault(line["part"], Part())
            part.total = max(part.total, line["total"])
            if line["number"]:
                cells = json.loads(line["cells"])
                part.rows.append(
                    {one.name: _value(cells.get(one.name), one.dataType) for one in self._types[line["part"]]}
                )
        return parts


def _value(value: Any, kind: DataType) -> Any:
    """A value as it was before it was told in JSON."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return dt.datetime.fromisoformat(value)
    if isinstance(kind, DateType):
        return dt.date.fromisoformat(value)
    return value
