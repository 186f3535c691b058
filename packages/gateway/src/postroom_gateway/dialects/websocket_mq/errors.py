"""Errors as the client in JavaScript recognises them: by the names of a class and of those that it descends from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: What ``instanceof`` of the client compares, from the class upwards.
_CUSTOM: Final = ("CustomError", "Error")


class RpcError(Exception):
    """An error that a client gets. ``name`` is that of its class, ``ancestors`` are the classes above that."""

    def __init__(self, name: str, message: str = "", ancestors: Sequence[str] = _CUSTOM) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.ancestors = ancestors


def queue_not_found() -> RpcError:
    """No queue has this id."""
    return RpcError("QueueNotFound")


def message_not_found() -> RpcError:
    """The queue has no message with this id."""
    return RpcError("MessageNotFound")


def slot_not_found() -> RpcError:
    """The message has no slot with this name."""
    return RpcError("SlotNotFound")


def bad_state(*allowed: str) -> RpcError:
    """The message is in none of the states that a method allows."""
    names = ", ".join(f'"{name}"' for name in allowed)
    return RpcError("BadMessageState", f"The state of message must be {'one of ' if len(allowed) > 1 else ''}{names}")


def duplicate_message() -> RpcError:
    """The queue is unique, and has another message with the same slots."""
    return RpcError("DuplicateMessage")


def duplicate_message_id() -> RpcError:
    """The queue has a message with this id."""
    return RpcError("DuplicateMessageId")


def stale_lease() -> RpcError:
    """The lease id is no longer that of the message: somebody else may have it. A ``BadMessageState`` for clients that
    do not know it."""
    return RpcError("StaleLease", "The lease has ended", ("BadMessageState", *_CUSTOM))


def wrong_argument(text: str) -> RpcError:
    """An argument is not what the method takes."""
    return RpcError("AssertionError", text)


def aborted() -> RpcError:
    """The client has aborted the request."""
    return RpcError("DOMException", "This operation was aborted", ("Error",))


def unavailable(text: str) -> RpcError:
    """The daemon cannot be asked, or does not answer."""
    return RpcError("ServiceUnavailable", text)


def internal() -> RpcError:
    """A fault of the gateway."""
    return RpcError("InternalError", "The gateway failed on this request; its log says why.")
