# ruff: noqa: RUF009 - setting() makes a field of the dataclass, it is no default value
"""The table of settings. Each is declared once: the file's key, its default, its bounds and what the documents say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from postroom_common.sections import LogSection, setting

_PORT: Final = {"low": 0, "high": 65535}
_ANY_PATH: Final = {"pattern": r"[^\x00-\x1f\x7f]*", "form": "path (a string without control characters), or empty"}
_DIGEST: Final = {"pattern": "(?:[0-9A-Fa-f]{64})?", "form": "SHA-256 in hexadecimal (64 digits), or empty"}
_SECONDS: Final = {"low": 0.1, "high": 3600.0}
_COUNT: Final = {"low": 1, "high": 1_000_000}
_BYTES: Final = {"low": 1024, "high": 2**40}


class DialectKind(NamedTuple):
    """What a door with a dialect is: ``http``, ``stream``, ``websocket``, or ``mixed`` (HTTP and WebSocket); and the
    port that its clients expect."""

    transport: str
    port: int


#: The dialects, by name.
DIALECTS: Final[Mapping[str, DialectKind]] = MappingProxyType(
    {
        "lmq-http": DialectKind("http", 9980),
        "lmq-rpc": DialectKind("stream", 18800),
        "mq-websocket": DialectKind("websocket", 8080),
        "smss": DialectKind("stream", 12301),
        "simplemq": DialectKind("mixed", 8081),
        "simplemq-tcp": DialectKind("stream", 9090),
    }
)


@dataclass(frozen=True)
class DaemonSection:
    """``[daemon]``: how to reach the daemon."""

    socket: Path = setting("socket", Path("/var/lib/postroom/ipc/lane.sock"), "the daemon's lane")
    client_id: str = setting("client_id", "gateway", "the client id of the gateway's connections")
    patience_seconds: float = setting(
        "patience_seconds",
        5.0,
        "how long a request waits while there is no connection to the daemon, such as during its restart",
        low=0.0,
        high=300.0,
    )
    answer_seconds: float = setting(
        "answer_seconds",
        60.0,
        "how long a request waits for the daemon's answer, beyond a wait for messages",
        **_SECONDS,
    )


@dataclass(frozen=True)
class ObserveSection:
    """``[observe]``: health and metrics over HTTP."""

    enabled: bool = setting("enabled", True, "whether /health and /metrics are served")
    address: str = setting("address", "127.0.0.1", "the address on which they are served")
    port: int = setting("port", 9981, "the port; 0 chooses a free one", **_PORT)


@dataclass(frozen=True)
class LimitSection:
    """``[limits]``: what all peers together, and each of them, may occupy."""

    connections: int = setting("connections", 1024, "most connections of all doors", **_COUNT)
    peer_connections: int = setting("peer_connections", 256, "most connections from one address", **_COUNT)
    peer_requests: int = setting(
        "peer_requests",
        256,
        "most requests of one connection that are being executed and do not wait (doors that are not HTTP)",
        **_COUNT,
    )
    waiting: int = setting("waiting", 1000, "most requests that wait for a message", **_COUNT)
    requests_per_second: float = setting(
        "requests_per_second",
        0.0,
        "most requests a second of one principal, or of one address without authentication; 0: no limit",
        low=0.0,
        high=1e9,
    )
    header_bytes: int = setting("header_bytes", 16384, "largest header of a request", **_BYTES)
    body_bytes: int = setting("body_bytes", 16 * 2**20, "largest body of a request", **_BYTES)
    buffer_bytes: int = setting(
        "buffer_bytes", 64 * 2**20, "most bytes of bodies of all requests that are being received or executed", **_BYTES
    )
    header_seconds: float = setting("header_seconds", 10.0, "time for the header of a request to arrive", **_SECONDS)
    body_seconds: float = setting("body_seconds", 30.0, "time for each 64 KiB of a body to arrive", **_SECONDS)
    idle_seconds: float = setting(
        "idle_seconds", 75.0, "time after which a connection without a request is closed", **_SECONDS
    )
    read_seconds: float = setting(
        "read_seconds", 30.0, "time after which a peer is closed that does not read its answers", **_SECONDS
    )


@dataclass(frozen=True)
class PrincipalSection:
    """``[principals.NAME]``: what proves that a peer is the principal ``token:NAME``."""

    token_sha256: str = setting(
        "token_sha256", "", "SHA-256 of its token; `postroom-gateway make-token` makes one", **_DIGEST
    )
    token_file: str = setting("token_file", "", "a file with its token that only its owner may read", **_ANY_PATH)
    certificate_sha256: str = setting("certificate_sha256", "", "SHA-256 of its client certificate (DER)", **_DIGEST)
    token_digest: bytes | None = None
    certificate_digest: bytes | None = None


@dataclass(frozen=True)
class DoorSection:
    """``[doors.NAME]``: one listener."""

    name: str
    dialect: str = setting("dialect", "", "what is spoken; the door's name if absent", choices=("", *DIALECTS))
    enabled: bool = setting("enabled", True, "whether it is opened")
    address: str = setting("address", "127.0.0.1", "the address to listen on; :: and 0.0.0.0 are all")
    port: int = setting(
        "port", -1, "the port; 0 chooses a free one; the dialect's own if absent", **_PORT, below=0
    )  # -1: absent
    authentication: str = setting(
        "authentication",
        "none",
        "how peers prove who they are",
        choices=("none", "tokens", "certificates"),
    )
    allow_anonymous: bool = setting(
        "allow_anonymous", False, "allow a door without authentication on an address that other machines reach"
    )
    tls_certificate: str = setting(
        "tls_certificate", "", "file of the certificate chain (PEM); empty: no TLS", **_ANY_PATH
    )
    tls_key: str = setting("tls_key", "", "file of the certificate's key (PEM)", **_ANY_PATH)
    tls_client_ca: str = setting(
        "tls_client_ca", "", "file of the authorities that sign client certificates (PEM)", **_ANY_PATH
    )
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    daemon: DaemonSection = DaemonSection()
    log: LogSection = LogSection()
    observe: ObserveSection = ObserveSection()
    limits: LimitSection = LimitSection()
    principals: Mapping[str, PrincipalSection] = field(default_factory=dict)
    doors: Mapping[str, DoorSection] = field(default_factory=dict)


#: Sections with fixed names, in the order of the documents.
SECTIONS: Final[Mapping[str, type]] = MappingProxyType(
    {"daemon": DaemonSection, "log": LogSection, "observe": ObserveSection, "limits": LimitSection}
)
#: Sections with a table for each name.
NAMED_SECTIONS: Final[Mapping[str, type]] = MappingProxyType({"principals": PrincipalSection, "doors": DoorSection})
