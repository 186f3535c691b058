"""Drawing with ASCII only, for terminals that show other characters of lines and blocks wrongly, or too wide."""

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
    """Puts ASCII in the place of lines, blocks and symbols. Letters of all languages stay: they are what is shown."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


@lru_cache(4096)
def _ascii(text: str) -> str:
    return "".join(map(_drawn, text.translate(_KNOWN)))


def _drawn(character: str) -> str:
    """A letter, a mark or a number as it is; wide punctuation, too, which is written between letters."""
    kind = category(character)
    is_text = character.isascii() or kind[0] in "LMN" or (kind[0] in "PZ" and east_asian_width(character) in "WF")
    return character if is_text else "?" * max(width(character), 1)
