"""The daemon's loop: one selector, one thread. Intake, groups, timers, reloads.

A failure that leaves the disk's state unknown ends the loop without answering anyone, and the root is opened again: the
requests are still in the mailbox, and recovery tells which of them were done.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..broker.broker import MustRecover
from ..config.config import Config
from ..doors.mailbox import Mailbox, MailboxLost, MailboxReplaced, mailbox_hindrance
from ..journal.journal import JournalUnknown
from ..maintenance.system.permissions import permission_warnings
from ..observe.metrics.textfile import MetricsFile
from ..observe.state_files import Snapshots
from ..platform import logs
from ..platform.clock import Clock
from ..platform.files import FULL_ERRNOS
from ..platform.notify import Watchdog, notify, notify_busy, notify_reloading
from ..platform.signals import Signals
from ..root.open_root import OpenRoot, Sources, StartError, open_root
from ..stores.base import StoreDamaged, StoreError
from .checkpoints import Checkpoints
from .reload import Reloading, put_in_force
from .status_line import StatusLine

__all__ = ["StartError", "serve"]

log = logging.getLogger(__name__)

#: Requests make many objects and no cycles: the collector looks rarely.
GC_THRESHOLD: Final = (20_000, 20, 20)
#: A run that lasted so long (s) was no failed start.
LASTING_S: Final = 60.0
#: Pauses between attempts to start again after the disk failed (s), the last one repeated.
RESTART_PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)


def serve(config: Config, read_again: Callable[[], Config], clock: Callable[[], Clock] = Clock) -> int:
    """Serve the mailbox until SIGTERM or SIGINT. The exit code.

    SIGHUP reloads the configuration, which ``read_again`` reads; where it means that the terminal was closed, it stops.
    ``clock`` makes the clock of each run between opening the root and closing it.

    Raises ``StartError`` when the root cannot be opened, ``MailboxLost`` when the mailbox is taken away and only root
    can make it again.
    """
    os.umask(0o022)
    faulthandler.enable(file=2)  # the watchdog ends a daemon that hangs by SIGABRT: the log tells where it hung
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GC_THRESHOLD)
    signals = Signals()
    reloading = Reloading(config, read_again)
    sources = Sources(clock=clock)
    doubt = _Doubt()
    try:
        while True:
            started = time.monotonic()
            try:
                _run_once(reloading, sources, signals, doubt)
                return 0
            except StartError as error:
                if not (doubt.failures or error.full):
                    raise
                log.critical("%s%s", error, "; it goes on once there is space" if error.full else "")
            except MailboxReplaced as error:
                log.warning("%s; the mailbox is opened again", error)
                _warn_of_permissions(reloading.config)
                continue
            except (MustRecover, JournalUnknown, StoreError) as error:
                log.critical("%s; nobody was answered, starting again from the journal", error)
                doubt.rewrite_journal |= isinstance(error, JournalUnknown)
                doubt.refold |= isinstance(error, StoreDamaged)
            if time.monotonic() - started > LASTING_S:
                doubt.failures = 0
            notify_busy("starting again")
            if signals.wait(RESTART_PAUSES_S[min(doubt.failures, len(RESTART_PAUSES_S) - 1)]):
                return 1
            doubt.failures += 1
    finally:
        signals.close()


def _warn_of_permissions(config: Config) -> None:
    for warning in permission_warnings(config):
        log.warning("%s", warning)


@dataclass(slots=True)
class _Doubt:
    """What is not to be trusted when the root is opened again."""

    failures: int = 0
    rewrite_journal: bool = False
    refold: bool = False


def _run_once(reloading: Reloading, sources: Sources, signals: Signals, doubt: _Doubt) -> None:
    config = reloading.config
    root = open_root(config, sources, doubt.rewrite_journal, doubt.refold)
    doubt.rewrite_journal = doubt.refold = False
    try:
        try:
            problem = mailbox_hindrance(config.settings)
            if problem:
                raise StartError(problem)
            mailbox = Mailbox(
                config.settings,
                sources.files,
                root.vitals.count_unanswered,
                root.reserve.give,
                root.quotas,
                on_foreign=root.vitals.count_foreign,
                knows=root.access.knows,
            )
        except OSError as error:
            raise StartError(str(error), error.errno in FULL_ERRNOS) from error
        try:
            _Loop(reloading, root, mailbox, signals).run()
        finally:
            mailbox.close()
    finally:
        root.close()


class _Loop:
    """One run between opening a root and closing it."""

    def __init__(self, reloading: Reloading, root: OpenRoot, mailbox: Mailbox, signals: Signals) -> None:
        self._reloading = reloading
        self._settings = reloading.config.settings
        self._root = root
        self._clock = root.clock
        self._broker = root.broker
        self._mailbox = mailbox
        self._signals = signals
        self._watchdog = Watchdog()
        self._status_line = StatusLine(root)
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.read_fd, selectors.EVENT_READ)
        self._watched = mailbox.watch
        if self._watched:
            self._selector.register(self._watched, selectors.EVENT_READ)
        self._next_scan = 0.0
        self._stalled = False
        self._next_sync = 0.0
        self._checkpoints = Checkpoints(reloading.config.settings, root)
        self._metrics = MetricsFile(
            reloading.config.settings, lambda: root.vitals.exposition(root.store, root.clock.now())
        )
        self._snapshots = Snapshots(reloading.config.settings, root.store, root.journal, root.clock)
        root.vitals.mailbox_figures = lambda: mailbox.figures() | {"parked": root.broker.waiters.count}

    def run(self) -> None:
        """Serve until the stop signal. Raises ``MustRecover``, ``JournalUnknown``; ``MailboxLost`` and
        ``MailboxReplaced``, after an orderly stop."""
        self._mailbox.check()
        self._broker.run_group()
        notify("READY=1")
        log.info("serving %s with %s", self._settings.ipc_root, self._settings.backend)
        try:
            scan = True
            while not self._signals.stopped:
                self._turn(scan)
                scan = self._wait()
                if self._signals.take_reload():
                    self._reload()
            self._stop()
        except MailboxReplaced:  # the service goes on, with another one
            self._settle()
            raise
        except MailboxLost:
            self._stop()
            raise
        finally:
            self._snapshots.stop()
            self._selector.close()

    def _stop(self) -> None:
        notify("STOPPING=1", "STATUS=stopping")
        self._settle()
        self._metrics.stop()
        log.info("stopped")

    def _settle(self) -> None:
        self._broker.stop()
        self._checkpoints.make()

    def _turn(self, scan: bool) -> None:
        calls = []
        self._stalled = False
        if scan:
            try:
                calls = self._mailbox.collect()
            except OSError as error:  # out of descriptors, or the disk: it is tried again with the next scan
                log.error("mailbox: %s", error)
                self._stalled = True
        for call in calls:
            self._broker.submit(call)
        self._broker.run_group()
        self._metrics.step()
        self._snapshots.step(asked=bool(calls))
        if self._settings.journal_durability == "interval":
            self._sync_in_time()
        if self._root.traffic:
            self._root.traffic.flush()
        if self._clock.elapsed_s() >= self._next_scan:
            self._each_second()

    def _each_second(self) -> None:
        # The mailbox is scanned then, too, which finds files that fired no watch.
        self._next_scan = self._clock.elapsed_s() + self._clock.tick_s
        logs.care()
        self._metrics.care(self._clock.elapsed_s())
        self._snapshots.care(self._clock.elapsed_s(), self._clock.now())
        try:
            if self._mailbox.check():  # perhaps by one that clients cannot use
                _warn_of_permissions(self._reloading.config)
            for call in self._mailbox.abandoned():
                self._broker.cancel(call)
            now = self._clock.now()
            self._mailbox.care(now, self._clock.clients_wall_ms(now))
        except OSError as error:
            log.error("mailbox: %s", error)
        self._root.reserve.care()
        self._root.store.tidy()
        self._status_line.care(self._clock.elapsed_s())
        self._watchdog.feed()
        self._checkpoints.care()

    def _reload(self) -> None:
        notify_reloading()
        refused = self._reloading.reload()
        if not refused:
            self._settings = self._reloading.config.settings
            put_in_force(self._reloading.config, self._root, self._mailbox)
            self._checkpoints.adopt(self._settings)
            self._metrics.adopt(self._settings)
            self._snapshots.adopt(self._settings)
        notify("READY=1", f"STATUS=reload refused: {refused}" if refused else "STATUS=reloaded")

    def _wait(self) -> bool:
        """Wait for something to do. Whether the mailbox is to be scanned."""
        if self._mailbox.watch is not self._watched and self._watched:  # it was given up: polling from now on
            self._selector.unregister(self._watched)
            self._watched = None
        if self._mailbox.has_backlog and not self._stalled:
            return True
        ready = self._clock.wait(self._selector, self._timeout_s())
        polled = not self._watched
        return polled or self._clock.elapsed_s() >= self._next_scan or any(k.fileobj is self._watched for k, _ in ready)

    def _timeout_s(self) -> float:
        now = self._clock.elapsed_s()
        if self._metrics.busy or (self._snapshots.busy and self._clock.is_driven):  # work takes no driven time
            return 0.0
        waits = [self._next_scan - now]
        if self._snapshots.busy:
            waits.append(self._snapshots.pause_s())
        if not self._watched:
            waits.append(self._settings.ipc_poll_interval_ms / 1000)
        due = self._broker.next_due()
        if due is not None:
            waits.append((due - self._clock.now().engine) / 1000)
        if self._settings.journal_durability == "interval" and self._root.journal.unsynced:
            waits.append(self._next_sync - now)
        return max(0.0, min(waits))

    def _sync_in_time(self) -> None:
        if self._root.journal.unsynced and self._clock.elapsed_s() >= self._next_sync:
            try:
                self._root.store.sync_bodies()
            except StoreError as error:  # what is lost of them will be noticed, and is promised by no answer
                log.error("store: %s", error)
            self._root.journal.sync()
            self._next_sync = self._clock.elapsed_s() + self._settings.journal_interval_ms / 1000
