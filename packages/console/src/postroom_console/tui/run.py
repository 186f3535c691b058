"""Starts the screen: what must be settled before the terminal library is imported, and its end."""

from __future__ import annotations

import os
from pathlib import Path

from ..data.action_log import ActionLog
from ..data.replay import Replay
from ..data.updates import Source

_FEW_COLOURS = ("linux", "vt", "screen", "dumb")


def prepare_environment() -> None:
    """Settings that the terminal library reads while it is imported: nothing moves, a split arrow key is one key, and
    where there are few colours or none are wanted, the terminal's own are used."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    os.environ.setdefault("ESCDELAY", "300")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "").startswith(_FEW_COLOURS):
        os.environ.setdefault("TEXTUAL_THEME", "ansi-dark")


def state_directory() -> Path:
    """Where the console keeps its log of actions, by the XDG base directories."""
    told = os.environ.get("XDG_STATE_HOME")
    return (Path(told) if told else Path.home() / ".local" / "state") / "postroom-console"


def run(source: Source, name: str, read_only: bool) -> int:
    """Show the screen until it is left; the exit status."""
    prepare_environment()
    from .app import Console
    from .driver import PlainDriver
    from .replay import ReplayConsole

    app: Console
    if isinstance(source, Replay):
        app = ReplayConsole(source, driver_class=PlainDriver)
    else:
        log = ActionLog(state_directory() / "actions.jsonl")
        app = Console(source, name, log, read_only=read_only, driver_class=PlainDriver)
    try:
        app.run(mouse=False)
    finally:
        source.stop()
    return app.return_code or 0
