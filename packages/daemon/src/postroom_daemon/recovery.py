"""Opening a root: one instance, journal and store brought together, clocks and answers remembered.

The journal decides. What the store lacks is folded into it; if the store is ahead (its events were lost with a
segment), numbering continues after the store's last event, and a ``gap`` event says so.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from postroom_common.errors import DamagedRecord, PostroomError
from postroom_common.events import JOURNAL_FORMAT, Event, EventType, decode_event

from .broker import Broker
from .clock import Clock, Mark, Now
from .config import Config, Settings
from .context import Draft
from .files import Files
from .fold import FACT_CLOCK, FACT_EPOCH, apply
from .group import Group
from .journal import Journal, JournalRefused
from .lifecycle import IllegalTransition
from .policies import Policies
from .quarantine import Quarantine
from .repeats import REMEMBERED_AFTER_RESTART, Repeats, key_of_event
from .segments import Damage, list_segments
from .stores import fs_names
from .stores.base import NotStored, Store, StoreDamaged, StoreError
from .stores.filesystem import FilesystemStore
from .stores.memory import MemoryStore
from .stores.sqlite import SqliteStore
from .traffic import TrafficLog
from .vitals import DaemonVitals

log = logging.getLogger(__name__)

LOCK_NAME = "postroomd.lock"
#: Requests that a replay folds in one store transaction.
REPLAY_BATCH = 1000


class StartError(PostroomError):
    """The daemon cannot start; the text says why and what to do."""


@dataclass(slots=True)
class OpenRoot:
    """A root that is ready for work."""

    broker: Broker
    vitals: DaemonVitals
    traffic: TrafficLog | None
    store: Store
    journal: Journal
    clock: Clock
    lock: int

    def close(self) -> None:
        """Let go of everything. Nothing is written."""
        if self.traffic:
            self.traffic.close()
        self.store.close()
        self.journal.close()
        os.close(self.lock)


def lock_root(root: Path) -> int:
    """The lock that makes this process the only one on a root. It ends with the process; what the file holds does not
    matter. Raises ``StartError``."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"{root}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StartError(f"{root}: another postroomd works on this root; stop it first") from None
    return fd


def open_root(config: Config, files: Files, rewrite_journal: bool = False, refold: bool = False) -> OpenRoot:
    """Bring a root to the state that its journal tells.

    ``rewrite_journal`` after a sync that failed: what can be read may not be on the disk. ``refold`` when the store was
    found damaged: it is set aside, and folded anew. Raises ``StartError``.
    """
    with ExitStack() as opened:
        lock = lock_root(config.root)
        opened.callback(os.close, lock)
        try:
            if rewrite_journal:
                _journal(config, files).rewrite_last()
            try:
                if refold:
                    raise StoreDamaged("the store")
                root = _open(config, files, lock)
            except StoreDamaged as error:
                log.error("%s is damaged; it is set aside and folded anew from the journal", error)
                for path in _make_store(config, files).files():
                    _quarantine(config, files).keep_file(path, "a store that cannot be read")
                root = _open(config, files, lock)
        except (OSError, StoreError, JournalRefused) as error:
            raise StartError(f"{config.root}: {error}") from error
        opened.pop_all()  # it is the caller's from here
    return root


def _open(config: Config, files: Files, lock: int) -> OpenRoot:
    with ExitStack() as opened:
        root = _bring_together(config, files, lock, opened)
        opened.pop_all()
    return root


def _bring_together(config: Config, files: Files, lock: int, opened: ExitStack) -> OpenRoot:
    settings = config.settings
    journal = _journal(config, files)
    opened.callback(journal.close)
    journal.open()
    store = _make_store(config, files)
    store.open()
    opened.callback(store.close)
    clock = Clock()
    repeats = Repeats()
    recovery = _Recovery(store, journal, _quarantine(config, files), repeats)
    recovery.replay()
    recovery.resume(clock)
    epoch = recovery.settle(clock)
    policies = Policies(config.defaults, {name: queue.policy for name, queue in config.queues.items()})
    traffic = _traffic(settings, files)
    vitals = DaemonVitals(
        journal,
        traffic,
        settings.storage_min_free_bytes,
        settings.node_id,
        settings.backend,
        settings.journal_durability,
    )
    broker = Broker(
        store,
        journal,
        clock,
        policies,
        vitals,
        repeats,
        epoch,
        daemon_uid=os.geteuid(),
        sync_each_group=settings.journal_durability == "commit",
    )
    return OpenRoot(broker, vitals, traffic, store, journal, clock, lock)


def _quarantine(config: Config, files: Files) -> Quarantine:
    return Quarantine(config.root / "quarantine", files)


def _journal(config: Config, files: Files) -> Journal:
    settings = config.settings
    return Journal(settings.journal_root, files, _quarantine(config, files), settings.journal_segment_bytes)


def _make_store(config: Config, files: Files) -> Store:
    settings = config.settings
    if settings.backend == MemoryStore.name:
        return MemoryStore()
    if settings.backend == FilesystemStore.name:
        folders = {
            fs_names.READY: settings.filesystem_inbox_dir,
            fs_names.DELAYED: settings.filesystem_delayed_dir,
            fs_names.INFLIGHT: settings.filesystem_processing_dir,
            fs_names.DEAD: settings.filesystem_dlq_dir,
            fs_names.DONE: settings.filesystem_archive_dir,
        }
        quarantine = _quarantine(config, files)
        return FilesystemStore(settings.filesystem_root, files, quarantine, folders, settings.filesystem_meta_dir)
    return SqliteStore(
        settings.sqlite_db_path,
        settings.sqlite_kv_table,
        settings.sqlite_message_index_table,
        settings.sqlite_synchronous,
        settings.sqlite_busy_timeout_ms,
    )


def _traffic(settings: Settings, files: Files) -> TrafficLog | None:
    if not settings.traffic_enabled:
        return None
    return TrafficLog(
        settings.traffic_root, files, settings.traffic_file_bytes, settings.traffic_files, settings.traffic_sample_every
    )


class _Recovery:
    """One pass over the journal's end: folds what the store lacks, remembers answers, finds how the clocks stood."""

    def __init__(self, store: Store, journal: Journal, quarantine: Quarantine, repeats: Repeats) -> None:
        self.mark: Mark | None = None
        self.last = Now(0, 0)
        self._store = store
        self._journal = journal
        self._quarantine = quarantine
        self._repeats = repeats
        self._folded = 0
        self._epoch = 0
        self._clean = False  # the last event says that the daemon stopped in order
        self._moved: list[str] = []
        self._damage: list[Damage] = []

    def replay(self) -> None:
        """Do the pass. Raises ``OSError`` or ``StoreError``."""
        store, journal = self._store, self._journal
        missing = store.applied + 1
        first = list_segments(journal.root)[:1]
        if first and first[0][0] > missing:
            log.error("events %d to %d are in neither store nor journal", missing, first[0][0] - 1)
        was_current = store.applied == journal.last_id
        begin = max(1, min(missing, journal.last_id - REMEMBERED_AFTER_RESTART))
        store.begin()
        for request in journal.requests_from(begin, self._damage.append):
            self._note(request)
            if request[-1]["id"] > store.applied:
                self._fold(request)
                if self._folded % REPLAY_BATCH == 0:
                    store.commit()
                    store.begin()
        store.commit()
        self._moved = store.caught_up(clean=self._clean and was_current)
        self._quarantine_damage()
        if self._folded:
            log.info("folded %d requests from the journal, up to event %d", self._folded, store.applied)

    def _note(self, request: list[Event]) -> None:
        last = request[-1]
        self.last = Now(last["engineMs"], last["wallMs"])
        self._epoch = last["epoch"]
        key = key_of_event(last)
        if key:
            self._repeats.remember(key, last["id"])
        self._clean = last.get("clean", False)
        for event in request:
            if event["type"] == EventType.CLOCK_MARKED:
                self.mark = _mark_of(event)

    def _fold(self, request: list[Event]) -> None:
        for event in request:
            try:
                apply(event, self._store)
            except (NotStored, IllegalTransition, KeyError) as error:
                # What it builds on was damaged: the event stays in the journal, the rest goes on.
                log.error("event %d cannot be folded: %s", event["id"], error)
                self._store.applied = event["id"]
        self._folded += 1

    def _quarantine_damage(self) -> None:
        """Copy what is damaged, each stretch as one file. It stays in the journal: a full disk is no reason not to
        start."""
        stretches: list[Damage] = []
        for damage in self._damage:
            last = stretches[-1] if stretches else None
            if last and last.segment == damage.segment and last.offset + len(last.data) == damage.offset:
                stretches[-1] = last._replace(data=last.data + damage.data)
            else:
                stretches.append(damage)
        for stretch in stretches:
            try:
                self._quarantine.keep(f"{stretch.segment.name}.{stretch.offset}", stretch.data, stretch.reason)
            except OSError as error:
                log.error("quarantine: %s at %d: %s", stretch.segment, stretch.offset, error)

    def resume(self, clock: Clock) -> None:
        """Let engine time go on after what the journal tells, and the store where it knows more. Raises ``OSError``."""
        kept = self._store.fact(FACT_CLOCK)
        marks = [self.mark or _last_mark(self._journal.root), _mark_of(kept) if kept else None]
        mark = max((mark for mark in marks if mark), key=lambda mark: mark.engine, default=None)
        clock.resume(mark, max(self.last, Now(mark.engine, mark.wall)) if mark else self.last)

    def settle(self, clock: Clock) -> int:
        """Write what a new root, or a store that is ahead, has to say first. The epoch to go on with."""
        drafts: list[Draft] = []
        if self._store.applied > self._journal.last_id:
            log.error(
                "the store is at event %d, the journal ends at %d: going on after the store's",
                self._store.applied,
                self._journal.last_id,
            )
            drafts.append({"type": EventType.GAP, "after": self._journal.last_id, "next": self._store.applied + 1})
            self._journal.last_id = self._store.applied
            self._journal.roll()
        known = self._store.fact(FACT_EPOCH)
        epoch = known["epoch"] if known else self._epoch + 1
        if known is None:
            # If the journal's beginning is gone as well, what is left cannot be told from a copy: it is a new root.
            reason = "rebuilt from a part of the journal" if self._epoch else "new root"
            root = str(uuid.uuid4())
            drafts.append({"type": EventType.EPOCH_STARTED, "root": root, "reason": reason, "format": JOURNAL_FORMAT})
        for key in self._moved:
            queue = self._store.get(key)
            log.warning("%s was put back among the ready messages by hand: it is reprocessed", key)
            drafts.append({"type": EventType.REPROCESSED, "queue": queue.queue, "key": key, "reason": "moved by hand"})
        if drafts:
            self._write(drafts, clock, epoch)
        return int(epoch)

    def _write(self, drafts: list[Draft], clock: Clock, epoch: int) -> None:
        now = clock.now()
        group = Group(self._store, now, epoch, self._journal.last_id)
        self._store.begin()
        for draft in drafts:
            group.record([draft])
        group.record([{"type": EventType.CLOCK_MARKED, **clock.mark_fields(now)}])
        if self._journal.wants_roll():
            self._journal.roll()
        self._journal.append(group.encode(), group.last_id)
        self._journal.sync()
        self._store.commit()


def _last_mark(root: Path) -> Mark | None:
    """The last clock mark of the last segment that has one (each begins with one)."""
    for _, path in reversed(list_segments(root)):
        found = None
        with path.open("rb") as file:
            for line in file:
                if b'"clock_marked"' in line:
                    try:
                        found = _mark_of(decode_event(line))
                    except (DamagedRecord, KeyError):
                        continue
        if found:
            return found
    return None


def _mark_of(event: Event) -> Mark:
    return Mark(event["bootId"], event["bootMs"], event["engineMs"], event["wallMs"])
