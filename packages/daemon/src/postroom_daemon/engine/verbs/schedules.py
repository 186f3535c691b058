"""set_schedule, delete_schedule, list_schedules: messages that are published at given times."""

from __future__ import annotations

from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from ...model.facts import SCHEDULE, schedule_fact
from ...policy.access_rules import Verb
from ..context import Context, Decision
from ..fields import Fields
from ..schedules import MISSED, Plan, next_of
from .addresses import refuse_address, refuse_log

#: Maximum number of schedules of a root.
SCHEDULES_LIMIT: Final = 1000
#: The fields of a schedule that belong to its messages.
PUBLISHED: Final = ("message", "attributes", "priority", "ttlMs", "orderingKey")


def set_schedule(context: Context, fields: Fields) -> Decision:
    """Create or replace a schedule. Raises ``CommandError`` for an invalid one, and if there are too many."""
    context.require(Verb.OPERATE, fields["queue"])
    refuse_address(context, fields["queue"])
    refuse_log(context, fields["queue"], "schedules publish to queues")
    refuse_log(context, fields["queue"], "schedules publish to queues")
    if fields["missed"] not in MISSED:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"missed must be one of {', '.join(MISSED)}")
    wall = context.now.wall
    try:
        following = Plan(fields["cron"], fields["timezone"]).after(wall, wall)
    except ValueError as error:
        raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from None
    existing = _existing(context, fields["name"])
    if not existing and len(context.store.facts.names(SCHEDULE, "", SCHEDULES_LIMIT)) == SCHEDULES_LIMIT:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"there are {SCHEDULES_LIMIT:,} schedules: delete one first")
    rule = {name: fields[name] for name in ("queue", "cron", "timezone", "missed")}
    message = {name: fields[name] for name in PUBLISHED if fields[name] is not None}
    schedule = {**rule, "publish": message, "setMs": wall, "nextMs": following, "lastMs": 0}
    return Decision(
        [{"type": EventType.SCHEDULE_SET, "name": fields["name"], "schedule": schedule}],
        reply={"as": "schedule"},
    )


def delete_schedule(context: Context, fields: Fields) -> Decision:
    """Delete a schedule; its published messages stay. Raises ``CommandError`` (ERR_SCHEDULE_NOT_FOUND)."""
    if not _existing(context, fields["name"]):
        raise CommandError(ErrorCode.SCHEDULE_NOT_FOUND, f"there is no schedule {fields['name']!r}")
    return Decision([{"type": EventType.SCHEDULE_DELETED, "name": fields["name"]}], reply={"as": "schedule"})


def list_schedules(context: Context, fields: Fields) -> Decision:
    """A page of schedules by name, of those whose queue the user may browse."""
    limit, store = fields["limit"], context.store
    after = SCHEDULE + fields["after"] if fields["after"] else ""
    if context.access.is_open(Verb.BROWSE):
        facts = store.facts.names(SCHEDULE, after, limit + 1)
    else:
        facts = store.facts.names(SCHEDULE, after, SCHEDULES_LIMIT)
        facts = [fact for fact in facts if context.may(Verb.BROWSE, store.facts.get(fact)["queue"])]
    rows = [shown(fact.removeprefix(SCHEDULE), store.facts.get(fact)) for fact in facts[:limit]]
    return Decision(
        data={
            "schedules": rows,
            "count": len(rows),
            "next": rows[-1]["name"] if len(facts) > limit else "",
            "asOfEvent": store.applied,
            "nowMs": context.now.wall,
        }
    )


def _existing(context: Context, name: str) -> dict[str, Any] | None:
    """The schedule with a name, if it exists. Raises ``CommandError`` (ERR_FORBIDDEN) if the user may not operate its
    queue."""
    schedule: dict[str, Any] | None = context.store.facts.get(schedule_fact(name))
    if schedule:
        context.require(Verb.OPERATE, schedule["queue"])
    return schedule


def shown(name: str, schedule: dict[str, Any]) -> dict[str, Any]:
    """A schedule as answers show it."""
    times = {"nextMs": schedule["nextMs"], "lastMs": schedule["lastMs"]}
    rule = {name: schedule[name] for name in ("queue", "cron", "timezone", "missed")}
    return {"name": name, **rule, "publish": schedule["publish"], **times}


def rescheduled(schedule: dict[str, Any], wall: int) -> dict[str, Any]:
    """A schedule with its next time computed from ``wall``, after the clock was set back."""
    begin = min(schedule["setMs"], wall)
    return schedule | {"setMs": begin, "nextMs": next_of(schedule | {"setMs": begin}, wall)}
