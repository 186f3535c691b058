"""Lists as rows of cells, for screens and plain tables.

A column has a fixed width or takes the rest; narrow screens omit columns. All texts in cells are cleaned.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple

from .text import fit

GAP = 1
#: Cells of a list that is scrolled sideways: its columns are as wide as they can be.
WIDE = 320


class Tone(Enum):
    """What a text expresses. A screen may show it by colour; the text itself says it as well."""

    PLAIN = "plain"
    DIM = "dim"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HEAD = "head"


class Cell(NamedTuple):
    """A cleaned text and its tone."""

    text: str
    tone: Tone = Tone.PLAIN


class Column(NamedTuple):
    """A column of ``cells``, or ``wide`` in lists that are wider than the screen. One that ``grows`` takes the rest. It
    is shown on screens of at least ``from_width`` cells."""

    title: str
    cells: int
    right: bool = False
    from_width: int = 0
    grows: bool = False
    wide: int = 0


class Row(NamedTuple):
    """A row, identified by its ``key``. ``flag`` is one character in front of it."""

    key: Hashable
    cells: tuple[Cell, ...]
    flag: str = " "


class Placed(NamedTuple):
    """A visible column: the index of its cells, and its width."""

    number: int
    cells: int
    right: bool


def layout(columns: Sequence[Column], width: int) -> list[Placed]:
    """The columns that fit into ``width`` cells. The rest goes to the one that grows."""
    if width >= WIDE:
        columns = [column._replace(cells=max(column.cells, column.wide)) for column in columns]
    shown = [(index, column) for index, column in enumerate(columns) if width >= column.from_width]
    used = sum(column.cells + GAP for _, column in shown) - GAP
    placed = []
    for index, column in shown:
        cells = column.cells + (max(0, width - used) if column.grows else 0)
        placed.append(Placed(index, cells, column.right))
    return placed


def head(columns: Sequence[Column], places: Sequence[Placed]) -> str:
    """The line of the titles."""
    return (" " * GAP).join(fit(columns[place.number].title, place.cells, place.right) for place in places)


def line(row: Row, places: Sequence[Placed]) -> list[Cell]:
    """The cells of a row as they are drawn, each with the gap after it."""
    drawn = []
    for number, place in enumerate(places, 1):
        cell = row.cells[place.number]
        gap = " " * GAP if number < len(places) else ""
        drawn.append(Cell(fit(cell.text, place.cells, place.right) + gap, cell.tone))
    return drawn


def plain(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[str]:
    """A table for a plain terminal or a file."""
    places = layout(columns, width - 1)
    lines = [" " + head(columns, places)]
    lines += [row.flag + "".join(cell.text for cell in line(row, places)) for row in rows]
    return [text.rstrip() for text in lines]
