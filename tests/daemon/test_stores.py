"""What only the SQLite store promises: each hot question is one probe of an index, whatever the backlog."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.stores.errors import StoreDamaged, StoreError
from postroom_daemon.stores.sqlite import ready
from postroom_daemon.stores.sqlite.rows import COLUMNS, row_of
from postroom_daemon.stores.sqlite.schema import Statements
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.daemon.database import connection
from tests.daemon.reached import reached

#: The statements of a store whose tables have their usual names.
STATEMENTS = Statements("kv", "msg_index")
HOT = (
    "get", "page", "pick", "ready", "ready_behind", "ended_leases", "leased", "due", "timed", "held", "drafts",
    "expiring", "first_due", "first_lease", "first_lapse", "dead", "done", "next_priority", "next_target", "update",
    "move",
    "delete_several", "first_of_order_key", "free_of_order_key", "block", "get_value", "get_values", "set_value",
    "delete_value", "delete_values", "kv_keys", "queue_keys", "queue_values", "sizes",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store.db")
    made.open()
    yield made
    made.close()


def fill(store: SqliteStore, count: int) -> None:
    """A backlog in every state and many priorities and targets."""
    store.begin()
    store.add_queue(QueueRecord("q"))
    for number in range(count):
        state = list(State)[number % 10] if number % 10 < len(State) else State.READY
        store.insert(
            Entry(
                f"msg:q:{number:08}", "q", state, priority=number % 7, seq=number, created_wall=1, created=1,
                target="me" if number % 11 == 0 else "", due=10**9 + number, lease_until=10**9 + number,
                dead_at=number if state in (State.DEAD, State.DONE) else 0,
            ),
            b"{}",
        )  # fmt: skip
    store.commit()


def test_every_statement_of_the_store_is_checked_here() -> None:
    assigned = set(vars(STATEMENTS))
    asked_once = {"order_keys"}  # after a damaged database was rescued
    assert assigned - {"insert", "insert_new", "put_value", "add_value", "replace_value"} - asked_once == set(HOT)


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", HOT)
def test_every_hot_statement_is_a_search_of_an_index(store: SqliteStore, name: str, analysed: bool) -> None:
    if analysed:
        fill(store, 500)
        connection(store).execute("ANALYZE")
    statements = getattr(STATEMENTS, name)
    for sql in (statements,) if isinstance(statements, str) else statements:
        plan = [row[3] for row in connection(store).execute("EXPLAIN QUERY PLAN " + sql, [1] * sql.count("?"))]
        assert plan
        for step in plan:
            # An index read in its own order for its first row is a probe as well.
            first_row = step.startswith("SCAN") and "USING" in step and "LIMIT 1" in sql and name.startswith("first")
            assert (step.startswith("SEARCH") and "INDEX" in step) or first_row, step
            assert "TEMP B-TREE" not in step


def test_several_messages_are_read_with_a_few_statements(store: SqliteStore) -> None:
    fill(store, 1000)
    store.flush()
    statements: list[str] = []
    connection(store).set_trace_callback(statements.append)
    store.begin()
    several = store.several.next_ready("q", "me", 100)
    assert [store.bodies.envelope(one.key) for one in several] == [b"{}"] * 100
    store.rollback()
    assert len(statements) <= 12


def test_rows_of_new_messages_are_the_same_whichever_statement_inserts_them(store: SqliteStore) -> None:
    options: list[dict[str, Any]] = [
        {}, {"priority": 1}, {"target": "me"}, {"due": 9}, {"expires": 9}, {"fallback": 9, "target": "me"},
        {"order_key": "k"}, {"publisher_uid": "7"}, {"claim": "c"}, {"retry_limit": 3}, {"size": 5},
    ]  # fmt: skip
    entries = [
        Entry(
            f"msg:q:{number:08}", "q", State.READY, **{"priority": 0, **fields}, seq=number, created_wall=2, created=3
        )
        for number, fields in enumerate(options * 5)
    ]
    store.begin()
    store.add_queue(QueueRecord("q"))
    for entry in entries:
        store.folding = entry.seq
        store.insert(entry, b'{"parts":[{"text":"a"}]}')
    store.commit()
    store.flush()
    columns = ", ".join((*COLUMNS, "crc"))
    rows = connection(store).execute(f"SELECT {columns} FROM msg_index ORDER BY seq").fetchall()
    assert rows == [row_of(entry, entry.seq) for entry in entries]
    values = connection(store).execute("SELECT created_at, updated_at FROM kv WHERE value_type = 'message'").fetchall()
    assert values == [(2, 2)] * len(entries)


def test_consumers_one_by_one_read_a_backlog_with_a_few_statements(store: SqliteStore) -> None:
    fill(store, 1000)
    store.flush()
    statements: list[str] = []
    connection(store).set_trace_callback(statements.append)
    for _ in range(100):
        store.begin()
        (entry,) = store.several.next_ready("q", "nobody", 1)
        assert store.bodies.envelope(entry.key) == b"{}"
        leased = entry.copy()
        leased.state, leased.lease_until = State.INFLIGHT, 10**8
        store.update(leased, entry.state)
        store.commit()
    assert len([sql for sql in statements if sql.startswith("SELECT")]) <= 20


def test_with_100000_messages_a_delivery_takes_the_same_few_steps_as_with_100(tmp_path: Path) -> None:
    def steps(count: int) -> tuple[list[str], int]:
        store = SqliteStore(tmp_path / f"{count}.db", synchronous="OFF")
        store.open()
        fill(store, count)
        store.disk.tidy()
        store.due.next_time()  # what has ended meanwhile is looked for once
        statements: list[str] = []
        ticks = [0]

        def tick() -> int:
            ticks[0] += 1
            return 0

        connection(store).set_trace_callback(statements.append)
        connection(store).set_progress_handler(tick, 1)
        store.begin()
        assert store.due.promote(10, 500) == [] and store.due.ended_leases(10, 500) == []
        entry = store.next_ready("q", "me")
        assert entry is not None
        leased = entry.copy()
        leased.state, leased.lease_until = State.INFLIGHT, 10**8
        store.update(leased, entry.state)
        store.commit()
        store.begin()
        held = store.get(entry.key)
        assert held is not None
        store.delete(held, held.state)
        store.commit()
        store.due.next_time()
        connection(store).set_trace_callback(None)
        connection(store).set_progress_handler(None, 0)
        store.close()
        return [re.sub(r"'[^']*'|\d+", "?", statement) for statement in statements], ticks[0]

    few, few_ticks = steps(100)
    many, many_ticks = steps(100_000)
    assert many == few and len(many) < 16
    assert many_ticks < 1.2 * few_ticks  # steps of SQLite's machine


def test_the_oldest_of_many_takes_a_bounded_number_of_probes(store: SqliteStore) -> None:
    fill(store, 3000)
    statements: list[str] = []
    connection(store).set_trace_callback(statements.append)
    oldest = store.pages.oldest_ready("q")
    assert oldest is not None and oldest.seq == 0
    assert len(statements) < 40


def test_closing_a_store_loses_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    fill(store, 50)
    store.begin()
    store.applied = 77
    store.commit()
    before = [(store.get(f"msg:q:{number:08}"), store.queue("q"), store.due.next_time()) for number in range(50)]
    store.close()
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    assert [
        (store.get(f"msg:q:{number:08}"), store.queue("q"), store.due.next_time()) for number in range(50)
    ] == before
    assert store.applied == 77
    store.close()


def test_an_open_transaction_is_gone_after_a_close(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    fill(store, 3)
    store.begin()
    store.applied = 9
    store.facts.put("x", 1)
    store.close()
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    assert store.applied == 0 and store.facts.get("x") is None
    store.close()


@pytest.mark.parametrize("content", [b"rubbish" * 1000, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_not_a_database_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store.db").write_bytes(content)
    with pytest.raises(StoreDamaged):
        SqliteStore(tmp_path / "store.db").open()


@pytest.mark.parametrize(
    ("statements", "text"),
    [("PRAGMA user_version = 99", "newer"), ("CREATE TABLE kv (key TEXT)", "another program")],
)
def test_a_foreign_database_is_left_as_it_is_and_the_text_says_what_to_do(
    tmp_path: Path, statements: str, text: str
) -> None:
    path = tmp_path / "store.db"
    other = sqlite3.connect(path)
    other.execute(statements)
    other.commit()
    other.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=text):
        store.open()
    store.close()
    other = sqlite3.connect(path)
    assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'msg_index'").fetchone() == (0,)
    other.close()


def test_table_names_of_the_configuration_are_used(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", kv="kv2", msg="index2")
    store.open()
    fill(store, 5)
    names = {row[0] for row in connection(store).execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {"kv2", "index2"}
    store.close()


def test_the_ready_messages_in_memory_have_a_limit_whatever_their_order_and_however_many_queues_there_are(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "_LENGTH_LIMIT", 10)
    monkeypatch.setattr(ready, "_TOTAL_LIMIT", 50)
    number = 0

    def publish(queue: str, priority: int) -> None:
        nonlocal number
        number += 1
        store.insert(Entry(f"msg:{queue}:{number:04}", queue, State.READY, priority, number, 1, 1), b"{}")

    store.begin()
    for name in ("q", *(f"q{one}" for one in range(20))):
        store.add_queue(QueueRecord(name))
        publish(name, 0)
        assert store.next_ready(name, "") is not None
        for _ in range(30):
            publish(name, 5)
        for consumer in range(20):
            assert store.next_ready(name, f"c{consumer}") is not None
    store.commit()
    store.flush()
    assert reached(store.several.ready, Entry) + reached(store.several.ready, ready.Head) <= 50 + 10
    store.begin()
    order = []
    while head := store.next_ready("q", "c"):
        order.append(head.seq)
        store.delete(head, head.state)
    assert order == [*range(2, 32), 1]
    store.rollback()
