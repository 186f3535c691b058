"""A running node: its connections, signals and stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from typing import Final, NoReturn

from nats.aio.client import Client

from postroom_common import logs
from postroom_common.notify import Watchdog, notify

from .config.settings import Settings
from .connection import connect
from .control import answer_questions
from .daemon import Daemon
from .errors import DaemonGone, DaemonRefuses, StreamUnavailable
from .node import Failover, Node, first_of
from .stream import Stream

log = logging.getLogger(__name__)

#: Time (s) before the next attempt to reach the daemon or the servers; it doubles, up to the longest, while the daemon
#: refuses to work with this process for the same reason.
_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
#: After so long (s) with one connection, what ends it is worth a record, whatever it was the last time.
_LASTING_S: Final = 60.0


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``PostroomError`` for what no later attempt can mend."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await first_of(serve(settings), stop.wait())
    finally:
        notify("STOPPING=1")


async def serve(settings: Settings) -> NoReturn:
    """Connect to the servers, then serve one connection to the daemon after the other."""
    notify("READY=1", "STATUS=connecting to the NATS servers")
    connection = await _connected(settings)
    try:
        stream = Stream(connection, settings.cluster.name, settings.nats.domain)
        failover = Failover(settings.failover.after_seconds, settings.failover.automatic)
        node = Node(settings.cluster.node, secrets.token_hex(8), stream, failover, settings.cluster.address)
        await answer_questions(connection, settings.cluster.name, node)
        await first_of(_serve_daemons(settings, node), _tick(node))
        raise AssertionError("a task that never ends has ended")
    finally:
        await connection.close()


async def _connected(settings: Settings) -> Client:
    noted = ""
    while True:
        try:
            connection = await connect(settings.nats, f"postroom-cluster {settings.cluster.node}")
        except StreamUnavailable as error:
            if str(error) != noted:
                noted = str(error)
                log.warning("%s", error)
            await asyncio.sleep(_PAUSE_S)
        else:
            log.info("connected to the NATS servers")
            return connection


async def _serve_daemons(settings: Settings, node: Node) -> NoReturn:
    noted, pause_s, now = set[str](), _PAUSE_S, asyncio.get_running_loop().time
    is_flapping = False  # it greets, and then refuses: as if nothing had changed
    while True:
        began_s, has_greeted = now(), False
        try:
            daemon = await Daemon.connect(settings.daemon.socket, settings.cluster.name)
            try:
                await daemon.hello()
                if not is_flapping:
                    log.info("connected to the daemon")
                has_greeted = True
                await node.serve(daemon)
            finally:
                await daemon.close()
        except DaemonGone as error:
            node.problem = str(error)
            if now() - began_s > _LASTING_S:
                noted, pause_s = set(), _PAUSE_S
            is_known = str(error) in noted
            if not is_known:
                log.warning("%s", error)
                noted = {*noted, str(error)} if isinstance(error, DaemonRefuses) or has_greeted else {str(error)}
            elif isinstance(error, DaemonRefuses):
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            is_flapping = has_greeted and is_known
            await asyncio.sleep(pause_s if has_greeted or isinstance(error, DaemonRefuses) else _PAUSE_S)


async def _tick(node: Node) -> NoReturn:
    """What is done each second: the watchdog, and the status that systemd shows."""
    watchdog, noted = Watchdog(), ""
    while True:
        logs.tick()
        watchdog.feed()
        status = f"{node.role}: {node.problem}" if node.problem else f"{node.role} in epoch {node.epoch}"
        if status != noted:
            noted = status
            notify(f"STATUS={status}")
        await asyncio.sleep(1.0)
