"""read_state: all that the daemon knows, by pages, for backup, export and verification."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import orjson

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ..context import Context, Decision
from ..fields import Fields
from ..records import FACT_CLOCK, FACT_EPOCH, Entry, entry_to_json, history_fact
from ..stores.base import BodyLost

#: Bodies that one page reads; a page of large ones is shorter than asked.
PAGE_BYTES: Final = 1024 * 1024


def read_state(context: Context, fields: Fields) -> Decision:
    """A page of the state as of one event. Raises ``CommandError`` for a part that there is not."""
    read = _PARTS.get(fields["part"])
    if read is None:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"part must be one of {', '.join(_PARTS)}")
    now = {"engineMs": context.now.engine, "wallMs": context.now.wall, "asOfEvent": context.store.applied}
    return Decision(data={**read(context, fields["after"], fields["limit"]), **now})


def _head(context: Context, after: str, limit: int) -> dict[str, Any]:
    epoch, clock = context.store.fact(FACT_EPOCH), context.store.fact(FACT_CLOCK)
    return {**epoch, "backend": context.store.name, "clock": clock}


def _queues(context: Context, after: str, limit: int) -> dict[str, Any]:
    names = context.store.queue_names(after, limit + 1)
    records = [context.store.queue(name) for name in names[:limit]]
    following = names[limit - 1] if len(names) > limit else ""
    return {"queues": [deepcopy(record.to_json()) for record in records if record], "next": following}


def _messages(context: Context, after: str, limit: int) -> dict[str, Any]:
    entries = context.store.entries(after, limit + 1)
    shown: list[dict[str, Any]] = []
    size = 0
    for entry in entries[:limit]:
        if size > PAGE_BYTES:
            break
        found, length = _message(context, entry)
        shown.append(found)
        size += length
    return {"messages": shown, "next": shown[-1]["key"] if len(entries) > len(shown) else ""}


def _message(context: Context, entry: Entry) -> tuple[dict[str, Any], int]:
    """A message with its body and its history, and the body's length."""
    shown = entry_to_json(entry)
    if entry.failures:
        shown["history"] = context.store.fact(history_fact(entry.key)) or []
    try:
        envelope = context.store.envelope(entry.key)
    except BodyLost:
        return shown | {"bodyLost": True}, 0
    return shown | {"message": orjson.Fragment(envelope)}, len(envelope)


_PARTS: Final = {"head": _head, "queues": _queues, "messages": _messages}
