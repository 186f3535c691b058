"""Starts the screen, and its end."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

from ..data.action_log import ActionLog
from ..data.config import Config
from ..data.replay import Replay
from ..data.updates import Source
from ..places import Places
from .environment import prepare_environment

#: Objects that come before the collector of reference cycles looks. Lines of the tail come by thousands and are in no
#: cycle: with the 700 that Python begins with, it takes an eighth of the CPU of a busy tail.
_COLLECTED: Final = 20_000


def state_directory() -> Path:
    """Where the console keeps its log of actions, by the XDG base directories."""
    told = os.environ.get("XDG_STATE_HOME")
    return (Path(told) if told else Path.home() / ".local" / "state") / "postroom-console"


def run(source: Source, name: str, config: Config, places: Places | None = None) -> int:
    """Show the screen until it is left; the exit status. ``places`` are those of the daemon. Raises ``ConfigError``."""
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
        app.places = places
    gc.set_threshold(_COLLECTED)
    try:
        app.run(mouse=False)
    finally:
        source.stop()
    return app.return_code or 0
