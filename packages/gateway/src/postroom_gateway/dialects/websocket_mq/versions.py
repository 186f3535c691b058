"""The ranges of versions that npm's packages name, as ``semver`` reads them, for a server whose version is a release.

Python's libraries for them accept what ``semver`` refuses, and refuse what it accepts; the tests compare these with it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: A version: its three numbers, and 1 for a release or 0 for what comes before it. Two pre-releases of one release are
#: never compared, because ours is a release.
Version = tuple[int, int, int, int]

_PART: Final = r"(0|[1-9][0-9]{0,14}|[xX*])"
_WORDS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = rf"v?{_PART}(?:\.{_PART}(?:\.{_PART}(-{_WORDS})?(?:\+{_WORDS})?)?)?"
_HYPHEN: Final = re.compile(rf"{_VERSION}\s+-\s+{_VERSION}")
_COMPARATOR: Final = re.compile(rf"(\^|~>?|[<>]?=?)\s*{_VERSION}(?:\s+|$)")
_LOWEST: Final = (-1, 0, 0, 0)
_HIGHEST: Final = (10**16, 0, 0, 0)
_RANGE_CHARACTERS: Final = 256


class _Given:
    """A version in a range, of which the end may be missing."""

    def __init__(self, major: str | None, minor: str | None, patch: str | None, before: str | None) -> None:
        self.numbers: list[int] = []
        #: Whether a number comes behind an ``x``.
        self.has_hole = False
        is_open = False
        for part in (major, minor, patch):
            is_number = part is not None and part.isdecimal()
            self.has_hole = self.has_hole or (is_open and is_number)
            is_open = is_open or not is_number
            if part is not None and not is_open:
                self.numbers.append(int(part))
        self._is_release = not (before and len(self.numbers) == 3)

    @property
    def first(self) -> Version:
        """The lowest version that it stands for."""
        major, minor, patch, *_ = (*self.numbers, 0, 0, 0)
        return (major, minor, patch, int(self._is_release)) if self.numbers else _LOWEST

    def after(self, kept: int) -> Version:
        """The lowest version that differs in one of the first ``kept`` numbers, or in none that is given."""
        numbers = self.numbers[:kept]
        if not numbers:
            return _HIGHEST
        if len(numbers) == 3:
            return (*self.numbers, int(self._is_release) + 1)  # type: ignore[return-value]
        major, minor, *_ = (*numbers[:-1], numbers[-1] + 1, 0)
        return major, minor, 0, 0

    @property
    def next(self) -> Version:
        """The lowest version behind all that it stands for."""
        return self.after(3)


def _caret(given: _Given) -> Version:
    """The end of ``^``: the leftmost number that is not 0 stays."""
    for place, number in enumerate(given.numbers, 1):
        if number and place < 3:
            return given.after(place)
    if len(given.numbers) == 3:
        major, minor, patch = given.numbers
        return major, minor, patch + 1, 0
    return given.next


def _bounds(operator: str, given: _Given) -> tuple[Version, Version]:
    """The lowest version that a comparator allows, and the lowest above it that it does not. Raises ``ValueError``."""
    if operator == "^":
        return given.first, _caret(given)
    if operator.startswith("~"):
        return given.first, given.after(2)
    if given.has_hole:
        raise ValueError("a number follows an x")
    if operator == ">=":
        return given.first, _HIGHEST
    if operator == ">":
        return given.next, _HIGHEST
    if operator == "<":
        return _LOWEST, given.first
    if operator == "<=":
        return _LOWEST, given.next
    return given.first, given.next


def satisfies(version: str, wanted: str) -> bool:
    """Whether a release such as ``0.7.4`` is in a range such as ``^0.7.0 || 1.x``. None is in what is no range."""
    return len(wanted) <= _RANGE_CHARACTERS and _satisfies(version, wanted)


@lru_cache(maxsize=256)
def _satisfies(version: str, wanted: str) -> bool:
    major, minor, patch = map(int, version.split("."))
    ours = (major, minor, patch, 1)
    try:
        found = [_is_in(ours, alternative.strip()) for alternative in wanted.split("||")]
    except ValueError:
        return False
    return any(found)


def _is_in(ours: Version, alternative: str) -> bool:
    """Whether a version satisfies all comparators of an alternative. Raises ``ValueError`` if it is none."""
    found = _HYPHEN.fullmatch(alternative)
    if found:
        parts = found.groups()
        return _Given(*parts[:4]).first <= ours < _Given(*parts[4:]).next
    position, is_in = 0, True
    while position < len(alternative):
        comparator = _COMPARATOR.match(alternative, position)
        if not comparator:
            raise ValueError(alternative)
        low, high = _bounds(comparator[1], _Given(*comparator.groups()[1:]))
        is_in = is_in and low <= ours < high
        position = comparator.end()
    return is_in
