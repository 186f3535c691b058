"""set_schedule, delete_schedule, list_schedules: messages that are published by the clock."""

from __future__ import annotations

from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from ...model.records import SCHEDULE, schedule_fact
from ...policy.access_rules import Verb
from ..context import Context, Decision
from ..fields import Fields
from ..schedules import MISSED, Plan, next_of
from .addresses import refuse_address

#: Schedules of a root.
SCHEDULES_LIMIT: Final = 1000
#: The fields of a schedule that are those of its messages.
PUBLISHED: Final = ("message", "attributes", "priority", "ttlMs", "orderingKey")


def set_schedule(context: Context, fields: Fields) -> Decision:
    """Keep a schedule, in the place of one with its name. Raises ``CommandError`` for one that cannot be read, and
    where there are too many."""
    context.require(Verb.OPERATE, fields["queue"])
    refuse_address(context, fields["queue"])
    if fields["missed"] not in MISSED:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"missed must be one of {', '.join(MISSED)}")
    wall = context.now.wall
    try:
        following = Plan(fields["cron"], fields["timezone"]).after(wall, wall)
    except ValueError as error:
        raise CommandError(ErrorCode.INVALID_REQUEST, str(error)) from None
    known = _known(context, fields["name"])
    if not known and len(context.store.pages.kv_names(SCHEDULE, "", SCHEDULES_LIMIT)) == SCHEDULES_LIMIT:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"there are {SCHEDULES_LIMIT:,} schedules: delete one first")
    kept = {name: fields[name] for name in ("queue", "cron", "timezone", "missed")}
    message = {name: fields[name] for name in PUBLISHED if fields[name] is not None}
    schedule = {**kept, "publish": message, "setMs": wall, "nextMs": following, "lastMs": 0}
    return Decision(
        [{"type": EventType.SCHEDULE_SET, "name": fields["name"], "schedule": schedule}],
        reply={"as": "schedule"},
    )


def delete_schedule(context: Context, fields: Fields) -> Decision:
    """Forget a schedule; what it has published stays. Raises ``CommandError`` (ERR_SCHEDULE_NOT_FOUND)."""
    if not _known(context, fields["name"]):
        raise CommandError(ErrorCode.SCHEDULE_NOT_FOUND, f"there is no schedule {fields['name']!r}")
    return Decision([{"type": EventType.SCHEDULE_DELETED, "name": fields["name"]}], reply={"as": "schedule"})


def list_schedules(context: Context, fields: Fields) -> Decision:
    """A page of schedules in the order of their names, of those whose queue the user may browse."""
    limit, store = fields["limit"], context.store
    after = SCHEDULE + fields["after"] if fields["after"] else ""
    if context.access.is_open(Verb.BROWSE):
        facts = store.pages.kv_names(SCHEDULE, after, limit + 1)
    else:
        facts = store.pages.kv_names(SCHEDULE, after, SCHEDULES_LIMIT)
        facts = [fact for fact in facts if context.may(Verb.BROWSE, store.get_kv(fact)["queue"])]
    rows = [shown(fact.removeprefix(SCHEDULE), store.get_kv(fact)) for fact in facts[:limit]]
    return Decision(
        data={
            "schedules": rows,
            "count": len(rows),
            "next": rows[-1]["name"] if len(facts) > limit else "",
            "asOfEvent": store.applied,
            "nowMs": context.now.wall,
        }
    )


def _known(context: Context, name: str) -> dict[str, Any] | None:
    """The schedule that has a name. Raises ``CommandError`` (ERR_FORBIDDEN) for one of a queue that the user may not
    operate."""
    schedule: dict[str, Any] | None = context.store.get_kv(schedule_fact(name))
    if schedule:
        context.require(Verb.OPERATE, schedule["queue"])
    return schedule


def shown(name: str, schedule: dict[str, Any]) -> dict[str, Any]:
    """A schedule as its replies show it."""
    times = {"nextMs": schedule["nextMs"], "lastMs": schedule["lastMs"]}
    told = {name: schedule[name] for name in ("queue", "cron", "timezone", "missed")}
    return {"name": name, **told, "publish": schedule["publish"], **times}


def rescheduled(schedule: dict[str, Any], wall: int) -> dict[str, Any]:
    """A schedule whose next time is counted from ``wall``: the clock was set back."""
    begin = min(schedule["setMs"], wall)
    return schedule | {"setMs": begin, "nextMs": next_of(schedule | {"setMs": begin}, wall)}
