"""Small widgets: a line of text, an input, and the cover of a screen that is too small."""

from __future__ import annotations

from typing import Final

from textual.containers import Horizontal
from textual.geometry import Size
from textual.widgets import Input, Static

from ..data.text import cut
from ..i18n import tr

#: The smallest supported screen.
LEAST: Final = Size(40, 10)


class Line(Static):
    """Text that is cleaned, is never markup, and is drawn only when it changes."""

    def __init__(self, name: str | None = None, classes: str | None = None) -> None:
        super().__init__("", markup=False, id=name, classes=classes)
        self._text = ""

    def show(self, text: str) -> None:
        """Show a text."""
        if text != self._text:
            self._text = text
            self.update(text)


def text_line(text: str, classes: str | None = None) -> Line:
    """A line with a text."""
    line = Line(classes=classes)
    line.show(text)
    return line


class Entry(Input):
    """An input of one line. Its cursor does not blink."""

    def __init__(self, name: str, value: str = "") -> None:
        super().__init__(value, id=name, select_on_focus=False)
        self.cursor_blink = False


def entry(name: str, value: str = "", front: str = ">") -> Horizontal:
    """An ``Entry`` with a prompt, which makes an empty one visible where there are few colours."""
    return Horizontal(text_line(front, "front"), Entry(name, value), classes="entry", id=f"{name}-line")


def is_too_small(size: Size) -> bool:
    """Whether a dialog may not be completely visible."""
    return size.width < LEAST.width or size.height < LEAST.height


class Small(Line):
    """Says what size is needed; the style sheet shows it where it is needed."""

    def __init__(self) -> None:
        super().__init__(name="small")

    def on_resize(self) -> None:
        self.show_size(self.app.size)

    def show_size(self, size: Size) -> None:
        """Show the size of the terminal."""
        words = tr("need 40x10, have {size}").format(size=f"{size.width}x{size.height}")
        self.show(cut(words, size.width))
