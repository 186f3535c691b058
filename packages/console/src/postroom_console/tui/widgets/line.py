"""One line of text that is drawn again only when it has changed. The text is cleaned, and is no markup."""

from __future__ import annotations

from textual.widgets import Static


class Line(Static):
    """A line at the top, between lists, or at the bottom."""

    def __init__(self, name: str | None = None, classes: str | None = None) -> None:
        super().__init__("", markup=False, id=name, classes=classes)
        self._told = ""

    def tell(self, text: str) -> None:
        """Show a text."""
        if text != self._told:
            self._told = text
            self.update(text)


def told(text: str, classes: str | None = None) -> Line:
    """A line that shows a text from the beginning."""
    line = Line(classes=classes)
    line.tell(text)
    return line
