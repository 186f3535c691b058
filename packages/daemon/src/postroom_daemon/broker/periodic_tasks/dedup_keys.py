"""Deduplication keys whose time is over: what is published from then on is no duplicate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType

from ...engine.context import Context, Draft
from ...model.records import CLAIM_END

#: Claims that one event ends, and such events in one turn.
_CLAIMS_AN_EVENT: Final = 500
_EVENTS_A_TURN: Final = 4
#: Claims that a group ends where a turn has left some: they may come faster than turns.
_CLAIMS_A_GROUP: Final = 100
_LEFT: Final = "dedup keys: more are left"


def end_dedup_keys(context: Context) -> Iterator[list[Draft]]:
    """End the claims of keys whose time is over, oldest first."""
    context.cursors[_LEFT] = False
    for _ in range(_EVENTS_A_TURN):
        claims = _over(context, _CLAIMS_AN_EVENT)
        if claims:
            yield _ended(claims)
        if len(claims) < _CLAIMS_AN_EVENT:
            return
    context.cursors[_LEFT] = True


def end_more_dedup_keys(context: Context) -> Iterator[list[Draft]]:
    """End some of those that ``end_dedup_keys`` has left."""
    if context.cursors.get(_LEFT):
        claims = _over(context, _CLAIMS_A_GROUP)
        context.cursors[_LEFT] = len(claims) == _CLAIMS_A_GROUP
        if claims:
            yield _ended(claims)


def _over(context: Context, limit: int) -> list[list[str]]:
    """Queue and name of claims whose time is over."""
    names = context.store.pages.kv_names(CLAIM_END, "", limit)
    ends = [name.removeprefix(CLAIM_END).split(":", 1) for name in names]
    return [[*rest.rsplit("\0", 1)] for until, rest in ends if int(until) <= context.now.engine]


def _ended(claims: list[list[str]]) -> list[Draft]:
    return [{"type": EventType.CLAIMS_ENDED, "claims": claims}]
