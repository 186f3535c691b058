"""Errors: one root class, and one exception that carries a wire code."""

from __future__ import annotations

from .protocol import ErrorCode


class PostroomError(Exception):
    """Root of every error that Postroom raises on purpose."""


class CommandError(PostroomError):
    """A command is refused: the response carries ``code`` and ``message``; nothing was changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RequestRejected(PostroomError):
    """The bytes are no request that can be answered. ``reason`` says why, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DamagedRecord(PostroomError):
    """Stored bytes are not what was written: a bad checksum, cut short, or no JSON."""


class ConfigurationError(PostroomError):
    """A setting or policy cannot be used; the text names the key and what is expected."""
