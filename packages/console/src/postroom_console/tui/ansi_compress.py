"""Fewer bytes for the same picture, which count on a slow line."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

#: The end of a style, a move of the cursor if there is one, and the next style; or any other change of style.
_CHANGE: Final = re.compile(r"\x1b\[0m(?:(?:\r\n)?(\x1b\[\d+;\d+H))?\x1b\[([\d;]+)m|\x1b\[([\d;]*)m")


class _Style(NamedTuple):
    """The parameters of a style: foreground, background, attributes. Empty is the terminal's default."""

    front: str
    back: str
    others: frozenset[str]


def compress(data: str) -> str:
    """The same output in fewer bytes, if ``data`` begins and ends in the default style: a style that continues is not
    ended and begun again, and a change only has what differs."""
    now = ""

    def change(found: re.Match[str]) -> str:
        nonlocal now
        if found[2] is None:
            now = "" if found[3] in ("", "0") else found[3]
            return found[0]
        before, now = now, found[2]
        return (found[1] or "") + _difference(before, now)

    return _CHANGE.sub(change, data)


@lru_cache(1024)
def _difference(before: str, after: str) -> str:
    """The sequence from one style to another."""
    old, new = _style(before), _style(after)
    if old.others != new.others or (old.front and not new.front) or (old.back and not new.back):
        return f"\x1b[0;{after}m"
    parts = [part for part, known in ((new.front, old.front), (new.back, old.back)) if part != known]
    return f"\x1b[{';'.join(parts)}m" if parts else ""


def _style(parameters: str) -> _Style:
    front = back = ""
    others = set()
    numbers = iter(parameters.split(";") if parameters else ())
    for number in numbers:
        if number in ("38", "48"):
            kind = next(numbers, "")
            colour = ";".join((number, kind, *(next(numbers, "") for _ in range(3 if kind == "2" else 1))))
        else:
            colour = number
        if number == "38" or re.fullmatch("[39][0-79]", number):
            front = colour
        elif number == "48" or re.fullmatch("4[0-79]|10[0-7]", number):
            back = colour
        else:
            others.add(number)
    return _Style(front, back, frozenset(others))
