"""Error classes: one root class, and one class with the error code of an answer."""

from __future__ import annotations

from .protocol import ErrorCode


class PostroomError(Exception):
    """Base class of every error that Postroom raises deliberately."""


class CommandError(PostroomError):
    """A refused command. The answer contains ``code`` and ``message``. Nothing was changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def without_traceback(self) -> CommandError:
        """An equal error for an answer: the frames that this one was raised in keep all that they refer to."""
        return CommandError(self.code, self.message)


class RequestRejected(PostroomError):
    """The bytes are not a request that can be answered. ``reason`` says why, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DamagedRecord(PostroomError):
    """Stored bytes are damaged: a wrong checksum, truncated, or not JSON."""


class ConfigurationError(PostroomError):
    """An invalid setting or policy. The text names the key and the expected value."""
