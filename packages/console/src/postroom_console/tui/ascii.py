"""Draws with ASCII only, for terminals that show lines and blocks wrongly, or two columns wide."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from unicodedata import category, east_asian_width

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ..data.text import width

_KNOWN: Final = str.maketrans(
    {
        **dict.fromkeys("─━═▔▁╌┄", "-"),
        **dict.fromkeys("│┃║▏▕▎▌▐╎", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰╔╗╚╝", "+"),
        **dict.fromkeys("█▓▒░▀▄▂▃▅▆▇▊▋▉", "#"),
        **dict.fromkeys("…", "."),
        **dict.fromkeys("•●○◉⚬", "*"),
        **dict.fromkeys("▶▸►→", ">"),
        **dict.fromkeys("◀◂◄←", "<"),
        **dict.fromkeys("▲△↑", "^"),
        **dict.fromkeys("▼▽↓", "v"),
        "✓": "x",
        "🔎": " >",  # two columns wide
    }
)


class AsciiOnly(LineFilter):
    """Replaces lines, blocks and symbols by ASCII. Letters of all languages stay: they are the content."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@lru_cache(4096)
def _ascii(text: str) -> str:
    return "".join(map(_drawn, text.translate(_KNOWN)))


def _drawn(character: str) -> str:
    """A letter, a mark or a number as it is, also wide punctuation, which belongs to letters."""
    kind = category(character)
    is_text = character.isascii() or kind[0] in "LMN" or (kind[0] in "PZ" and east_asian_width(character) in "WF")
    return character if is_text else "?" * max(width(character), 1)
