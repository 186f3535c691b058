"""read_state: the whole state in pages, for backup, export and verification."""

from __future__ import annotations

from binascii import b2a_base64
from copy import deepcopy
from typing import Any, Final

import orjson

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ...model.facts import CARRIED_FACTS, FACT_CLOCK, FACT_DAMAGE, FACT_EPOCH, FACT_LOSSES
from ...model.records import Entry, entry_to_json
from ...stores.base import Store
from ...stores.errors import BodyLost
from ...stores.log.contract import NO_PAGE
from ...stores.log.records import records_of
from ..context import Context, Decision
from ..fields import Fields

#: Maximum size of the bodies on one page; a page of large ones is shorter than requested.
PAGE_BYTES: Final = 1024 * 1024
#: The same on a full disk, where the answer uses some of the reserve.
SMALL_PAGE_BYTES: Final = 16 * 1024
_PARTS: Final = ("head", "queues", "messages", "facts", "records")


def read_state(context: Context, fields: Fields) -> Decision:
    """A page of the state as of one event. Raises ``CommandError`` for an unknown part."""
    page_bytes = PAGE_BYTES if context.vitals.has_space_to_publish() else SMALL_PAGE_BYTES
    page = read_page(context.store, fields["part"], fields["after"], fields["limit"], page_bytes)
    return Decision(data=page | {"engineMs": context.now.engine, "wallMs": context.now.wall})


def read_page(store: Store, part: str, after: str, limit: int, page_bytes: int = PAGE_BYTES) -> dict[str, Any]:
    """A page of a store. A page of messages ends after ``page_bytes`` of bodies.

    Raises ``CommandError`` for an unknown part, and ``StoreError``.
    """
    if part not in _PARTS:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"part must be one of {', '.join(_PARTS)}")
    if part == "head":
        page = _head(store)
    elif part == "queues":
        page = _queues(store, after, limit)
    elif part == "facts":
        page = _facts(store, after, limit)
    elif part == "records":
        page = _records(store, after, limit, page_bytes)
    else:
        page = _messages(store, after, limit, page_bytes)
    return {**page, "asOfEvent": store.applied}


def _head(store: Store) -> dict[str, Any]:
    losses, damage = store.facts.get(FACT_LOSSES), store.facts.get(FACT_DAMAGE)
    epoch = store.facts.get(FACT_EPOCH) or {"root": "", "epoch": 0}  # a follower that has got nothing yet
    head = {**epoch, "backend": store.name, "clock": store.facts.get(FACT_CLOCK)}
    return head | ({"losses": losses} if losses else {}) | ({"damage": damage} if damage else {})


def _queues(store: Store, after: str, limit: int) -> dict[str, Any]:
    names = store.pages.queue_names(after, limit + 1)
    records = [store.queue(name) for name in names[:limit]]
    following = names[limit - 1] if len(names) > limit else ""
    return {"queues": [deepcopy(record.to_json()) for record in records if record], "next": following}


def _facts(store: Store, after: str, limit: int) -> dict[str, Any]:
    names: list[str] = []
    for prefix in CARRIED_FACTS:
        if len(names) <= limit:
            names += store.facts.names(prefix, after, limit + 1 - len(names))
    shown = [{"name": name, "value": store.facts.get(name)} for name in names[:limit]]
    return {"facts": shown, "next": names[limit - 1] if len(names) > limit else ""}


def _records(store: Store, after: str, limit: int, page_bytes: int) -> dict[str, Any]:
    """The next records of one log. ``after`` is a log and a position."""
    number, _, position = after.partition(":")
    try:
        first, behind = int(number or 0), int(position or 0)
    except ValueError:
        raise CommandError(ErrorCode.INVALID_REQUEST, "after must be what the answer before has as next") from None
    for log, facts in sorted(store.logs.facts().items()):
        page = store.logs.read(log, behind if log == first else 0, limit, page_bytes) if log >= first else NO_PAGE
        if page.records:
            found = records_of(page.raw)
            records = [[at, wall_ms, b2a_base64(block, newline=False).decode()] for wall_ms, at, block in found]
            return {"records": [{"queue": facts.name, "log": log, "records": records}], "next": f"{log}:{page.last}"}
    return {"records": [], "next": ""}


def _messages(store: Store, after: str, limit: int, page_bytes: int) -> dict[str, Any]:
    entries = store.pages.entries(after, limit + 1)
    shown: list[dict[str, Any]] = []
    size = 0
    for entry in entries[:limit]:
        if size > page_bytes:
            break
        message, length = _message(store, entry)
        shown.append(message)
        size += length
    return {"messages": shown, "next": shown[-1]["key"] if len(entries) > len(shown) else ""}


def _message(store: Store, entry: Entry) -> tuple[dict[str, Any], int]:
    """A message with body and history, and the size of the body."""
    shown = entry_to_json(entry)
    if entry.failures:
        shown["history"] = store.facts.history(entry)
    try:
        envelope = store.bodies.envelope(entry.key)
        if entry.parts:
            shown["appended"] = store.bodies.appended(entry)
    except BodyLost:
        return shown | {"bodyLost": True}, 0
    return shown | {"message": orjson.Fragment(envelope)}, max(len(envelope), entry.size)
