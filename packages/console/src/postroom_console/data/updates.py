"""The updates that a screen gets, alike from a daemon and from a recording, and the interface of their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from ..i18n import mark
from .records import Record


class Result(Enum):
    """The result of an action. Unknown: no answer came yet, and it may have been executed. Stopped: a user stopped it
    early. Running: it has not ended."""

    OK = mark("ok")
    REFUSED = mark("refused")
    UNKNOWN = mark("unknown")
    STOPPED = mark("stopped")
    RUNNING = mark("running")


@dataclass(frozen=True, slots=True)
class Answer:
    """The daemon's answer to the query ``name``."""

    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A query without an answer. ``code`` is that of a refusal, or empty."""

    name: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """New records of the tail, and why none can be read. Since the last update, ``skipped_bytes`` were skipped,
    ``bad_lines`` were invalid, and ``missing_events`` are missing in between."""

    records: tuple[Record, ...]
    skipped_bytes: int = 0
    bad_lines: int = 0
    problem: str = ""
    missing_events: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of an action: ``count`` messages were processed, or saved while it runs. An unknown one that has not
    ended repeats its request until its result is known, and another outcome follows."""

    ticket: int
    result: Result
    count: int = 0
    code: str = ""
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    has_ended: bool = True


@dataclass(frozen=True, slots=True)
class Restart:
    """All earlier updates are void: a recording continues from another moment."""


Update = Answer | Failure | Lines | Outcome | Restart


@dataclass(frozen=True, slots=True)
class Step:
    """A request, repeated by pages if its command has them. With ``only_saved`` it removes only the dead letters that a
    ``Save`` before it has written."""

    command: str
    payload: Mapping[str, Any]
    only_saved: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """A long task in a thread of its own. ``run`` gets ``is_stopped()``, ``pause(seconds)`` and ``report(count,
    words)``, and returns a count and words for the result. Raises ``PostroomError``, ``OSError`` and ``Stopped``."""

    run: Callable[[Callable[[], bool], Callable[[float], object], Callable[[int, str], None]], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Save:
    """Queries whose answers are saved to a new file, one JSON object per line: the entries of the field ``listed``,
    page by page, or complete answers if it is empty."""

    path: Path
    command: str
    payloads: tuple[Mapping[str, Any], ...]
    listed: str


#: An action: its steps, in order.
Steps = tuple[Step | Save | Work, ...]


class Source(Protocol):
    """Where updates come from."""

    @property
    def is_live(self) -> bool:
        """Whether actions have an effect."""

    def start(self) -> None:
        """Start to collect updates."""

    def stop(self) -> None:
        """Stop within a second, whatever is running."""

    def drain(self) -> list[tuple[int, Update]]:
        """The updates since the last call, each with the time it came (monotonic milliseconds)."""

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        """Send a query now and every ``every_ms``, until ``unsubscribe``. It replaces a query of the same name."""

    def unsubscribe(self, name: str) -> None:
        """Stop sending a query."""

    def refresh(self) -> None:
        """Send all queries now."""

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        """Execute an action, at most ``rate`` messages per second; returns the ticket of its outcomes."""

    def cancel(self, ticket: int) -> None:
        """Stop an action after its current request."""

    def status_text(self) -> str:
        """The state of the source, for the line at the top; empty for a daemon."""
