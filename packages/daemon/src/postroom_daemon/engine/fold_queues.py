"""The fold of events about queues, claims, schedules and the root. See ``fold``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from postroom_common.events import Event, EventType
from postroom_common.policy import Layer
from postroom_common.protocol import birthplace, named_key

from ..model.facts import (
    FACT_CLOCK,
    FACT_DAMAGE,
    FACT_DRAINING,
    FACT_EPOCH,
    FACT_LOGS,
    FACT_LOSSES,
    FACT_POLICY_PATTERNS,
    claim_end_fact,
    claim_fact,
    dlq_fact,
    name_fact,
    schedule_fact,
    with_damage,
    with_loss,
    without_losses,
)
from ..model.log_record import LOG, LogRecord, number_of
from ..model.records import NO_LAYER, QueueRecord
from ..stores.base import Store
from ..stores.errors import NotStored
from .fold_logs import OF_LOGS, log_of


def queue_of(event: Event, store: Store) -> QueueRecord:
    """The record of an event's queue, for changes. Creates the queue if the event that created it was lost to damage,
    so that later events are not lost as well."""
    try:
        return store.queue_for_update(event["queue"])
    except NotStored:
        store.add_queue(QueueRecord(name=event["queue"], created_wall=event["wallMs"]))
    return store.queue_for_update(event["queue"])


def _created(event: Event, store: Store) -> None:
    store.add_queue(
        QueueRecord(
            name=event["queue"],
            kind=event["kind"],
            created_wall=event["wallMs"],
            expires_at=event.get("expiresAtEngineMs", 0),
            used=event["engineMs"],
            created_with=event.get("createdWith", NO_LAYER),
            log=LogRecord(number_of(event)) if event["kind"] == LOG else None,
        )
    )
    if event["kind"] == LOG:
        store.facts.put(FACT_LOGS, True)
    _note_address(event.get("createdWith", NO_LAYER), event["queue"], store)


def _policy_set(event: Event, store: Store) -> None:
    record = queue_of(event, store)
    record.override, record.used = event["override"], event["engineMs"]
    _note_address(event["override"], event["queue"], store)


def _note_address(layer: Layer, queue: str, store: Store) -> None:
    """Note that a layer of a queue's policy addresses its dead letters, if it does."""
    if layer.get("dlq.queue"):
        store.facts.put(dlq_fact(layer["dlq.queue"]), queue)


def _patterns_set(event: Event, store: Store) -> None:
    store.facts.put(FACT_POLICY_PATTERNS, event["patterns"] or None)


def _paused(event: Event, store: Store) -> None:
    record = queue_of(event, store)
    paused, record.used = event["type"] == EventType.PAUSED, event["engineMs"]
    if event["operation"] == "publish":
        record.publish_paused = paused
    else:
        record.consume_paused = paused


def note_claim(event: Event, store: Store) -> None:
    """Store the claim of a message, which may replace another one of it, or end the claim of a message that is
    removed."""
    claim, queue = event["claim"], event["queue"]
    if type(claim) is str:
        end_claim(queue, claim, event["key"], store)
        return
    if "replaces" in claim:
        end_claim(queue, claim["replaces"], event["key"], store)
    if "name" in claim:
        _put_claim(queue, claim["name"], event["key"], claim.get("untilEngineMs", 0), store)


def note_name(event: Event, store: Store) -> None:
    """A message with a name is published, or removed: it is found by that, or no longer."""
    key = event["key"]
    fact = name_fact(named_key(birthplace(key), event["name"]))
    if event["type"] == EventType.PUBLISHED:
        store.facts.put(fact, key)
    elif store.facts.get(fact) == key:
        store.facts.put(fact, None)


def _claimed(event: Event, store: Store) -> None:
    for queue, name, key, until in event["claims"]:
        _put_claim(queue, name, key, until, store)


def _put_claim(queue: str, name: str, key: str, until: int, store: Store) -> None:
    stored = store.facts.get(claim_fact(queue, name))
    if stored and stored["untilEngineMs"]:
        store.facts.put(claim_end_fact(stored["untilEngineMs"], queue, name), None)
    store.facts.put(claim_fact(queue, name), {"key": key, "untilEngineMs": until})
    if until:
        store.facts.put(claim_end_fact(until, queue, name), True)


def end_claim(queue: str, name: str, key: str, store: Store) -> None:
    """End the claim of a message that is removed."""
    stored = store.facts.get(claim_fact(queue, name))
    if stored and stored["key"] == key:
        store.facts.put(claim_fact(queue, name), None)


def _claims_ended(event: Event, store: Store) -> None:
    for queue, claim in event["claims"]:
        stored = store.facts.get(claim_fact(queue, claim))
        if stored:
            store.facts.put(claim_end_fact(stored["untilEngineMs"], queue, claim), None)
            store.facts.put(claim_fact(queue, claim), None)


def _tally_reset(event: Event, store: Store) -> None:
    queue_of(event, store).reset_tally(event.get("tally", {}))


def _queue_deleted(event: Event, store: Store) -> None:
    store.delete_queue(event["queue"])


def _drain_set(event: Event, store: Store) -> None:
    store.facts.put(FACT_DRAINING, event["draining"] or None)


def _schedule_set(event: Event, store: Store) -> None:
    store.facts.put(schedule_fact(event["name"]), event["schedule"])


def _schedule_deleted(event: Event, store: Store) -> None:
    store.facts.put(schedule_fact(event["name"]), None)


def _schedule_fired(event: Event, store: Store) -> None:
    stored = store.facts.get(schedule_fact(event["name"]))
    if stored:
        store.facts.put(schedule_fact(event["name"]), stored | {"lastMs": event["forMs"], "nextMs": event["nextMs"]})


def _marked(event: Event, store: Store) -> None:
    store.facts.put(FACT_CLOCK, {name: event[name] for name in ("bootId", "bootMs", "engineMs", "wallMs")})


def _epoch(event: Event, store: Store) -> None:
    store.facts.put(FACT_EPOCH, {"epoch": event["epoch"], "root": event["root"]})


def _loss_accepted(event: Event, store: Store) -> None:
    if event.get("folded"):  # the store had these events then, but a rebuilt store lacks them: keep the gap
        return
    store.facts.put(FACT_LOSSES, without_losses(store.facts.get(FACT_LOSSES) or [], event["ranges"]) or None)
    if store.facts.get(FACT_DAMAGE):
        store.facts.put(FACT_DAMAGE, None)


def _damage_found(event: Event, store: Store) -> None:
    more = with_damage(store.facts.get(FACT_DAMAGE) or [], event["what"], event["messages"], event.get("keys", []))
    store.facts.put(FACT_DAMAGE, more)
    losses = store.facts.get(FACT_LOSSES) or []
    for first, last in event.get("ranges", ()):
        losses = with_loss(losses, first, last)
    store.facts.put(FACT_LOSSES, losses or None)
    for lost in event.get("logs", ()):
        log_of(lost | {"wallMs": event["wallMs"]}, store)[1].lose(lost["last"], lost["records"], lost["bytes"])


#: The fold of each type of event that is not about a single message.
OF_QUEUES: Final[dict[str, Callable[[Event, Store], None]]] = {
    EventType.EPOCH_STARTED: _epoch,
    EventType.CLOCK_MARKED: _marked,
    EventType.LOSS_ACCEPTED: _loss_accepted,
    EventType.DAMAGE_FOUND: _damage_found,
    EventType.QUEUE_CREATED: _created,
    EventType.POLICY_SET: _policy_set,
    EventType.POLICY_PATTERNS_SET: _patterns_set,
    EventType.PAUSED: _paused,
    EventType.RESUMED: _paused,
    EventType.CLAIMED: _claimed,
    EventType.CLAIMS_ENDED: _claims_ended,
    EventType.TALLY_RESET: _tally_reset,
    EventType.QUEUE_DELETED: _queue_deleted,
    EventType.DRAIN_SET: _drain_set,
    EventType.SCHEDULE_SET: _schedule_set,
    EventType.SCHEDULE_DELETED: _schedule_deleted,
    EventType.SCHEDULE_FIRED: _schedule_fired,
    **OF_LOGS,
}
