"""apply: the same whether it happens once or twice, live or in a replay."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import Event
from postroom_daemon.engine.fold import apply
from postroom_daemon.model.facts import history_fact
from postroom_daemon.model.lifecycle import IllegalTransition
from postroom_daemon.root import recovery
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.base import Store
from postroom_daemon.stores.errors import NotStored, StoreError
from postroom_daemon.stores.memory import MemoryStore
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import Bench, picture


def live_through(bench: Bench, seed: int) -> list[str]:
    """A random history of 400 requests. All keys that ever were."""
    chance = random.Random(seed)
    keys: list[str] = []
    leases: list[dict[str, str]] = []
    for _ in range(100):
        sents = []
        for _ in range(chance.randint(1, 7)):
            queue = chance.choice("abc")
            lease = leases.pop(chance.randrange(len(leases))) if leases and chance.random() < 0.6 else None
            held: dict[str, Any] = {name: lease[name] for name in ("messageKey", "leaseId")} if lease else {}
            match chance.randrange(9):
                case 0 | 1 | 2:
                    delay = chance.choice([0, 0, 400, 90_000])
                    sents.append(bench.make("publish", queue=queue, delayMs=delay, priority=chance.randint(-2, 2)))
                case 3 | 4:
                    sents.append(bench.make("consume_next", queue=queue, visibilityTimeoutSec=chance.choice([1, 100])))
                case 5 if held:
                    sents.append(bench.make(chance.choice(["ack", "release", "extend_lease"]), **held))
                case 6 | 7 if held:
                    sents.append(bench.make("nack", requeue=chance.random() < 0.7, reason="why", **held))
                case 8:
                    policy = {"retry": {"limit": chance.randint(0, 3)}, "dlq": {"enabled": chance.random() < 0.8}}
                    sents.append(bench.make("set_policy", queue=queue, policy=policy))
                case _ if keys:
                    sents.append(bench.make("reprocess_dlq", messageKey=chance.choice(keys)))
                    sents.append(bench.make("pause" if chance.random() < 0.2 else "resume", queue=queue))
        bench.run(*sents)
        for sent in sents:
            data = sent.data_or_none() or {}
            if sent.request.wire.command == "publish" and data:
                keys.append(data["messageKey"])
            if data.get("lease"):
                leases.append(data["lease"])
        bench.clocks.pass_ms(chance.choice([0, 1, 300, 2000]))
    return keys


def folded(events: list[Event], store: Store, times: int = 1) -> Store:
    store.open()
    store.begin()
    for event in events:
        for _ in range(times):
            apply(event, store)
    store.commit()
    return store


def promoted(store: Store, now: int) -> Store:
    """Becoming due is no event: all stores are brought to the same time."""
    store.begin()
    store.due.promote(now, 10**6)
    store.commit()
    return store


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_into_any_fresh_store_equals_the_live_one(bench: Bench, tmp_path: Path, seed: int) -> None:
    keys = live_through(bench, seed)
    events = bench.events()
    types = {event["type"] for event in events}
    assert types >= {"published", "leased", "acked", "released", "retried", "died", "reprocessed", "lease_extended"}
    now = bench.live.clock.now().engine
    live = picture(promoted(bench.store, now), keys)
    assert len(live["entries"]) > 20
    for times in (1, 2):
        for fresh in (MemoryStore(), SqliteStore(tmp_path / f"again{times}.db")):
            assert picture(promoted(folded(events, fresh, times), now), keys) == live
            fresh.close()


def test_a_replay_that_begins_too_early_changes_nothing(bench: Bench) -> None:
    keys = live_through(bench, 5)
    before = picture(bench.store, keys)
    bench.store.begin()
    for event in bench.events():
        apply(event, bench.store)
    bench.store.commit()
    assert picture(bench.store, keys) == before


def test_counts_equal_a_count_of_the_messages(bench: Bench) -> None:
    keys = live_through(bench, 6)
    entries = [entry for key in keys if (entry := bench.store.get(key))]
    for queue in "abc":
        record = bench.store.queue(queue)
        assert record is not None
        for state, count in record.counts.items():
            assert count == sum(entry.queue == queue and entry.state == state for entry in entries)
        t = record.totals
        gone = t.get("acked", 0) + t.get("dropped", 0)
        assert t["published"] - gone == sum(record.counts.values())


def test_an_event_of_a_newer_version_is_skipped_unless_it_is_about_a_queue(bench: Bench) -> None:
    bench.store.begin()
    event = {"id": bench.store.applied + 1, "type": "greeted"}
    apply(event, bench.store)
    bench.store.commit()
    assert bench.store.applied == event["id"]
    with pytest.raises(StoreError, match="upgrade"):
        apply({"id": event["id"] + 1, "type": "teleported", "queue": "q"}, bench.store)
    assert bench.store.applied == event["id"]


@pytest.mark.parametrize("make", [lambda path: MemoryStore(), lambda path: SqliteStore(path / "s.db")])
def test_an_event_of_an_unknown_message_makes_no_queue(tmp_path: Path, make: Callable[[Path], Store]) -> None:
    store = make(tmp_path)
    store.open()
    store.begin()
    event = {"id": 1, "epoch": 1, "engineMs": 5, "wallMs": 5, "queue": "lost", "key": "msg:lost:1"}
    with pytest.raises(NotStored):
        apply(event | {"type": "acked", "heldMs": 1}, store)
    assert store.queue("lost") is None and store.applied == 0
    store.rollback()
    store.close()


@pytest.mark.parametrize("make", [lambda path: MemoryStore(), lambda path: SqliteStore(path / "s.db")])
def test_an_event_that_does_not_fit_raises_and_changes_nothing(tmp_path: Path, make: Callable[[Path], Store]) -> None:
    store = make(tmp_path)
    base = {"epoch": 1, "engineMs": 5, "wallMs": 5, "queue": "q", "key": "msg:q:1"}
    published = base | {"id": 2, "type": "published", "message": {"parts": [{"text": "x"}]}}
    folded([base | {"id": 1, "type": "queue_created", "kind": "queue"}, published], store)
    failure = {"reasonCode": "NACKED", "reasonMessage": "", "attempt": 1, "consumerId": "c"}
    dead, held = base | {"key": "msg:q:dead"}, base | {"key": "msg:q:held"}
    for number, event in enumerate(
        [
            dead | {"type": "published", "message": {"parts": [{"text": "y"}]}},
            dead | {"type": "died", "failure": failure},
            held | {"type": "published", "message": {"parts": [{"text": "z"}]}},
            held | {"type": "held"},
        ],
        3,
    ):
        store.begin()
        apply(event | {"id": number}, store)
        store.commit()
    keys = ["msg:q:1", "msg:q:2", "msg:q:dead", "msg:q:held"]
    before = picture(store, keys)
    leased = {"type": "leased", "lease": "l", "consumer": "c", "untilEngineMs": 9, "attempt": 1}
    bad: list[tuple[type[Exception], Event]] = [
        (IllegalTransition, base | {"type": "acked", "heldMs": 1}),
        (IllegalTransition, base | {"type": "released", "attempt": 0}),
        (IllegalTransition, base | {"type": "retried", "dueEngineMs": 9, "failure": failure}),
        (IllegalTransition, base | {"type": "reprocessed"}),
        (IllegalTransition, base | {"type": "lease_extended", "untilEngineMs": 9}),
        (IllegalTransition, base | {"type": "unheld"}),
        (IllegalTransition, base | {"type": "rescheduled", "dueEngineMs": 9}),
        (IllegalTransition, base | {"type": "quarantined", "phase": "quarantined"}),
        (IllegalTransition, dead | {"type": "retried", "dueEngineMs": 9, "failure": failure}),
        (IllegalTransition, dead | {"type": "held"}),
        (IllegalTransition, dead | {"type": "unheld"}),
        (IllegalTransition, dead | {"type": "moved", "to": "r"}),
        (IllegalTransition, dead | {"type": "retargeted"}),
        (IllegalTransition, held | leased),
        (IllegalTransition, held | {"type": "acked", "heldMs": 1}),
        (IllegalTransition, held | {"type": "held"}),
        (IllegalTransition, held | {"type": "reprocessed"}),
        (NotStored, base | {"type": "acked", "key": "msg:q:2", "heldMs": 1}),
    ]
    for error, event in bad:
        store.begin()
        with pytest.raises(error):
            apply(event | {"id": 7}, store)
        store.commit()  # even so
        assert picture(store, keys) == before
    store.close()


def test_a_history_of_failures_is_bounded(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 100, "backoff": "fixed"}})
    key = bench.publish()
    for _ in range(40):
        lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
        bench.do("nack", messageKey=key, leaseId=lease, requeue=True)
        bench.clocks.pass_ms(1000)
    entry = bench.store.get(key)
    assert entry is not None and entry.attempt == 40
    history = bench.store.facts.get(history_fact(entry.key))
    assert [failure["attempt"] for failure in history] == [*range(9, 41)] and entry.failures == 32


def test_a_store_that_cannot_write_in_a_replay_does_not_skip_events(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        bench.publish(message=f"m{number}")
    bench.close()
    bench.lose_store()

    def refuse(event: Event, store: Store) -> None:
        if event["id"] == 5:
            raise StoreError("SQLite: database or disk is full")
        apply(event, store)

    with monkeypatch.context() as full:
        full.setattr(recovery, "apply", refuse)
        with pytest.raises(StartError, match="disk is full"):
            bench.open()
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 5


def test_a_file_that_is_not_a_database_is_set_aside_and_the_store_rebuilt(bench: Bench) -> None:
    bench.publish()
    bench.close()
    bench.config.settings.sqlite_db_path.write_bytes(b"not a database at all" * 500)
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1
    assert [data[:21] for data in bench.quarantined().values()] == [b"not a database at all"]
