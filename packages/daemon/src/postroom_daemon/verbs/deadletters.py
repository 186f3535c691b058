"""list_dlq, reprocess_dlq: dead letters, which are a state of their own queue."""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.body import Part, part_bytes, preview
from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode, ReasonCode, State

from ..context import Context, Decision
from ..fields import Fields
from ..records import Entry, history_fact
from ..stores.base import BodyLost, BodyUnread

#: Bodies that one page reads; a page of large ones is shorter than asked.
PAGE_BYTES: Final = 16 * 1024 * 1024
#: Stands for a failure that was lost with the file that told of it.
_UNKNOWN: Final = {
    "reasonMessage": "its history is lost",
    "reasonCode": ReasonCode.BODY_LOST,
    "failedAtMs": 0,
    "attempt": 0,
    "consumerId": "",
}


def list_dlq(context: Context, fields: Fields) -> Decision:
    """A page of a queue's dead letters, oldest death first. Raises ``CommandError`` for a cursor that is none."""
    queue, limit = fields["queue"], fields["limit"]
    found = context.store.dead(queue, _cursor(fields["after"]), limit + 1)
    letters: list[dict[str, Any]] = []
    size = 0
    for entry in found[:limit]:
        if size > PAGE_BYTES:
            break
        part = _part(context, entry)
        failure = (context.store.fact(history_fact(entry.key)) or [_UNKNOWN])[-1]
        body_bytes = len(part_bytes(part)) if part else 0
        size += body_bytes
        letters.append(
            {
                "messageKey": entry.key,
                "queue": queue,
                "reason": failure["reasonMessage"],
                "reasonCode": failure["reasonCode"],
                "dlqAt": failure["failedAtMs"],
                "attempt": failure["attempt"],
                "consumerId": failure["consumerId"],
                "preview": preview(part, fields["previewBytes"]) if part else "",
                "bytes": body_bytes,
                **({} if part else {"bodyLost": True}),
            }
        )
    last = found[len(letters) - 1] if len(found) > len(letters) else None
    return Decision(
        data={
            "queue": queue,
            "count": len(letters),
            "messages": letters,
            "next": f"{last.dead_at}.{last.seq}" if last else "",
            "asOfEvent": context.store.applied,
        }
    )


def _part(context: Context, entry: Entry) -> Part | None:
    """A dead letter's body; None when it is lost, or the disk does not give it."""
    try:
        part: Part = orjson.loads(context.store.envelope(entry.key))["parts"][0]
    except (BodyLost, BodyUnread):
        return None
    return part


def reprocess_dlq(context: Context, fields: Fields) -> Decision:
    """A dead letter becomes ready again with its attempts reset; its history stays.

    Raises ``CommandError`` (ERR_DLQ_NOT_FOUND).
    """
    key = fields["messageKey"]
    entry = context.store.get(key)
    if entry is None or entry.state is not State.DEAD:
        raise CommandError(ErrorCode.DLQ_NOT_FOUND, f"no dead letter has the key {key!r}")
    return Decision([{"type": EventType.REPROCESSED, "queue": entry.queue, "key": key}])


def _cursor(text: str) -> tuple[int, int]:
    if not text:
        return (-1, -1)
    dead_at, _, seq = text.partition(".")
    if not (dead_at.isdecimal() and seq.isdecimal() and len(text) <= 40):
        raise CommandError(ErrorCode.INVALID_REQUEST, "after must be the next of an earlier page")
    return (min(int(dead_at), 2**63 - 1), min(int(seq), 2**63 - 1))
