"""What SimpleMQ's clients can learn about this node and its peers: roles, heartbeats over UDP, switches. Heartbeats are
for status and history: they decide nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import Command

from ...contract import CannotStart, Daemon, DaemonUnavailable, Principal, Sockets
from .heartbeats import INTERVAL_S, MASTER, PEERS_LIMIT, SLAVE, HeartbeatOptions, decode_heartbeat, encode_heartbeat

log = logging.getLogger(__name__)

#: A peer that has missed so many heartbeats is reported once.
_MISSED: Final = 3
_SWITCHES_LIMIT: Final = 1000


class Peer:
    """What was heard from one peer. Times are Unix ms, and seconds of the loop."""

    def __init__(self, now_s: float) -> None:
        self.total = 0
        self.missed = 0
        self.last_ms: int | None = None
        self.max_delay_s = 0.0
        self.heard_s = now_s
        self.missed_since = 0
        self.role = ""
        self.timestamp = -1
        self.is_behind = False


class Node:
    """This node, as the daemon shows it, and its peers. It looks at the daemon every ``interval_s``, or that of
    ``options``, unless a client asks before."""

    def __init__(
        self,
        daemon: Daemon,
        door: str,
        options: HeartbeatOptions | None,
        key: bytes,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._daemon = daemon
        self._door = door
        self._options = options
        self._key = key
        self._interval_s = options.interval_s if options else interval_s
        self._principal = Principal(f"anonymous:{door}")
        self._id = options.server_id if options else ""
        self._role = ""
        self._active_ms: int | None = None
        self._checked_ms: int | None = None
        self._peers: dict[str, Peer] = {}
        self._switches: deque[dict[str, Any]] = deque(maxlen=_SWITCHES_LIMIT)
        self._sent_ms = 0
        self._is_doubled = False
        self._transport: asyncio.DatagramTransport | None = None
        self._beats: asyncio.Task[None] | None = None
        #: Set once the daemon was seen as a member of a cluster: the role of any other one never changes.
        self._member = asyncio.Event()

    # --- what clients ask for -----------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """``NodeStatus``."""
        await self._check()
        return {
            "nodeId": self._id,
            "role": self._role or None,
            "active": self._active_ms is not None,
            "activeTime": self._active_ms,
            "lastCheckTime": self._checked_ms,
        }

    def heartbeats(self) -> dict[str, Any]:
        """The figures of each peer, by its id."""
        return {
            name: {
                "totalHeartbeats": peer.total,
                "missedHeartbeats": peer.missed,
                "lastHeartbeatTime": peer.last_ms,
                "maxDelay": round(peer.max_delay_s * 1000),
            }
            for name, peer in self._peers.items()
        }

    async def switches(self) -> list[dict[str, Any]]:
        """The changes of roles since this process began, the oldest first."""
        await self._check()
        return list(self._switches)

    async def _check(self) -> None:
        """Ask the daemon what this node is."""
        try:
            data = (await self._daemon.request(self._principal, Command.HEALTH, {}, door=self._door)).data
        except (CommandError, DaemonUnavailable):
            self._active_ms = None
            return
        cluster = data["checks"].get("cluster") or {}
        if cluster:
            self._member.set()
        role = SLAVE if cluster.get("role") == "follower" else MASTER
        self._checked_ms = _now_ms()
        self._id = self._id or data["nodeId"]
        if role != self._role:
            self._switched(self._id, self._role, role, "the daemon says so" if self._role else "start")
            self._role = role
        if role != MASTER:
            self._active_ms = None
        elif self._active_ms is None:
            self._active_ms = self._checked_ms

    def _switched(self, server_id: str, before: str, after: str, reason: str) -> None:
        self._switches.append(
            {
                "timestamp": _now_ms(),
                "serverId": server_id,
                "fromRole": before or None,
                "toRole": after,
                "reason": reason,
            }
        )

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    async def start(self, sockets: Sockets) -> None:
        """Begin to look at the daemon, and to send and receive heartbeats, if they are configured. Raises
        ``CannotStart``."""
        loop = asyncio.get_running_loop()
        if self._options:
            own = self._open(sockets, self._options)
            self._transport, _ = await loop.create_datagram_endpoint(lambda: _Receiver(self), sock=own)
            log.info("heartbeats of %s at %s port %d", self._door, self._options.address, own.getsockname()[1])
        self._beats = loop.create_task(self._beat())

    def _open(self, sockets: Sockets, options: HeartbeatOptions) -> socket.socket:
        where = f"heartbeats of door {self._door}: {options.address} port {options.port}"
        if sockets.is_managed:
            passed = sockets.take(options.address, options.port, socket.SOCK_DGRAM)
            if passed is None:
                raise CannotStart(f"{where}: systemd does not listen there: add ListenDatagram= to the socket unit")
            return passed
        one = socket.socket(socket.AF_INET6 if ":" in options.address else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            one.bind((options.address, options.port))
        except OSError as error:
            one.close()
            raise CannotStart(f"{where}: {error.strerror}") from None
        one.setblocking(False)
        return one

    def stop(self) -> None:
        """Say that this node stops, and send nothing more."""
        if self._beats:
            self._beats.cancel()
        if self._transport and self._options:
            self._send(self._options, "STOPPING")
            self._transport.close()
            self._transport = None

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._check()
            except TimeoutError:
                self._active_ms = None
            if self._options:
                self._send(self._options, "RUNNING" if self._role else "STARTING")
                self._count_missed(loop.time(), self._interval_s)
            elif self._role:
                await self._member.wait()
            await asyncio.sleep(max(0.0, asked_s + self._interval_s - loop.time()))

    def _send(self, options: HeartbeatOptions, status: str) -> None:
        self._sent_ms = max(_now_ms(), self._sent_ms + 1)  # later than the last one, whatever the clock was set to
        role, active_ms = self._role or SLAVE, self._active_ms or 0
        packet = encode_heartbeat(self._id, self._sent_ms, role, status, active_ms, self._key)
        if self._transport:
            for address in options.peers:
                self._transport.sendto(packet, address)

    def _count_missed(self, now_s: float, interval_s: float) -> None:
        for name, peer in self._peers.items():
            late = max(0, int((now_s - peer.heard_s) / interval_s - 0.5))
            peer.missed += max(0, late - peer.missed_since)
            if peer.missed_since < _MISSED <= late:
                log.warning("%s has sent no heartbeat for %.0f s", name, now_s - peer.heard_s)
            peer.missed_since = max(peer.missed_since, late)

    def received(self, packet: bytes, host: str) -> None:
        """A datagram has arrived. What is no heartbeat, or none of a peer, is dropped."""
        known = {address for address, _ in self._options.peers} if self._options else set()
        heartbeat = decode_heartbeat(packet, self._key) if host in known else None
        if heartbeat is None:
            return
        if heartbeat.server_id == self._id:
            if not self._is_doubled:
                self._is_doubled = True
                log.warning(
                    "another node at %s has this node's server_id %s: its heartbeats do not count", host, self._id
                )
            return
        now_s = asyncio.get_running_loop().time()
        name = heartbeat.server_id
        if name not in self._peers and len(self._peers) >= PEERS_LIMIT:
            return
        peer = self._peers.setdefault(name, Peer(now_s))
        if self._key and heartbeat.timestamp <= peer.timestamp:
            if not peer.is_behind:
                peer.is_behind = True
                log.warning("a heartbeat of %s is older than the last: it was sent again, or its clock set back", name)
            return
        peer.is_behind = False
        if peer.total:
            peer.max_delay_s = max(peer.max_delay_s, now_s - peer.heard_s)
        peer.total += 1
        peer.last_ms, peer.heard_s, peer.missed_since, peer.timestamp = _now_ms(), now_s, 0, heartbeat.timestamp
        if heartbeat.role != peer.role:
            self._switched(name, peer.role, heartbeat.role, f"its heartbeat says so; it is {heartbeat.status}")
            peer.role = heartbeat.role


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, node: Node) -> None:
        self._node = node

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._node.received(data, str(addr[0]))

    def error_received(self, exc: Exception) -> None:
        """A peer that is away may be reported; its silence says the same."""


def _now_ms() -> int:
    return round(time.time() * 1000)
