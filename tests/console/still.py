"""A recording as a source without progress: its last moment, with the answers of its time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postroom_console.data.action_log import ActionLog
from postroom_console.data.config import Config
from postroom_console.data.recording import decode_header, decode_update
from postroom_console.data.updates import Answer, Outcome, Result, Steps, Update
from postroom_console.tui.app import Console

#: Fields of an answer that identify the query.
_WHICH = ("queue", "state", "messageKey")


class Still:
    """See ``Source``. Actions succeed and change nothing; ``is_lost`` simulates a daemon that has been silent for a
    while."""

    is_live = True

    def __init__(self, path: Path, is_lost: bool = False) -> None:
        header, *lines = path.read_bytes().splitlines(keepends=True)
        self._header = decode_header(header)
        updates = [decode_update(line) for line in lines]
        times = [int(line.split(b":", 2)[1].split(b",")[0]) for line in lines]
        self._updates: list[tuple[int, Update]] = list(zip(times, updates, strict=True))
        self._end_ms = times[-1] + (14_000 if is_lost else 0)
        self._waiting: list[tuple[int, Update]] = [pair for pair in self._updates if not isinstance(pair[1], Answer)]
        self._tickets = 0

    def clock(self) -> int:
        """The moment, in milliseconds since the start of the recording."""
        return self._end_ms

    def wall_ms(self) -> int:
        """The same as Unix time."""
        return int(self._header["wallMs"]) + self._end_ms

    def start(self) -> None:
        """No effect."""

    def stop(self) -> None:
        """No effect."""

    def drain(self) -> list[tuple[int, Update]]:
        taken, self._waiting = self._waiting, []
        return taken

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        answers = [
            (at, update)
            for at, update in self._updates
            if isinstance(update, Answer) and update.name == name and _fits(update.data, payload)
        ]
        self._waiting += answers if name == "queues" else answers[-1:]

    def unsubscribe(self, name: str) -> None:
        """No effect."""

    def refresh(self) -> None:
        """No effect."""

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        self._tickets += 1
        self._waiting.append((self._end_ms, Outcome(self._tickets, Result.OK, 4)))
        return self._tickets

    def cancel(self, ticket: int) -> None:
        """No effect."""

    def status_text(self) -> str:
        return ""


def _fits(data: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
    return all(data.get(name, payload[name]) == payload[name] for name in _WHICH if name in payload)


def at_the_desk(path: Path, config: Config | None = None, is_lost: bool = False) -> Console:
    """A console that shows the last moment of a recording, always the same."""
    source = Still(path, is_lost)
    log = ActionLog(None, wall_ms=source.wall_ms)
    console = Console(source, "site-a", log, config=config, clock=source.clock, live=False, wall_ms=source.wall_ms)
    console.theme = "textual-dark"
    console.save_root = Path("/media/usb-stick")
    return console
