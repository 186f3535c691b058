"""Claims whose time is over: what is published from then on is no duplicate, and they need not be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.events import EventType

from ..context import Context, Draft
from ..records import CLAIM_END

#: Claims that one event ends, and such events of one turn; the rest follows in the next.
_CLAIMS_AN_EVENT: Final = 500
_EVENTS_A_TURN: Final = 4


def claims_over(context: Context) -> Iterator[list[Draft]]:
    """Ends claims, those first that were over first."""
    for _ in range(_EVENTS_A_TURN):
        names = context.store.facts(CLAIM_END, "", _CLAIMS_AN_EVENT)
        ends = [name.removeprefix(CLAIM_END).split(":", 1) for name in names]
        claims = [[*rest.rsplit("\0", 1)] for until, rest in ends if int(until) <= context.now.engine]
        if claims:
            yield [{"type": EventType.CLAIMS_ENDED, "claims": claims}]
        if len(claims) < _CLAIMS_AN_EVENT:
            return
