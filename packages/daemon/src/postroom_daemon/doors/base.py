"""The contract of a door: a way by which requests reach the broker and answers leave it.

The loop owns every door and calls it from its one thread. A door never waits: it collects what is there, and is woken
by the descriptors that it registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from selectors import BaseSelector
from typing import Any, ClassVar

from postroom_common.errors import PostroomError

from ..config.settings import Settings
from ..model.request import Request
from ..platform.clock import Now


class DoorLost(PostroomError):
    """The door is gone, and this process cannot open it again; the text says what to do."""


class DoorReplaced(PostroomError):
    """What the door was opened on was replaced: the loop opens it again. The text names what was replaced."""


class Door(ABC):
    """A way by which requests arrive. Each comes from a principal that the door has verified."""

    #: What figures and logs call it.
    name: ClassVar[str]

    @abstractmethod
    def register(self, selector: BaseSelector) -> None:
        """Register the descriptors that wake this door, each with the door as its data."""

    @property
    @abstractmethod
    def poll_s(self) -> float | None:
        """Seconds between two collections if nothing wakes the door; None when its descriptors always do."""

    @property
    @abstractmethod
    def has_backlog(self) -> bool:
        """Whether the next collection returns requests without being woken."""

    @abstractmethod
    def collect(self, limit: int) -> list[Request]:
        """The next requests, oldest first, at most ``limit``: what the broker has no space for stays outside. Raises
        ``OSError`` when the operating system refuses now what it may grant later."""

    @abstractmethod
    def flush(self) -> None:
        """Send what the last group has answered, if the door has not sent each answer by itself."""

    @abstractmethod
    def tick(self, now: Now, files_wall_ms: int) -> list[Request]:
        """Do what is due about once a second; ``files_wall_ms`` is the time by which file systems stamp files. The
        waiting requests whose client has gone, which are to be cancelled.

        Raises ``DoorLost``, ``DoorReplaced``, ``OSError``.
        """

    @abstractmethod
    def reload(self, settings: Settings) -> None:
        """Apply the settings of a reloaded configuration."""

    @abstractmethod
    def figures(self) -> dict[str, int]:
        """The door's own numbers for health and metrics."""

    def check_health(self) -> dict[str, Any]:
        """The door's check for ``health``: ``ok``; if that is false, also ``reason`` (a code) and ``error`` (a text
        that says what to do)."""
        return {"ok": True}

    @abstractmethod
    def close(self) -> None:
        """Release everything. Requests that were not answered stay where their clients can send them again."""
