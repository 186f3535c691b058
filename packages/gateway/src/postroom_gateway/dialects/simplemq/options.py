"""What the configuration of a door says about SimpleMQ: its table ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from postroom_common.errors import ConfigurationError
from postroom_common.secret_file import read_secret

from ...contract import WebSocketSettings
from .heartbeats import HeartbeatOptions, read_heartbeat_options
from .strategies import Strategy

_NUMBERS: Final[Mapping[str, tuple[float, float, float]]] = {
    "ack_seconds": (30, 0.1, 604_800),
    "retry_seconds": (5, 0.001, 31_622_400),
    "token_hours": (24, 0, 876_000),
    "heartbeat_seconds": (5, 0, 3600),
}
_INTEGERS: Final[Mapping[str, tuple[int, int, int]]] = {
    "retries": (3, 0, 2**31 - 2),
    "capacity": (16, 1, 1000),
    "message_bytes": (1 << 20, 1024, 1 << 30),
}
_LISTS: Final = ("priority_hosts", "origins")
_NAMES: Final = frozenset(
    (*_NUMBERS, *_INTEGERS, *_LISTS, "strategy", "strategies", "websocket_url", "key_file", "heartbeat")
)
#: The options of a door that speaks neither HTTP nor WebSocket.
TCP_NAMES: Final = _NAMES - {"token_hours", "heartbeat_seconds", "origins", "websocket_url", "key_file", "heartbeat"}


class Options(NamedTuple):
    """The options of a door."""

    #: How long (s) a consumer has for a message.
    ack_seconds: float
    #: How often a message is delivered again after its first delivery has failed, and after how long (s).
    retries: int
    retry_seconds: float
    #: How long (hours) the token of a subscription is valid; 0: for ever.
    token_hours: float
    #: Messages that a consumer may have at one time, unless it asks for another number; and the most that it gets.
    capacity: int
    #: Hosts in the ids of consumers, the one that is served first in front.
    priority_hosts: tuple[str, ...]
    #: Which consumer of a topic gets a message, and of which topics it is another one.
    strategy: Strategy
    strategies: Mapping[str, Strategy]
    #: What ``websocketUrl`` says; empty: the address to which the request was sent.
    websocket_url: str
    #: What signs tokens; empty: a key of this process.
    key: bytes
    websocket: WebSocketSettings
    #: None: no heartbeats.
    heartbeat: HeartbeatOptions | None

    def strategy_of(self, topic: str) -> Strategy:
        """Which consumer of a topic gets a message."""
        return self.strategies.get(topic, self.strategy)

    def create_with(self) -> dict[str, Any]:
        """The policy of a queue that SimpleMQ's clients create."""
        retry = {
            "limit": self.retries + 1,
            "backoff": "fixed",
            "initialDelaySec": self.retry_seconds,
            "maxDelaySec": self.retry_seconds,
        }
        return {"visibilityTimeoutSec": self.ack_seconds, "retry": retry}


def read_options(table: Mapping[str, Any], names: frozenset[str] = _NAMES) -> Options:
    """The options of a door, which may have these names. Raises ``ConfigurationError``."""
    unknown = set(table) - names
    if unknown:
        raise ConfigurationError(f"options: {min(unknown)!r} is no option; there are {', '.join(sorted(names))}")
    number = {name: _number(table, name, *bounds) for name, bounds in _NUMBERS.items()}
    integer = {name: _integer(table, name, *bounds) for name, bounds in _INTEGERS.items()}
    texts = {name: _texts(table, name) for name in _LISTS}
    strategies = table.get("strategies", {})
    if type(strategies) is not dict:
        raise ConfigurationError("options.strategies must be a table of topics")
    url = table.get("websocket_url", "")
    if type(url) is not str or (url and not url.startswith(("ws://", "wss://"))):
        raise ConfigurationError("options.websocket_url must be a URL that begins with ws:// or wss://")
    key = _key(table.get("key_file", ""))
    return Options(
        number["ack_seconds"],
        integer["retries"],
        number["retry_seconds"],
        number["token_hours"],
        integer["capacity"],
        texts["priority_hosts"],
        _strategy(table.get("strategy", Strategy.ORDERED), "strategy"),
        {topic: _strategy(value, f"strategies.{topic}") for topic, value in strategies.items()},
        url,
        key,
        WebSocketSettings(integer["message_bytes"], number["heartbeat_seconds"], texts["origins"]),
        read_heartbeat_options(table["heartbeat"], bool(key)) if "heartbeat" in table else None,
    )


def _key(path: Any) -> bytes:
    if type(path) is not str or (path and not path.startswith("/")):
        raise ConfigurationError("options.key_file must be an absolute path")
    return read_secret(Path(path), "options.key_file") if path else b""


def _strategy(value: Any, name: str) -> Strategy:
    if value not in list(Strategy):
        raise ConfigurationError(f"options.{name} must be one of {', '.join(Strategy)}")
    return Strategy(value)


def _number(table: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = table.get(name, default)
    if type(value) not in (int, float) or not isfinite(value) or not low <= value <= high:
        raise ConfigurationError(f"options.{name} must be a number from {low} to {high:,}")
    return float(value)


def _integer(table: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = table.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise ConfigurationError(f"options.{name} must be an integer from {low:,} to {high:,}")
    return value


def _texts(table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = table.get(name, [])
    if type(value) is not list or not all(type(one) is str and one for one in value):
        raise ConfigurationError(f"options.{name} must be a list of strings")
    return tuple(value)
