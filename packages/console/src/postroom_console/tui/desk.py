"""What a screen may use of the application: the application has it, and hands itself over as this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.config import Config
from ..data.model import Model
from ..data.notable import Notable
from ..data.ring import Ring
from ..data.updates import Source
from .headline import Part
from .keys import Key


class Desk(Protocol):
    """Everything that is known, and the ways to ask for more and to change something. ``clock`` gives monotonic
    milliseconds."""

    config: Config
    source: Source
    model: Model
    ring: Ring
    notable: Notable
    log_of_actions: ActionLog
    clock: Callable[[], int]
    read_only: bool
    last_words: str
    save_root: Path
    skipped_bytes: int
    bad_lines: int
    missing_events: int
    tail_problem: str
    KEYS: ClassVar[tuple[Key, ...]]
    FIRST_KEYS: ClassVar[tuple[Key, ...]]

    @property
    def current_mode(self) -> str:
        """The name of the view that is shown."""

    @property
    def is_stale(self) -> bool:
        """Whether what is known may no longer be true."""

    def headline(self, *shown: Part) -> list[Part]:
        """How the daemon is, and what is wrong, with parts that the view adds."""

    def shown(self, key: Key) -> str:
        """How a key is named, after the user's settings."""

    def wall_ms(self) -> int:
        """Unix time, milliseconds."""

    def say(self, words: str) -> None:
        """Show words in the line at the bottom."""

    def propose(self, plan: Plan) -> None:
        """Say what a plan will do, and do it if that is confirmed."""
