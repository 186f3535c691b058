"""Durability and space of the SQLite store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ..base import Disk, Store
from ..errors import StoreBusy, StoreDamaged, StoreError
from .database import Database
from .references import ReferencedBodies
from .unwritten import Unwritten

log = logging.getLogger(__name__)


class SqliteDisk(Disk):
    """The database file of a store, and what it refers to."""

    def __init__(
        self,
        store: Store,
        flush: Callable[[], None],
        db: Database,
        unwritten: Unwritten,
        referenced: ReferencedBodies | None,
    ) -> None:
        self._store = store
        self._flush = flush
        self._db = db
        self._unwritten = unwritten
        self._referenced = referenced

    def files(self) -> list[Path]:
        return self._db.files()

    def probe(self) -> None:
        self._db.probe()
        if self._referenced:
            self._referenced.probe()

    def space_needed(self, events: int) -> int:
        group, earlier = self._unwritten.group, self._unwritten.earlier
        return self._unwritten.space.needed(len(group.bodies), group.bytes + earlier.bytes)

    def checkpoint(self) -> int:
        if self._referenced:
            self._referenced.sync()
        self._flush()
        durable = self._store.applied if self._db.fold_log() else 0
        if self._referenced:
            self._referenced.checkpointed()
        return durable

    def tidy(self) -> None:
        try:
            self._flush()
        except StoreBusy as error:
            log.warning("%s; the changes stay in memory", error)
            return
        try:
            self._db.give_back()
        except StoreDamaged:
            raise
        except StoreError as error:
            log.warning("space is not returned: %s", error)
