"""Load a state into a new store."""

from __future__ import annotations

from binascii import a2b_base64
from itertools import islice
from typing import Any, Final

from postroom_common.protocol import State as MessageState

from ...engine.fold_queues import end_claim
from ...model.facts import FACT_CLOCK, FACT_DAMAGE, FACT_EPOCH, FACT_LOADING, FACT_LOGS, FACT_LOSSES, dlq_fact
from ...model.records import Entry, QueueRecord, entry_from_json, no_counts
from ...stores.base import Store
from .model import Head, Message, State, StateError, body_of, put_beside

#: Messages of a transaction, and transactions between two checkpoints.
BATCH: Final = 1000
CHECKPOINT_EVERY: Final = 50


def load(state: State, store: Store) -> list[str]:
    """Load a state into an open, empty store, durably; or continue an interrupted load.

    Returns the keys of messages that were left out, since their bodies are lost. Never use an incomplete store: keep it
    in another place until this returns. Raises ``StateError`` if the store has other content, ``StoreError``.
    """
    lost: list[str] = []
    after = _begin(state, store)
    if store.logs.keeps:
        _load_logs(state, store)
    messages = iter(state.messages)
    number = 0
    while batch := list(islice(messages, BATCH)):
        if batch[-1]["key"] > after:
            store.begin()
            store.applied = state.head.event
            lost += [message["key"] for message in batch if not _put_message(message, store)]
            store.facts.put(FACT_LOADING, _loading(state.head, batch[-1]["key"]))
            store.body_files.sync()
            store.commit()
            number += 1
            if number % CHECKPOINT_EVERY == 0:
                store.disk.checkpoint()
        else:
            lost += [message["key"] for message in batch if "bodyLost" in message]
    store.begin()
    store.facts.put(FACT_LOADING, None)
    store.commit()
    store.disk.checkpoint()
    return lost


def can_go_on(store: Store, head: Head) -> bool:
    """Whether a store is empty, or partly loaded with the state of ``head``."""
    known: dict[str, Any] | None = store.facts.get(FACT_LOADING)
    if known:
        return known == _loading(head, known["after"])
    return not (store.applied or store.pages.queue_names("", 1))


def _begin(state: State, store: Store) -> str:
    """Prepare the store unless that was done before. Returns the key behind which to continue."""
    if not can_go_on(store, state.head):
        raise StateError("the store is not empty, and holds something else")
    known: dict[str, Any] | None = store.facts.get(FACT_LOADING)
    if known:
        return str(known["after"])
    store.begin()
    store.applied = state.head.event
    store.facts.put(FACT_LOADING, _loading(state.head, ""))
    store.facts.put(FACT_EPOCH, {"root": state.head.root, "epoch": state.head.epoch})
    store.facts.put(FACT_CLOCK, state.head.clock)
    if state.head.losses:
        store.facts.put(FACT_LOSSES, state.head.losses)
    if state.head.damage:
        store.facts.put(FACT_DAMAGE, state.head.damage)
    for record in state.queues:
        _put_queue(record, store)
    for fact in state.facts:
        store.facts.put(fact["name"], fact["value"])
    store.commit()
    return ""


def _load_logs(state: State, store: Store) -> None:
    """Load the records of logs. A log that has not all of its records, because they were trimmed while the state was
    captured, or because it has none, is as if they were trimmed."""
    logs = store.logs
    for page in state.records:
        store.begin()
        logs.create(page["log"], page["queue"])
        for position, wall_ms, text in page["records"]:
            logs.append(page["log"], position, wall_ms, a2b_base64(text))
        store.commit()
    store.begin()
    for name, known in [(record.name, record.log) for record in state.queues if record.log]:
        logs.create(known.created, name)
        facts = logs.facts()[known.created]
        log = store.queue_for_update(name).log
        if log and (log.records, log.bytes) != (facts.records, facts.bytes):
            first = logs.read(known.created, 0, 1, 0).last or log.last + 1
            log.first, log.trimmed, log.records, log.bytes = first, first - 1, facts.records, facts.bytes
    store.commit()


def _loading(head: Head, after: str) -> dict[str, Any]:
    return {"root": head.root, "epoch": head.epoch, "event": head.event, "after": after}


def _put_queue(record: QueueRecord, store: Store) -> None:
    record.counts, record.bytes, record.reasons = no_counts(), 0, {}  # counted as messages are added
    store.add_queue(record)
    if record.log:
        store.facts.put(FACT_LOGS, True)
    for layer in (record.created_with, record.override):
        if layer.get("dlq.queue"):
            store.facts.put(dlq_fact(layer["dlq.queue"]), record.name)


def _put_message(message: Message, store: Store) -> bool:
    """Store a message. Returns whether it has a body; without one, it is left out."""
    if "bodyLost" in message:
        if "claim" in message:
            end_claim(message["queue"], message["claim"], message["key"], store)
        return False
    entry, body = entry_from_json(message), body_of(message)
    known = store.get(entry.key)
    if known:  # stored before an interruption, behind the last checkpoint: it may be incomplete
        store.delete(known, known.state)
        _count_reason(known, -1, store)
    reference = store.body_files.keep(entry.seq, entry.queue, entry.key, body)
    if reference:
        store.body_files.insert(entry, reference)
    else:
        store.insert(entry, body)
    _count_reason(entry, 1, store)
    put_beside(message, entry.key, store)
    return True


def _count_reason(entry: Entry, by: int, store: Store) -> None:
    """Count a dead letter by its reason. Those of older stores have none."""
    if entry.state is not MessageState.DEAD or not entry.reason:
        return
    reasons = store.queue_for_update(entry.queue).reasons
    reasons[entry.reason] = reasons.get(entry.reason, 0) + by
    if not reasons[entry.reason]:
        del reasons[entry.reason]
