"""Fires schedules: each publishes its message when it is due."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import Command

from ..engine.context import Context, Draft
from ..engine.fields import read_fields
from ..engine.schedules import Plan
from ..engine.verbs.publish import publish
from ..engine.verbs.schedules import SCHEDULES_LIMIT, rescheduled
from ..model.facts import SCHEDULE
from ..platform.logs import about

log = logging.getLogger(__name__)

#: A wall clock that shows less (Unix ms, the beginning of 2024) has not been set: nothing is due by it.
PLAUSIBLE_MS: Final = 1_704_067_200_000
#: A run that is late by no more than this was not missed.
GRACE_MS: Final = 60_000
#: If runs were missed for longer, the device was not off: its clock was set. Only one of them is made up for.
LONGEST_GAP_MS: Final = 30 * 24 * 3600 * 1000
#: Missed runs that one turn makes up for, over all schedules; at least one of each.
RUNS_A_TURN: Final = 100
_UNREAD: Final = "schedules that cannot be read"
_REFUSED: Final = "schedules whose runs are refused"


def fire_schedules(context: Context) -> Iterator[list[Draft]]:
    """Publish what schedules have to publish by now. A run that is refused, because its queue is paused or full, does
    not take place; the event says so."""
    wall = context.now.wall
    if wall < PLAUSIBLE_MS:
        return
    names = context.store.facts.names(SCHEDULE, "", SCHEDULES_LIMIT)
    _forget_others(context, {kv_name.removeprefix(SCHEDULE) for kv_name in names})
    left = RUNS_A_TURN
    for kv_name in names:
        name, schedule = kv_name.removeprefix(SCHEDULE), context.store.facts.get(kv_name)
        try:
            changed, runs = _planned(schedule, wall, max(left, 1))
        except (ValueError, OverflowError) as error:
            _note_unread(context, name, schedule, str(error))
            continue
        if changed:
            schedule = changed
            yield [{"type": EventType.SCHEDULE_SET, "name": name, "schedule": schedule}]
        left -= len(runs)
        for at, following in runs:
            yield _fired(context, name, schedule, at, following)


def _planned(schedule: dict[str, Any], wall: int, most: int) -> tuple[dict[str, Any] | None, list[tuple[int, int]]]:
    """The schedule as it is from now on if the clock was set back, else None; and the runs to take place now, at most
    ``most``.

    Raises ``ValueError`` or ``OverflowError`` for a schedule that was accepted but cannot be read on this device.
    """
    plan, changed = Plan(schedule["cron"], schedule["timezone"]), None
    if schedule["nextMs"] > plan.after(wall, min(schedule["setMs"], wall)):
        schedule = changed = rescheduled(schedule, wall)
    return changed, list(_runs(schedule, plan, wall, most))


def _forget_others(context: Context, names: set[str]) -> None:
    """Forget what was logged about schedules that no longer exist."""
    for logged in (context.cursors.get(_UNREAD, {}), context.cursors.get(_REFUSED, {})):
        for name in logged.keys() - names:
            del logged[name]


def _note_unread(context: Context, name: str, schedule: dict[str, Any], why: str) -> None:
    """Log it once. The schedule stays: if it can be read again, the runs of the meantime were missed."""
    logged: dict[str, Any] = context.cursors.setdefault(_UNREAD, {})
    if logged.get(name) != schedule:
        logged[name] = schedule
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
            alone = context.afresh()  # the run before was folded
            alone.payload = payload
            drafts = publish(alone, read_fields(Command.PUBLISH, payload)).drafts
            context.cursors.get(_REFUSED, {}).pop(name, None)
        except CommandError as error:
            fired["refused"] = error.code
            logged: dict[str, str] = context.cursors.setdefault(_REFUSED, {})
            if logged.get(name) != error.code:  # the journal has every run; the log would get hundreds a second
                logged[name] = error.code
                log.warning(
                    "schedule %r: runs are no longer published: %s", name, error.message, extra=about(schedule=name)
                )
    else:
        fired["skipped"] = True
    return [*drafts, fired]
