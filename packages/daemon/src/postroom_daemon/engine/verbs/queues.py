"""status, list_queues, queue_statistics, create_queue, pause, resume, health, metrics: queues as a whole, and the
daemon."""

from __future__ import annotations

from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode, State

from ...model.consumers import Consumers
from ...model.distribution import described
from ...model.records import QueueRecord, no_counts
from ...model.statistics import QueueStatistics
from ...policy.access_rules import Verb
from ...stores.base import Store
from ..context import Context, Decision, Draft, Work
from ..fields import Fields
from ..replies import log_to_wire, paused_to_wire
from .addresses import queue_created, queues_addressed_by
from .deadletters import summary
from .lookup import as_of, existing_queue
from .policies import check_creation, creation_layer

#: Maximum number of leases, and of delayed messages, that ``status`` reads.
READ_LIMIT: Final = 500
#: A lease that ends within this time ends soon.
ENDING_SOON_MS: Final = 10_000
#: Maximum number of names that one page reads if the user may not see all queues.
NAMES_LIMIT: Final = 5000
_NAMES_A_PAGE: Final = 500


def status(context: Context, fields: Fields) -> Decision:
    """A queue's counts, policy, pauses and ages; zeros for a queue that does not exist, except for the dead letters of
    a dead-letter address."""
    queue = fields["queue"]
    record = context.store.queue(queue)
    if record:
        context.require(None, queue)
    addressed = [] if record else queues_addressed_by(context, queue, None)
    policy = context.policies.effective(queue, record)
    data = {
        "queue": queue,
        "exists": record is not None,
        "metrics": _counts(context, record),
        "totals": dict(record.totals) if record else {},
        "policy": policy.to_wire(),
        "paused": paused_to_wire(record),
        "oldestReadyAgeMs": oldest_ready_ms(context.store, context.now.engine, record),
        "oldestLeaseAgeMs": oldest_lease_ms(context.consumers, context.now.engine, queue),
        "oldestDeadAgeMs": oldest_dead_ms(context.store, context.now.engine, record),
        **_kind(record, policy),
        **_figures(record),
        **_waiting(context, queue),
        "draining": context.draining,
        **as_of(context),
    }
    if addressed:
        dead = summary(context, addressed)
        data |= {
            "metrics": _counts(context, None) | {"dlq": dead["count"]},
            "reasons": dead["byReason"],
            "oldestDeadAgeMs": dead["oldestAgeMs"],
            "deadLetters": dead,
        }
    return Decision(data=data)


def list_queues(context: Context, fields: Fields) -> Decision:
    """A page of queues by name with their counts, and with their policies if these are asked for, of those in which the
    user has any permission."""
    names, following = _names(context, fields["after"], fields["limit"])
    rows = []
    for name in names:
        record = context.store.queue(name)
        policy = context.policies.effective(name, record)
        shown = {"policy": policy.to_wire()} if fields["policies"] else {}
        rows.append(
            {
                "queue": name,
                **_counts(context, record),
                "paused": paused_to_wire(record),
                "oldestReadyAgeMs": oldest_ready_ms(context.store, context.now.engine, record),
                "oldestLeaseAgeMs": oldest_lease_ms(context.consumers, context.now.engine, name),
                "oldestDeadAgeMs": oldest_dead_ms(context.store, context.now.engine, record),
                **_kind(record, policy),
                **_figures(record),
                "totals": dict(record.totals) if record else {},
                **shown,
            }
        )
    return Decision(
        data={
            "queues": rows,
            "count": len(rows),
            "next": following,
            "draining": context.draining,
            **as_of(context),
        }
    )


def queue_statistics(context: Context, fields: Fields) -> Decision:
    """The rates and the waiting times of a queue, or of a page of those that are measured and in which the user has any
    permission. Raises ``CommandError`` (ERR_QUEUE_NOT_FOUND, ERR_FORBIDDEN)."""
    queue, following = fields["queue"], ""
    if queue:
        existing_queue(context, queue, None)
        names = [queue]
    else:
        names, following = _names(context, fields["after"], fields["limit"])
    rows = [_measured(context, name) for name in names]
    rows = [row for row in rows if queue or row["enabled"]]
    return Decision(data={"queues": rows, "count": len(rows), "next": following, **as_of(context)})


def _measured(context: Context, queue: str) -> dict[str, Any]:
    now = context.now.engine
    if not context.policies.effective(queue, context.store.queue(queue)).measured:
        return {"queue": queue, "enabled": False}
    figures = context.statistics.of(queue) or QueueStatistics(now)
    return {
        "queue": queue,
        "enabled": True,
        "published": figures.published.to_wire(now),
        "delivered": figures.delivered.to_wire(now),
        "retention": described(figures.waits(now)),
    }


def _names(context: Context, after: str, limit: int) -> tuple[list[str], str]:
    """A page of names, and the name after which the next page begins; "" at the end. A page may be short if the user
    may not see very many queues."""
    if context.access.is_open(None):
        names = context.store.pages.queue_names(after, limit + 1)
        return names[:limit], names[limit - 1] if len(names) > limit else ""
    visible: list[str] = []
    read = 0
    while read < NAMES_LIMIT:
        page = context.store.pages.queue_names(after, _NAMES_A_PAGE)
        for name in page:
            if len(visible) == limit:
                return visible, after
            after = name
            if context.may(None, name):
                visible.append(name)
        if len(page) < _NAMES_A_PAGE:
            return visible, ""
        read += len(page)
    return visible, after


def pause(context: Context, fields: Fields) -> Decision:
    """Stop consuming from (or publishing to) a queue until it is resumed; a restart does not resume it. Creates a queue
    that the configuration names."""
    return _set_pause(context, fields, EventType.PAUSED)


def resume(context: Context, fields: Fields) -> Decision:
    """End a pause."""
    return _set_pause(context, fields, EventType.RESUMED)


def create_queue(context: Context, fields: Fields) -> Decision:
    """Create a queue, or a log, with a policy. Raises ``CommandError``: ERR_FORBIDDEN, ERR_INVALID_REQUEST,
    ERR_QUEUE_EXISTS, and ERR_WRONG_KIND if it need not be new, but is of another kind."""
    queue, policy = fields["queue"], fields["createWith"] or {}
    context.require(Verb.PUBLISH, queue)
    layer, record = check_creation(policy), context.store.queue(queue)
    if record is None:
        draft = queue_created(context, queue, creation_layer(context, queue, policy))
        data = {"queue": queue, "kind": draft["kind"], "created": True}
        return Decision([draft], reply={"as": "operation", "data": data})
    if fields["mustBeNew"]:
        raise CommandError(ErrorCode.QUEUE_EXISTS, f"there is a {record.kind} {queue!r} already")
    if layer.get("kind", record.kind) != record.kind:
        raise CommandError(ErrorCode.WRONG_KIND, f"{queue!r} is a {record.kind}: delete it first")
    data = {"queue": queue, "kind": record.kind, "created": False, "asOfEvent": context.store.applied}
    return Decision(data=data)


def _set_pause(context: Context, fields: Fields, type_: EventType) -> Decision:
    if fields["operation"] not in ("consume", "publish"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "operation must be consume or publish")
    queue = fields["queue"]
    if context.policies.names(queue):
        context.require(Verb.OPERATE, queue)
        record = context.store.queue(queue)
    else:
        record = existing_queue(context, queue, Verb.OPERATE)
    drafts: list[Draft] = [] if record else [queue_created(context, queue)]
    paused = paused_to_wire(record) | {fields["operation"]: type_ is EventType.PAUSED}
    drafts.append({"type": type_, "queue": queue, "operation": fields["operation"], "paused": paused})
    return Decision(drafts)


def health(context: Context, fields: Fields) -> Decision:
    """The health of journal, store and disk, probed now."""
    data = context.vitals.health(context.store, context.now)
    return Decision(data=data | {"draining": context.draining} | as_of(context))


def metrics(context: Context, fields: Fields) -> Decision:
    """Counters, rates and durations since the start; or all metrics as text for Prometheus, with those of the queues in
    which the user has any permission."""
    if fields["format"] not in ("", "prometheus"):
        raise CommandError(ErrorCode.INVALID_REQUEST, "format must be prometheus, or be left out")
    if fields["format"]:
        return Decision(work=_as_text(context))
    return Decision(data=context.vitals.metrics(context.store, context.now) | as_of(context))


def _as_text(context: Context) -> Work:
    text = yield from context.vitals.exposition(context.store, context.now, lambda name: context.may(None, name))
    return {"text": text}


def _counts(context: Context, record: QueueRecord | None) -> dict[str, int]:
    """Counts by state, under the names of the C++ system: dead letters are ``dlq``. ``ordered`` are those in flight
    whose lease is in its first phase."""
    counts = record.counts if record else no_counts()
    shown = {state.value: counts[state] for state in State if state is not State.DEAD}
    ordered = context.consumers.ordered(record.name) if record else 0
    return shown | {"dlq": counts[State.DEAD], "ordered": ordered}


def _figures(record: QueueRecord | None) -> dict[str, Any]:
    """Bytes of the messages whose work has not ended, dead letters by reason, and the outcomes that were not kept."""
    if record is None:
        return {"bytes": 0, "reasons": {}, "tally": QueueRecord("").tally}
    return {"bytes": record.bytes, "reasons": dict(record.reasons), "tally": record.tally}


def _kind(record: QueueRecord | None, policy: Policy) -> dict[str, Any]:
    """Whether it is a queue or a log, or would be one; and the figures of a log."""
    return {"kind": record.kind, **log_to_wire(record, policy)} if record else {"kind": policy.kind}


def _waiting(context: Context, queue: str) -> dict[str, Any]:
    """Figures of the leases and delayed messages that end or become due first; ``inflightLooked`` leases were read."""
    leased, _ = context.store.pages.scan(queue, State.INFLIGHT, (), READ_LIMIT)
    delayed, _ = context.store.pages.scan(queue, State.DELAYED, (), READ_LIMIT)
    now = context.now.engine
    return {
        "endingSoon": sum(entry.lease_until <= now + ENDING_SOON_MS for entry in leased),
        "overdue": sum(entry.lease_until <= now for entry in leased),
        "inflightLooked": len(leased),
        "nextDueEngineMs": delayed[0].due if delayed else None,
    }


def oldest_ready_ms(store: Store, now: int, record: QueueRecord | None) -> int | None:
    """Age of the oldest ready message of a queue at ``now`` (engine ms); None without one."""
    if record is None or not record.counts[State.READY]:
        return None
    oldest = store.pages.oldest_ready(record.name)
    return now - oldest.created if oldest else None


def oldest_lease_ms(consumers: Consumers, now: int, queue: str) -> int | None:
    """Age of the oldest lease of a queue; None without one."""
    since = consumers.oldest_lease(queue)
    return None if since is None else now - since


def oldest_dead_ms(store: Store, now: int, record: QueueRecord | None) -> int | None:
    """Time since the death of a queue's oldest dead letter; None without one."""
    if record is None or not record.counts[State.DEAD]:
        return None
    oldest = store.pages.dead(record.name, (-1, -1), 1)
    return now - oldest[0].dead_at if oldest else None
