"""What the environment says of the terminal, and what the terminal library is told by it before it is imported."""

from __future__ import annotations

import os

_PLAIN = ("linux", "vt", "screen", "dumb")


def is_plain_terminal() -> bool:
    """Whether the terminal has few colours of its own, and may show what it does not know."""
    return os.environ.get("TERM", "").startswith(_PLAIN)


def prepare_environment() -> None:
    """Settings that the terminal library reads while it is imported: nothing moves, a split arrow key is one key, and
    where there are few colours or none are wanted, the terminal's own are used."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    os.environ.setdefault("ESCDELAY", "300")
    if os.environ.get("NO_COLOR") or is_plain_terminal():
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")
