"""The door for smss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...contract import Daemon, Peer
from .appends import Appends
from .conversation import Conversation
from .options import read_options
from .subscription import Subscribers
from .topics import Topics


class Smss:
    """smss. Raises ``ConfigurationError`` for wrong options."""

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._daemon = daemon
        self._door = door
        self._options = read_options(options)
        self._subscribers = Subscribers()
        self._appends = Appends(daemon, door)

    def connect(self, peer: Peer) -> Conversation:
        """A connection was made."""
        topics = Topics(self._daemon, peer.principal, self._door, self._appends, self._options.retention_hours)
        return Conversation(peer, topics, self._subscribers, self._options)
