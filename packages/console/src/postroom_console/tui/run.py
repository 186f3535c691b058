"""Starts the screen: what must be settled before the terminal library is imported, and its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..data.action_log import ActionLog
from ..data.live import Live
from ..places import Places

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


def run(places: Places, options: dict[str, Any]) -> int:
    """Show the screen until it is left; the exit status."""
    prepare_environment()
    from .app import Console
    from .driver import PlainDriver

    source = Live(places.make_client, places.journal, places.traffic)
    log = ActionLog(state_directory() / "actions.jsonl")
    app = Console(source, places.name, log, read_only=options["read_only"], driver_class=PlainDriver)
    app.run(mouse=False)
    source.stop()
    return app.return_code or 0
