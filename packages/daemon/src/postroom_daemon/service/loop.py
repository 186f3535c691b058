"""The daemon's loop: one selector, one thread. Doors, groups, timers, reloads.

A failure that leaves the disk's state unknown ends the loop without an answer to anyone, and the root is opened again:
the requests are still at the doors, and recovery decides which of them were executed.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import Final

from postroom_common.notify import Watchdog, notify, notify_busy, notify_reloading

from ..broker.failures import MustRecover, NotConfirmed
from ..config.config import Config
from ..config.settings import Settings
from ..doors.base import Door, DoorLost, DoorReplaced
from ..doors.cluster import Cluster, RoleChanged
from ..doors.lane import Lane, Senders
from ..doors.mailbox import Mailbox, file_name, mailbox_problem
from ..journal.journal import JournalUnknown
from ..maintenance.system.permissions import permission_warnings
from ..observe.metrics.textfile import MetricsFile
from ..observe.state_files import Snapshots
from ..platform import logs
from ..platform.clock import Clock
from ..platform.files import FULL_ERRNOS
from ..platform.signals import Signals
from ..root.open_root import OpenRoot, Sources, StartError, open_root
from ..stores.errors import StoreDamaged, StoreError
from .checkpoints import Checkpoints
from .fuller_groups import FullerGroups
from .reload import Reloading, put_in_force
from .status_line import StatusLine

__all__ = ["StartError", "serve"]

log = logging.getLogger(__name__)

#: Requests make many objects and no cycles: the garbage collector runs rarely.
GC_THRESHOLD: Final = (20_000, 20, 20)
#: A run that lasted this long (s) was a successful start.
SUCCESSFUL_RUN_S: Final = 60.0
#: Pauses before a restart after the disk failed (s); the last one is repeated.
RESTART_PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)


def serve(config: Config, read_again: Callable[[], Config], clock: Callable[[], Clock] = Clock) -> int:
    """Serve all doors until SIGTERM or SIGINT. Returns the exit code.

    SIGHUP reloads the configuration, which ``read_again`` reads; if it means that the terminal was closed, it stops the
    daemon. ``clock`` makes the clock of each run between opening the root and closing it.

    Raises ``StartError`` when the root cannot be opened, ``DoorLost`` when a door is gone and this process cannot open
    it again.
    """
    os.umask(0o022)
    faulthandler.enable(file=2)  # the watchdog ends a daemon that hangs by SIGABRT: the log shows where it hung
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GC_THRESHOLD)
    signals = Signals()
    reloading = Reloading(config, read_again)
    sources = Sources(clock=clock)
    doubt = _Doubt()
    cluster = Cluster(config.settings, sources.files) if config.settings.cluster_enabled else None
    try:
        while True:
            started = time.monotonic()
            try:
                _run_once(reloading, sources, signals, doubt, cluster)
                return 0
            except (RoleChanged, NotConfirmed) as changed:
                log.warning("%s", changed)
                continue
            except StartError as error:
                if not (doubt.failures or error.full):
                    raise
                log.critical("%s%s", error, "; it goes on once there is space" if error.full else "")
            except DoorReplaced as replaced:
                log.warning("%s", replaced)
                _warn_of_permissions(reloading.config)
                continue
            except (MustRecover, JournalUnknown, StoreError) as failure:
                log.critical("%s; nobody was answered, starting again from the journal", failure)
                doubt.rewrite_journal |= isinstance(failure, JournalUnknown)
                doubt.refold |= isinstance(failure, StoreDamaged)
            if time.monotonic() - started > SUCCESSFUL_RUN_S:
                doubt.failures = 0
            notify_busy("starting again")
            if signals.wait(RESTART_PAUSES_S[min(doubt.failures, len(RESTART_PAUSES_S) - 1)]):
                return 1
            doubt.failures += 1
    finally:
        signals.close()
        if cluster:
            cluster.close()


def _warn_of_permissions(config: Config) -> None:
    for warning in permission_warnings(config):
        log.warning("%s", warning)


@dataclass(slots=True)
class _Doubt:
    """What must not be trusted when the root is opened again."""

    failures: int = 0
    rewrite_journal: bool = False
    refold: bool = False


def _run_once(reloading: Reloading, sources: Sources, signals: Signals, doubt: _Doubt, cluster: Cluster | None) -> None:
    config = reloading.config
    lead = cluster.take_lead() if cluster else 0
    root = open_root(config, sources, doubt.rewrite_journal, doubt.refold, lead)
    doubt.rewrite_journal = doubt.refold = False
    with closing(root), ExitStack() as opened:
        doors: list[Door] = [opened.enter_context(closing(_open_mailbox(reloading, root, sources)))]
        lane = _open_lane(config.settings, root, sources) if config.settings.lane_enabled else None
        if lane:
            doors.append(opened.enter_context(closing(lane)))
        if cluster:
            doors.append(cluster)
            try:
                cluster.attach(root)
            except OSError as error:
                raise StartError(f"cluster.sock: {error}") from error
        Loop(reloading, root, doors, signals).run()


def _open_mailbox(reloading: Reloading, root: OpenRoot, sources: Sources) -> Mailbox:
    settings = reloading.config.settings
    problem = mailbox_problem(settings)
    if problem:
        raise StartError(problem)
    try:
        return Mailbox(
            settings,
            sources.files,
            root.vitals.count_unanswered,
            root.reserve.release,
            root.quotas,
            on_foreign=root.vitals.count_foreign,
            is_ready_for=root.access.is_ready_for,
            on_replaced=lambda: _warn_of_permissions(reloading.config),  # perhaps by one that clients cannot use
            data_root=reloading.config.root,
        )
    except OSError as error:
        raise StartError(str(error), error.errno in FULL_ERRNOS) from error


def _open_lane(settings: Settings, root: OpenRoot, sources: Sources) -> Lane | None:
    """The lane; None if its socket cannot be made: then all clients use files."""

    def owner_of(client_id: str) -> int | None:
        try:
            return os.lstat(settings.ipc_root / settings.ipc_responses_dir / file_name(client_id)).st_uid
        except FileNotFoundError:
            return None

    try:
        senders = Senders(owner_of, root.access.is_gateway)
        return Lane(settings, sources.files, root.broker, root.clock, senders, root.access.is_ready_for)
    except OSError as error:
        log.warning("no lane, because its socket cannot be made: %s", error)
        return None


class Loop:
    """One run between opening a root and closing it."""

    def __init__(self, reloading: Reloading, root: OpenRoot, doors: Sequence[Door], signals: Signals) -> None:
        self._reloading = reloading
        self._settings = reloading.config.settings
        self._root = root
        self._clock = root.clock
        self._broker = root.broker
        self._doors = doors
        self._signals = signals
        self._watchdog = Watchdog()
        self._status_line = StatusLine(root)
        self._selector = DefaultSelector()
        self._selector.register(signals.read_fd, EVENT_READ)
        for door in doors:
            door.register(self._selector)
            root.vitals.doors[door.name] = door.figures
            root.vitals.door_checks[door.name] = door.check_health
        self._now_s = 0.0
        """When the last turn ended."""
        self._next_tick = 0.0
        self._stalled: set[Door] = set()
        self._next_sync = 0.0
        self._fuller_groups = FullerGroups()
        self._checkpoints = Checkpoints(reloading.config.settings, root)
        self._metrics = MetricsFile(
            reloading.config.settings, lambda: root.vitals.exposition(root.store, root.clock.now())
        )
        self._snapshots = Snapshots(reloading.config.settings, root.store, root.journal, root.clock)

    def run(self) -> None:
        """Serve until the stop signal. Raises ``MustRecover``, ``JournalUnknown``; ``DoorLost`` and ``DoorReplaced``
        after an orderly stop."""
        self._tick_doors()
        self._broker.run_group()
        notify("READY=1")
        log.info("serving %s with %s", self._settings.ipc_root, self._settings.backend)
        try:
            ready = set(self._doors)
            while not self._signals.stopped:
                self._turn(ready)
                ready = self._wait()
                if self._signals.take_reload():
                    self._reload()
            self._stop()
        except DoorReplaced:  # the service continues, with another one
            self._flush()
            raise
        except DoorLost:
            self._stop()
            raise
        except RoleChanged:  # between two groups: all that the store has is confirmed, and the opening replays nothing
            self._checkpoints.make()
            raise
        finally:
            self._snapshots.stop()
            self._selector.close()

    def _stop(self) -> None:
        notify("STOPPING=1", "STATUS=stopping")
        self._flush()
        self._metrics.stop()
        log.info("stopped")

    def _flush(self) -> None:
        self._broker.stop()
        self._checkpoints.make()

    def _turn(self, ready: set[Door]) -> None:
        self._stalled.clear()
        asked = self._collect(ready)
        if self._broker.role.others is None:
            self._broker.run_group()
            for door in self._doors:
                door.flush()
        else:
            self._run_group_of_leader()
        if self._metrics.busy:
            self._metrics.step()
        if self._snapshots.busy:
            self._snapshots.step(asked=asked)
        if self._settings.journal_durability == "interval":
            self._sync_in_time()
        if self._root.traffic:
            self._root.traffic.flush()
        self._now_s = self._clock.elapsed_s()
        if self._now_s >= self._next_tick:
            self._tick()
            self._now_s = self._clock.elapsed_s()

    def _collect(self, ready: set[Door]) -> bool:
        """Submit the requests that have arrived; return whether there is one."""
        asked = False
        for door in ready:
            try:
                requests = door.collect(self._broker.space_for(door.name))
            except OSError as error:  # no descriptors, or the disk: retried at the next collection
                log.error("%s: %s", door.name, error)
                self._stalled.add(door)
                continue
            if requests:
                self._broker.submit(*requests)
                asked = True
        return asked

    def _collect_within(self, timeout_s: float) -> bool:
        """As ``_collect``, of the doors that are woken within a time."""
        return self._collect({key.data for key, _ in self._clock.wait(self._selector, timeout_s) if key.data})

    def _run_group_of_leader(self) -> None:
        """A group takes a round trip to the others: one that has more requests is worth a short wait."""
        broker, clock, fuller = self._broker, self._clock, self._fuller_groups
        while (wait_s := fuller.wait_s(broker.pending, clock.elapsed_s())) and self._collect_within(wait_s):
            pass
        began_s = clock.elapsed_s()
        answered = broker.run_group()
        for door in self._doors:
            door.flush()
        if answered:
            now_s = clock.elapsed_s()
            self._collect_within(0.0)
            fuller.note_group(answered, broker.pending, now_s - began_s, now_s)

    def _tick(self) -> None:
        # All doors are collected at a tick, too: the mailbox lists files for which the watch did not fire.
        self._next_tick = self._now_s + self._clock.tick_s
        logs.tick()
        self._metrics.tick(self._now_s)
        self._snapshots.tick(self._now_s, self._clock.now())
        self._tick_doors()
        self._root.reserve.tick()
        self._root.store.disk.tidy()
        self._status_line.tick(self._now_s)
        self._watchdog.feed()
        self._checkpoints.tick()

    def _tick_doors(self) -> None:
        now = self._clock.now()
        for door in self._doors:
            try:
                for request in door.tick(now, self._clock.clients_wall_ms(now)):
                    self._broker.cancel(request)
            except OSError as error:
                log.error("%s: %s", door.name, error)

    def _reload(self) -> None:
        notify_reloading()
        refused = self._reloading.reload()
        if not refused:
            self._settings = self._reloading.config.settings
            put_in_force(self._reloading.config, self._root, self._doors)
            self._checkpoints.reload(self._settings)
            self._metrics.reload(self._settings)
            self._snapshots.reload(self._settings)
        notify("READY=1", f"STATUS=reload refused: {refused}" if refused else "STATUS=reloaded")

    def _wait(self) -> set[Door]:
        """Wait until there is something to do. Returns the doors to collect from."""
        doors = set()
        for door in self._doors:
            if door.has_backlog and door not in self._stalled:
                doors.add(door)
        if len(doors) == len(self._doors):
            return doors
        ready = self._clock.wait(self._selector, 0.0 if doors else self._timeout_s())
        if self._clock.elapsed_s() >= self._next_tick:
            return set(self._doors)
        for key, _ in ready:
            if key.data:
                doors.add(key.data)
        for door in self._doors:
            if door.poll_s is not None:
                doors.add(door)
        return doors

    def _timeout_s(self) -> float:
        if self._metrics.busy or (self._snapshots.busy and self._clock.is_driven):  # work takes no simulated time
            return 0.0
        wait = self._next_tick - self._now_s
        for door in self._doors:
            poll_s = door.poll_s
            if poll_s is not None and poll_s < wait:
                wait = poll_s
        if self._snapshots.busy:
            wait = min(wait, self._snapshots.pause_s())
        due = self._broker.next_due()
        if due is not None:
            wait = min(wait, (due - self._clock.now().engine) / 1000)
        if self._settings.journal_durability == "interval" and self._root.journal.unsynced:
            wait = min(wait, self._next_sync - self._now_s)
        return max(0.0, wait)

    def _sync_in_time(self) -> None:
        if self._root.journal.unsynced and self._clock.elapsed_s() >= self._next_sync:
            try:
                self._root.store.body_files.sync()
            except StoreError as error:  # a lost body will be noticed, and no answer promised it
                log.error("store: %s", error)
            self._root.journal.sync()
            self._next_sync = self._clock.elapsed_s() + self._settings.journal_interval_ms / 1000
