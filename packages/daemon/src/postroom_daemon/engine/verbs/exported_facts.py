"""Facts as ``read_state`` shows them, checked: they come from a file that anybody may have edited."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import TEXT_LIMIT, Command, queue_name_problem

from ...model.records import CARRIED_FACTS, CLAIM, CLAIM_END, FACT_DRAINING, SCHEDULE
from ..fields import read_fields
from ..schedules import MISSED, Plan
from .exported import wrong
from .schedules import PUBLISHED

_DIGEST: Final = re.compile("[0-9a-f]{32}")
_LARGEST: Final = 2**53
#: Times of the wall (Unix ms) that calendars know: up to the year 2248.
_LATEST_MS: Final = 2**43
_TIMES: Final = ("setMs", "nextMs", "lastMs")
_TEXTS: Final = ("queue", "cron", "timezone", "missed")


@dataclass(frozen=True, slots=True)
class ExportedClaim:
    """What may not be published twice in a queue until a time, engine ms there. 0: while message ``key`` is there."""

    queue: str
    name: str
    key: str
    until: int


@dataclass(frozen=True, slots=True)
class ExportedSchedule:
    """A schedule, as it is kept."""

    name: str
    schedule: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportedDrain:
    """The root takes no new messages."""


def exported_fact(data: Any) -> ExportedClaim | ExportedSchedule | ExportedDrain | None:
    """A fact; None for one that follows from others. Raises ``CommandError`` (ERR_INVALID_REQUEST) for what is none."""
    name = data.get("name") if type(data) is dict else None
    if type(name) is not str or not name.startswith(CARRIED_FACTS):
        raise wrong("a fact", f"its name must begin with one of {', '.join(CARRIED_FACTS)}")
    what, value = f"fact {name[:200]!r}", data.get("value")
    if name.startswith(CLAIM):
        return _claim(name.removeprefix(CLAIM), value, what)
    if name.startswith(SCHEDULE):
        return _schedule(name.removeprefix(SCHEDULE), value, what)
    if name == FACT_DRAINING:
        if value is not True:
            raise wrong(what, "its value must be true, or it must not be there")
        return ExportedDrain()
    if name.startswith((CLAIM_END, "dlq:")):
        return None
    raise wrong(what, "no fact is called so")


def _claim(rest: str, value: Any, what: str) -> ExportedClaim:
    queue, _, name = rest.rpartition("\0")
    if queue_name_problem(queue) or not _DIGEST.fullmatch(name):
        raise wrong(what, "expected claim:, a queue, a zero byte, and a digest of 32 hex digits")
    key, until = (value.get("key"), value.get("untilEngineMs")) if type(value) is dict else (None, None)
    if type(key) is not str or not 0 < len(key) <= TEXT_LIMIT:
        raise wrong(what, "its key must be that of a message")
    if type(until) is not int or not 0 <= until <= _LARGEST:
        raise wrong(what, "untilEngineMs must be a whole number from 0 to 2^53")
    return ExportedClaim(queue, name, key, until)


def _schedule(name: str, value: Any, what: str) -> ExportedSchedule:
    publish = value.get("publish") if type(value) is dict else None
    if type(publish) is not dict or set(value) != {*_TEXTS, *_TIMES, "publish"} or set(publish) - {*PUBLISHED}:
        raise wrong(
            what, f"expected {', '.join((*_TEXTS, *_TIMES))}, and publish with no more than {', '.join(PUBLISHED)}"
        )
    try:
        fields = read_fields(Command.SET_SCHEDULE, {"name": name, **{text: value[text] for text in _TEXTS}, **publish})
    except CommandError as error:
        raise wrong(what, error.message) from None
    if fields["missed"] not in MISSED:
        raise wrong(what, f"missed must be one of {', '.join(MISSED)}")
    if any(type(value[time]) is not int or not 0 <= value[time] <= _LATEST_MS for time in _TIMES):
        raise wrong(what, f"{', '.join(_TIMES)} must be Unix milliseconds up to the year 2248")
    try:
        Plan(fields["cron"], fields["timezone"]).after(value["setMs"], value["setMs"])
    except ValueError as error:
        raise wrong(what, str(error)) from None
    return ExportedSchedule(name, value)
