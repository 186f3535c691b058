"""What the connections of one door have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from ..observe.counters import DoorCounters
from .authentication import Authenticator, Directory
from .limits import Limits

log = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection, as its door sees it."""

    def authenticate_again(self) -> None:
        """Ask the authenticator again who the peer is."""

    def check(self, now_s: float) -> None:
        """Close it if its peer is too slow."""

    def stop(self) -> None:
        """Close it as soon as its answers are written."""

    def abort(self) -> None:
        """Close it now."""


class Door:
    """One listener: its name, who may use it, what it counts, and its connections."""

    def __init__(self, name: str, authenticator: Authenticator, limits: Limits, counters: DoorCounters) -> None:
        self.name = name
        self.authenticator = authenticator
        self.limits = limits
        self.counters = counters
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._background: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that outlives its connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error:  # nobody waits for it: its client has gone
            log.warning("%s: a message was not returned, and comes again when its lease ends: %s", self.name, error)

    def reload(self, directory: Directory) -> None:
        """Replace the principals, also for connections that are open."""
        self.authenticator.directory = directory
        for connection in list(self.connections):
            connection.authenticate_again()

    def check(self, now_s: float) -> None:
        """Close connections whose peers are too slow. Called about once a second."""
        for connection in list(self.connections):
            connection.check(now_s)

    def stop(self) -> None:
        """Close every connection as soon as its answers are written."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.stop()

    def abort(self) -> None:
        """Close every connection now."""
        for connection in list(self.connections):
            connection.abort()
