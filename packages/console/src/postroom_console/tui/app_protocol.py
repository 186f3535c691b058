"""What a screen may use of the application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.config import Config
from ..data.detail_pane import AdminEvents
from ..data.model import Model
from ..data.ring import Ring
from ..data.updates import Source
from .headline import Part
from .keys import Key


class AppProtocol(Protocol):
    """The known state, and the ways to ask for more and to act. ``clock`` returns monotonic milliseconds."""

    config: Config
    source: Source
    model: Model
    ring: Ring
    admin_events: AdminEvents
    action_log: ActionLog
    clock: Callable[[], int]
    last_message: str
    save_root: Path
    skipped_bytes: int
    bad_lines: int
    missing_events: int
    tail_problem: str
    KEYS: ClassVar[tuple[Key, ...]]
    FIRST_KEYS: ClassVar[tuple[Key, ...]]

    @property
    def current_mode(self) -> str:
        """The name of the current view."""

    @property
    def read_only(self) -> bool:
        """Whether there are no actions: the user wants none, it is a recording, or a node that does not lead."""

    @property
    def is_stale(self) -> bool:
        """Whether the known state may be out of date."""

    def headline(self, *parts: Part) -> list[Part]:
        """The status of the daemon, the parts of the view, and what is wrong."""

    def key_label(self, key: Key) -> str:
        """How a key is written, after the user's settings."""

    def wall_ms(self) -> int:
        """Unix time, milliseconds: the recording's in a replay."""

    def say(self, words: str) -> None:
        """Show words in the line at the bottom."""

    def propose(self, plan: Plan) -> None:
        """Say what a plan will do, and execute it if that is confirmed."""
