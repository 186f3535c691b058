"""Error classes: one root class, and one class with the error code of an answer."""

from __future__ import annotations

from typing import Any

from .protocol import ErrorCode


class PostroomError(Exception):
    """Base class of every error that Postroom raises deliberately."""


class CommandError(PostroomError):
    """A refused command. The answer contains ``code`` and ``message``, and ``data`` if there is any, for machines.
    Nothing was changed."""

    def __init__(self, code: ErrorCode, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> dict[str, Any]:
        """The object ``error`` of an answer."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        return error if self.data is None else error | {"data": self.data}

    def without_traceback(self) -> CommandError:
        """An equal error for an answer: the frames that this one was raised in keep all that they refer to."""
        return CommandError(self.code, self.message, self.data)


class RequestRejected(PostroomError):
    """The bytes are not a request that can be answered. ``reason`` says why, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DamagedRecord(PostroomError):
    """Stored bytes are damaged: a wrong checksum, truncated, or not JSON."""


class ConfigurationError(PostroomError):
    """An invalid setting or policy. The text names the key and the expected value."""
