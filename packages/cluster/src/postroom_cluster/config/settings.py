# ruff: noqa: RUF009 - setting() makes a field of the dataclass, it is no default value
"""The table of settings. Each is declared once: the file's key, its default, its bounds and what the documents say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from postroom_common.sections import LogSection, setting

_ANY_PATH: Final = {"pattern": r"[^\x00-\x1f\x7f]*", "form": "path (a string without control characters), or empty"}
_NAME: Final = {"pattern": "(?:[A-Za-z0-9_-]{1,64})?", "form": "name of 1 to 64 of A-Z, a-z, 0-9, _ and -"}


@dataclass(frozen=True)
class DaemonSection:
    """``[daemon]``: how to reach the daemon."""

    socket: Path = setting("socket", Path("/var/lib/postroom/ipc/cluster.sock"), "the daemon's socket for its cluster")


@dataclass(frozen=True)
class ClusterSection:
    """``[cluster]``: the cluster, and which of its nodes this is."""

    name: str = setting("name", "", "name of the cluster, the same on all its nodes", **_NAME)
    node: str = setting("node", "", "name of this node: the daemon's `nodeId`", **_NAME)
    address: str = setting(
        "address",
        "",
        "where clients of other machines reach this node, such as its gateway; followers refer them to it",
        pattern=r"[^\x00-\x20\x7f]{0,200}",
        form="address of at most 200 characters without spaces, or empty",
    )


@dataclass(frozen=True)
class NatsSection:
    """``[nats]``: how to reach the servers. ``servers`` is a list of addresses."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    domain: str = setting("domain", "", "JetStream domain of the stream; empty: that of the servers", **_NAME)
    tls_ca: str = setting(
        "tls_ca", "", "file of the authorities that sign the servers' certificates (PEM)", **_ANY_PATH
    )
    tls_certificate: str = setting("tls_certificate", "", "file of this node's certificate chain (PEM)", **_ANY_PATH)
    tls_key: str = setting("tls_key", "", "file of the certificate's key (PEM)", **_ANY_PATH)
    user: str = setting("user", "", "name to sign in with")
    password_file: str = setting(
        "password_file", "", "a file with the password that only its owner may read", **_ANY_PATH
    )
    token_file: str = setting("token_file", "", "a file with a token that only its owner may read", **_ANY_PATH)
    credentials: str = setting("credentials", "", "a credentials file (.creds); needs `nkeys`", **_ANY_PATH)
    nkey: str = setting("nkey", "", "a file with the seed of an nkey; needs `nkeys`", **_ANY_PATH)


@dataclass(frozen=True)
class FailoverSection:
    """``[failover]``: when this node leads."""

    automatic: bool = setting("automatic", True, "whether it leads by itself; else only if it is promoted")
    after_seconds: float = setting(
        "after_seconds",
        15.0,
        "how long the leader is silent before another node tries to lead; the same on all nodes",
        low=1.0,
        high=3600.0,
    )


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    daemon: DaemonSection = field(default_factory=DaemonSection)
    cluster: ClusterSection = field(default_factory=ClusterSection)
    nats: NatsSection = field(default_factory=NatsSection)
    failover: FailoverSection = field(default_factory=FailoverSection)
    log: LogSection = field(default_factory=LogSection)


#: The sections, in the order of the documents.
SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "cluster": ClusterSection,
        "nats": NatsSection,
        "failover": FailoverSection,
        "daemon": DaemonSection,
        "log": LogSection,
    }
)
