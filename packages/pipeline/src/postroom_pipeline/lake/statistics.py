"""What readers of a lake learn of a file without opening it: its rows, and the range of its columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

#: Of columns behind these, no range is stored: as by other writers of Delta tables.
_COLUMNS: Final = 32
#: Longer texts would swell the log; their range is left out.
_LETTERS: Final = 100


@dataclass
class Statistics:
    """The rows of a file; of its columns without parts the lowest value, the highest one, and the number of nulls."""

    rows: int
    lowest: dict[str, Any] = field(default_factory=dict)
    highest: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)


def statistics_of(footer: Any) -> Statistics:
    """The statistics of a Parquet file, by pyarrow's ``FileMetaData``."""
    result = Statistics(footer.num_rows)
    for number in range(min(footer.num_columns, _COLUMNS)):
        name = footer.schema.column(number).path
        if footer.num_rows and "." not in name:
            parts = [*_parts(footer, number)]
            if all(part is not None and part.has_null_count for part in parts):
                result.nulls[name] = sum(part.null_count for part in parts)
            bounds = [part for part in parts if part is None or part.has_min_max or part.num_values]
            if bounds and all(part is not None and part.has_min_max and _is_useful(part) for part in bounds):
                result.lowest[name] = min(part.min for part in bounds)
                result.highest[name] = max(part.max for part in bounds)
    return result


def _parts(footer: Any, number: int) -> Iterator[Any]:
    """The statistics of a column in each of the file's row groups."""
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(number)
        yield column.statistics if column.is_stats_set else None


def _is_useful(part: Any) -> bool:
    """Whether the bounds are of a type that all readers compare alike. NaN has no place among numbers."""
    return all(
        (isinstance(bound, int | dt.date) and not isinstance(bound, bool))
        or (isinstance(bound, str) and len(bound) <= _LETTERS)
        for bound in (part.min, part.max)
    )
