"""The bodies of messages in the filesystem store, wherever they are: not written yet, or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...model.records import Entry
from ..base import Bodies, Facts
from ..errors import StoreError, store_error
from .changes import Changes
from .files import MessageFiles
from .recovery import FilesystemRecovery

#: Bytes of bodies that are cached for the rest of a group.
_BYTES_LIMIT: Final = 2 * 1024 * 1024


class FilesystemBodies(Bodies):
    """Reads bodies: those of ``layers``, which no file shows yet, and those in files. ``get`` returns the entry of a
    message, or None if there is no such message; ``root`` is the directory of the store."""

    def __init__(
        self,
        layers: tuple[Changes, Changes],
        files: MessageFiles,
        recovery: FilesystemRecovery,
        get: Callable[[str], Entry | None],
        facts: Facts,
        root: Path,
    ) -> None:
        self.facts = facts
        self._root = root
        self._group, self._earlier = layers
        self._files = files
        self._recovery = recovery
        self._get = get
        self._read: dict[str, bytes] = {}  # by the open transaction, from files
        self._bytes = 0

    def envelope(self, key: str) -> bytes:
        replay = self._recovery.replay
        new = self._group.bodies.get(key) or self._earlier.bodies.get(key) or (replay and replay.bodies.get(key))
        if new:
            return new
        body = self._read.get(key)
        if body is None:
            if self._get(key) is None:
                raise StoreError(f"no body for {key}")
            try:
                body = self._files.envelope(key)
            except OSError as error:
                raise store_error(error, self._root) from error
            if self._bytes > _BYTES_LIMIT:
                self.forget_all()
            self._bytes += len(body)
            self._read[key] = body
        return body

    def forget(self, key: str) -> None:
        """Forget what was read of a message."""
        self._read.pop(key, None)

    def forget_all(self) -> None:
        """Forget everything that was read."""
        self._read.clear()
        self._bytes = 0
