"""An open root: locks, journal and store, recovered, with the broker and everything it uses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from postroom_common.errors import PostroomError
from postroom_common.notify import UNMEASURED_S, notify_busy
from postroom_common.protocol import State

from ..broker.broker import Broker, GroupLimits
from ..broker.engine_state import EngineState
from ..broker.idempotency import Idempotency
from ..broker.role import Leader
from ..config.config import Config
from ..config.settings import Settings
from ..engine.context import Draft
from ..journal.journal import Journal, JournalRefused, JournalUnknown
from ..journal.order import Owner
from ..journal.reserve import Reserve
from ..journal.segments import list_segments
from ..model.consumers import Consumers
from ..model.facts import FACT_EPOCH, FACT_LOADING, FACT_POLICY_PATTERNS
from ..model.usage import Usage
from ..observe.traffic import Refusals, TrafficLog
from ..observe.vitals import DaemonVitals
from ..platform.clock import Clock
from ..platform.files import FULL_ERRNOS, Files
from ..platform.ids import Ids
from ..platform.quarantine import Quarantine
from ..policy.access import Access
from ..policy.policies import Policies, compiled_policy_patterns
from ..policy.quotas import Quotas
from ..stores.backends import make_store
from ..stores.base import Cursor, Store
from ..stores.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from .cpp_data import missing_import
from .divergent import Divergent
from .locks import RootBusy, WrongOwner, lock_root, lock_store
from .preflight import hindrance
from .recovery import Recovery
from .swap import SwapInterrupted

log = logging.getLogger(__name__)


class StartError(PostroomError):
    """The root cannot be opened; the text says why and what to do. ``full``: only disk space is lacking."""

    def __init__(self, text: str, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


@dataclass(slots=True)
class OpenRoot:
    """A root that is ready to serve requests."""

    broker: Broker
    vitals: DaemonVitals
    traffic: TrafficLog | None
    store: Store
    journal: Journal
    clock: Clock
    reserve: Reserve
    access: Access
    quotas: Quotas
    locks: ExitStack
    found: list[Draft]
    """What the start of a member of a cluster has found, and has not recorded."""

    def close(self) -> None:
        """Close everything. Nothing is written."""
        if self.traffic:
            self.traffic.close()
        self.store.close()
        self.store.logs.close()
        self.journal.close()
        self.reserve.close()
        self.locks.close()


@dataclass(frozen=True, slots=True)
class Sources:
    """File calls, clock and ids of a root. Tests pass their own."""

    files: Files = field(default_factory=Files)
    clock: Callable[[], Clock] = Clock
    ids: Ids = field(default_factory=Ids)


def open_root(
    config: Config, sources: Sources, rewrite_journal: bool = False, refold: bool = False, lead: int = 0
) -> OpenRoot:
    """Lock a root and bring its store up to its journal.

    ``rewrite_journal``: a sync has failed, and what can be read may not be on the disk. ``refold``: the store is
    damaged, so it is set aside and folded from scratch. A member of a cluster follows, unless ``lead`` is the epoch in
    which it leads. Raises ``StartError``.
    """
    files = sources.files
    with ExitStack() as locks:
        try:
            problem = hindrance(config) or missing_import(config)
            if problem:
                raise StartError(problem)
            locks.enter_context(lock_root(config, files))
            if rewrite_journal:
                _journal(config, files).rewrite_last()
            if refold:
                _set_store_aside(config, files)
            reserve = _reserve(config, files)
            locks.callback(reserve.close)
            return _open_with_reserve(config, sources, reserve, locks, lead)
        except (RootBusy, WrongOwner, StoreBusy, SwapInterrupted) as error:
            raise StartError(str(error)) from error
        except (OSError, StoreError, JournalRefused, JournalUnknown) as error:
            raise StartError(f"{config.root}: {error}", _lacks_space(error)) from error


def _open_with_reserve(config: Config, sources: Sources, reserve: Reserve, locks: ExitStack, lead: int) -> OpenRoot:
    """Open it, with space of the reserve if the disk is full."""
    salvage = True
    while True:
        try:
            return _open(config, sources, reserve, locks, lead)
        except StoreDamaged as error:
            log.error("%s: the store is set aside and folded from the journal again", error)
            _set_store_aside(config, sources.files, salvage)
            salvage = False  # if the salvaged store is damaged as well, do without it
        except (OSError, StoreError, JournalRefused) as error:
            if not (_lacks_space(error) and reserve.release()):
                raise


def _lacks_space(error: BaseException) -> bool:
    match error:
        case OSError():
            return error.errno in FULL_ERRNOS
        case JournalRefused():
            return error.full
    return isinstance(error, StoreFull)


def _open(config: Config, sources: Sources, reserve: Reserve, locks: ExitStack, lead: int) -> OpenRoot:
    settings, files = config.settings, sources.files
    is_member = settings.cluster_enabled
    with ExitStack() as opened:
        notify_busy("opening the store", UNMEASURED_S)
        store = make_store(config.settings, files, _quarantine(config, files))
        store.open()
        opened.callback(store.close)
        if store.facts.get(FACT_LOADING):
            raise StartError(f"{config.root}: the store was not loaded to its end: repeat the restore or the migration")
        store.logs.open()
        opened.callback(store.logs.close)
        journal = _journal(config, files)
        opened.callback(journal.close)
        journal.open(_owner(store))
        if is_member and not lead:  # a node that is to lead follows already, and has only what is confirmed
            Divergent(settings.journal_root, files).set_last_group_aside(journal, store, _owner(store))
        clock, idempotency = sources.clock(), Idempotency()
        notify_busy("reading the journal")
        recovery = Recovery(store, journal, _quarantine(config, files), idempotency, sources.ids, is_member)
        recovery.run(clock)
        if is_member:
            Divergent(settings.journal_root, files).note_member(store)
        policies = Policies(config.defaults, config.queues, config.patterns)
        policies.use_policy_patterns(compiled_policy_patterns(store.facts.get(FACT_POLICY_PATTERNS) or []))
        traffic = _traffic(settings, files)
        vitals = DaemonVitals(clock, journal, traffic, reserve, settings, recovery.missing, _quarantine(config, files))
        vitals.checkpointed = store.applied  # an upper bound; the first checkpoint corrects it
        access = Access(config.access, os.geteuid(), config.accounts)
        quotas = Quotas(settings, os.geteuid(), config.quotas, access)
        vitals.quota_refusals = quotas.refused
        vitals.consumers = _consumers(store)
        state = EngineState(
            store=store,
            journal=journal,
            clock=clock,
            policies=policies,
            vitals=vitals,
            idempotency=idempotency,
            reserve=reserve,
            root_id=recovery.root_id or (sources.ids.root() if lead else ""),
            epoch=lead or recovery.epoch,
            daemon_uid=os.geteuid(),
            ids=sources.ids,
            access=access,
            quotas=quotas,
            consumers=vitals.consumers,
            usage=Usage(store.applied) if settings.limits_user_stored_bytes or config.quotas else None,
        )
        broker = Broker(state, group_limits(settings), sync_each_group=settings.journal_durability == "commit")
        vitals.waiting = lambda: broker.subscriptions.count
        if is_member and not lead:
            broker.role.leader = Leader()
            broker.role.uncertain = Divergent(settings.journal_root, files).requests_behind(journal.last_id)
            broker.role.shown_up_to = recovery.shown_up_to
        opened.pop_all()  # the caller closes them
        reserve.tick()
        return OpenRoot(
            broker, vitals, traffic, store, journal, clock, reserve, access, quotas, locks.pop_all(), recovery.found
        )


def group_limits(settings: Settings) -> GroupLimits:
    """The limits of a group by the settings."""
    return GroupLimits(settings.limits_group_requests, settings.limits_group_bytes, settings.limits_user_turn_requests)


def _consumers(store: Store) -> Consumers:
    """Who has how many messages leased at the start."""
    consumers = Consumers()
    after: Cursor = ()
    store.begin()
    while True:
        page, after = store.pages.scan("", State.INFLIGHT, after, 1000)
        consumers.add_leased(page)
        if not after:
            break
    store.rollback()
    return consumers


def _reserve(config: Config, files: Files) -> Reserve:
    """The reserve of the journal's file system; it also watches the store's, if that is another one."""
    settings = config.settings
    directory, device = settings.journal_root, settings.journal_root.stat().st_dev
    stores = (
        settings.sqlite_db_path.parent,
        settings.filesystem_root,
        settings.hybrid_payload_root,
        settings.logs_root,
    )
    others = [path for path in stores if path.is_dir() and path.stat().st_dev != device]
    reserve = Reserve(directory, files, settings.storage_reserve_bytes, others)
    reserve.open()
    return reserve


def _quarantine(config: Config, files: Files) -> Quarantine:
    return Quarantine(config.quarantine_root, files)


def _journal(config: Config, files: Files) -> Journal:
    settings = config.settings
    return Journal(settings.journal_root, files, _quarantine(config, files), settings.journal_segment_bytes)


def _owner(store: Store) -> Owner | None:
    known = store.facts.get(FACT_EPOCH)
    return Owner(known["root"], known["epoch"], store.applied) if known else None


def _set_store_aside(config: Config, files: Files, salvage: bool = True) -> None:
    store = make_store(config.settings, files, _quarantine(config, files))
    if salvage:
        store.recovery.salvage(next((first for first, _ in list_segments(config.settings.journal_root)), None))
    with lock_store(files, *store.disk.files()):
        for path in store.disk.files():
            _quarantine(config, files).move_in(path, "a store that cannot be read")


def _traffic(settings: Settings, files: Files) -> TrafficLog | None:
    if not settings.traffic_enabled:
        return None
    return TrafficLog(
        settings.traffic_root,
        files,
        settings.traffic_file_bytes,
        settings.traffic_files,
        settings.traffic_sample_every,
        Refusals(settings.traffic_refusals_per_minute),
    )
