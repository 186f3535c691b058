"""An open root: one instance, its journal and store brought together, and everything that works on them."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom_common.errors import PostroomError

from .attempt import Parts
from .broker import Broker
from .clock import Clock
from .config import Config, Settings
from .files import Files
from .ids import Ids
from .journal import Journal, JournalRefused, JournalUnknown
from .policies import Policies
from .quarantine import Quarantine
from .recovery import Recovery
from .repeats import Repeats
from .stores import fs_names
from .stores.base import Store, StoreDamaged, StoreError
from .stores.filesystem import FilesystemStore
from .stores.hybrid import HybridStore
from .stores.memory import MemoryStore
from .stores.sqlite import SqliteStore
from .traffic import TrafficLog
from .vitals import DaemonVitals

log = logging.getLogger(__name__)

LOCK_NAME = "postroomd.lock"


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
    locks: ExitStack

    def close(self) -> None:
        """Let go of everything. Nothing is written."""
        if self.traffic:
            self.traffic.close()
        self.store.close()
        self.journal.close()
        self.locks.close()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a root takes from outside: files, time, randomness. A test gives its own."""

    files: Files = field(default_factory=Files)
    clock: Callable[[], Clock] = Clock
    ids: Ids = field(default_factory=Ids)


def open_root(config: Config, sources: Sources, rewrite_journal: bool = False, refold: bool = False) -> OpenRoot:
    """Bring a root to the state that its journal tells.

    ``rewrite_journal`` after a sync that failed: what can be read may not be on the disk. ``refold`` when the store was
    found damaged: it is set aside, and folded anew. Raises ``StartError``.
    """
    files = sources.files
    with ExitStack() as locks:
        try:
            # The journal is the truth: whoever holds it is alone, wherever its directory lies.
            for directory in dict.fromkeys((config.root, config.settings.journal_root)):
                locks.callback(os.close, _lock(directory, files))
            if rewrite_journal:
                _journal(config, files).rewrite_last()
            if refold:
                _set_store_aside(config, files)
            try:
                return _open(config, sources, locks)
            except StoreDamaged as error:
                log.error("%s: the store is set aside and folded anew from the journal", error)
                _set_store_aside(config, files)
                return _open(config, sources, locks)
        except (OSError, StoreError, JournalRefused, JournalUnknown) as error:
            raise StartError(f"{config.root}: {error}") from error


def _lock(directory: Path, files: Files) -> int:
    """The lock that makes this process the only one. It ends with the process; what the file holds does not matter."""
    files.close(files.open_directory(directory))
    fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StartError(f"{directory}: another postroomd works on this root; stop it first") from None
    return fd


def _open(config: Config, sources: Sources, locks: ExitStack) -> OpenRoot:
    settings, files = config.settings, sources.files
    with ExitStack() as opened:
        journal = _journal(config, files)
        opened.callback(journal.close)
        journal.open()
        store = _make_store(config, files)
        store.open()
        opened.callback(store.close)
        clock, repeats = sources.clock(), Repeats()
        recovery = Recovery(store, journal, _quarantine(config, files), repeats, sources.ids)
        recovery.run(clock)
        policies = Policies(config.defaults, {name: queue.policy for name, queue in config.queues.items()})
        traffic = _traffic(settings, files)
        vitals = DaemonVitals(journal, traffic, settings, recovery.missing)
        parts = Parts(
            store,
            journal,
            clock,
            policies,
            vitals,
            repeats,
            recovery.root_id,
            recovery.epoch,
            os.geteuid(),
            sources.ids,
        )
        broker = Broker(parts, sync_each_group=settings.journal_durability == "commit")
        opened.pop_all()  # they are the caller's from here
        return OpenRoot(broker, vitals, traffic, store, journal, clock, locks.pop_all())


def _quarantine(config: Config, files: Files) -> Quarantine:
    return Quarantine(config.root / "quarantine", files)


def _journal(config: Config, files: Files) -> Journal:
    settings = config.settings
    return Journal(settings.journal_root, files, _quarantine(config, files), settings.journal_segment_bytes)


def _set_store_aside(config: Config, files: Files) -> None:
    for path in _make_store(config, files).files():
        _quarantine(config, files).keep_file(path, "a store that cannot be read")


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
    options: dict[str, Any] = {
        "kv": settings.sqlite_kv_table,
        "msg": settings.sqlite_message_index_table,
        "synchronous": settings.sqlite_synchronous,
        "busy_ms": settings.sqlite_busy_timeout_ms,
    }
    if settings.backend == HybridStore.name:
        apart, inline_below = settings.hybrid_payload_root, settings.hybrid_inline_below_bytes
        return HybridStore(settings.sqlite_db_path, files, apart, inline_below, **options)
    return SqliteStore(settings.sqlite_db_path, **options)


def _traffic(settings: Settings, files: Files) -> TrafficLog | None:
    if not settings.traffic_enabled:
        return None
    return TrafficLog(
        settings.traffic_root, files, settings.traffic_file_bytes, settings.traffic_files, settings.traffic_sample_every
    )
