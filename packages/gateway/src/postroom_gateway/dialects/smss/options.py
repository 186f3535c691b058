"""What the configuration of a door says about smss: its table ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from postroom_common.errors import ConfigurationError

_PAYLOAD_BYTES: Final = 1 << 24
#: As in the reference, whose clients give up after 35 s of silence.
_ALIVE_S: Final = 30.0
_ALIVE_LIMIT_S: Final = 3600
#: The 7 days of the reference.
_RETENTION_HOURS: Final = 168.0
_RETENTION_LIMIT_HOURS: Final = 876_000


class Options(NamedTuple):
    """The options of a door."""

    #: Largest payload of a publish, in bytes. The daemon's own limit may be smaller.
    payload_bytes: int = _PAYLOAD_BYTES
    #: Longest silence (s) towards a subscriber for whom there is nothing.
    alive_seconds: float = _ALIVE_S
    #: How long (hours) messages stay in topics that are created through the door; 0: for ever.
    retention_hours: float = _RETENTION_HOURS


def read_options(table: Mapping[str, Any]) -> Options:
    """The options of a door. Raises ``ConfigurationError``."""
    unknown = set(table) - set(Options._fields)
    if unknown:
        names = ", ".join(sorted(Options._fields))
        raise ConfigurationError(f"options: {min(unknown)!r} is no option; there are {names}")
    size = table.get("payload_bytes", _PAYLOAD_BYTES)
    if type(size) is not int or not 1024 <= size <= 2**31:
        raise ConfigurationError(f"options.payload_bytes must be an integer from 1,024 to {2**31:,}")
    return Options(
        size,
        _number(table, "alive_seconds", _ALIVE_S, 0.1, _ALIVE_LIMIT_S),
        _number(table, "retention_hours", _RETENTION_HOURS, 0, _RETENTION_LIMIT_HOURS),
    )


def _number(table: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = table.get(name, default)
    if type(value) not in (int, float) or not isfinite(value) or not low <= value <= high:
        raise ConfigurationError(f"options.{name} must be a number from {low} to {high:,}")
    return float(value)
