"""The options of a new message: what a publish may say of it besides its queue and its body."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

import orjson

from postroom_common.body import CARRIED, Part, encode_message, value_from_wire
from postroom_common.errors import CommandError
from postroom_common.policy import Policy
from postroom_common.protocol import FIELDS, NO_PRIORITY, RETRY_LIMIT_LIMIT, Command, ErrorCode

from ...platform.clock import Now
from ..context import Draft
from ..fields import Fields

_NOT_GIVEN: Final = (None, "")
_NO_ATTRIBUTES: Final[tuple[Any, ...]] = ("{}", {})
#: The fields of a publish that say where it goes, and what its body is.
_PLACE_AND_BODY: Final = ("queue", "queuePattern", "createWith", "message", "encoding", "contentType")
#: The options of a publish, and their values if they say nothing.
_OPTIONS: Final = {field.name: field.default for field in FIELDS[Command.PUBLISH] if field.name not in _PLACE_AND_BODY}
options_in: Final = itemgetter(*_OPTIONS)
NO_OPTIONS: Final = tuple(_OPTIONS.values())


def attributes_in(fields: Fields, default: Part | None = None) -> Part | None:
    """The attributes that a request gives, None for none; ``default`` if it does not say. Raises ``CommandError``."""
    given = fields["attributes"]
    if given in _NO_ATTRIBUTES:
        return None
    return default if given is None else value_from_wire(given)


def carried_in(fields: Fields) -> dict[str, Any]:
    """The headers that a request gives."""
    return {name: fields[name] for name in CARRIED if fields[name] not in _NOT_GIVEN}


def check_trace(traceparent: str) -> None:
    """Raise ``CommandError`` for control characters in a traceparent. Otherwise it is passed on without being parsed,
    as its specification demands; but others write it into headers, which control characters would break."""
    if any(char < " " or "\x7f" <= char < "\xa0" for char in traceparent):
        raise CommandError(ErrorCode.INVALID_REQUEST, "traceparent must not have control characters")


def record_options(draft: Draft, fields: Fields, policy: Policy, parts: tuple[Part, ...], now: Now) -> bytes:
    """Record the options of a new message in its event. Returns the message as it is stored. Raises
    ``CommandError``."""
    if fields["traceparent"]:
        check_trace(fields["traceparent"])
    attributes = attributes_in(fields)
    priority = priority_of(fields, attributes)
    if priority:
        draft["priority"] = priority
    if fields["delayMs"] or fields["deliverAt"] is not None:
        _set_due(draft, fields, now)
    ttl = fields["ttlMs"] or policy.ttl_ms
    if ttl:
        draft["expiresEngineMs"] = now.engine + ttl
    if fields["targetConsumerId"]:
        draft["target"] = fields["targetConsumerId"]
        fallback = fields["targetFallbackMs"] or policy.target_fallback_ms
        if fallback:
            draft["fallbackEngineMs"] = now.engine + fallback
    if fields["orderingKey"]:
        draft["orderingKey"] = fields["orderingKey"]
    if fields["deduplicationKey"]:
        draft["deduplicationKey"] = fields["deduplicationKey"]
    if fields["retryLimit"] is not None:
        draft["retryLimit"] = _retry_limit(fields["retryLimit"], policy)
    return encode_message(parts, attributes, carried_in(fields))


def _retry_limit(given: Any, policy: Policy) -> int:
    """The message's own limit of deliveries. Raises ``CommandError``."""
    if given == "policy":
        return policy.retry_limit or 1
    if type(given) is not str and given == int(given) and 1 <= given <= RETRY_LIMIT_LIMIT:
        return int(given)
    text = f"retryLimit must be a whole number from 1 to {RETRY_LIMIT_LIMIT}, or policy, but is {str(given)[:80]!r}"
    raise CommandError(ErrorCode.INVALID_REQUEST, text)


def _set_due(draft: Draft, fields: Fields, now: Now) -> None:
    """Set when the message is due. Raises ``CommandError`` if both ``delayMs`` and ``deliverAt`` are given."""
    due = now.engine + fields["delayMs"] if fields["delayMs"] else 0
    if fields["deliverAt"] is not None:
        if due:  # they follow different clocks, and only one can be recomputed when a clock is set
            raise CommandError(ErrorCode.INVALID_REQUEST, "give delayMs or deliverAt, not both")
        draft["deliverAtMs"] = fields["deliverAt"]
        due = now.engine + fields["deliverAt"] - now.wall
    if due > now.engine:
        draft["dueEngineMs"] = due


def priority_of(fields: Fields, attributes: Part | None) -> int:
    """The priority of a message. Raises ``CommandError`` for one that is to have one and none."""
    given: int | None = fields["priority"]
    if fields["noPriority"]:
        if given is not None:
            raise CommandError(ErrorCode.INVALID_REQUEST, "give priority or noPriority, not both")
        return NO_PRIORITY
    return _priority_in(attributes) if given is None and attributes else given or 0


def _priority_in(attributes: Part) -> int:
    """``attributes.priority``, which applies if the field ``priority`` is absent."""
    if b'"priority"' not in attributes.data:
        return 0
    try:
        tree = orjson.loads(attributes.data)
    except orjson.JSONDecodeError:
        return 0
    value = tree.get("priority") if type(tree) is dict else None
    return value if type(value) is int and -(2**31) <= value < 2**31 else 0
