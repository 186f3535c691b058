"""A running gateway: its doors, the lane, signals, reload and stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

from postroom_common import logs
from postroom_common.errors import PostroomError
from postroom_common.notify import Watchdog, notify, notify_reloading

from .config import file
from .config.settings import DIALECTS, DoorSection, Settings
from .contract import Active
from .doors import check, make_dialect, make_listener
from .lane import Lane
from .lane.link import NO_GATEWAY
from .observe.pages import Pages
from .serve.authentication import Directory
from .serve.door import Door
from .serve.limits import Limits
from .serve.listener import Listener
from .serve.passed import PassedSockets
from .serve.tls import read_tls

log = logging.getLogger(__name__)

#: Time (s) for a stop: for answers that are being made, and for the daemon to take back leases.
_STOP_S: Final = 20.0
#: How long (s) a start waits for the daemon before it reports that it is ready all the same.
_START_S: Final = 2.0
#: Descriptors beside those of connections.
_SPARE_DESCRIPTORS: Final = 64


async def run(path: Path, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``PostroomError``."""
    gateway = Gateway(path, settings)
    try:
        await gateway.serve()
    finally:
        notify("STOPPING=1")


class Gateway:
    """One gateway, from its start to its stop."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._limits = Limits(settings.limits)
        self._lane = Lane(
            settings.daemon.socket,
            settings.daemon.client_id,
            settings.daemon.patience_seconds,
            settings.daemon.answer_seconds,
            settings.limits.waiting,
        )
        #: The doors that are open, by name.
        self._listeners: dict[str, Listener] = {}
        self._doors: dict[str, Door] = {}
        self._active: list[Active] = []
        self._observed: Listener | None = None
        self._stop = asyncio.Event()
        self._watchdog = Watchdog()
        self._noted_problem = ""

    async def serve(self) -> None:
        """Open all doors, serve, and stop when a signal says so."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        _raise_descriptor_limit(self._settings.limits.connections)
        try:
            await self._open()
            gc.collect()
            gc.freeze()  # what the start has made stays for good
            await self._lane.until_connected(_START_S)
            notify("READY=1", f"STATUS={self._status()}")
            while not self._stop.is_set():
                self._tick()
                try:
                    async with asyncio.timeout(1.0):
                        await self._stop.wait()
                except TimeoutError:
                    pass
        finally:
            await self._close()

    # --- start --------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        passed = PassedSockets()
        observed = self._settings.observe
        if observed.enabled:
            section = DoorSection(name="[observe]", address=observed.address, port=observed.port)
            self._observed = make_listener(section, self._settings, self._limits)
            await self._observed.open(Pages(self._lane, self._doors, self._limits), "http", passed)
            log.info("health and metrics at http://%s:%d", observed.address, self._observed.port)
        for name, section in self._settings.doors.items():
            if not section.enabled:
                continue
            listener = make_listener(section, self._settings, self._limits)
            dialect = make_dialect(section, self._lane)
            await listener.open(dialect, DIALECTS[section.dialect].transport, passed)
            self._listeners[name] = listener
            self._doors[name] = listener.door
            if isinstance(dialect, Active):
                await dialect.start(passed)
                self._active.append(dialect)
            log.info("door %s at %s port %d", name, section.address, listener.port)
        for where in passed.close_rest():
            log.warning("no door is configured for %s, on which systemd listens", where)
        if not self._doors:
            log.warning("no door is configured: nobody can use this gateway")

    # --- every second -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._lane.tick()
        for listener in self._all():
            listener.door.check(now_s)
        logs.tick()
        self._watchdog.feed()
        problem = self._lane.problem
        if problem != self._noted_problem:
            self._noted_problem = problem
            if problem == NO_GATEWAY:  # a connection that fails is logged where it fails
                log.warning("every request is refused: %s", problem)
            notify(f"STATUS={self._status()}")

    def _all(self) -> list[Listener]:
        return [*self._listeners.values(), *([self._observed] if self._observed else [])]

    def _status(self) -> str:
        return self._lane.problem or f"serving {', '.join(self._doors) or 'no door'}"

    # --- reload -------------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Read the configuration again: principals, certificates, limits and the log. Everything else waits for a
        restart. If anything is wrong, everything stays as it was."""
        notify_reloading()
        try:
            settings = file.load(self._path)
            check(settings)
            tls = {name: read_tls(settings.doors[name]) for name in self._listeners if name in settings.doors}
        except PostroomError as error:
            log.error("the configuration was not reloaded: %s", error)
        else:
            for name, listener in self._listeners.items():
                listener.reload(Directory(settings.principals), tls.get(name))
            self._limits.settings = settings.limits
            self._lane.waiting_limit = settings.limits.waiting
            logs.reload(settings.log)
            late = _waiting_for_restart(self._settings, settings)
            self._settings = settings
            log.info("the configuration was reloaded%s", f"; a restart is needed for {', '.join(late)}" if late else "")
        notify("READY=1", f"STATUS={self._status()}")

    # --- stop ---------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Accept nothing more, end the waits, finish the answers, return the leases."""
        notify("STOPPING=1")
        log.info("the gateway stops")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _STOP_S
        for listener in self._listeners.values():
            listener.close()
        for dialect in self._active:
            dialect.stop()
        self._lane.end_waits()
        for door in self._doors.values():
            door.stop()
        next_tick_s = loop.time()
        while any(door.connections for door in self._doors.values()) and loop.time() < until_s:
            if loop.time() >= next_tick_s:
                self._tick()
                next_tick_s += 1.0
            await asyncio.sleep(0.02)
        for listener in self._all():
            listener.close()
            listener.door.abort()
        await self._lane.close(max(1.0, until_s - loop.time()))


def _waiting_for_restart(old: Settings, new: Settings) -> list[str]:
    """What has changed and takes effect at a restart only."""
    late = [name for name in ("daemon", "observe") if getattr(old, name) != getattr(new, name)]
    for name in sorted({*old.doors, *new.doors}):
        before, now = old.doors.get(name), new.doors.get(name)
        if before and now and before.tls_certificate and now.tls_certificate:
            paths = {key: getattr(now, key) for key in ("tls_certificate", "tls_key", "tls_client_ca")}
            before = replace(before, **paths)  # these have taken effect
        if before != now:
            late.append(f"doors.{name}")
    return late


def _raise_descriptor_limit(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_DESCRIPTORS
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        except (OSError, ValueError) as error:  # a unit may forbid it
            log.warning("the process may open %d descriptors only: %s", soft, error)
    if hard < wanted:
        log.warning("limits.connections is %d, but the process may open %d descriptors only", connections, hard)
