"""Schedules that are due: each publishes its message."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import Command

from ..engine.context import Context, Draft, Pending
from ..engine.fields import read_fields
from ..engine.schedules import Plan
from ..engine.verbs.publish import publish
from ..engine.verbs.schedules import SCHEDULES_LIMIT, rescheduled
from ..model.records import SCHEDULE
from ..platform.logs import about

log = logging.getLogger(__name__)

#: A wall clock that says less (Unix ms, the beginning of 2024) was not set yet: nothing is due by it.
PLAUSIBLE_MS: Final = 1_704_067_200_000
#: A run that is late by no more was not missed.
GRACE_MS: Final = 60_000
#: Runs missed for longer were not missed by a device that was off: its clock was set. One of them is made up for.
LONGEST_GAP_MS: Final = 30 * 24 * 3600 * 1000
#: Missed runs that one turn makes up for, of all schedules together; of each at least one.
RUNS_A_TURN: Final = 100
_UNREAD: Final = "schedules that cannot be read"
_REFUSED: Final = "schedules whose runs are refused"


def fire_schedules(context: Context) -> Iterator[list[Draft]]:
    """Publishes what schedules have to publish by now. A run that is refused, because its queue is paused or full, does
    not take place; the event says so."""
    wall = context.now.wall
    if wall < PLAUSIBLE_MS:
        return
    facts = context.store.pages.kv_names(SCHEDULE, "", SCHEDULES_LIMIT)
    _forget_others(context, {fact.removeprefix(SCHEDULE) for fact in facts})
    left = RUNS_A_TURN
    for fact in facts:
        name, schedule = fact.removeprefix(SCHEDULE), context.store.get_kv(fact)
        try:
            anew, runs = _planned(schedule, wall, max(left, 1))
        except (ValueError, OverflowError) as error:
            _note_unread(context, name, schedule, str(error))
            continue
        if anew:
            schedule = anew
            yield [{"type": EventType.SCHEDULE_SET, "name": name, "schedule": schedule}]
        left -= len(runs)
        for at, following in runs:
            yield _fired(context, name, schedule, at, following)


def _planned(schedule: dict[str, Any], wall: int, most: int) -> tuple[dict[str, Any] | None, list[tuple[int, int]]]:
    """The schedule as it is from now on, if the clock was set back; and the runs to take place now, so many at most.

    Raises ``ValueError`` or ``OverflowError`` for one that this device cannot read, though it was taken.
    """
    plan, anew = Plan(schedule["cron"], schedule["timezone"]), None
    if schedule["nextMs"] > plan.after(wall, min(schedule["setMs"], wall)):
        schedule = anew = rescheduled(schedule, wall)
    return anew, list(_runs(schedule, plan, wall, most))


def _forget_others(context: Context, names: set[str]) -> None:
    """What was said of schedules that are gone need not be kept."""
    for told in (context.cursors.get(_UNREAD, {}), context.cursors.get(_REFUSED, {})):
        for name in told.keys() - names:
            del told[name]


def _note_unread(context: Context, name: str, schedule: dict[str, Any], why: str) -> None:
    """Say so once. It waits: what it misses meanwhile was missed, should it be read again."""
    told: dict[str, Any] = context.cursors.setdefault(_UNREAD, {})
    if told.get(name) != schedule:
        told[name] = schedule
        log.error("schedule %r cannot be read, and publishes nothing: %s", name, why, extra=about(schedule=name))


def _runs(schedule: dict[str, Any], plan: Plan, wall: int, most: int) -> Iterator[tuple[int, int]]:
    """The runs to take place now, each with the one to wait for next. A run at 0 does not take place."""
    begin, at = schedule["setMs"], schedule["nextMs"]
    if at > wall:
        return
    last, following = plan.last(wall, begin), plan.after(wall, begin)
    if schedule["missed"] == "all" and wall - at <= LONGEST_GAP_MS:
        for _ in range(most):
            after = plan.after(at, begin)
            yield at, after
            at = after
            if at > wall:
                return
    elif schedule["missed"] == "skip" and wall - last > GRACE_MS:
        yield 0, following
    else:
        yield last, following


def _fired(context: Context, name: str, schedule: dict[str, Any], at: int, following: int) -> list[Draft]:
    drafts: list[Draft] = []
    fired: Draft = {"type": EventType.SCHEDULE_FIRED, "name": name, "forMs": at or schedule["lastMs"]}
    fired |= {"nextMs": following}
    if at:
        try:
            payload = {"queue": schedule["queue"], **schedule["publish"]}
            alone = replace(context, pending=Pending())  # the run before was folded
            drafts = publish(alone, read_fields(Command.PUBLISH, payload)).drafts
            context.cursors.get(_REFUSED, {}).pop(name, None)
        except CommandError as error:
            fired["refused"] = error.code
            told: dict[str, str] = context.cursors.setdefault(_REFUSED, {})
            if told.get(name) != error.code:  # the journal has each run; the log would have hundreds a second
                told[name] = error.code
                log.warning(
                    "schedule %r: runs are not published any more: %s", name, error.message, extra=about(schedule=name)
                )
    else:
        fired["skipped"] = True
    return [*drafts, fired]
