"""Heartbeats: their options, and the packets that nodes send each other over UDP."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.errors import ConfigurationError

MASTER: Final = "MASTER"
SLAVE: Final = "SLAVE"
#: Most peers, configured or heard.
PEERS_LIMIT: Final = 64
_PORT: Final = 9091
#: Time (s) between two heartbeats, unless the options say otherwise.
INTERVAL_S: Final = 5.0
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


def encode_heartbeat(server_id: str, timestamp_ms: int, role: str, status: str, active_ms: int, key: bytes) -> bytes:
    """A heartbeat of this node, signed if there is a key."""
    packet = orjson.dumps(
        {
            "serverId": server_id,
            "timestamp": timestamp_ms,
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
    port, interval_s = table.get("port", _PORT), table.get("interval_seconds", INTERVAL_S)
    peers = table.get("peers", [])
    if type(server_id) is not str or len(server_id) > _ID_LIMIT:
        raise ConfigurationError("options.heartbeat.server_id must be a text")
    if type(port) is not int or not 0 <= port <= 65535:
        raise ConfigurationError("options.heartbeat.port must be an integer from 0 to 65,535")
    if type(interval_s) not in (int, float) or not 0.05 <= interval_s <= 3600:
        raise ConfigurationError("options.heartbeat.interval_seconds must be a number from 0.05 to 3,600")
    if type(peers) is not list or len(peers) > PEERS_LIMIT:
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
