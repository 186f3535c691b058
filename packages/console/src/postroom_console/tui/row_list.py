"""A list of rows with cursor and marks, which draws only its visible lines."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ..data.rows import WIDE, Cell, Column, Placed, Row, Tone, head, layout, line
from ..data.text import cut
from .keys import LIST

#: Cells in front of a row: the cursor, and a mark or flag.
_FRONT = 2
#: Cells that a key scrolls sideways.
_STEP = 40


class RowList(Widget, can_focus=True):
    """Shows ``rows`` under ``columns``. The cursor stays on its row when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in LIST]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"row--{tone.value}" for tone in Tone} | {"row--cursor"}

    class Opened(Message):
        """The row under the cursor is to be opened."""

        def __init__(self, row_list: RowList, row: Row) -> None:
            super().__init__()
            self.row_list = row_list
            self.row = row

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, row_list: RowList, row: Row | None) -> None:
            super().__init__()
            self.row_list = row_list
            self.row = row

    def __init__(self, columns: Sequence[Column], empty: str = "", name: str | None = None) -> None:
        super().__init__(id=name)
        self.columns = columns
        self.rows: Sequence[Row] = ()
        self.marks: set[Hashable] = set()
        self._empty = empty
        self._cursor = 0
        self._top = 0
        self._places: list[Placed] = []
        self._width = -1
        self._steps = 0  # sideways; the first step shows all columns at full width

    # --- what is shown ----------------------------------------------------------------------------------------

    def show(self, rows: Sequence[Row], empty: str | None = None) -> None:
        """Show other rows."""
        before, drawn = self.current, self._drawn()
        if empty is not None:
            self._empty = empty
        self.rows = rows
        keys = [row.key for row in rows]
        if before and before.key in keys:
            self._cursor = keys.index(before.key)
        self.marks &= set(keys)
        self._clamp()
        self._draw_changed(drawn)
        if (self.current and self.current.key) != (before and before.key):
            self.post_message(self.Moved(self, self.current))

    def _drawn(self) -> list[tuple[Row | str, bool, bool]]:
        """What the lines below the titles show: the row, whether the cursor is on it, and whether it is marked."""
        if not self.rows:
            return [("", False, False), (self._empty, False, False)]
        shown = self.rows[self._top : self._top + self._height]
        return [(row, self._top + y == self._cursor, row.key in self.marks) for y, row in enumerate(shown)]

    def _draw_changed(self, before: list[tuple[Row | str, bool, bool]]) -> None:
        """Draw only the lines that changed: a line costs a slow terminal a tenth of a second."""
        pairs = enumerate(zip_longest(before, self._drawn()), 1)
        changed = [Region(0, y, self.size.width, 1) for y, (old, new) in pairs if old != new]
        if changed:
            self.refresh(*changed)

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self._cursor] if self._cursor < len(self.rows) else None

    @property
    def chosen(self) -> list[Row]:
        """The marked rows; without marks, the one under the cursor."""
        marked = [row for row in self.rows if row.key in self.marks]
        return marked or ([self.current] if self.current else [])

    @property
    def _height(self) -> int:
        return max(1, self.size.height - 1)

    def _clamp(self) -> None:
        self._cursor = max(0, min(self._cursor, len(self.rows) - 1))
        self._top = max(0, min(self._top, len(self.rows) - self._height, self._cursor))
        self._top = max(self._top, self._cursor - self._height + 1)

    def on_resize(self) -> None:
        self._clamp()

    # --- drawing ----------------------------------------------------------------------------------------------

    @property
    def _left(self) -> int:
        """Cells that are scrolled out on the left, behind the front cells."""
        return max(0, self._steps - 1) * _STEP

    def render_line(self, y: int) -> Strip:
        width = max(self.size.width, WIDE + _FRONT) if self._steps else self.size.width
        strip = self._line(y, width)
        if not self._steps:
            return strip
        begin = _FRONT + self._left
        return Strip.join([strip.crop(0, _FRONT), strip.crop(begin, begin + self.size.width - _FRONT)])

    def _line(self, y: int, width: int) -> Strip:
        if width != self._width:
            self._width = width
            self._places = layout(self.columns, width - _FRONT)
        if y == 0:
            return self._strip([Cell(" " * _FRONT + head(self.columns, self._places), Tone.HEAD)], width)
        number = self._top + y - 1
        if number < len(self.rows):
            return self._row_strip(self.rows[number], number == self._cursor, width)
        text = f"  {self._empty}" if not self.rows and y == 2 else ""
        return self._strip([Cell(cut(text, width), Tone.DIM)], width)

    def _row_strip(self, row: Row, is_current: bool, width: int) -> Strip:
        front = (">" if is_current and self.can_focus else " ") + ("*" if row.key in self.marks else row.flag)
        return self._strip([Cell(front), *line(row, self._places)], width, is_current and self.has_focus)

    def _strip(self, cells: Sequence[Cell], width: int, is_current: bool = False) -> Strip:
        segments = [Segment(cell.text, self._style(cell.tone)) for cell in cells]
        strip = Strip(segments).adjust_cell_length(width, self._style(Tone.PLAIN)).simplify()
        return strip.apply_style(self.get_component_rich_style("row--cursor", partial=True)) if is_current else strip

    def _style(self, tone: Tone) -> Style:
        return self.get_component_rich_style(f"row--{tone.value}")

    # --- keys -------------------------------------------------------------------------------------------------

    def _go(self, number: int) -> None:
        before = self._cursor
        self._cursor = number
        self._clamp()
        if self._cursor != before:
            self.refresh()
            self.post_message(self.Moved(self, self.current))

    def action_move(self, step: int) -> None:
        self._go(self._cursor + step)

    def action_page(self, step: int) -> None:
        self._go(self._cursor + step * self._height)

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self.rows) - 1)

    def action_sideways(self, step: int) -> None:
        most = 1 + max(0, -((self.size.width - WIDE - _FRONT) // _STEP))
        self._steps = max(0, min(self._steps + step, most))
        self.refresh()

    def action_mark(self) -> None:
        if self.current:
            self.marks ^= {self.current.key}
            self._go(self._cursor + 1)
            self.refresh()

    def action_mark_all(self) -> None:
        keys = {row.key for row in self.rows}
        self.marks = set() if self.marks == keys else keys
        self.refresh()

    def action_open(self) -> None:
        if self.current:
            self.post_message(self.Opened(self, self.current))
