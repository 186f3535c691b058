"""What covers a screen for which the terminal is too small."""

from __future__ import annotations

from typing import Final

from textual.geometry import Size

from ...data.text import cut
from ...i18n import tr
from .line import Line

#: The cells and lines that every screen has room in.
LEAST: Final = Size(40, 10)


def is_too_small(size: Size) -> bool:
    """Whether what is asked may not be seen whole."""
    return size.width < LEAST.width or size.height < LEAST.height


class Small(Line):
    """Says what is needed; shown by the style sheet where it is needed."""

    def __init__(self) -> None:
        super().__init__(name="small")

    def on_resize(self) -> None:
        self.tell_size(self.app.size)

    def tell_size(self, size: Size) -> None:
        """Show how large the terminal is, and how large it must be."""
        words = tr("need 40x10, have {size}").format(size=f"{size.width}x{size.height}")
        self.tell(cut(words, size.width))
