"""Each way to hurt a root by hand, with what ``verify`` must call it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from postroom_common.events import encode_event
from postroom_common.protocol import State
from postroom_daemon.records import CLAIM, CLAIM_END, FACT_CLOCK, FACT_DRAINING, claim_fact, dlq_fact, schedule_fact
from postroom_daemon.segments import segment_name
from postroom_daemon.verify import Kind
from tests.conformance.bench import Bench
from tests.daemon.test_segments import flip, line_starts
from tests.daemon.used import Used, opened, use

STORES: Final = ("sqlite", "filesystem", "hybrid")
DATABASES: Final = ("sqlite", "hybrid")


# --- the ways ---------------------------------------------------------------------------------------------------


def journal_flip(bench: Bench, used: Used) -> None:
    path = bench.segments()[1]
    flip(path, line_starts(path)[2] + 30)


def journal_torn_request(bench: Bench, used: Used) -> None:
    """The first publish makes the queue as well: two events, of which one is hurt."""
    path = bench.segments()[0]
    at = path.read_bytes().index(b'"queue_created"')
    flip(path, at)


def journal_head_flip(bench: Bench, used: Used) -> None:
    flip(bench.segments()[1], 5)


def journal_segment_of_nothing(bench: Bench, used: Used) -> None:
    path = bench.segments()[1]
    path.write_bytes(bytes(path.stat().st_size))


def journal_segment_gone(bench: Bench, used: Used) -> None:
    bench.segments()[1].unlink()


def journal_end_gone(bench: Bench, used: Used) -> None:
    bench.segments()[-1].unlink()


def journal_gone(bench: Bench, used: Used) -> None:
    shutil.rmtree(bench.journal_root)


def journal_emptied(bench: Bench, used: Used) -> None:
    for path in bench.segments():
        path.unlink()


def journal_copy(bench: Bench, used: Used) -> None:
    path = bench.segments()[0]
    shutil.copy(path, path.with_name(segment_name(3)))


def journal_renamed(bench: Bench, used: Used) -> None:
    path = bench.segments()[1]
    path.rename(path.with_name(segment_name(int(path.stem) + 1)))


def journal_directory(bench: Bench, used: Used) -> None:
    (bench.journal_root / segment_name(10**6)).mkdir()


def journal_foreign(bench: Bench, used: Used) -> None:
    event = bench.events()[-1] | {"root": "another", "type": "clock_marked", "format": 1}
    event |= {"id": event["id"] + 1, "req": event["id"] + 1, "grp": event["id"] + 1}
    event.pop("crc")
    (bench.journal_root / segment_name(event["id"])).write_bytes(encode_event(event))


def store_gone(bench: Bench, used: Used) -> None:
    settings = bench.config.settings
    if settings.backend == "filesystem":
        shutil.rmtree(settings.filesystem_root)
    else:
        settings.sqlite_db_path.unlink()


def database_overwritten(bench: Bench, used: Used) -> None:
    bench.config.settings.sqlite_db_path.write_bytes(b"no database at all" * 500)


def execute(bench: Bench, statement: str, *values: str) -> None:
    """Change the database behind the store's back."""
    with closing(sqlite3.connect(bench.config.settings.sqlite_db_path)) as db, db:
        db.execute(statement, values)


def row_changed(bench: Bench, used: Used) -> None:
    execute(bench, "UPDATE msg_index SET attempt = 7 WHERE message_key = ?", used.leased)


def message_removed(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        for key in (used.ready[2], used.dead):
            store.delete(entry := store.get(key), entry.state)


def message_back(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        entry = replace(store.get(used.ready[0]), key=used.ended[1], seq=3)
        store.insert(entry, b'{"parts":[{"text":"ghost"}]}')


def update(bench: Bench, key: str, **changes: Any) -> None:
    """Change what the store has of a message."""
    with opened(bench) as store:
        entry = store.get(key)
        store.update(replace(entry, **changes), entry.state)


def message_ready_again(bench: Bench, used: Used) -> None:
    update(bench, used.dead, state=State.READY, dead_at=0)


def lease_changed(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        entry = store.get(used.leased)
        entry.lease_until += 1
        store.update(entry, State.INFLIGHT)


def due_too_early(bench: Bench, used: Used) -> None:
    update(bench, used.delayed, state=State.READY)


def insert_again(bench: Bench, key: str, body: bytes = b"", **changes: Any) -> None:
    """Put a message back with another body, or changed."""
    with opened(bench) as store:
        entry = store.get(key)
        body = body or store.envelope(key)
        store.delete(entry, entry.state)
        store.insert(replace(entry, **changes), body)


def priority_changed(bench: Bench, used: Used) -> None:
    insert_again(bench, used.ready[1], priority=5)


def history_gone(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(f"history:{used.dead}", None)
        store.update(entry := store.get(used.dead), entry.state)


def body_changed(bench: Bench, used: Used) -> None:
    insert_again(bench, used.ready[1], b'{"parts":[{"text":"another"}]}')


def counts_wrong(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("work").counts["ready"] += 3


def pause_forgotten(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("other").publish_paused = False


def policy_forgotten(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("work").override = {}


def totals_wrong(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("work").totals["acked"] = 77


def dlq_name_forgotten(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(dlq_fact("graveyard"), None)


def facts_of(store: Any, prefix: str) -> list[str]:
    return [name for name in store.facts(prefix, "", 10) if store.fact(name)]


def claims_forgotten(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        for name in facts_of(store, CLAIM):
            store.put_fact(name, None)


def claim_of_another(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(claim_fact("work", "0" * 32), {"key": used.ready[0], "untilEngineMs": 0})


def claim_never_ends(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(facts_of(store, CLAIM_END)[0], None)


def schedule_forgotten(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(schedule_fact("yearly"), None)


def schedule_changed(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(schedule_fact("yearly"), store.fact(schedule_fact("yearly")) | {"queue": "work"})


def schedule_back(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(schedule_fact("never"), store.fact(schedule_fact("yearly")))


def drains(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(FACT_DRAINING, True)


def end_forgotten(bench: Bench, used: Used) -> None:
    update(bench, used.ready[1], expires=10**9)


def bytes_wrong(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("work").bytes += 3


def reasons_wrong(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.touch_queue("work").reasons["POISON"] = 3


def clock_changed(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact(FACT_CLOCK, store.fact(FACT_CLOCK) | {"engineMs": 1})


def losses_known(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact("losses", [[2, 3]])


def index_row_gone(bench: Bench, used: Used) -> None:
    execute(bench, "DELETE FROM msg_index WHERE message_key = ?", used.ready[0])


def body_row_gone(bench: Bench, used: Used) -> None:
    execute(bench, "DELETE FROM kv WHERE key = ?", used.ready[0])


def queue_row_gone(bench: Bench, used: Used) -> None:
    execute(bench, "DELETE FROM kv WHERE key = 'queue:work'")


def history_orphan(bench: Bench, used: Used) -> None:
    with opened(bench) as store:
        store.put_fact("history:msg:work:nobody", [{"reasonCode": "NACK"}])


def payloads(bench: Bench) -> list[Path]:
    return sorted(path for path in bench.config.settings.hybrid_payload_root.rglob("*.json") if path.is_file())


def payload_of(bench: Bench, key: str) -> Path:
    return next(path for path in payloads(bench) if key.rpartition(":")[2] + ".json" in path.name)


def payload_gone(bench: Bench, used: Used) -> None:
    payload_of(bench, used.ready[0]).unlink()


def payload_changed(bench: Bench, used: Used) -> None:
    flip(payload_of(bench, used.ready[0]), 20)


def payload_orphan(bench: Bench, used: Used) -> None:
    path = payload_of(bench, used.ready[0])
    shutil.copy(path, path.with_name(path.name.replace("message-", "strange-")))


def payload_misplaced(bench: Bench, used: Used) -> None:
    path = payload_of(bench, used.ready[0])
    other = path.parent.with_name("00000007")
    other.mkdir()
    path.rename(other / path.name)


def payload_stray(bench: Bench, used: Used) -> None:
    payloads(bench)[0].with_name("README").write_text("not ours")


def file_of(bench: Bench, key: str) -> Path:
    root = bench.config.settings.filesystem_root
    return next(path for path in sorted(root.rglob("*.json")) if f"-{key.rpartition(':')[2]}~" in path.name)


def file_gone(bench: Bench, used: Used) -> None:
    file_of(bench, used.ready[0]).unlink()


def file_damaged(bench: Bench, used: Used) -> None:
    flip(file_of(bench, used.ready[0]), 40)


def file_second(bench: Bench, used: Used) -> None:
    path = file_of(bench, used.ready[0])
    shutil.copy(path, path.with_name(path.name.replace("~v", "~v0")))


def file_in_another_folder(bench: Bench, used: Used) -> None:
    path = file_of(bench, used.ready[0])
    path.rename(path.parent.with_name("delayed") / path.name)


def file_strange(bench: Bench, used: Used) -> None:
    file_of(bench, used.ready[0]).with_name("notes.txt").write_text("not ours")


def checkpoint_damaged(bench: Bench, used: Used) -> None:
    flip(sorted((bench.config.settings.filesystem_root / "meta").iterdir())[-1], 30)


class Wound(NamedTuple):
    """What to do to a root, what ``verify`` must call it, and the stores on which it can be done."""

    make: Callable[[Bench, Used], None]
    kind: Kind
    stores: tuple[str, ...] = STORES


WOUNDS: Final = (
    Wound(journal_flip, Kind.JOURNAL_DAMAGED),
    Wound(journal_torn_request, Kind.JOURNAL_INCOMPLETE),
    Wound(journal_head_flip, Kind.JOURNAL_DAMAGED),
    Wound(journal_segment_of_nothing, Kind.JOURNAL_DAMAGED),
    Wound(journal_segment_gone, Kind.EVENTS_MISSING),
    Wound(journal_gone, Kind.JOURNAL_MISSING),
    Wound(journal_emptied, Kind.JOURNAL_MISSING),
    Wound(journal_copy, Kind.JOURNAL_DISORDER),
    Wound(journal_renamed, Kind.JOURNAL_MISNAMED),
    Wound(journal_directory, Kind.JOURNAL_NOT_A_FILE),
    Wound(journal_foreign, Kind.JOURNAL_FOREIGN),
    Wound(store_gone, Kind.STORE_MISSING),
    Wound(database_overwritten, Kind.STORE_DAMAGED, DATABASES),
    Wound(row_changed, Kind.STORE_DAMAGED, DATABASES),
    Wound(message_removed, Kind.MESSAGE_MISSING, DATABASES),
    Wound(message_back, Kind.MESSAGE_LEFT),
    Wound(message_ready_again, Kind.MESSAGE_WRONG),
    Wound(lease_changed, Kind.MESSAGE_WRONG),
    Wound(due_too_early, Kind.MESSAGE_WRONG),
    Wound(priority_changed, Kind.MESSAGE_WRONG),
    Wound(history_gone, Kind.MESSAGE_WRONG),
    Wound(body_changed, Kind.BODY_WRONG),
    Wound(counts_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(pause_forgotten, Kind.QUEUE_WRONG),
    Wound(policy_forgotten, Kind.QUEUE_WRONG),
    Wound(totals_wrong, Kind.QUEUE_WRONG),
    Wound(dlq_name_forgotten, Kind.DLQ_NAME),
    Wound(claims_forgotten, Kind.CLAIM_WRONG),
    Wound(claim_of_another, Kind.CLAIM_WRONG),
    Wound(claim_never_ends, Kind.CLAIM_WRONG),
    Wound(schedule_forgotten, Kind.SCHEDULE_WRONG),
    Wound(schedule_changed, Kind.SCHEDULE_WRONG),
    Wound(schedule_back, Kind.SCHEDULE_WRONG),
    Wound(drains, Kind.DRAIN_WRONG),
    Wound(end_forgotten, Kind.MESSAGE_WRONG),
    Wound(bytes_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(reasons_wrong, Kind.QUEUE_COUNTS, DATABASES),
    Wound(clock_changed, Kind.CLOCK_WRONG),
    Wound(losses_known, Kind.EVENTS_LOST),
    Wound(index_row_gone, Kind.ROW_ORPHAN, ("sqlite",)),
    Wound(index_row_gone, Kind.MESSAGE_MISSING, DATABASES),
    Wound(body_row_gone, Kind.BODY_LOST, DATABASES),
    Wound(queue_row_gone, Kind.QUEUE_MISSING, DATABASES),
    Wound(history_orphan, Kind.ROW_ORPHAN, DATABASES),
    Wound(payload_gone, Kind.BODY_LOST, ("hybrid",)),
    Wound(payload_changed, Kind.BODY_LOST, ("hybrid",)),
    Wound(payload_orphan, Kind.FILE_ORPHAN, ("hybrid",)),
    Wound(payload_misplaced, Kind.FILE_MISPLACED, ("hybrid",)),
    Wound(payload_stray, Kind.FILE_STRANGE, ("hybrid",)),
    Wound(file_gone, Kind.MESSAGE_MISSING, ("filesystem",)),
    Wound(file_damaged, Kind.BODY_LOST, ("filesystem",)),
    Wound(file_second, Kind.FILE_SECOND, ("filesystem",)),
    Wound(file_in_another_folder, Kind.FILE_MISPLACED, ("filesystem",)),
    Wound(file_strange, Kind.FILE_STRANGE, ("filesystem",)),
    Wound(checkpoint_damaged, Kind.CHECKPOINT_DAMAGED, ("filesystem",)),
)
CASES: Final = [(wound, store) for wound in WOUNDS for store in wound.stores]
NAMES: Final = [f"{wound.make.__name__}-{wound.kind}-{store}" for wound, store in CASES]


def hurt(make_bench: Callable[..., Bench], wound: Wound, store: str) -> tuple[Bench, Used]:
    """A stopped root with this wound."""
    bench = make_bench(store, segment_bytes=1500).open()
    used = use(bench)
    wound.make(bench, used)
    return bench, used
