"""Runs the screen."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

from ..data.action_log import ActionLog
from ..data.config import Config
from ..data.replay import Replay
from ..data.updates import Source
from ..paths import DaemonPaths
from .environment import prepare_environment

#: Objects between two runs of the cyclic garbage collector. The lines of the tail come by thousands and form no cycles:
#: with Python's default of 700, collecting takes an eighth of the CPU of a busy tail.
_COLLECTED: Final = 20_000


def state_directory() -> Path:
    """The directory of the action log, by the XDG base directories."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "postroom-console"


def run(source: Source, name: str, config: Config, paths: DaemonPaths | None = None) -> int:
    """Show the screen until the user leaves it; returns the exit status. Raises ``ConfigError``."""
    prepare_environment()
    from .app import Console
    from .driver import TerminalDriver
    from .replay import ReplayConsole

    app: Console
    if isinstance(source, Replay):
        app = ReplayConsole(source, driver_class=TerminalDriver, config=config)
    else:
        log = ActionLog(state_directory() / "actions.jsonl")
        app = Console(source, name, log, config=config, driver_class=TerminalDriver, paths=paths)
    gc.set_threshold(_COLLECTED)
    try:
        app.run(mouse=False)
    finally:
        source.stop()
    return app.return_code or 0
