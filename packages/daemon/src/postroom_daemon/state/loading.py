"""Put a state into a new store."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from ..records import FACT_CLOCK, FACT_EPOCH, QueueRecord, dlq_fact, entry_from_json, history_fact, no_counts
from ..stores.base import Store
from .model import Head, Message, State, StateError, body_of

#: Messages of one transaction, and transactions between two checkpoints.
BATCH: Final = 1000
CHECKPOINT_EVERY: Final = 50
#: Says that a store is not complete yet, which state it gets, and how far it has come.
FACT_LOADING: Final = "loading"


def load(state: State, store: Store) -> list[str]:
    """Put all of a state into a store that is open and empty, and make it durable; or go on where that was interrupted.

    The keys of the messages that are not taken over, since their body is lost. A store that is not complete must never
    be used: whoever loads keeps it at another place until then. Raises ``StateError`` for a store that holds something
    else, ``StoreError``.
    """
    lost: list[str] = []
    after = _begin(state, store)
    messages = iter(state.messages)
    number = 0
    while batch := list(islice(messages, BATCH)):
        if batch[-1]["key"] > after:
            store.begin()
            store.applied = state.head.event
            lost += [message["key"] for message in batch if not _put_message(message, store)]
            store.put_fact(FACT_LOADING, _loading(state.head, batch[-1]["key"]))
            store.sync_bodies()
            store.commit()
            number += 1
            if number % CHECKPOINT_EVERY == 0:
                store.checkpoint()
        else:
            lost += [message["key"] for message in batch if "bodyLost" in message]
    store.begin()
    store.put_fact(FACT_LOADING, None)
    store.commit()
    store.checkpoint()
    return lost


def _begin(state: State, store: Store) -> str:
    """Prepare the store, if that was not done before. The key behind which the messages are to be put."""
    known: dict[str, Any] | None = store.fact(FACT_LOADING)
    if known:
        if known != _loading(state.head, known["after"]):
            raise StateError(f"the store is half filled with event {known['event']} of root {known['root']}")
        return str(known["after"])
    if store.applied or store.queue_names("", 1):
        raise StateError("the store is not empty")
    store.begin()
    store.applied = state.head.event
    store.put_fact(FACT_LOADING, _loading(state.head, ""))
    store.put_fact(FACT_EPOCH, {"root": state.head.root, "epoch": state.head.epoch})
    store.put_fact(FACT_CLOCK, state.head.clock)
    for record in state.queues:
        _put_queue(record, store)
    store.commit()
    return ""


def _loading(head: Head, after: str) -> dict[str, Any]:
    return {"root": head.root, "epoch": head.epoch, "event": head.event, "after": after}


def _put_queue(record: QueueRecord, store: Store) -> None:
    record.counts = no_counts()  # the store keeps them up as messages come
    store.add_queue(record)
    name = record.override.get("dlq.queue")
    if name:
        store.put_fact(dlq_fact(name), record.name)


def _put_message(message: Message, store: Store) -> bool:
    """Whether the message has a body, and is in the store now."""
    if "bodyLost" in message:
        return False
    entry, body = entry_from_json(message), body_of(message)
    if store.get(entry.key):  # put there before an interruption, behind the last checkpoint
        return True
    reference = store.keep_body(entry.seq, entry.queue, entry.key, body)
    if reference:
        store.insert_kept(entry, reference)
    else:
        store.insert(entry, body)
    if "history" in message:
        store.put_fact(history_fact(entry.key), message["history"])
    return True
