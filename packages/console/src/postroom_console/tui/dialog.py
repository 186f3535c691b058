"""What all dialogs have in common: texts that can be scrolled, and below them what is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget

from .hangul import with_hangul
from .widgets.line import Line
from .widgets.small import Small

_Result = TypeVar("_Result")
#: Up and down, where a dialog has more lines than the screen.
_SCROLLING: Final[list[BindingType]] = [
    Binding(with_hangul("k,up"), "scroll(-1)", "up"),
    Binding(with_hangul("j,down"), "scroll(1)", "down"),
    Binding("pageup", "scroll(-8)", "a page up"),
    Binding("pagedown", "scroll(8)", "a page down"),
]


class Dialog(ModalScreen[_Result]):
    """Texts that can be scrolled, and below them what is asked, which is always shown."""

    BINDINGS: ClassVar[list[BindingType]] = _SCROLLING

    def texts(self) -> Iterable[Line]:
        """What is told."""
        raise NotImplementedError

    def asked(self) -> Iterable[Widget]:
        """What is asked."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Widget(id="dialog"):
            with VerticalScroll(id="texts", can_focus=False):
                yield from self.texts()
            with Vertical(id="asked"):
                yield from self.asked()
        yield Small()

    def on_resize(self) -> None:
        self.call_after_refresh(self._make_room)

    def _make_room(self) -> None:
        """Leave to the texts what is not needed for what is asked."""
        asked, frame = self.query_one("#asked"), self.query_one("#dialog").gutter.height
        self.query_one("#texts").styles.max_height = max(1, self.size.height - frame - asked.outer_size.height)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#texts").scroll_relative(y=lines, animate=False)
