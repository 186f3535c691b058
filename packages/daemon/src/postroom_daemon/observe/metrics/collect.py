"""Collects all metrics of the daemon."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from postroom_common.exposition import Exposition
from postroom_common.protocol import Command, ErrorCode

from ...config.settings import Settings
from ...journal.journal import Journal
from ...journal.reserve import Reserve
from ...journal.segments import list_segments
from ...model.consumers import Consumers
from ...model.facts import FACT_DRAINING, FACT_LOSSES
from ...platform import logs
from ...platform.clock import Now
from ...platform.quarantine import Quarantine
from ...stores.backends import layout_of
from ...stores.base import Store
from ..counters import Counters
from . import table
from .queues import add_queues, reading

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_NS: Final = 1e-9


class VitalsView(Protocol):
    """The part of ``DaemonVitals`` that is needed here."""

    version: str
    settings: Settings
    started_wall: int
    counters: Counters
    journal: Journal
    checkpointed: int
    reserve: Reserve
    quarantine: Quarantine
    consumers: Consumers
    quota_refusals: Mapping[str, int]

    @property
    def traffic_lines_lost(self) -> int: ...

    @property
    def traffic_lines_suppressed(self) -> int: ...

    def door_figures(self) -> dict[str, dict[str, int]]: ...

    def health(self, store: Store, now: Now) -> dict[str, Any]: ...


def collect(vitals: VitalsView, store: Store, now: Now, shows: Callable[[str], bool]) -> Generator[None, None, str]:
    """Generate the text in steps of a few milliseconds each, to be run outside of transactions. Only queues for which
    ``shows`` is true have metrics of their own. Raises what ``reading`` raises."""
    out = Exposition()
    with reading(store):
        checks: dict[str, Any] = vitals.health(store, now)["checks"]
        losses, draining = store.facts.get(FACT_LOSSES) or [], bool(store.facts.get(FACT_DRAINING))
    out.add(table.UP, 1)
    _add_daemon(out, vitals, now)
    out.add_all(table.CHECK_OK, ((name, check["ok"]) for name, check in checks.items()))
    out.add(table.LOST_EVENTS, sum(last - first + 1 for first, last in losses))
    out.add(table.DRAINING, draining)
    _add_requests(out, vitals)
    _add_journal(out, vitals, store)
    _add_cluster(out, vitals)
    _add_disks(out, vitals)
    _add_logs(out, vitals)
    _add_process(out)
    yield from add_queues(out, store, vitals.consumers, now.engine, vitals.settings.metrics_queues, shows)
    return out.text()


def stopped() -> str:
    """The text after a clean stop."""
    out = Exposition()
    out.add(table.UP, 0)
    return out.text()


def _add_daemon(out: Exposition, vitals: VitalsView, now: Now) -> None:
    settings = vitals.settings
    out.add(table.BUILD_INFO, 1, vitals.version, settings.backend, settings.journal_durability, settings.node_id)
    out.add(table.COLLECTED, now.wall / 1000)
    out.add(table.STARTED, vitals.started_wall / 1000)


def _add_requests(out: Exposition, vitals: VitalsView) -> None:
    counters, mailbox = vitals.counters, vitals.door_figures()["mailbox"]
    out.add_all(table.REQUESTS, ((command.value, counters.commands.get(command, 0)) for command in Command))
    out.add_all(table.ERRORS, ((code.value, counters.codes.get(code, 0)) for code in ErrorCode))
    out.add(table.SET_ASIDE, mailbox.get("setAside", 0))
    out.histogram(table.REQUEST_SECONDS, counters.request_ns, _NS)
    out.histogram(table.REQUEST_AGE, counters.request_age_ms, 0.001)
    out.histogram(table.GROUP_REQUESTS, counters.group_requests, 1)
    out.add_all(table.EVENTS, sorted(counters.events().items()))
    lease = counters.lease_to_ack
    quantiles = ((fraction, lease.percentile(fraction)) for fraction in (0.5, 0.9, 0.99))
    values = [(fraction, value / 1000) for fraction, value in quantiles if value is not None]
    out.summary(table.LEASE_TO_ACK, values, lease.total / 1000, lease.count)
    out.add(table.WAITING, mailbox.get("waiting", 0))
    out.add(table.HELD_FILES, mailbox.get("held", 0))
    out.add(table.STRAYS, mailbox.get("straysRemoved", 0))
    out.add_all(table.QUOTA_REFUSALS, vitals.quota_refusals.items())
    out.add(table.UNANSWERABLE, mailbox.get("unanswerable", 0))
    out.add(table.PARKED, mailbox.get("parked", 0))
    out.add(table.DEAD_FILES, mailbox.get("dead", 0))


def _add_journal(out: Exposition, vitals: VitalsView, store: Store) -> None:
    journal = vitals.journal
    out.histogram(table.SYNC_SECONDS, journal.sync_ns, _NS)
    out.add(table.LAST_EVENT, journal.last_id)
    out.add(table.UNFOLDED, journal.last_id - store.applied)
    out.add(table.LAG, journal.last_id - vitals.checkpointed)
    segments = list_segments(journal.root)
    out.add(table.JOURNAL_FILES, len(segments))
    out.add(table.JOURNAL_BYTES, sum(path.stat().st_size for _, path in segments))


def _add_cluster(out: Exposition, vitals: VitalsView) -> None:
    figures = vitals.door_figures().get("cluster")
    if figures:
        out.add(table.CLUSTER_LEADS, figures["leads"])
        out.add(table.CLUSTER_EPOCH, figures["epoch"])
        out.add(table.CLUSTER_LAG, figures["pending"])


def _add_disks(out: Exposition, vitals: VitalsView) -> None:
    for name, path in _directories(vitals.settings):
        try:
            disk = os.statvfs(path)
        except OSError:
            continue  # it does not exist yet
        out.add(table.DISK_FREE, disk.f_bavail * disk.f_frsize, name)
        out.add(table.DISK_SIZE, disk.f_blocks * disk.f_frsize, name)
        out.add(table.INODES_FREE, disk.f_favail, name)
        out.add(table.INODES, disk.f_files, name)
    out.add(table.DISK_MINIMUM, vitals.settings.storage_min_free_bytes)
    out.add(table.HELD_BACK, vitals.reserve.bytes)
    out.add(table.QUARANTINE_FILES, vitals.quarantine.file_count())
    out.add(table.QUARANTINE_BYTES, vitals.quarantine.total_bytes())


def _directories(settings: Settings) -> Iterator[tuple[str, Path]]:
    yield "journal", settings.journal_root
    yield "mailbox", settings.ipc_root
    layout = layout_of(settings)
    if layout.database:
        yield "store", layout.database.parent
    if layout.bodies:
        yield "bodies", layout.bodies
    if layout.messages:
        yield "store", layout.messages


def _add_logs(out: Exposition, vitals: VitalsView) -> None:
    figures = logs.figures()
    out.add_all(table.LOG_RECORDS, ((level, figures["records"].get(level, 0)) for level in _LEVELS))
    out.add(table.LOG_SUPPRESSED, figures["suppressed"])
    out.add(table.LOG_LOST, figures["lost"])
    out.add(table.TRAFFIC_LOST, vitals.traffic_lines_lost)
    out.add(table.TRAFFIC_HELD_BACK, vitals.traffic_lines_suppressed)


def _add_process(out: Exposition) -> None:
    """Add CPU time, memory and open files, as far as the system reports them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    out.add(table.CPU_SECONDS, used.ru_utime + used.ru_stime)
    out.add(table.MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        with open("/proc/self/statm", "rb") as file:
            out.add(table.MEMORY, int(file.read().split()[1]) * resource.getpagesize())
        out.add(table.OPEN_FDS, len(os.listdir("/proc/self/fd")))
    except OSError:  # no /proc: not Linux
        pass
