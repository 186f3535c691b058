"""LMQ's properties of a queue as policies, and policies as properties.

========= ======================= ==============================================================================
property  policy                  difference
========= ======================= ==============================================================================
accum     ``gatherWindowSec``     whole milliseconds; negative values act as 0
retry     ``retry.limit`` - 1     -1 and below are stored as limit 0, and act as 0 (LMQ never delivers the message)
timeout   ``visibilityTimeoutSec`` at least 1 ms: 0 and below are stored as 1 ms, and shown as 0
========= ======================= ==============================================================================

MessagePack-RPC has the name ``pack`` for ``accum``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from postroom_common.protocol import DELAY_MS_LIMIT, VISIBILITY_MS_LIMIT

#: The policy keys behind the properties, by dotted path, in the order in which LMQ prints properties.
PATHS: Final = {"accum": "gatherWindowSec", "retry": "retry.limit", "timeout": "visibilityTimeoutSec"}
#: LMQ's own values, which no request can change.
SYSTEM: Final[Mapping[str, float]] = {"accum": 0, "retry": 2, "timeout": 30}
#: A policy that removes the properties of a queue, and nothing else that an operator has set.
RESET: Final[Mapping[str, Any]] = {"gatherWindowSec": None, "retry": {"limit": None}, "visibilityTimeoutSec": None}

_SHORTEST_S: Final = 0.001
#: Largest body that becomes objects, which take many times its size.
_BODY_BYTES: Final = 1 << 20
_LARGEST: Final = {"accum": DELAY_MS_LIMIT // 1000, "retry": 2**31 - 2, "timeout": VISIBILITY_MS_LIMIT // 1000}

#: Properties as a request gives them: only those that it names.
Properties = dict[str, float]


class InvalidProperties(ValueError):
    """Properties that LMQ refuses with 400. The text names the fault."""


def default_policy(statistics: bool = True) -> dict[str, Any]:
    """The policy of a queue that LMQ's clients create: LMQ's own values, a failed delivery is retried at once and
    behind what waits, and what is spent becomes a dead letter."""
    policy: dict[str, Any] = {
        "visibilityTimeoutSec": SYSTEM["timeout"],
        "retry": {
            "limit": int(SYSTEM["retry"]) + 1,
            "backoff": "fixed",
            "initialDelaySec": _SHORTEST_S,
            "maxDelaySec": _SHORTEST_S,
            "returnTo": "end",
        },
    }
    if statistics:
        policy["statistics"] = {"enabled": True}
    return policy


def read_properties(body: bytes) -> Properties:
    """The properties of a request's JSON body. Raises ``InvalidProperties``."""
    return check_properties(_read_json(body))


def read_default_properties(body: bytes) -> list[tuple[str, Properties]]:
    """The list of patterns and properties of a request's JSON body. Raises ``InvalidProperties``."""
    return check_default_properties(_read_json(body))


def check_properties(value: Any) -> Properties:
    """Properties from an object: ``accum`` and ``timeout`` are any number, ``retry`` is an integer. ``pack``, which LMQ
    accepts over HTTP and never reads, is left out. Raises ``InvalidProperties``."""
    if type(value) is not dict:
        raise InvalidProperties("properties must be an object such as {'retry': 2, 'timeout': 30, 'accum': 0}")
    properties: Properties = {}
    for name, given in value.items():
        if name == "hooks":
            raise InvalidProperties("hooks are configured in the gateway: preserve_headers")
        if name not in PATHS and name != "pack":
            raise InvalidProperties(f"{name!r} is no property; there are accum, retry and timeout")
        if type(given) is not int and (name == "retry" or type(given) is not float or not isfinite(given)):
            raise InvalidProperties(f"{name} must be {'an integer' if name == 'retry' else 'a number'}")
        if name != "pack":
            properties[name] = _bounded(name, given)
    return properties


def check_default_properties(value: Any) -> list[tuple[str, Properties]]:
    """Pairs of a pattern and properties, from a list of lists. Raises ``InvalidProperties``."""
    if type(value) is not list:
        raise InvalidProperties("default properties must be a list such as [['^accum/', {'accum': 30}]]")
    entries: list[tuple[str, Properties]] = []
    for entry in value:
        if type(entry) is not list or len(entry) != 2 or type(entry[0]) is not str:
            raise InvalidProperties("an entry of default properties must be a list of a pattern and properties")
        entries.append((entry[0], check_properties(entry[1])))
    return entries


def to_policy(properties: Mapping[str, float]) -> dict[str, Any]:
    """The policy that these properties set, for ``set_policy``."""
    policy: dict[str, Any] = {}
    if "accum" in properties:
        policy["gatherWindowSec"] = round(max(0, properties["accum"]), 3)
    if "retry" in properties:
        policy["retry"] = {"limit": max(0, int(properties["retry"]) + 1)}
    if "timeout" in properties:
        policy["visibilityTimeoutSec"] = max(_SHORTEST_S, round(properties["timeout"], 3))
    return policy


def to_patterns(entries: Iterable[tuple[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """The patterns that default properties set, for ``set_policy_patterns``."""
    return [{"pattern": pattern, "policy": to_policy(properties)} for pattern, properties in entries]


def from_policy(policy: Mapping[str, Any]) -> Properties:
    """The properties that a policy sets, in the order in which LMQ prints them; keys that LMQ does not have are left
    out."""
    properties: Properties = {}
    if policy.get("gatherWindowSec") is not None:
        properties["accum"] = policy["gatherWindowSec"]
    limit = policy.get("retry", {}).get("limit")
    if limit is not None:
        properties["retry"] = limit - 1
    timeout = policy.get("visibilityTimeoutSec")
    if timeout is not None:
        properties["timeout"] = 0 if timeout <= _SHORTEST_S else timeout
    return properties


def from_patterns(patterns: Sequence[Mapping[str, Any]]) -> list[tuple[str, Properties]]:
    """The default properties of the answer of ``get_policy_patterns``."""
    return [(entry["pattern"], from_policy(entry["policy"])) for entry in patterns]


def encode_properties(properties: Mapping[str, float]) -> bytes:
    """Properties as LMQ prints them: ``{"accum":0,"retry":2,"timeout":30}``."""
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), number(given)) for name, given in properties.items())


def encode_default_properties(entries: Iterable[tuple[str, Mapping[str, float]]]) -> bytes:
    """Default properties as LMQ prints them: ``[["^accum/",{"accum":30}]]``."""
    return b"[%b]" % b",".join(
        b"[%b,%b]" % (json.dumps(pattern, ensure_ascii=False).encode(), encode_properties(properties))
        for pattern, properties in entries
    )


def number(value: float) -> bytes:
    """A number as LMQ prints it in JSON: 15 digits at most, and no fraction if it has none (``0``, never ``0.0``)."""
    return b"%d" % value if type(value) is int else b"%.15g" % value


def to_rpc(properties: Mapping[str, float]) -> dict[str, float]:
    """Properties as MessagePack-RPC returns them: ``accum`` is ``pack``, and a float."""
    shown = dict(properties)
    if "accum" in shown:
        shown["pack"] = float(shown.pop("accum"))
    return shown


def from_rpc(value: Any) -> Properties:
    """Properties as MessagePack-RPC gives them; ``pack`` is ``accum``. Raises ``InvalidProperties``."""
    if type(value) is not dict:
        raise InvalidProperties("properties must be a map")
    if "pack" in value:
        value = {**{name: given for name, given in value.items() if name != "pack"}, "accum": value["pack"]}
    return check_properties(value)


def default_from_rpc(value: Any) -> list[tuple[str, Properties]]:
    """Default properties as MessagePack-RPC gives them. Raises ``InvalidProperties``."""
    if type(value) is not list:
        raise InvalidProperties("default properties must be a list")
    return check_default_properties(
        [[entry[0], from_rpc(entry[1])] if type(entry) is list and len(entry) == 2 else entry for entry in value]
    )


def _read_json(body: bytes) -> Any:
    if len(body) > _BODY_BYTES:
        raise InvalidProperties(f"the body must have at most {_BODY_BYTES:,} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidProperties("the body must be JSON") from None


def _bounded(name: str, value: float) -> float:
    """The value, unless it is larger than any that a policy can have. Raises ``InvalidProperties``."""
    if value > _LARGEST[name]:
        raise InvalidProperties(f"{name} must be at most {_LARGEST[name]}")
    return value
