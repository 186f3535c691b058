"""Keys out of what a terminal sends: ESC, and a key that comes soon after it, are two keys.

Terminals send ESC also in front of a key that is pressed with Alt, and the terminal library takes the two for one:
who leaves a dialog and goes on quickly would have done nothing. No action has a key with Alt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.message import Message

_ESC: Final = "\x1b"
#: What goes on a sequence that ESC has begun. ``O`` and ``[`` are no keys of any action for that reason.
_INTRODUCERS: Final = frozenset("[]OPNX^_\\")


class Keys:
    """Reads what a terminal sends, piece by piece, and tells the keys and other events in it."""

    def __init__(self, is_debugged: bool = False) -> None:
        self._is_debugged = is_debugged
        self._parser = XTermParser(is_debugged)
        self._has_begun = False  # whether a piece was ESC alone, and may be a key or a beginning

    def feed(self, text: str) -> Iterator[Message]:
        """The events of the next piece."""
        if not text:
            return  # not all bytes of a character are there
        if self._has_begun and text[0] not in _INTRODUCERS:
            self._parser = XTermParser(self._is_debugged)
            yield Key("escape", _ESC)
        elif len(text) == 2 and text[0] == _ESC and text[1] not in _INTRODUCERS:
            yield Key("escape", _ESC)
            text = text[1]
        self._has_begun = text == _ESC
        yield from self._parser.feed(text)

    def tick(self) -> Iterator[Message]:
        """What nothing has come after: ESC as a key."""
        for event in self._parser.tick():
            self._has_begun = False
            yield event
