"""Text for a terminal: characters that would control it are escaped, and widths are measured in cells.

Bodies, keys, names and reasons come from anyone. Each passes ``clean`` once, where a line is built from it; whatever
draws lines may trust them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from unicodedata import category

#: The mark of a truncated text.
CUT: Final = "~"
#: Categories of characters that control a terminal, join others, or are undefined.
_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Variation selectors, regional indicators, skin tones: their width depends on their neighbours and on the terminal,
#: which breaks columns.
_JOINING: Final = re.compile("[\ufe00-\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNITS: Final = ("", "k", "M", "G", "T")


def clean(text: str) -> str:
    """The text with all characters escaped that are not visible on their own: control and bidi characters, joiners,
    selectors, surrogates. ESC becomes the four characters ``\\x1b``, U+202E the six of ``\\u202e``."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if category(character) not in _STEERING and not _JOINING.match(character):
        return character
    number = ord(character)
    return _SHORT.get(character) or (
        f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
    )


@lru_cache(8192)
def _cells(character: str) -> int:
    from wcwidth import wcwidth  # here, because it takes a tenth of a start, and few runs see a wide character

    return wcwidth(character)


def width(text: str) -> int:
    """The cells of a cleaned text, in which no characters join."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, cells: int) -> str:
    """The text in at most so many cells. A wide character that does not fit is dropped."""
    if width(text) <= cells:
        return text
    if cells < 1:
        return ""
    room = cells - len(CUT)
    if text.isascii():
        return text[:room] + CUT
    kept = []
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + CUT


def fit(text: str, cells: int, right: bool = False) -> str:
    """The text in exactly so many cells, aligned left or ``right``."""
    kept = cut(text, cells)
    padding = " " * (cells - width(kept))
    return padding + kept if right else kept + padding


def figure(number: float) -> str:
    """A number in at most five characters: ``12345``, ``123k``, ``1.2M``."""
    return str(int(number)) if abs(number) < 100_000 else _scaled(number)


def size(number: int) -> str:
    """Bytes in at most five characters, in units of 1,000: ``118B``, ``2.1kB``, ``640MB``."""
    return _scaled(number) + "B"


def _scaled(number: float) -> str:
    unit = 0
    while abs(number) >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.1f}{_UNITS[unit]}" if unit and abs(number) < 9.95 else f"{number:.0f}{_UNITS[unit]}"


def age(milliseconds: int | float) -> str:
    """A time span in at most five characters: ``14s``, ``4m12``, ``3h12``, ``3d04``, ``400d``. A negative one has a
    minus."""
    seconds = int(abs(milliseconds) // 1000)
    sign = "-" if milliseconds <= -1000 else ""
    if seconds < 60:
        return f"{sign}{seconds}s"
    if seconds < 3600:
        return f"{sign}{seconds // 60}m{seconds % 60:02d}"
    if seconds < 86400:
        return f"{sign}{seconds // 3600}h{seconds % 3600 // 60:02d}"
    days = seconds // 86400
    return f"{sign}{days}d{seconds % 86400 // 3600:02d}" if days < 100 else f"{sign}{days}d"
