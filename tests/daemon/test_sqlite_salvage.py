"""A damaged database loses what stood in the damaged place and the journal no longer has, and nothing else."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from postroom_common.protocol import State
from postroom_daemon.stores.errors import StoreDamaged
from postroom_daemon.stores.sqlite.raw_pages import RawPages
from postroom_daemon.stores.sqlite.schema import MSG_COLUMNS
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import Bench, picture, seen_in
from tests.daemon.database import connection
from tests.daemon.maintenance_runs import verified

MakeBench = Callable[..., Bench]
PAGE = 4096


def database(bench: Bench) -> Path:
    return bench.config.settings.sqlite_db_path


def fill(bench: Bench, count: int) -> dict[str, str]:
    """Publish, and acknowledge every third; a lease, a dead letter, a pause and a policy. What waits, by key."""
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 7}})
    waiting = {}
    for number in range(count):
        text = f"message {number}"
        key = bench.publish(message=text, attributes={"pad": "x" * 300})
        waiting[key] = text
        if number % 3 == 0:
            message = bench.do("consume_next", queue="q")
            bench.do("ack", messageKey=message["message"]["messageKey"], leaseId=message["lease"]["leaseId"])
            del waiting[message["message"]["messageKey"]]
    return waiting


def forget_beginning(bench: Bench) -> None:
    """Of the journal only the last file is left, as retention does it."""
    bench.store.disk.checkpoint()
    for segment in bench.segments()[:-1]:
        segment.unlink()


def damage(path: Path, page: int, seed: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = random.Random(seed).randbytes(PAGE)
    path.write_bytes(data)


def delivered(bench: Bench, found: dict[str, str] | None = None) -> dict[str, str]:
    """All that can be consumed."""
    found = {} if found is None else found
    while message := bench.do("consume_next", queue="q")["message"]:
        assert message["messageKey"] not in found
        found[message["messageKey"]] = message["payload"]
    return found


def drain_over_damage(bench: Bench) -> tuple[dict[str, str], set[str]]:
    """All that can be consumed, and the dead letters. Where damage is met, it goes on as the daemon does."""
    found: dict[str, str] = {}
    bench.open()
    for _ in range(3):
        try:
            delivered(bench, found)
            dead = bench.do("list_dlq", queue="q", limit=1000)["messages"]
            bench.publish("other")
            bench.store.disk.checkpoint()
            return found, {letter["messageKey"] for letter in dead}
        except StoreDamaged:
            bench.close()
            bench.open(refold=True)
    raise AssertionError("damage is met again and again")


@pytest.mark.parametrize("journal", ["whole", "only its end"])
def test_whatever_page_is_damaged_only_its_rows_are_lost_and_no_settled_message_returns(
    make_bench: MakeBench, journal: str
) -> None:
    bench = make_bench(segment_bytes=30_000).open()
    waiting = fill(bench, 130)
    if journal == "only its end":
        forget_beginning(bench)
    bench.store.disk.checkpoint()
    bench.close()
    saved = bench.path.with_name("saved")
    shutil.copytree(bench.path, saved)
    pages = database(bench).stat().st_size // PAGE
    assert pages > 20
    losses = 0
    for page in range(1, pages + 1):
        shutil.rmtree(bench.path)
        shutil.copytree(saved, bench.path)
        damage(database(bench), page, page)
        found, dead = drain_over_damage(bench)
        assert found.items() <= waiting.items(), page
        lost = waiting.keys() - found.keys() - dead
        assert not lost or journal == "only its end", page
        assert len(lost) <= 40, page
        assert bench.store.facts.get("losses") or not lost, page
        losses += len(lost)
        assert bench.do("get_policy", queue="q")["override"] in ({"retry": {"limit": 7}}, {}), page
        bench.close()
    assert losses < len(waiting)


def test_salvaged_messages_are_unchanged(make_bench: MakeBench) -> None:
    """A page of no importance is damaged, the journal begins in the middle of many lives: all states are kept."""
    bench = make_bench(segment_bytes=20_000).open()
    keys = [bench.publish(message=f"m{number}") for number in range(200)]
    bench.publish("other", delayMs=10**6)
    for number in range(30):
        message = bench.do("consume_next", queue="q")
        lease = {"messageKey": message["message"]["messageKey"], "leaseId": message["lease"]["leaseId"]}
        if number % 3:
            bench.do("nack", requeue=number % 3 == 1, reason="no", **lease)
    bench.do("pause", queue="other")
    forget_beginning(bench)
    there = picture(bench.store, keys)
    bench.store.disk.tidy()
    bench.store.recovery.salvage(int(bench.segments()[0].stem))
    bench.close()
    bench.lose_store()
    bench.open()
    again = picture(bench.store, keys)
    assert again == there
    bench.reopen()
    assert picture(bench.store, keys) == there
    assert bench.do("list_dlq", queue="q")["count"] == 10


def test_rows_of_the_write_ahead_log_replace_those_of_the_database(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    waiting = fill(bench, 60)
    bench.store.disk.checkpoint()
    more = {bench.publish(message=f"late {number}"): f"late {number}" for number in range(10)}
    bench.store.disk.tidy()
    path = database(bench)
    pages = RawPages(path, path.with_name(path.name + "-wal"))
    keys = {row[9] for row in pages.rows() if len(row) == len(MSG_COLUMNS)}
    pages.close()
    assert keys == waiting.keys() | more.keys()


def test_a_torn_log_counts_up_to_its_last_complete_transaction(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench().open()
    bench.store.disk.checkpoint()
    first = bench.publish()
    bench.store.disk.tidy()
    wal = database(bench).with_name(database(bench).name + "-wal")
    size = wal.stat().st_size
    bench.publish()
    bench.store.disk.tidy()
    data = bytearray(wal.read_bytes())
    data[size + 100] ^= 1
    (tmp_path / "torn").write_bytes(data)
    pages = RawPages(database(bench), tmp_path / "torn")
    assert [row[9] for row in pages.rows() if len(row) == len(MSG_COLUMNS)] == [first]
    pages.close()


def test_a_body_without_its_state_is_delivered_again_and_a_state_without_its_body_is_a_dead_letter(
    make_bench: MakeBench,
) -> None:
    bench = make_bench().open()
    bodies = [bench.publish(message=f"m{number}") for number in range(4)]
    store = bench.store
    assert isinstance(store, SqliteStore)
    store.flush()
    connection(store).execute("DELETE FROM msg_index WHERE message_key = ?", (bodies[0],))
    connection(store).execute(
        "UPDATE msg_index SET priority = 9 WHERE message_key = ?", (bodies[1],)
    )  # its checksum is wrong
    connection(store).execute("DELETE FROM kv WHERE key = ?", (bodies[2],))
    for segment in bench.segments():
        segment.unlink()
    store.disk.tidy()
    store.recovery.salvage(None)
    bench.close()
    bench.lose_store()
    bench.open()
    assert sorted(delivered(bench).values()) == ["m0", "m1", "m3"]
    entry = bench.store.get(bodies[2])
    assert entry is not None and entry.state is State.DEAD


def test_an_interrupted_salvage_is_restarted_or_continued(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    waiting = fill(bench, 30)
    forget_beginning(bench)
    path = database(bench)
    path.with_name(path.name + ".salvaged").write_bytes(b"half of it")  # killed before it was whole
    bench.store.recovery.salvage(1)
    bench.close()
    path.rename(bench.path / "aside")  # killed after the damaged one was set aside
    assert path.with_name(path.name + ".salvaged").exists()
    bench.open()
    assert delivered(bench) == waiting


def test_a_damaged_database_of_the_hybrid_store_keeps_its_bodies(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", segment_bytes=20_000).open()
    waiting = fill(bench, 90)
    forget_beginning(bench)
    bench.close()
    damage(database(bench), 3)
    found, _ = drain_over_damage(bench)
    assert found.items() <= waiting.items()
    assert len(found) > len(waiting) - 40


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_what_damaged_rows_had_of_queues_and_failures_comes_back_from_the_journal(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    bench = make_bench(backend).open()
    fill(bench, 12)
    for requeue in (True, False):
        taken = bench.do("consume_next", queue="q")
        receipt = {"messageKey": taken["message"]["messageKey"], "leaseId": taken["lease"]["leaseId"]}
        bench.do("nack", **receipt, requeue=requeue, reason="broken")
    bench.store.disk.checkpoint()
    before = seen_in(bench)["queues"]
    bench.close()
    with closing(sqlite3.connect(database(bench))) as db, db:
        db.execute("DELETE FROM kv WHERE value_type = 'queue' OR key LIKE 'fact:history:%'")
    damaged = bytearray(database(bench).read_bytes())
    damaged[:16] = bytes(16)
    database(bench).write_bytes(damaged)
    bench.open(refold=True)
    assert seen_in(bench)["queues"] == before
    bench.close()
    report = verified(bench, tmp_path)
    assert not report.faults, report.findings
