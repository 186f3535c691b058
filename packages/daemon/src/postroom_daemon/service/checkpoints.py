"""Checkpoints: when the store is made durable, and which journal segments are removed then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ..broker.idempotency import REPEATS_MS
from ..config.settings import Settings
from ..root.open_root import OpenRoot
from ..stores.errors import StoreError, StoreFull

log = logging.getLogger(__name__)

#: The store is made durable, and old segments are removed, at least this often (s).
EVERY_S: Final = 600.0
#: The same for a follower, whose next start may be the takeover that all wait for.
FOLLOWER_EVERY_S: Final = 30.0


class Checkpoints:
    """Makes a root's store durable after each segment of the journal, every ``EVERY_S`` (a follower's every
    ``FOLLOWER_EVERY_S``), and all the time on a full disk; then removes the segments that are no longer needed. A
    failure is logged, and tried again."""

    def __init__(self, settings: Settings, root: OpenRoot) -> None:
        self._settings = settings
        self._root = root
        self._segment = root.journal.segment
        self._every_s = EVERY_S if root.broker.role.leader is None else FOLLOWER_EVERY_S
        self._next_s = root.clock.elapsed_s() + self._every_s
        self._unfinished = False

    def reload(self, settings: Settings) -> None:
        """Apply the settings of a reloaded configuration."""
        self._settings = settings

    def tick(self) -> None:
        """Begin a checkpoint if it is time, and do the next part of one. Call this about once a second."""
        journal, now_s = self._root.journal, self._root.clock.elapsed_s()
        # On a full disk the store's own log must not grow as well.
        if journal.segment != self._segment or not self._root.vitals.has_space_to_publish() or now_s >= self._next_s:
            self._segment = journal.segment
            self._next_s = now_s + self._every_s
            self._unfinished = True
        if self._unfinished:
            self._make(self._root.store.disk.checkpoint_step)

    def make(self) -> None:
        """Make the store durable now, in one step."""
        self._make(self._root.store.disk.checkpoint)

    def _make(self, checkpoint: Callable[[], int | None]) -> None:
        if self._root.broker.role.shown_up_to:  # the next start needs what files show behind the journal's end
            return
        settings, journal, clock = self._settings, self._root.journal, self._root.clock
        try:
            self._unfinished = False
            folded = checkpoint()
            if folded is None:
                self._unfinished = True
                return
            self._root.vitals.checkpointed = max(self._root.vitals.checkpointed, folded)
            old = clock.now().engine - settings.journal_retention_hours * 3600 * 1000
            recent = clock.now().engine - REPEATS_MS
            removed = journal.drop_segments(folded, old, settings.journal_max_bytes, recent)
        except (OSError, StoreError) as error:
            log.error("checkpoint: %s", error)
            if isinstance(error, StoreFull):
                self._root.reserve.spare()
            return
        if removed:
            log.info("journal: removed %d segments, up to %s", len(removed), removed[-1])
