"""The errors of a store. Every method of its contract may raise ``StoreError``."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from postroom_common.errors import PostroomError

from ..platform.files import FULL_ERRNOS


class StoreError(PostroomError):
    """The store could not do what was asked; the underlying error is the cause."""


class StoreFull(StoreError):
    """The disk has no space for what was to be stored."""


class StoreBusy(StoreError):
    """Another process has the storage locked: nothing can be stored until it releases it."""


class NotStored(StoreError):
    """What was to be changed does not exist. The storage itself is intact, and nothing was changed."""


class StoreDamaged(StoreError):
    """What is on disk is not a store: it can be set aside and folded from scratch from the journal."""


class BodyLost(StoreError):
    """The body of message ``key`` is missing, damaged or another message's: it must not be delivered."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


class BodyUnread(StoreError):
    """The disk did not return the body of message ``key``: it may do so next time, or never."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


def store_error(error: OSError, where: Path | str) -> StoreError:
    """An error of the operating system as one of the contract: ``StoreFull`` if only space is lacking."""
    return (StoreFull if error.errno in FULL_ERRNOS else StoreError)(f"{where}: {error}")


class StoreErrors:
    """Turns errors of the operating system in its block into those of the contract; see ``store_error``. May be used
    again: each group of requests uses one."""

    __slots__ = ("_where",)

    def __init__(self, where: Path | str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise store_error(error, self._where) from error
