"""What a gathered message has beside its entry: its parts, and that its queue's record names it while it gathers.

The fold stores both, and so does the recovery of a store that shows an event only in part.
"""

from __future__ import annotations

import orjson

from postroom_common.events import Event, raw_json
from postroom_common.protocol import State

from ..model.facts import part_fact
from .base import Store


def put_part(event: Event, store: Store) -> int:
    """Store the part that an event appends to its message. Returns its size in bytes."""
    part = raw_json(event["content"])
    store.facts.put(part_fact(event["key"], event["part"]), orjson.loads(part))
    return len(part)


def note_gathering_message(event: Event, store: Store) -> None:
    """Let the queue's record name a new message as the one to which parts are appended. Messages that no longer gather
    are removed from the record."""
    if store.queue(event["queue"]) is None:
        return
    record = store.queue_for_update(event["queue"])
    entries = {account: store.get(key) for account, key in record.gathering_keys.items()}
    still = {account: entry.key for account, entry in entries.items() if entry and entry.state is State.GATHERING}
    record.gathering_keys = {**still, event["gathering"]: event["key"]}
