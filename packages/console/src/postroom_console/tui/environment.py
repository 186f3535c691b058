"""The environment of the terminal, and the settings that Textual reads from it on import."""

from __future__ import annotations

import os

_PLAIN = ("linux", "vt", "screen", "dumb")


def is_plain_terminal() -> bool:
    """Whether the terminal has few colours, and may show sequences that it does not know as text."""
    return os.environ.get("TERM", "").startswith(_PLAIN)


def prepare_environment() -> None:
    """Set what Textual reads while it is imported: no animations, 300 ms for the rest of an arrow key's sequence, and
    the terminal's own colours where there are few or none are wanted."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    os.environ.setdefault("ESCDELAY", "300")
    if os.environ.get("NO_COLOR") or is_plain_terminal():
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
