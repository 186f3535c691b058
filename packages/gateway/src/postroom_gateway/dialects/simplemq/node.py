"""What SimpleMQ's clients can learn about this node and its peers: roles, heartbeats over UDP, switches. Heartbeats are
for status and history: they decide nothing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
import socket
import time
from collections import deque
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.errors import CommandError, ConfigurationError
from postroom_common.protocol import Command

from ...contract import CannotStart, Daemon, DaemonUnavailable, Principal, Sockets

log = logging.getLogger(__name__)

MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"
_PORT: Final = 9091
_INTERVAL_S: Final = 5.0
#: A peer that has missed so many heartbeats is reported once.
_MISSED: Final = 3
_PEERS_LIMIT: Final = 64
_SWITCHES_LIMIT: Final = 1000
_DATAGRAM_BYTES: Final = 4096
_ID_LIMIT: Final = 256
_SIGNATURE: Final = b',"signature":"'
_SIGNATURE_BYTES: Final = len(_SIGNATURE) + 64 + len(b'"}')
_STATUSES: Final = ("STARTING", "RUNNING", "STOPPING", "STOPPED")


class HeartbeatOptions(NamedTuple):
    """The table ``heartbeat`` of a door's options."""

    server_id: str
    address: str
    port: int
    peers: tuple[tuple[str, int], ...]
    interval_s: float


class Heartbeat(NamedTuple):
    """What a peer says about itself."""

    server_id: str
    timestamp: int
    role: str
    status: str


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
    """This node, as the daemon shows it, and its peers."""

    def __init__(self, daemon: Daemon, door: str, options: HeartbeatOptions | None, key: bytes) -> None:
        self._daemon = daemon
        self._door = door
        self._options = options
        self._key = key
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
        """Begin to send and receive heartbeats, if they are configured. Raises ``CannotStart``."""
        if not self._options:
            return
        loop = asyncio.get_running_loop()
        own = self._open(sockets, self._options)
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Receiver(self), sock=own)
        log.info("heartbeats of %s at %s port %d", self._door, self._options.address, own.getsockname()[1])
        self._beats = loop.create_task(self._beat(self._options))

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

    async def _beat(self, options: HeartbeatOptions) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_s = loop.time()
            try:
                async with asyncio.timeout(options.interval_s):
                    await self._check()
            except TimeoutError:
                self._active_ms = None
            self._send(options, "RUNNING" if self._role else "STARTING")
            self._count_missed(loop.time(), options.interval_s)
            await asyncio.sleep(max(0.0, asked_s + options.interval_s - loop.time()))

    def _send(self, options: HeartbeatOptions, status: str) -> None:
        self._sent_ms = max(_now_ms(), self._sent_ms + 1)  # later than the last one, whatever the clock was set to
        role, active_ms = self._role or SLAVE, self._active_ms or 0
        packet = encode_heartbeat(self._id, role, status, active_ms, self._key, self._sent_ms)
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
        if name not in self._peers and len(self._peers) >= _PEERS_LIMIT:
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


def encode_heartbeat(
    server_id: str, role: str, status: str, active_ms: int, key: bytes, timestamp_ms: int | None = None
) -> bytes:
    """A heartbeat of this node, signed if there is a key. ``timestamp_ms`` is now if it is not given."""
    packet = orjson.dumps(
        {
            "serverId": server_id,
            "timestamp": _now_ms() if timestamp_ms is None else timestamp_ms,
            "activeTime": active_ms,
            "role": role,
            "status": status,
            "metrics": _metrics(),
        }
    )
    return packet[:-1] + _SIGNATURE + _sign(packet, key) + b'"}' if key else packet


def decode_heartbeat(packet: bytes, key: bytes) -> Heartbeat | None:
    """A peer's heartbeat; None if it is none, or is not signed with the key."""
    if len(packet) > _DATAGRAM_BYTES:
        return None
    if key:
        signed, signature = packet[:-_SIGNATURE_BYTES] + b"}", packet[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, _SIGNATURE + _sign(signed, key) + b'"}'):
            return None
    try:
        tree = orjson.loads(packet)
    except ValueError:
        return None
    if type(tree) is not dict:
        return None
    server_id, stamp = tree.get("serverId"), tree.get("timestamp")
    if type(server_id) is not str or not server_id.isprintable() or not 1 <= len(server_id) <= _ID_LIMIT:
        return None
    if type(stamp) is not int:
        return None
    if tree.get("role") not in (MASTER, SLAVE) or tree.get("status") not in _STATUSES:
        return None
    return Heartbeat(server_id, stamp, tree["role"], tree["status"])


def read_heartbeat_options(table: Any, has_key: bool) -> HeartbeatOptions:
    """The options of heartbeats. Raises ``ConfigurationError``."""
    names = {"server_id", "address", "port", "peers", "interval_seconds", "allow_unsigned"}
    if type(table) is not dict or set(table) - names:
        raise ConfigurationError(f"options.heartbeat must be a table with some of {', '.join(sorted(names))}")
    server_id, address = table.get("server_id", ""), table.get("address", "127.0.0.1")
    port, interval_s = table.get("port", _PORT), table.get("interval_seconds", _INTERVAL_S)
    peers = table.get("peers", [])
    if type(server_id) is not str or len(server_id) > _ID_LIMIT:
        raise ConfigurationError("options.heartbeat.server_id must be a text")
    if type(port) is not int or not 0 <= port <= 65535:
        raise ConfigurationError("options.heartbeat.port must be an integer from 0 to 65,535")
    if type(interval_s) not in (int, float) or not 0.05 <= interval_s <= 3600:
        raise ConfigurationError("options.heartbeat.interval_seconds must be a number from 0.05 to 3,600")
    if type(peers) is not list or len(peers) > _PEERS_LIMIT:
        raise ConfigurationError("options.heartbeat.peers must be a list such as ['192.168.1.8:9091']")
    own = _ip(address, "address")
    if not own.is_loopback and not has_key and table.get("allow_unsigned") is not True:
        raise ConfigurationError(
            f"options.heartbeat.address: anybody who reaches {address} could forge heartbeats: set key_file, or"
            " allow_unsigned = true if that is what you want"
        )
    found = tuple(map(_peer, peers))
    if any((":" in host) != (own.version == 6) for host, _ in found):
        raise ConfigurationError("options.heartbeat.peers must be of the same IP version as address")
    return HeartbeatOptions(server_id, str(own), port, found, float(interval_s))


def _peer(text: Any) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if type(text) is str else ("", "", "")
    if not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ConfigurationError("options.heartbeat.peers must be a list such as ['192.168.1.8:9091']")
    return str(_ip(host.strip("[]"), "peers")), int(port)


def _ip(text: Any, name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text if type(text) is str else "")
    except ValueError:
        raise ConfigurationError(f"options.heartbeat.{name}: expected an IP address") from None


def _sign(packet: bytes, key: bytes) -> bytes:
    return hmac.new(key, b"simplemq heartbeat " + packet, hashlib.sha256).hexdigest().encode()


def _now_ms() -> int:
    return round(time.time() * 1000)


def _metrics() -> dict[str, int]:
    """The machine's figures in percent; none where a unit hides them from its processes (``ProcSubset=pid``)."""
    try:
        cpu = min(100, round(os.getloadavg()[0] * 100 / (os.cpu_count() or 1)))
        with open("/proc/meminfo", "rb") as file:
            figures = dict(line.split(b":") for line in file.read().splitlines())
    except OSError:
        return {}
    total, free = (int(figures[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    return {"cpu": cpu, "memory": round(100 * (total - free) / total)}
