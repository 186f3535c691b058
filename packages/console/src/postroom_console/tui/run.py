"""Starts the screen: what must be settled before the terminal library is imported, and its end."""

from __future__ import annotations

import os
from pathlib import Path

from ..data.action_log import ActionLog
from ..data.config import Config
from ..data.replay import Replay
from ..data.updates import Source

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


def state_directory() -> Path:
    """Where the console keeps its log of actions, by the XDG base directories."""
    told = os.environ.get("XDG_STATE_HOME")
    return (Path(told) if told else Path.home() / ".local" / "state") / "postroom-console"


def run(source: Source, name: str, config: Config) -> int:
    """Show the screen until it is left; the exit status. Raises ``ConfigError``."""
    prepare_environment()
    from .app import Console
    from .driver import PlainDriver
    from .replay import ReplayConsole

    app: Console
    if isinstance(source, Replay):
        app = ReplayConsole(source, driver_class=PlainDriver, config=config)
    else:
        log = ActionLog(state_directory() / "actions.jsonl")
        app = Console(source, name, log, config=config, driver_class=PlainDriver)
    try:
        app.run(mouse=False)
    finally:
        source.stop()
    return app.return_code or 0
