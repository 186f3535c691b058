"""Who waits for messages: how a wait begins, and what ends it."""

from __future__ import annotations

from typing import Final

from postroom_common.events import EventType
from postroom_common.policy import dlq_name
from postroom_common.protocol import State

from ..engine.context import Draft
from ..model.records import QueueRecord
from ..model.request import Request
from ..model.subscriptions import Subscription
from ..platform.clock import Now
from .engine_state import EngineState

#: Events that bring a dead letter to those who wait at a dead-letter address: by a policy, the letters that exist get
#: another address.
_TO_THE_DEAD: Final = frozenset({EventType.DIED, EventType.RELEASED, EventType.QUARANTINED, EventType.POLICY_SET})


def subscribe(state: EngineState, request: Request, wait_until: int, now: Now, clients_wall: int) -> None:
    """Let a request wait until ``wait_until`` (engine ms) at most; ``clients_wall`` is what the clients' clock shows
    (Unix ms). Raises ``CommandError`` if too many wait."""
    account, deadline = request.who.account, request.wire.deadline_ms
    state.quotas.check_waits(account, state.subscriptions.of_account(account))
    # The wait began when the request was made: a restart does not renew it.
    waited = max(0, clients_wall - request.arrived_wall)
    until = max(now.engine, wait_until - waited)
    if deadline:
        until = min(until, now.engine + deadline - clients_wall)
    request.has_waited = True
    credit = request.wire.payload.get("max") or 1
    pattern = request.wire.payload.get("queuePattern")
    matches = None if pattern is None else state.patterns.compiled(pattern).matches
    state.subscriptions.add(Subscription(request, request.queue, until, credit, matches))


def woken_by(state: EngineState, drafts: list[Draft]) -> list[str]:
    """The names at which somebody may wait for what drafts bring: queues, and dead-letter addresses."""
    names = [draft[name] for draft in drafts for name in ("queue", "to") if name in draft]
    if state.subscriptions.count:
        for draft in drafts:
            if draft["type"] is EventType.POLICY_PATTERNS_SET:
                names += state.subscriptions.queues()
            if draft["type"] in _TO_THE_DEAD:
                record = state.store.queue(draft["queue"])
                names.append(dlq_name(draft["queue"], state.policies.effective(draft["queue"], record)))
    return names


def is_busy(state: EngineState, queue: str, record: QueueRecord) -> bool:
    """Whether nobody gets a message of a queue before one in flight is settled."""
    most = state.policies.effective(queue, record).max_inflight
    return bool(most) and record.counts[State.INFLIGHT] >= most
