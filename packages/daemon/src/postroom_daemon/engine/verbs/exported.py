"""Parses queues, messages and facts in the form of ``read_state``. They come from a file that anybody may have
edited."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from postroom_common.body import CARRIED, DRAFT, GATHERED, check_gathered_part, check_part, with_parts
from postroom_common.errors import CommandError, ConfigurationError
from postroom_common.events import raw_json
from postroom_common.policy import Layer, read_layer
from postroom_common.protocol import (
    DELAY_MS_LIMIT,
    HISTORY_LIMIT,
    NO_PRIORITY,
    TEXT_LIMIT,
    Command,
    ErrorCode,
    State,
    message_key,
    queue_name_problem,
)

from ...model.facts import CARRIED_FACTS, CLAIM, CLAIM_END, FACT_DRAINING, FACT_POLICY_PATTERNS, NAME, SCHEDULE
from ...model.log_record import LOG
from ...model.records import ORDERED, Entry, QueueRecord, entry_from_json
from ...policy.policies import override_to_wire
from ..fields import read_fields
from ..schedules import MISSED, Plan
from .drafting import names_of_parts
from .policies import read_patterns
from .schedules import PUBLISHED
from .terminations import QUARANTINED

#: The fields of a message that are texts, and those that are numbers.
_TEXTS: Final = (
    "key", "queue", "state", "target", "lease", "consumer", "uid", "phase", "reason", "orderingKey", "claim", "name",
)  # fmt: skip
_NUMBERS: Final = (
    "published",
    "createdMs",
    "createdEngineMs",
    "attempt",
    "dueEngineMs",
    "untilEngineMs",
    "leasedEngineMs",
    "diedEngineMs",
    "failures",
    "bytes",
    "expiresEngineMs",
    "fallbackEngineMs",
    "deliverAtMs",
    "retryLimit",
    "place",
)
#: Prefix of every message key.
_KEY: Final = message_key("", "").removesuffix(":")
_LARGEST: Final = 2**53
_FAILURE: Final[dict[str, type]] = {
    "reasonCode": str,
    "reasonMessage": str,
    "attempt": int,
    "consumerId": str,
    "failedAtMs": int,
}
_DIGEST: Final = re.compile("[0-9a-f]{32}")
#: The latest wall time (Unix ms) of a schedule: the year 2248.
_LATEST_MS: Final = 2**43
_SCHEDULE_TIMES: Final = ("setMs", "nextMs", "lastMs")
_SCHEDULE_TEXTS: Final = ("queue", "cron", "timezone", "missed")


class Exported(NamedTuple):
    """A message of another root: its entry, its failed attempts and its body, with all parts; but the named parts of
    one that was drafted are in ``named``, in order, None for one that has no value."""

    entry: Entry
    history: list[dict[str, Any]]
    body: bytes
    named: list[dict[str, Any] | None]


def exported_queue(data: Any) -> QueueRecord:
    """Parse the record of a queue. Raises ``CommandError`` (ERR_INVALID_REQUEST) if it is invalid."""
    name = data.get("name") if type(data) is dict else None
    if type(name) is not str:
        raise invalid("a queue", "it has no name")
    problem = queue_name_problem(name)
    if problem:
        raise invalid(f"queue {name!r}", f"its name {problem}")
    if data.get("kind") == LOG or data.get("log"):
        raise invalid(
            f"queue {name!r}", "it is a log: positions are those of its own root, and only restore keeps them"
        )
    flags = data.get("publishPaused", False), data.get("consumePaused", False)
    layers = {layer: data.get(layer, {}) for layer in ("override", "createdWith")}
    if any(type(layer) is not dict for layer in layers.values()) or any(type(flag) is not bool for flag in flags):
        raise invalid(
            f"queue {name!r}", "override and createdWith must be objects, publishPaused and consumePaused booleans"
        )
    override, created_with = (_layer(f"queue {name!r}", layer, where) for where, layer in layers.items())
    totals, tally_from = (_numbers(f"queue {name!r}", data, field) for field in ("totals", "tallyFrom"))
    return QueueRecord(
        name,
        publish_paused=flags[0],
        consume_paused=flags[1],
        override=override,
        totals=totals,
        created_with=created_with,
        tally_from=tally_from,
    )


def _numbers(what: str, data: dict[str, Any], field: str) -> dict[str, int]:
    numbers = data.get(field, {})
    if type(numbers) is not dict or any(type(n) is not int or abs(n) > _LARGEST for n in numbers.values()):
        raise invalid(what, f"{field} must be an object of whole numbers")
    return numbers


def _layer(what: str, layer: dict[str, Any], where: str) -> Layer:
    """Check a layer of a policy. Raises ``CommandError`` (ERR_INVALID_REQUEST)."""
    corrections: list[str] = []
    try:
        checked = read_layer(override_to_wire(layer), where, corrections.append)
    except ConfigurationError as error:
        raise invalid(what, str(error)) from None
    if corrections:
        raise invalid(what, "; ".join(corrections))
    return checked


def exported_message(data: Any) -> Exported:
    """Parse a message. Raises ``CommandError`` (ERR_INVALID_REQUEST) if it is invalid."""
    key = data.get("key") if type(data) is dict else None
    if type(key) is not str:
        raise invalid("a message", "it has no key")
    what = f"message {key[:200]!r}"
    for name in _TEXTS:
        if type(data.get(name, "")) is not str or len(data.get(name, "")) > TEXT_LIMIT:
            raise invalid(what, f"{name} must be a string of at most {TEXT_LIMIT} characters")
    for name in _NUMBERS:
        value = data.get(name, 0)
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise invalid(what, f"{name} must be a whole number from 0 to 2^53")
    priority = data.get("priority", 0)
    if type(priority) is not int or not (-(2**31) <= priority < 2**31 or priority == NO_PRIORITY):
        raise invalid(what, "priority must be a whole number of 32 bits")
    queue = data.get("queue", "")
    problem = queue_name_problem(queue)
    if problem:
        raise invalid(what, f"queue {problem}")
    born = key.removeprefix(_KEY).rpartition(":")  # not the queue that it is in, if it was moved
    if not key.startswith(_KEY) or not born[2] or queue_name_problem(born[0]):
        raise invalid(what, f"the key does not begin with {_KEY!r} and the queue of its birth, or has no id")
    if data.get("state") not in list(State):
        raise invalid(what, f"state must be one of {', '.join(State)}")
    if data.get("phase", "") not in ("", QUARANTINED, ORDERED):
        raise invalid(what, f"phase must be {QUARANTINED!r} or {ORDERED!r}, or not be there")
    if data.get("fallbackEngineMs") and not data.get("target"):
        raise invalid(what, "fallbackEngineMs is when its target ends, and it has no target")
    entry = entry_from_json({"published": 0, "createdEngineMs": 0, **data})
    body, named = _body(data, what)
    entry.parts, entry.unset = 0, named.count(None)
    if not (entry.unset if entry.state is State.DRAFTING else not entry.unset or entry.state is State.DEAD):
        raise invalid(what, f"a message is {State.DRAFTING} as long as one of its named parts has no value")
    return Exported(entry, _history(data, what), body, named)


def _history(data: dict[str, Any], what: str) -> list[dict[str, Any]]:
    history = data.get("history", [])
    if type(history) is not list or len(history) > HISTORY_LIMIT:
        raise invalid(what, f"history must be an array of at most {HISTORY_LIMIT}")
    for failure in history:
        if type(failure) is not dict or any(type(failure.get(name)) is not kind for name, kind in _FAILURE.items()):
            raise invalid(what, f"each failure of its history must have {', '.join(_FAILURE)}")
        if not (0 <= failure["attempt"] <= _LARGEST and 0 <= failure["failedAtMs"] <= _LARGEST):
            raise invalid(what, "attempt and failedAtMs must be whole numbers from 0 to 2^53")
    return history


def _body(data: dict[str, Any], what: str) -> tuple[bytes, list[dict[str, Any] | None]]:
    envelope = data.get("message")
    if type(envelope) is not dict or set(envelope) - {"parts", "attributes", DRAFT, GATHERED, *CARRIED}:
        raise invalid(what, "message must be an object with parts, and nothing that is unknown")
    parts, appended = envelope.get("parts"), data.get("appended", [])
    if GATHERED in envelope:
        return _gathered(envelope, parts, appended, what), []
    named = _named(envelope, appended, what) if DRAFT in envelope else []
    if named:
        parts = [] if parts == [] else None
    elif type(parts) is not list or len(parts) != 1 or appended:
        parts = None
    if parts is None:
        raise invalid(what, "message.parts must be an array of one part, and only a gathered message has more")
    for part in [*parts, *([envelope["attributes"]] if "attributes" in envelope else [])]:
        fault = check_part(part)
        if fault:
            raise invalid(what, fault)
    for name in CARRIED:
        if type(envelope.get(name, "")) not in (str, int, float):
            raise invalid(what, f"message.{name} must be a string or a number")
    return raw_json(envelope), named


def _named(envelope: dict[str, Any], beside: Any, what: str) -> list[dict[str, Any] | None]:
    """The named parts of a message that was drafted."""
    draft = envelope[DRAFT]
    names = draft.get("parts") if type(draft) is dict and not set(draft) - {"parts", "ttlMs"} else None
    ttl = draft.get("ttlMs", 1) if names else None
    if type(names) is not list or type(ttl) is not int or not 1 <= ttl <= DELAY_MS_LIMIT:
        raise invalid(what, f"message.{DRAFT} must have the names of its parts, and perhaps ttlMs")
    try:
        is_right = names_of_parts(names) == names
    except CommandError as error:
        raise invalid(what, error.message) from None
    if not is_right or type(beside) is not list or len(beside) != len(names):
        raise invalid(what, "appended must be an array with each of its named parts, or null for one without a value")
    for name, part in zip(names, beside, strict=True):
        fault = check_part(part) if part is not None else None
        if fault or (part is not None and part.get("name") != name):
            raise invalid(what, fault or f"the part {name!r} has another name")
    return beside


def _gathered(envelope: dict[str, Any], parts: Any, appended: Any, what: str) -> bytes:
    """The body of a gathered message with all parts."""
    if set(envelope) != {"parts", GATHERED} or envelope[GATHERED] is not True:
        raise invalid(what, f"message must have only parts and {GATHERED}, which is true")
    if type(parts) is not list or not parts or type(appended) is not list:
        raise invalid(what, "message.parts must be an array of parts, and appended an array")
    for part in [*parts, *appended]:
        fault = check_gathered_part(part)
        if fault:
            raise invalid(what, fault)
    return with_parts(raw_json(envelope), appended)


def invalid(what: str, fault: str) -> CommandError:
    """The error for an invalid part of an export."""
    return CommandError(ErrorCode.INVALID_REQUEST, f"{what}: {fault}")


@dataclass(frozen=True, slots=True)
class ExportedClaim:
    """A deduplication claim until an engine time of the other root (ms); 0: as long as message ``key`` exists."""

    queue: str
    name: str
    key: str
    until: int


@dataclass(frozen=True, slots=True)
class ExportedSchedule:
    """A schedule as it is stored."""

    name: str
    schedule: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportedDrain:
    """The other root drains: it accepts no new messages."""


@dataclass(frozen=True, slots=True)
class ExportedPolicyPatterns:
    """The policy patterns of the other root, as they are stored."""

    patterns: list[dict[str, Any]]


ExportedFact = ExportedClaim | ExportedSchedule | ExportedDrain | ExportedPolicyPatterns


def exported_fact(data: Any) -> ExportedFact | None:
    """Parse a fact; None for one that follows from others. Raises ``CommandError`` (ERR_INVALID_REQUEST) if it is
    invalid."""
    name = data.get("name") if type(data) is dict else None
    if type(name) is not str or not name.startswith(CARRIED_FACTS):
        raise invalid("a fact", f"its name must begin with one of {', '.join(CARRIED_FACTS)}")
    what, value = f"fact {name[:200]!r}", data.get("value")
    if name.startswith(CLAIM):
        return _claim(name.removeprefix(CLAIM), value, what)
    if name.startswith(SCHEDULE):
        return _schedule(name.removeprefix(SCHEDULE), value, what)
    if name == FACT_DRAINING:
        if value is not True:
            raise invalid(what, "its value must be true, or it must not be there")
        return ExportedDrain()
    if name == FACT_POLICY_PATTERNS:
        return _policy_patterns(value, what)
    if name.startswith((CLAIM_END, NAME, "dlq:")):
        return None
    raise invalid(what, "no fact is called so")


def _policy_patterns(value: Any, what: str) -> ExportedPolicyPatterns:
    if type(value) is not list:
        raise invalid(what, "its value must be an array")
    if any(type(one) is not dict or type(one.get("policy")) is not dict for one in value):
        raise invalid(what, "each item must be an object with pattern and policy, an object")
    try:
        return ExportedPolicyPatterns(
            read_patterns([one | {"policy": override_to_wire(one["policy"])} for one in value])
        )
    except CommandError as error:
        raise invalid(what, error.message) from None


def _claim(rest: str, value: Any, what: str) -> ExportedClaim:
    queue, _, name = rest.rpartition("\0")
    if queue_name_problem(queue) or not _DIGEST.fullmatch(name):
        raise invalid(what, "expected claim:, a queue, a zero byte, and a digest of 32 hex digits")
    key, until = (value.get("key"), value.get("untilEngineMs")) if type(value) is dict else (None, None)
    if type(key) is not str or not 0 < len(key) <= TEXT_LIMIT:
        raise invalid(what, "its key must be that of a message")
    if type(until) is not int or not 0 <= until <= _LARGEST:
        raise invalid(what, "untilEngineMs must be a whole number from 0 to 2^53")
    return ExportedClaim(queue, name, key, until)


def _schedule(name: str, value: Any, what: str) -> ExportedSchedule:
    publish = value.get("publish") if type(value) is dict else None
    names = (*_SCHEDULE_TEXTS, *_SCHEDULE_TIMES)
    if type(publish) is not dict or set(value) != {*names, "publish"} or set(publish) - {*PUBLISHED}:
        raise invalid(what, f"expected {', '.join(names)}, and publish with no more than {', '.join(PUBLISHED)}")
    try:
        texts = {text: value[text] for text in _SCHEDULE_TEXTS}
        fields = read_fields(Command.SET_SCHEDULE, {"name": name, **texts, **publish})
    except CommandError as error:
        raise invalid(what, error.message) from None
    if fields["missed"] not in MISSED:
        raise invalid(what, f"missed must be one of {', '.join(MISSED)}")
    if any(type(value[time]) is not int or not 0 <= value[time] <= _LATEST_MS for time in _SCHEDULE_TIMES):
        raise invalid(what, f"{', '.join(_SCHEDULE_TIMES)} must be Unix milliseconds up to the year 2248")
    try:
        Plan(fields["cron"], fields["timezone"]).after(value["setMs"], value["setMs"])
    except ValueError as error:
        raise invalid(what, str(error)) from None
    return ExportedSchedule(name, value)
