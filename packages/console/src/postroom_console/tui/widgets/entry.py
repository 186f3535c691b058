"""A place to type into, with a mark in front of it: an empty one could not be seen where there are few colours."""

from __future__ import annotations

from textual.containers import Horizontal
from textual.widgets import Input

from .line import told


class Entry(Input):
    """A line that is typed. Its cursor stands still."""

    def __init__(self, name: str, value: str = "") -> None:
        super().__init__(value, id=name, select_on_focus=False)
        self.cursor_blink = False


def entry(name: str, value: str = "", front: str = ">") -> Horizontal:
    """An ``Entry`` of that name behind the mark ``front``."""
    return Horizontal(told(front, "front"), Entry(name, value), classes="entry", id=f"{name}-line")
