"""Durability and space of a store and its logs together."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..base import Disk
from .contract import Logs


class _Store(Protocol):
    """What is needed of the store."""

    applied: int


class DiskWithLogs(Disk):
    """The ``disk`` of a store with logs. The files of the logs are not among its ``files``: they are not set aside with
    a damaged store."""

    def __init__(self, store: _Store, disk: Disk, logs: Logs) -> None:
        self._store = store
        self._disk = disk
        self._logs = logs
        self._durable: int | None = None  # up to where the logs are, in a checkpoint that is under way

    def files(self) -> list[Path]:
        return self._disk.files()

    def probe(self) -> None:
        self._disk.probe()
        self._logs.probe()

    def space_needed(self, events: int) -> int:
        return self._disk.space_needed(events) + self._logs.space_needed()

    def checkpoint(self) -> int:
        self._begin()
        return self._end(self._disk.checkpoint())

    def checkpoint_step(self) -> int | None:
        if self._durable is None:
            self._begin()
        durable = self._disk.checkpoint_step()
        return None if durable is None else self._end(durable)

    def _begin(self) -> None:
        self._logs.checkpoint(self._store.applied)
        self._durable = self._store.applied

    def _end(self, durable: int) -> int:
        """The store is durable up to an event."""
        logs, self._durable = self._durable, None
        assert logs is not None
        if durable >= logs:
            self._logs.checkpointed()
        return min(durable, logs)

    def tidy(self) -> None:
        self._disk.tidy()
        self._logs.tidy()
