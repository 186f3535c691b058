"""What the configuration of a door says about WebSocket MQ: its table ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from postroom_common.errors import ConfigurationError

from ...contract import WebSocketSettings

_NAMES: Final = ("heartbeat_seconds", "message_bytes", "origins")
#: Largest message of the reference.
_MESSAGE_BYTES: Final = 100 * 2**20
_HEARTBEAT_LIMIT_S: Final = 3600


def read_options(table: Mapping[str, Any]) -> WebSocketSettings:
    """The options of a door. Raises ``ConfigurationError``."""
    unknown = set(table) - set(_NAMES)
    if unknown:
        raise ConfigurationError(f"options: {min(unknown)!r} is no option; there are {', '.join(_NAMES)}")
    size = table.get("message_bytes", _MESSAGE_BYTES)
    if type(size) is not int or not 1024 <= size <= 2**31:
        raise ConfigurationError(f"options.message_bytes must be an integer from 1,024 to {2**31:,}")
    beat = table.get("heartbeat_seconds", 0)
    if type(beat) not in (int, float) or not isfinite(beat) or not (beat == 0 or 0.1 <= beat <= _HEARTBEAT_LIMIT_S):
        raise ConfigurationError(
            f"options.heartbeat_seconds must be a number from 0.1 to {_HEARTBEAT_LIMIT_S:,}; 0: no heartbeat"
        )
    origins = table.get("origins", [])
    if type(origins) is not list or not all(type(one) is str and (one == "*" or "://" in one) for one in origins):
        raise ConfigurationError(
            "options.origins must be a list of origins such as 'https://console.example'; '*': all"
        )
    return WebSocketSettings(size, float(beat), tuple(one.rstrip("/") for one in origins))
