"""Claims whose time is over: what is published from then on is no duplicate, and they need not be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType

from ...engine.context import Context, Draft
from ...model.records import CLAIM_END

#: Claims that one event ends, and such events of one turn.
_CLAIMS_AN_EVENT: Final = 500
_EVENTS_A_TURN: Final = 4
#: Claims that a group ends where a turn has left some: they may come faster than turns.
_CLAIMS_A_GROUP: Final = 100
_LEFT: Final = "claims that are over are left"


def claims_over(context: Context) -> Iterator[list[Draft]]:
    """Ends claims, those first that were over first."""
    context.rounds[_LEFT] = False
    for _ in range(_EVENTS_A_TURN):
        claims = _over(context, _CLAIMS_AN_EVENT)
        if claims:
            yield _ended(claims)
        if len(claims) < _CLAIMS_AN_EVENT:
            return
    context.rounds[_LEFT] = True


def claims_left(context: Context) -> Iterator[list[Draft]]:
    """Ends some of those that ``claims_over`` has left."""
    if context.rounds.get(_LEFT):
        claims = _over(context, _CLAIMS_A_GROUP)
        context.rounds[_LEFT] = len(claims) == _CLAIMS_A_GROUP
        if claims:
            yield _ended(claims)


def _over(context: Context, limit: int) -> list[list[str]]:
    """Queue and name of claims that are over."""
    names = context.store.pages.kv_names(CLAIM_END, "", limit)
    ends = [name.removeprefix(CLAIM_END).split(":", 1) for name in names]
    return [[*rest.rsplit("\0", 1)] for until, rest in ends if int(until) <= context.now.engine]


def _ended(claims: list[list[str]]) -> list[Draft]:
    return [{"type": EventType.CLAIMS_ENDED, "claims": claims}]
