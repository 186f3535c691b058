"""What comes to the screen from outside: typed, in order, alike from a daemon and from a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from ..i18n import mark
from .records import Record


class Result(Enum):
    """How an action ended. Unknown: no answer came yet; it may have been carried out. Stopped: somebody ended it before
    all was done. Running: it has not ended, and comes on."""

    OK = mark("ok")
    REFUSED = mark("refused")
    UNKNOWN = mark("unknown")
    STOPPED = mark("stopped")
    RUNNING = mark("runs")


@dataclass(frozen=True, slots=True)
class Answer:
    """The daemon answered the question that is asked under ``name``."""

    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A question had no answer. ``code`` is the daemon's, or empty when there was none."""

    name: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """New records of the tail, and why there are none, if they cannot be read. Since the last ones ``skipped_bytes``
    were passed over, ``bad_lines`` could not be read, and ``missing_events`` stood nowhere."""

    records: tuple[Record, ...]
    skipped_bytes: int = 0
    bad_lines: int = 0
    problem: str = ""
    missing_events: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an action stands: ``count`` messages were changed, or while it is running saved. One that is unknown and has
    not ended sends its request again, the same one, until it is known what became of it, and another outcome follows.
    """

    ticket: int
    result: Result
    count: int = 0
    code: str = ""
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    has_ended: bool = True


@dataclass(frozen=True, slots=True)
class Restart:
    """All that was told before holds no longer: a recording is looked at from another moment on."""


Update = Answer | Failure | Lines | Outcome | Restart


@dataclass(frozen=True, slots=True)
class Step:
    """A request, repeated by pages where its command has them. ``only_saved``, of a removal of dead letters: of those
    only what a ``Save`` in front of it has written."""

    command: str
    payload: Mapping[str, Any]
    only_saved: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What takes long and is more than requests; it has a thread of its own. ``run`` is given what says that it is to
    end, what waits for so many seconds or until then, and what takes how far it has come, in words. It gives a number
    and the words to tell. Raises ``PostroomError``, ``OSError`` and ``Stopped``."""

    run: Callable[[Callable[[], bool], Callable[[float], object], Callable[[int, str], None]], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Save:
    """Questions whose answers are written to a new file, one JSON object a line: the entries of ``listed`` in them,
    page after page, or whole answers where it is empty."""

    path: Path
    command: str
    payloads: tuple[Mapping[str, Any], ...]
    listed: str


#: An action: what is done one after the other.
Steps = tuple[Step | Save | Work, ...]


class Source(Protocol):
    """Where updates come from."""

    @property
    def is_live(self) -> bool:
        """Whether actions have an effect."""

    def start(self) -> None:
        """Begin to gather updates."""

    def stop(self) -> None:
        """End within a second, whatever is under way."""

    def drain(self) -> list[tuple[int, Update]]:
        """The updates since the last call, each with the time of its coming (monotonic milliseconds)."""

    def want(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        """Ask a question now and then again and again, until ``forget``. A question of that name is replaced."""

    def forget(self, name: str) -> None:
        """Ask no more."""

    def refresh(self) -> None:
        """Ask all questions now."""

    def act(self, steps: Steps, rate: float | None = None) -> int:
        """Carry out requests one by one, at most ``rate`` messages a second. The ticket of the ``Outcome``."""

    def cancel(self, ticket: int) -> None:
        """Let an action end behind the request that is under way."""

    def note(self) -> str:
        """A few words about the source itself, for the line at the top; empty for a daemon."""
