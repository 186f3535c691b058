"""What connections, and the users who have opened them, may occupy."""

from __future__ import annotations

import resource
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.protocol import REQUEST_BYTES_DEFAULT, ErrorCode

from ...config.settings import Settings
from .connection import Connection

#: Descriptors for the rest of the daemon.
_RESERVED_DESCRIPTORS: Final = 160
#: Unread answers (bytes) of a connection beyond which nothing more is read from it; and beyond which no more messages
#: are delivered to it: one may be as large as a request.
_UNSENT_BYTES_LIMIT: Final = 1024 * 1024
_UNDELIVERED_BYTES_LIMIT: Final = 4 * REQUEST_BYTES_DEFAULT


class Limits:
    """Decides by the ``settings`` in force."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def check_new(self, connection: Connection, connections: int) -> None:
        """Raise ``CommandError`` if a connection, the last one of ``connections``, is one too many."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if connections > max(1, min(self.settings.lane_connections, descriptors - _RESERVED_DESCRIPTORS)):
            raise CommandError(ErrorCode.QUOTA_EXCEEDED, "there are too many connections: try again later")
        most = self.settings.lane_user_connections
        if connection.user.connections > most:
            raise CommandError(ErrorCode.QUOTA_EXCEEDED, f"uid {connection.uid} has {most} connections: close some")

    def is_near(self, connection: Connection) -> bool:
        """Whether any limit of a connection or its user, with what is expected in this turn, may be reached."""
        user, settings = connection.user, self.settings
        return (
            len(connection.requests) >= settings.lane_requests
            or connection.request_bytes >= settings.limits_request_bytes
            or connection.unsent_bytes + connection.expected_bytes >= _UNSENT_BYTES_LIMIT
            or user.held_bytes + user.expected_bytes >= settings.lane_user_bytes
        )

    def is_full(self, connection: Connection) -> bool:
        """Whether a connection, or its user, has so much in memory that nothing more is read from it."""
        return connection.unsent_bytes >= _UNSENT_BYTES_LIMIT or (
            connection.user.held_bytes >= self.settings.lane_user_bytes and not connection.may_complete()
        )

    def has_enough(self, connection: Connection) -> bool:
        """Whether a connection has so many requests in flight that no further one is read from it."""
        return (
            len(connection.requests) >= self.settings.lane_requests
            or connection.request_bytes >= self.settings.limits_request_bytes
        )

    def stops(self, connection: Connection) -> bool:
        """Whether a connection is full or has enough."""
        return self.is_full(connection) or self.has_enough(connection)

    def expects_enough(self, connection: Connection) -> bool:
        """Whether the answers to the requests of this turn may well be as many as a connection, or its user, may have
        unread."""
        return connection.expected_bytes > 0 and (
            connection.unsent_bytes + connection.expected_bytes >= _UNSENT_BYTES_LIMIT
            or connection.user.held_bytes + connection.user.expected_bytes >= self.settings.lane_user_bytes
        )

    def check_deliverable(self, connection: Connection) -> None:
        """Raise ``CommandError`` if a client, or its user, has so much unread that nothing more is delivered."""
        unread, held = connection.unsent_bytes, connection.user.held_bytes
        if unread > _UNDELIVERED_BYTES_LIMIT or held > self.settings.lane_user_bytes:
            text = f"{unread} bytes of answers are unread on this connection, {held} by this user: read them first"
            raise CommandError(ErrorCode.QUOTA_EXCEEDED, text)
