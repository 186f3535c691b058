"""Put a state into a new store."""

from __future__ import annotations

from itertools import islice

from ..records import (
    FACT_CLOCK,
    FACT_EPOCH,
    QueueRecord,
    dlq_fact,
    entry_from_json,
    history_fact,
    no_counts,
)
from ..stores.base import Store
from .model import Message, State, body_of

#: Messages of one transaction.
BATCH = 1000


def load(state: State, store: Store) -> list[str]:
    """Put all of a state into a store that is open and empty, and make it durable.

    The keys of the messages that are not taken over, since their body is lost. Whoever loads sees to it that a store
    that is not complete is never used: ``applied`` is that of the state from the beginning. Raises ``StoreError``.
    """
    lost: list[str] = []
    store.begin()
    store.applied = state.head.event
    store.put_fact(FACT_EPOCH, {"root": state.head.root, "epoch": state.head.epoch})
    store.put_fact(FACT_CLOCK, state.head.clock)
    for record in state.queues:
        _put_queue(record, store)
    store.commit()
    messages = iter(state.messages)
    while batch := list(islice(messages, BATCH)):
        store.begin()
        for message in batch:
            if "bodyLost" in message:
                lost.append(message["key"])
            else:
                _put_message(message, store)
        store.sync_bodies()
        store.commit()
    store.checkpoint()
    return lost


def _put_queue(record: QueueRecord, store: Store) -> None:
    record.counts = no_counts()  # the store keeps them up as messages come
    store.add_queue(record)
    name = record.override.get("dlq.queue")
    if name:
        store.put_fact(dlq_fact(name), record.name)


def _put_message(message: Message, store: Store) -> None:
    entry, body = entry_from_json(message), body_of(message)
    reference = store.keep_body(entry.seq, entry.queue, entry.key, body)
    if reference:
        store.insert_kept(entry, reference)
    else:
        store.insert(entry, body)
    if "history" in message:
        store.put_fact(history_fact(entry.key), message["history"])
