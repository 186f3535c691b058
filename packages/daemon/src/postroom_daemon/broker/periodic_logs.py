"""Periodic tasks of logs: records whose delay is over are appended, old ones removed, and logs whose time is over."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from postroom_common.body import decode_message
from postroom_common.events import EventType
from postroom_common.policy import Policy
from postroom_common.protocol import ReasonCode, State

from ..engine.context import Context, Draft
from ..engine.verbs.addresses import queue_deleted
from ..engine.verbs.logs import appended
from ..engine.verbs.operation import any_messages
from ..engine.verbs.settle import body_lost
from ..engine.verbs.terminations import dropped
from ..model.records import QueueRecord
from ..stores.errors import BodyLost, BodyUnread

#: An engine time that never comes.
NEVER: Final = 2**63
#: The cursor that has the names of logs with records that are due.
DUE_LOGS: Final = "logs: records that are due"
#: Records that one turn appends; the rest follows in the next.
_APPENDED_A_TURN: Final = 500
#: Engine milliseconds between two looks at the age of a log's records, at most and at least.
_LOOK_MS: Final = 60_000
_SOON_MS: Final = 1000
#: The least size at which a segment is full, however little a log keeps.
_LEAST_BYTES: Final = 4096


def note_due_log(cursors: dict[str, Any], record: QueueRecord | None) -> None:
    """If this is a log, delayed records of it may be due."""
    if record and record.log:
        cursors[DUE_LOGS] = {**cursors.get(DUE_LOGS, {}), record.name: None}


def append_due(context: Context) -> Iterator[list[Draft]]:
    """Append records whose delay is over, oldest due time first; each is no delayed message any more."""
    names: dict[str, None] = context.cursors.get(DUE_LOGS, {})
    left, store = _APPENDED_A_TURN, context.store
    for name in names:
        record = store.queue(name)
        has_ready = record and record.log and record.counts[State.READY]
        entries = store.pages.scan(name, State.READY, (), left)[0] if has_ready else []
        for entry in sorted(entries, key=lambda one: (one.due, one.seq)):
            try:
                block = decode_message(store.bodies.envelope(entry.key)).body.data
            except BodyLost:
                yield [body_lost(context, entry.key)]
                continue
            except BodyUnread:
                continue  # it is tried again
            if record and record.log:
                text = "it is a record of the log from now on"
                yield [appended(record.log, name, block), *dropped(entry, ReasonCode.APPENDED, text)]
        left -= len(entries)
        if left <= 0:
            break
        record = store.queue(name)
        if record is None or not record.counts[State.READY]:
            context.cursors[DUE_LOGS] = {one: None for one in context.cursors[DUE_LOGS] if one != name}


def _segment_bytes(policy: Policy) -> int:
    most, limit = policy.log_segment_bytes, policy.log_retention_bytes
    return min(most, max(limit // 8, _LEAST_BYTES)) if limit else most


def look_at_log(context: Context, record: QueueRecord) -> Generator[list[Draft], None, int]:
    """Delete a log whose time is over; remove records that are older, or more, than its policy keeps. Returns when it
    is to be looked at again (engine ms)."""
    log, policy, now = record.log, context.policies.effective(record.name, record), context.now
    if log is None:
        return NEVER
    context.store.logs.use_segment_bytes(log.created, _segment_bytes(policy))
    due, until = NEVER, policy.log_expire_at_ms
    if until:
        if until <= now.wall:
            entries = any_messages(context, record)
            drafts = [draft for one in entries for draft in dropped(one, ReasonCode.PURGED, "its log is deleted")]
            is_last = len(entries) == sum(record.counts.values())
            yield [*drafts, *([queue_deleted(record, "expired")] if is_last else [])]
            return now.engine
        due = now.engine + until - now.wall
    if record.counts[State.READY]:
        note_due_log(context.cursors, record)
    if not log.records:
        return due
    keep_ms = policy.log_retention_ms
    if keep_ms or policy.log_retention_bytes:
        below = (
            min((position for position, _ in log.readers.values()), default=None) if policy.log_keep_unread else None
        )
        older = now.wall - keep_ms if keep_ms else 0
        surplus = context.store.logs.trimmable(log.created, older, policy.log_retention_bytes, below)
        if surplus:
            about = {"type": EventType.TRIMMED, "queue": record.name, "log": log.created}
            yield [{**about, **surplus._asdict(), "reason": "retention"}]
        if keep_ms:
            due = min(due, now.engine + max(_SOON_MS, min(_LOOK_MS, keep_ms // 10)))
    return due
