"""Faults in a store: it differs from the journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

from postroom_common.protocol import State
from postroom_daemon.model.facts import (
    CLAIM,
    CLAIM_END,
    FACT_CLOCK,
    FACT_DRAINING,
    FACT_POLICY_PATTERNS,
    claim_fact,
    dlq_fact,
    schedule_fact,
)
from tests.conformance.bench import Bench
from tests.daemon.populated_root import Keys, opened


def execute(bench: Bench, statement: str, *values: str) -> None:
    """Change the database behind the store's back."""
    with closing(sqlite3.connect(bench.config.settings.sqlite_db_path)) as db, db:
        db.execute(statement, values)


def row_changed(bench: Bench, keys: Keys) -> None:
    execute(bench, "UPDATE msg_index SET attempt = 7 WHERE message_key = ?", keys.leased)


def message_removed(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        for key in (keys.ready[2], keys.dead):
            store.delete(entry := store.get(key), entry.state)


def message_back(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        entry = replace(store.get(keys.ready[0]), key=keys.ended[1], seq=3)
        store.insert(entry, b'{"parts":[{"text":"ghost"}]}')


def update(bench: Bench, key: str, **changes: Any) -> None:
    """Change a message in the store."""
    with opened(bench) as store:
        entry = store.get(key)
        store.update(replace(entry, **changes), entry.state)


def message_ready_again(bench: Bench, keys: Keys) -> None:
    update(bench, keys.dead, state=State.READY, dead_at=0)


def lease_changed(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        entry = store.get(keys.leased)
        entry.lease_until += 1
        store.update(entry, State.INFLIGHT)


def due_too_early(bench: Bench, keys: Keys) -> None:
    update(bench, keys.delayed, state=State.READY)


def insert_again(bench: Bench, key: str, body: bytes = b"", **changes: Any) -> None:
    """Put a message back with another body, or changed."""
    with opened(bench) as store:
        entry = store.get(key)
        body = body or store.bodies.envelope(key)
        store.delete(entry, entry.state)
        store.insert(replace(entry, **changes), body)


def priority_changed(bench: Bench, keys: Keys) -> None:
    insert_again(bench, keys.ready[1], priority=5)


def history_gone(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(f"history:{keys.dead}", None)
        store.update(entry := store.get(keys.dead), entry.state)


def body_changed(bench: Bench, keys: Keys) -> None:
    insert_again(bench, keys.ready[1], b'{"parts":[{"text":"another"}]}')


def counts_wrong(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").counts["ready"] += 3


def pause_forgotten(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("other").publish_paused = False


def policy_forgotten(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").override = {}


def totals_wrong(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").totals["acked"] = 77


def dlq_name_forgotten(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(dlq_fact("graveyard"), None)


def facts_of(store: Any, prefix: str) -> list[str]:
    return [name for name in store.facts.names(prefix, "", 10) if store.facts.get(name)]


def claims_forgotten(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        for name in facts_of(store, CLAIM):
            store.facts.put(name, None)


def claim_of_another(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(claim_fact("work", "0" * 32), {"key": keys.ready[0], "untilEngineMs": 0})


def claim_never_ends(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(facts_of(store, CLAIM_END)[0], None)


def schedule_forgotten(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(schedule_fact("yearly"), None)


def schedule_changed(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(schedule_fact("yearly"), store.facts.get(schedule_fact("yearly")) | {"queue": "work"})


def schedule_back(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(schedule_fact("never"), store.facts.get(schedule_fact("yearly")))


def drains(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(FACT_DRAINING, True)


def policy_patterns_of_nobody(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(FACT_POLICY_PATTERNS, [{"pattern": "^work", "policy": {"ttlSec": 5}}])


def created_with_another_policy(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").created_with = {"ttlSec": 5}


def end_forgotten(bench: Bench, keys: Keys) -> None:
    update(bench, keys.ready[1], expires=10**9)


def bytes_wrong(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").bytes += 3


def reasons_wrong(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.queue_for_update("work").reasons["POISON"] = 3


def clock_changed(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put(FACT_CLOCK, store.facts.get(FACT_CLOCK) | {"engineMs": 1})


def losses_known(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put("losses", [[2, 3]])


def index_row_gone(bench: Bench, keys: Keys) -> None:
    execute(bench, "DELETE FROM msg_index WHERE message_key = ?", keys.ready[0])


def body_row_gone(bench: Bench, keys: Keys) -> None:
    execute(bench, "DELETE FROM kv WHERE key = ?", keys.ready[0])


def queue_row_gone(bench: Bench, keys: Keys) -> None:
    execute(bench, "DELETE FROM kv WHERE key = 'queue:work'")


def history_orphan(bench: Bench, keys: Keys) -> None:
    with opened(bench) as store:
        store.facts.put("history:msg:work:nobody", [{"reasonCode": "NACK"}])
