"""When a state file is written, and how much of it at once."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from time import monotonic_ns
from typing import Final

from postroom_common.errors import PostroomError
from postroom_common.events import EventType

from ...config.settings import Settings
from ...journal.journal import Journal
from ...journal.segments import list_segments, read_lines
from ...platform.clock import Clock, Now
from ...platform.files import Files
from ...stores.base import Store
from ..state import Head
from ..state.model import Steps, read_head
from .writing import HOUR_MS, Origin, StateDirectory, StoreFailed, name_of, write_file

log = logging.getLogger(__name__)

#: Duration of a slice of work between two groups (ns).
_SLICE_NS: Final = 1_000_000
#: Pause between two slices (ns) while there are requests, so that slices take a tenth of the time; and the time (ns)
#: after the last request when the pauses end.
_BETWEEN_NS: Final = 10_000_000
_QUIET_NS: Final = 100_000_000
#: Nothing is written for this time after a start (s), so that a daemon that is often restarted does other work.
SETTLED_S: Final = 300.0
#: Minimum engine time between two files, whatever the wall clock shows.
_LEAST_MS: Final = HOUR_MS // 2
#: Queues that are read in one step.
_QUEUES: Final = 32
#: Estimated size of a message in a file besides its body and headers (bytes).
_MESSAGE_BYTES: Final = 500
#: Events that do not change the state.
_IDLE: Final = frozenset({EventType.CLOCK_MARKED, EventType.ANSWERED})


class Snapshots:
    """Writes ``snapshots.root/YYYY-MM-DD-HH.json`` (UTC) at each full hour of the wall clock, and some minutes after a
    start in an hour without a file, if something has changed since the last one.

    A failure is logged and retried in the next hour. No request waits or is refused for it.
    """

    def __init__(
        self, settings: Settings, store: Store, journal: Journal, clock: Clock, files: Files | None = None
    ) -> None:
        self._settings = settings
        self._origin = Origin(store, journal, clock, settings.hybrid_payload_root)
        self._directory = StateDirectory(settings.snapshots_root, files or Files())
        self._settled_s = clock.elapsed_s() + SETTLED_S
        self._last: Head | None = None
        """The head of the newest file; its event is the last one up to which nothing has changed since."""
        self._looked: Now | None = None
        self._work: Steps[None] | None = None
        self._asked_ns = self._next_ns = 0

    def reload(self, settings: Settings) -> None:
        """Use other settings from now on. An unfinished file is abandoned."""
        self._settings = settings
        self.stop()

    @property
    def busy(self) -> bool:
        """Whether a file is being written: ``step`` continues."""
        return self._work is not None

    def pause_s(self) -> float:
        """Time until the next slice (s); 0: now."""
        return max(0, self._next_ns - monotonic_ns()) / 1e9

    def tick(self, elapsed_s: float, now: Now) -> None:
        """Begin a file if one is due. Call it about every second."""
        if self._work or not self._settings.snapshots_enabled or elapsed_s < self._settled_s:
            return
        if self._looked is None:
            self._find_last()
        if self._looked is None or _is_due(self._looked, now):
            self._looked = now
            self._work = self._do(now.wall)

    def _find_last(self) -> None:
        try:
            newest = self._directory.list()[-1:]
            self._last = self._directory.head_of(newest[0].name) if newest else None
        except OSError as error:
            log.warning("snapshots: %s", error)
        if self._last:
            self._looked = Now(self._last.engine_ms, self._last.wall_ms)

    def step(self, asked: bool = False) -> None:
        """Work for about a millisecond, if there is work; less often while there are requests (``asked``). Raises
        ``StoreError`` if the store has failed."""
        now_ns = monotonic_ns()
        if asked:
            self._asked_ns = now_ns
        if not self._work or now_ns < self._next_ns:
            return
        self._slice(self._work, now_ns + _SLICE_NS)
        now_ns = monotonic_ns()
        self._next_ns = now_ns + _BETWEEN_NS if now_ns - self._asked_ns < _QUIET_NS else 0

    def _slice(self, work: Steps[None], until: int) -> None:
        try:
            next(work)
            while monotonic_ns() < until:
                next(work)
        except StopIteration:
            self._work = None
        except StoreFailed as failed:
            self._work = None
            raise failed.error from None
        except (OSError, PostroomError) as error:
            self._work = None
            log.warning("snapshots: the state was not written: %s", error)

    def stop(self) -> None:
        """Abandon an unfinished file; nothing of it remains."""
        if self._work:
            self._work.close()
        self._work = None

    def _do(self, wall_ms: int) -> Steps[None]:
        settings = self._settings
        head = read_head(self._origin.ask)
        if (yield from self._changed(head)):
            yield from self._write(name_of(wall_ms))
        elif self._last:
            self._last = replace(self._last, event=head.event)
        retention_ms = settings.snapshots_retention_hours * HOUR_MS
        self._directory.clear(wall_ms, retention_ms, settings.snapshots_max_files, settings.snapshots_max_bytes)

    def _changed(self, head: Head) -> Steps[bool]:
        """Whether something has changed since the last file."""
        last, segments = self._last, list_segments(self._origin.journal.root)
        if last is None or (last.root, last.epoch) != (head.root, head.epoch):
            return True
        if not segments or segments[0][0] > last.event + 1:  # the journal does not reach back so far
            return True
        for number, (_, path) in enumerate(segments, 1):
            if number < len(segments) and segments[number][0] <= last.event + 1:
                continue
            for line in read_lines(path):
                yield
                if line.event and line.id > last.event and line.event["type"] not in _IDLE:
                    return True
        return False

    def _write(self, name: str) -> Steps[None]:
        settings, state_files = self._settings, self._directory
        most = settings.snapshots_max_bytes
        size = yield from self._estimate()
        if size > most:
            raise OSError(errno.EFBIG, f"it has about {size} bytes, more than snapshots.maxBytes ({most})")

        def check_room(more: int) -> None:
            if state_files.free_bytes() < settings.storage_min_free_bytes + more:
                raise OSError(errno.ENOSPC, "the free space is reserved for messages (storage.minFreeBytes)")

        with state_files.opened():
            check_room(2 * size)
        self._last, totals = yield from write_file(self._origin, state_files, name, most, check_room)
        log.info("snapshots: %s: %d messages of %d queues, %d bytes", name, totals.messages, totals.queues, totals.size)

    def _estimate(self) -> Steps[int]:
        """The estimated size of a file (bytes)."""
        size, after, names = 0, "", [""]
        while names:
            with self._origin.reading() as store:
                names = store.pages.queue_names(after, _QUEUES)
                for name in names:
                    record = store.queue(name)
                    if record:
                        size += record.bytes + sum(record.counts.values()) * _MESSAGE_BYTES
            after = names[-1] if names else ""
            yield
        return size


def _is_due(looked: Now, now: Now) -> bool:
    """Whether another hour has begun; if the wall clock shows the same hour again, once an hour has passed."""
    passed_ms = now.engine - looked.engine
    return not 0 <= passed_ms < (HOUR_MS if name_of(looked.wall) == name_of(now.wall) else _LEAST_MS)
