"""Key presses and pastes out of the bytes that a terminal sends.

Covers what xterm, the Linux console, rxvt, screen and tmux send for keys, and bracketed paste. Every other sequence is
dropped whole, so that its characters are never taken for keys.

A terminal sends ESC in front of a key pressed with Alt, and a technician who closes a dialog and types on quickly sends
the same bytes. No action uses Alt, so the two are always read as ESC followed by the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from unicodedata import name as unicode_name

from textual.events import Event, Key, Paste
from textual.keys import KEY_NAME_REPLACEMENTS

_ESC: Final = "\x1b"
_PASTE_BEGIN: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
#: Characters after ESC that begin a sequence. ``O`` and ``[`` are keys of no action for that reason.
_INTRODUCERS: Final = frozenset("[]OPNX^_\\")
#: The sequence of a key: F1 of the Linux console, CSI, SS3; and last any other CSI sequence.
_SEQUENCE: Final = re.compile(
    r"\x1b\[\[(?P<console>[A-E])"
    r"|\x1b\[(?P<numbers>[\d;]{0,16})(?P<final>[@-Z\\-~$])"
    r"|\x1bO(?P<modifiers>\d?)(?P<key>[@-~])"
    r"|\x1b\[[0-?]+[ -/]*[@-~]"
)
#: The beginning of such a sequence.
_PARTIAL: Final = re.compile(r"\x1b(\[\[?[0-?]*[ -/]*|O\d?)?")
#: Strings that a terminal sends to programs: OSC, DCS, SOS, PM, APC.
_STRING: Final = re.compile(r"\x1b[]PX^_][^\x07\x1b]*(\x07|\x1b\\)")
_PARTIAL_STRING: Final = re.compile(r"\x1b[]PX^_][^\x07\x1b]*\x1b?")
#: Characters after which a sequence without an end is given up.
_SEQUENCE_CHARACTERS: Final = 4096

_CONTROLS: Final = {
    "\r": "enter",
    "\t": "tab",
    "\x08": "backspace",
    "\x7f": "backspace",
    " ": "space",
    _ESC: "escape",
    "\x00": "ctrl+@",
    "\x1c": "ctrl+backslash",
    "\x1d": "ctrl+right_square_bracket",
    "\x1e": "ctrl+circumflex_accent",
    "\x1f": "ctrl+underscore",
}
_LETTERS: Final = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "F": "end",
    "H": "home",
    "P": "f1",
    "Q": "f2",
    "R": "f3",
    "S": "f4",
}
#: rxvt sends these with shift (CSI) or Ctrl (SS3).
_RXVT_LETTERS: Final = {"a": "up", "b": "down", "c": "right", "d": "left"}
_NUMBERS: Final = {
    1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageup", 6: "pagedown", 7: "home", 8: "end",
    11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7", 19: "f8", 20: "f9", 21: "f10", 23: "f11",
    24: "f12", 25: "f13", 26: "f14", 28: "f15", 29: "f16", 31: "f17", 32: "f18", 33: "f19", 34: "f20",
}  # fmt: skip
#: Keys of the number pad in application mode, as characters.
_PAD: Final = {"M": "\r", "j": "*", "k": "+", "m": "-", "n": ".", "o": "/"} | {chr(0x70 + n): str(n) for n in range(10)}
#: What rxvt puts at the end of a sequence in the place of ``~``, as xterm's number of the modifiers.
_RXVT_MODIFIERS: Final = {"$": 2, "^": 5, "@": 6}


def key_name(character: str) -> str:
    """Textual's name of the key that types a character: ``slash`` for ``/``."""
    if character.isalnum():
        return character
    name = unicode_name(character, character).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


class KeyParser:
    """Turns pieces of terminal input into key and paste events."""

    def __init__(self) -> None:
        self._pending = ""
        self._pasted: list[str] | None = None  # pieces of a paste that has not ended

    @property
    def is_pending(self) -> bool:
        """Whether input waits for its continuation; call ``flush`` when none comes."""
        return bool(self._pending) and self._pasted is None

    def feed(self, text: str) -> Iterator[Event]:
        """The events of the next piece of input."""
        self._pending += text
        while self._pending:
            if self._pasted is not None:
                if not self._end_paste(self._pasted):
                    return
                yield Paste("".join(self._pasted).replace("\x00", ""))
                self._pasted = None
            elif self._pending[0] != _ESC:
                character, self._pending = self._pending[0], self._pending[1:]
                yield _key_of(character)
            else:
                events = self._read_sequence()
                if events is None:
                    return
                yield from events

    def flush(self) -> Iterator[Event]:
        """The events of incomplete input: a lone ESC is the key; a part of a longer sequence gives no event."""
        pending, self._pending = self._pending, ""
        if pending and len(pending) <= 2:
            yield from map(_key_of, pending)

    def _end_paste(self, pasted: list[str]) -> bool:
        """Move pending text into a paste; whether the paste has ended."""
        text, end, rest = self._pending.partition(_PASTE_END)
        if not end:  # its last characters may be the beginning of the end
            kept = next((n for n in range(len(_PASTE_END) - 1, 0, -1) if text.endswith(_PASTE_END[:n])), 0)
            text, rest = text[: len(text) - kept], text[len(text) - kept :]
        pasted.append(text)
        self._pending = rest
        return bool(end)

    def _read_sequence(self) -> list[Event] | None:
        """Take one sequence or a lone ESC from the front; None while it is incomplete."""
        pending = self._pending
        if len(pending) > 1 and pending[1] not in _INTRODUCERS:
            self._pending = pending[1:]
            return [_key_of(_ESC)]
        if pending.startswith(_PASTE_BEGIN):
            self._pending, self._pasted = pending[len(_PASTE_BEGIN) :], []
            return []
        if found := _SEQUENCE.match(pending) or _STRING.match(pending):
            self._pending = pending[found.end() :]
            return [_named(name) for name in _keys_of(found)] if found.re is _SEQUENCE else []
        is_partial = _PARTIAL.fullmatch(pending) or _PARTIAL_STRING.fullmatch(pending)
        if is_partial and len(pending) < _SEQUENCE_CHARACTERS:
            return None
        self._pending = pending[2:]  # neither a sequence nor the beginning of one
        return [_key_of(_ESC)]


def _key_of(character: str) -> Key:
    """The event of a character that is typed."""
    if character in _CONTROLS:
        return Key(_CONTROLS[character], character)
    if character < " ":
        return Key(f"ctrl+{chr(ord(character) + 0x60)}", character)
    return Key(key_name(character), character)


def _named(name: str) -> Key:
    """The event of a key by its name; a key of the number pad is the character on it."""
    return _key_of(name) if len(name) == 1 else Key(name, None)


def _keys_of(found: re.Match[str]) -> list[str]:
    """The names of the keys of a sequence; none of an unknown one. A key with Alt is ESC and the key."""
    if found["console"]:
        return [f"f{ord(found['console']) - ord('A') + 1}"]
    if found["key"]:
        key = found["key"]
        name = _LETTERS.get(key) or _PAD.get(key) or _RXVT_LETTERS.get(key, "")
        return _modified(name, int(found["modifiers"] or (5 if key in _RXVT_LETTERS else 1)))
    final = found["final"]
    numbers = [int(number or 1) for number in (found["numbers"] or "1").split(";")]
    if final == "Z":
        return ["shift+tab"]
    if final in _RXVT_LETTERS:
        return _modified(_RXVT_LETTERS[final], 2)
    if final in _LETTERS:
        return _modified(_LETTERS[final], numbers[-1])
    if final == "~" or final in _RXVT_MODIFIERS:
        modifiers = numbers[1] if len(numbers) > 1 else 1
        return _modified(_NUMBERS.get(numbers[0], ""), _RXVT_MODIFIERS.get(final or "", modifiers))
    return []


def _modified(name: str, modifiers: int) -> list[str]:
    """A key with modifiers, which xterm numbers by 1 more than the sum of 1 for shift, 2 for Alt, 4 for Ctrl, 8 for
    Meta."""
    if not name:
        return []
    bits = modifiers - 1
    if bits & 1 and name[0] == "f" and name[1:].isdigit():  # terminals have the second dozen there
        name, bits = f"f{int(name[1:]) + 12}", bits & ~1
    front = "ctrl+" * bool(bits & 4) + "shift+" * bool(bits & 1)
    return ["escape"] * bool(bits & 0b1010) + [front + name]
