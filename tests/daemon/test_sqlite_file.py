"""The database file itself: flipped bits, formats, the space that it gives back, its log, the disk's errors."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.stores.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from postroom_daemon.stores.sqlite import database as sqlite_database
from postroom_daemon.stores.sqlite import records
from postroom_daemon.stores.sqlite import schema as sqlite_schema
from postroom_daemon.stores.sqlite.store import SqliteStore
from postroom_daemon.stores.sqlite.unwritten import GROUPS_LIMIT
from tests.conformance.bench import Bench
from tests.daemon.database import connection
from tests.daemon.reached import reached

MakeBench = Callable[..., Bench]

#: The schema as format 1 had it.
FORMAT_1 = """
CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT NOT NULL, value_type TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, expires_at INTEGER);
CREATE TABLE msg_index (queue TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER DEFAULT 0,
    available_at INTEGER NOT NULL, lease_until INTEGER, attempt INTEGER NOT NULL DEFAULT 0, dlq_reason TEXT,
    dlq_at INTEGER, target_consumer_id TEXT NOT NULL DEFAULT '', message_key TEXT NOT NULL PRIMARY KEY,
    seq INTEGER NOT NULL, created_at INTEGER NOT NULL, created_engine INTEGER NOT NULL,
    lease_id TEXT NOT NULL DEFAULT '', consumer_id TEXT NOT NULL DEFAULT '', leased_at INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0, phase TEXT NOT NULL DEFAULT '');
CREATE INDEX msg_index_pick ON msg_index (queue, target_consumer_id, priority DESC, seq) WHERE state = 'ready';
CREATE INDEX msg_index_lease ON msg_index (lease_until) WHERE state = 'inflight';
CREATE INDEX msg_index_delayed ON msg_index (available_at) WHERE state = 'delayed';
CREATE INDEX msg_index_dead ON msg_index (queue, dlq_at, seq) WHERE state = 'dead';
CREATE INDEX kv_queues ON kv (key) WHERE value_type = 'queue';
PRAGMA user_version = 1;
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store.db")
    made.open()
    made.begin()
    made.add_queue(QueueRecord("q"))
    made.commit()
    yield made
    made.close()


def ready(number: int) -> Entry:
    return Entry(f"msg:q:{number:06}", "q", State.READY, 0, number, 1, 1)


def insert(store: SqliteStore, numbers: range, body_bytes: int = 900) -> None:
    """Keep messages, 500 in a transaction."""
    for begin in range(numbers.start, numbers.stop, 500):
        store.begin()
        for number in range(begin, min(begin + 500, numbers.stop)):
            store.insert(ready(number), b'"%b"' % (b"x" * body_bytes))
        store.commit()


def ask(store: SqliteStore) -> None:
    """Ask what only the database can answer: all changes are written first."""
    store.pages.entries("", 1)


def drain(store: SqliteStore, numbers: range) -> None:
    for begin in range(numbers.start, numbers.stop, 500):
        store.begin()
        for number in range(begin, min(begin + 500, numbers.stop)):
            entry = store.get(f"msg:q:{number:06}")
            assert entry is not None
            store.delete(entry, entry.state)
        store.commit()


def overwrite(path: Path, before: bytes, after: bytes) -> None:
    """Change bytes of a closed database in place, wherever they stand."""
    data = path.read_bytes()
    assert before in data and len(before) == len(after)
    path.write_bytes(data.replace(before, after))


# --- a flipped bit ----------------------------------------------------------------------------------------------------


def test_a_body_in_which_a_bit_has_flipped_is_a_dead_letter_and_no_other_message_suffers(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    keys = [bench.publish(message=f"message {number}") for number in range(10)]
    bench.store.disk.checkpoint()
    bench.close()
    overwrite(bench.config.settings.sqlite_db_path, b'{"parts":[{"text":"message 4', b'{"parts":[{"text":"massage 4')
    bench.open()
    found = []
    while message := bench.do("consume_next", queue="q")["message"]:
        found.append(message["payload"])
    assert found == [f"message {number}" for number in range(10) if number != 4]
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert (letter["messageKey"], letter["reasonCode"], letter["bodyLost"]) == (keys[4], "BODY_LOST", True)


def test_a_body_without_its_row_is_lost_and_blocks_nobody(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    key, _ = bench.publish(message="one"), bench.publish(message="two")
    bench.close()
    db = sqlite3.connect(bench.config.settings.sqlite_db_path)
    db.execute("DELETE FROM kv WHERE key = ?", (key,))
    db.commit()
    db.close()
    bench.open()
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "two"
    assert [letter["messageKey"] for letter in bench.do("list_dlq", queue="q")["messages"]] == [key]


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"qready", b"qreedy"), (b"someone", b"somfone"), (b'"publishPaused":false', b'"publishPaused":farse')],
)
def test_any_other_row_in_which_a_bit_has_flipped_is_a_damaged_store(
    store: SqliteStore, tmp_path: Path, before: bytes, after: bytes
) -> None:
    store.begin()
    entry = ready(1)
    entry.consumer_id = "someone"
    store.insert(entry, b"{}")
    store.commit()
    store.close()
    overwrite(tmp_path / "store.db", before, after)
    with pytest.raises(StoreDamaged):
        store.open()
        store.get(entry.key)
        store.queue("q")


def test_rows_that_contradict_each_other_are_a_damaged_store(store: SqliteStore) -> None:
    store.begin()
    store.insert(ready(1), b"{}")
    store.commit()
    store.flush()
    store.begin()
    store.insert(ready(1), b"{}")
    with pytest.raises(StoreDamaged, match="UNIQUE"):
        ask(store)
    store.rollback()


def test_a_schema_that_has_changed_is_a_damaged_store(store: SqliteStore) -> None:
    connection(store).execute("ALTER TABLE kv RENAME COLUMN created_at TO crdated_at")
    store.begin()
    store.insert(ready(1), b"{}")
    with pytest.raises(StoreDamaged, match="no column named"):
        ask(store)
    store.rollback()


def test_a_message_missing_from_the_index_of_keys_is_a_damaged_store_and_not_delivered_for_ever(
    store: SqliteStore, tmp_path: Path
) -> None:
    insert(store, range(2))
    store.close()
    path = tmp_path / "store.db"
    data = path.read_bytes()
    key = b"msg:q:000000"
    # It stands in the body's row, in the message's, and in the index of each by key, which has a page of its own.
    pages = [data[begin : begin + 4096] for begin in range(0, len(data), 4096)]
    path.write_bytes(b"".join(page.replace(key, b"msg:q:00000!") if page[0] == 10 else page for page in pages))
    store.open()
    store.begin()
    entry = store.next_ready("q", "c")
    assert entry is not None and entry.key == key.decode()
    leased = entry.copy()
    leased.state = State.INFLIGHT
    store.update(leased, State.READY)
    with pytest.raises(StoreDamaged, match="not found by their keys"):
        ask(store)
    store.rollback()


def test_ready_messages_missing_from_the_index_are_a_damaged_store(store: SqliteStore) -> None:
    insert(store, range(2))
    store.flush()
    connection(store).execute("DELETE FROM msg_index")
    with pytest.raises(StoreDamaged, match="its index has none"):
        store.next_ready("q", "c")


# --- formats ----------------------------------------------------------------------------------------------------------


#: The states that format 1 knew.
STATES_1 = [State.READY, State.DELAYED, State.INFLIGHT, State.DEAD]


def format_1(path: Path, count: int) -> None:
    """A database as format 1 was written."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(FORMAT_1)
    db.execute("BEGIN")
    record = QueueRecord("q")
    for number in range(count):
        key, state = f"msg:q:{number:06}", STATES_1[number % len(STATES_1)]
        record.counts[state] += 1
        leased = 20 + number if state is State.INFLIGHT else None
        died = 30 + number if state is State.DEAD else None
        db.execute("INSERT INTO kv VALUES (?, ?, 'message', 7, 7, NULL)", (key, f'"{number}"'))
        db.execute(
            "INSERT INTO msg_index (queue, state, available_at, lease_until, attempt, dlq_at, message_key, seq,"
            " created_at, created_engine, leased_at) VALUES ('q', ?, ?, ?, 2, ?, ?, ?, 7, 8, 9)",
            (state, 10 + number, leased, died, key, number),
        )
    db.execute("INSERT INTO kv VALUES ('queue:q', ?, 'queue', 0, 0, NULL)", (json.dumps(record.to_json()),))
    db.execute("INSERT INTO kv VALUES ('fact:applied', '41', 'fact', 0, 0, NULL)")
    db.execute("COMMIT")
    db.close()


def test_a_database_of_format_1_is_opened_completely_and_new_rows_get_checksums(tmp_path: Path) -> None:
    format_1(tmp_path / "store.db", 8)
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    assert store.applied == 41
    entries = [store.get(f"msg:q:{number:06}") for number in range(8)]
    assert [entry.state for entry in entries if entry] == STATES_1 * 2
    assert store.bodies.envelope("msg:q:000003") == b'"3"'
    store.begin()
    entry = store.get("msg:q:000000")
    assert entry is not None
    entry.attempt = 3
    store.update(entry, entry.state)
    store.commit()
    store.close()
    store.open()
    assert store.get("msg:q:000000") == entry
    db = connection(store)
    assert db.execute("PRAGMA user_version").fetchone()[0] == sqlite_schema.VERSION
    assert db.execute("SELECT count(*) FROM msg_index WHERE crc IS NOT NULL").fetchone() == (1,)
    store.close()


#: What makes format 3 of a database of format 4 without returned messages.
TO_FORMAT_3 = """
DROP INDEX msg_index_pick;
ALTER TABLE msg_index DROP COLUMN place;
CREATE INDEX msg_index_pick ON msg_index
    (queue, blocked, target_consumer_id, priority DESC, seq) WHERE state = 'ready';
PRAGMA user_version = 3;
"""


def test_a_database_of_format_3_is_opened_completely_and_its_messages_can_return_to_the_end(
    store: SqliteStore, tmp_path: Path
) -> None:
    insert(store, range(4))
    store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        db.executescript(TO_FORMAT_3)
    store.open()
    assert connection(store).execute("PRAGMA user_version").fetchone()[0] == sqlite_schema.VERSION
    for number, place in ((0, 90), (2, 91), (0, 92)):
        store.begin()
        entry = store.get(f"msg:q:{number:06}")
        assert entry is not None
        changed = entry.copy()
        changed.returned_seq = place
        store.update(changed, changed.state)
        store.commit()
    for _ in range(2):
        ready_now, after = store.pages.scan("q", State.READY, (), 3)
        rest, _ = store.pages.scan("q", State.READY, after, 3)
        assert [one.seq for one in (*ready_now, *rest)] == [1, 3, 2, 0]
        head = store.next_ready("q", "c")
        assert head is not None and head.seq == 1
        store.close()
        store.open()


#: What makes format 4 of a database of format 5 without messages that are done.
TO_FORMAT_4 = """
DROP INDEX msg_index_done;
DROP INDEX msg_index_line;
DROP INDEX msg_index_first;
CREATE INDEX msg_index_line ON msg_index (queue, order_key, seq) WHERE order_key != '' AND state != 'dead';
CREATE INDEX msg_index_first ON msg_index (queue, order_key)
    WHERE order_key != '' AND state != 'dead' AND blocked = 0;
PRAGMA user_version = 4;
"""


def test_a_database_of_format_4_is_opened_completely_and_a_message_that_is_done_blocks_no_other(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.begin()
    store.add_queue(QueueRecord("q"))
    for number in range(2):
        store.insert(Entry(f"msg:q:{number}", "q", State.READY, 0, number, 1, 1, order_key="k"), b"{}")
    store.commit()
    store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        db.executescript(TO_FORMAT_4)
    store.open()
    assert connection(store).execute("PRAGMA user_version").fetchone()[0] == sqlite_schema.VERSION
    store.begin()
    first = store.next_ready("q", "c")
    assert first is not None and first.seq == 0
    done = first.copy()
    done.state, done.dead_at = State.DONE, 7
    store.update(done, first.state)
    store.commit()
    for _ in range(2):
        following = store.next_ready("q", "c")
        assert following is not None and following.seq == 1
        assert [(one.seq, one.dead_at) for one in store.pages.scan("q", State.DONE, (), 9)[0]] == [(0, 7)]
        store.close()
        store.open()


# --- space ------------------------------------------------------------------------------------------------------------


def test_a_drained_database_shrinks_in_small_steps_while_it_is_open(store: SqliteStore, tmp_path: Path) -> None:
    insert(store, range(10_000))
    drain(store, range(10_000))
    store.disk.checkpoint()
    full = (tmp_path / "store.db").stat().st_size
    assert full > 10_000_000
    steps = []
    while given := store.db.give_back():
        steps.append(given)
    store.disk.checkpoint()
    assert len(steps) > 5 and set(steps) == {256}
    assert (tmp_path / "store.db").stat().st_size < 5_000_000
    insert(store, range(3))
    assert connection(store).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_space_that_is_needed_again_soon_is_not_given_back(store: SqliteStore) -> None:
    insert(store, range(2000))
    drain(store, range(500))
    assert store.db.give_back() == 0


def test_a_database_of_format_1_gives_back_its_space_once_it_is_nearly_empty(tmp_path: Path) -> None:
    format_1(tmp_path / "store.db", 0)
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    insert(store, range(12_000))
    drain(store, range(4000))
    store.disk.tidy()
    assert connection(store).execute("PRAGMA auto_vacuum").fetchone() == (0,), "too large to be written anew in passing"
    drain(store, range(4000, 11_990))
    store.disk.tidy()
    store.disk.checkpoint()
    assert (tmp_path / "store.db").stat().st_size < 200_000
    assert connection(store).execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert store.get("msg:q:011995") is not None
    store.close()


# --- the log ----------------------------------------------------------------------------------------------------------

READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0)
db.execute("BEGIN")
try:
    print(db.execute("SELECT count(*) FROM msg_index").fetchone()[0], flush=True)
except sqlite3.OperationalError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@contextmanager
def reader(path: Path) -> Iterator[str]:
    """Another process in a transaction that reads; what it has read."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("")


def test_no_other_process_can_stop_the_checkpoint_of_the_log(store: SqliteStore, tmp_path: Path) -> None:
    with reader(tmp_path / "store.db") as reported:
        assert reported == "database is locked"
        insert(store, range(20_000))
        assert store.db.wal_bytes() <= 2 * sqlite_database.WAL_BYTES
    assert not (tmp_path / "store.db-shm").exists()


def test_with_an_earlier_reader_the_log_grows_with_a_warning_and_is_truncated_afterwards(
    store: SqliteStore, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    insert(store, range(5))
    store.close()
    with reader(path) as reported:
        assert reported == "5"
        store.open()
        insert(store, range(5, 40_000))
        assert store.db.wal_bytes() > sqlite_database.WAL_ALARM_BYTES
        with pytest.raises(StoreBusy, match="another process reads"):
            store.disk.probe()
        assert store.disk.checkpoint() == 0
    store.disk.checkpoint()
    assert store.db.wal_bytes() < 100_000
    store.disk.probe()
    assert connection(store).execute("PRAGMA locking_mode").fetchone() == ("exclusive",)
    with reader(path) as reported:
        assert reported == "database is locked"


def test_a_process_that_writes_for_long_holds_up_groups_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, busy_ms=10)
    store.open()
    store.begin()
    store.add_queue(QueueRecord("q"))
    store.commit()
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("SELECT count(*) FROM kv").fetchone()
        store.open()
        insert(store, range(3))
        store.disk.tidy()
        other.execute("BEGIN IMMEDIATE")
        store.disk.checkpoint()
        assert len(store.pages.entries("", 10)) == 3
        with pytest.raises(StoreBusy):
            store.begin()
        other.execute("ROLLBACK")
        insert(store, range(3, 5))
        connection(store).execute("ROLLBACK")  # as SQLite does when a page cannot be read
        other.execute("BEGIN IMMEDIATE")
        store.disk.tidy()
        other.execute("ROLLBACK")
        store.disk.tidy()
    store.close()
    store.open()
    assert len(store.pages.entries("", 10)) == 5
    store.close()


def test_a_group_of_any_size_uses_no_temporary_file(store: SqliteStore) -> None:
    insert(store, range(3000))
    store.begin()
    for number in range(3000):
        entry = store.get(f"msg:q:{number:06}")
        assert entry is not None
        leased = entry.copy()
        leased.state, leased.lease_until = State.INFLIGHT, 9
        store.update(leased, State.READY)
    ask(store)
    open_files = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [name for name in open_files if "etilqs" in name]
    store.commit()


# --- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file of this process may become longer: an error that SQLite takes for one of the disk, as of a quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_that_a_quota_refuses_is_a_lack_of_space_and_leaves_the_log_intact(
    store: SqliteStore, tmp_path: Path
) -> None:
    insert(store, range(10))
    store.disk.checkpoint()
    store.begin()
    store.applied = 5
    for number in range(10, 200):
        store.insert(ready(number), b'"%b"' % (b"x" * 900))
    store.commit()
    with file_size_limit(32 * 1024), pytest.raises(StoreFull, match="SQLITE_IOERR_WRITE"):
        store.disk.tidy()
    store.close()
    store.open()
    assert store.applied == 0 and store.get("msg:q:000010") is None
    insert(store, range(10, 20))
    store.close()
    store.open()
    assert store.get("msg:q:000019") is not None and store.get("msg:q:000020") is None
    assert connection(store).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_database_that_may_not_grow_is_a_lack_of_space_and_the_rollback_says_the_same(
    store: SqliteStore,
) -> None:
    store.disk.tidy()
    pages = connection(store).execute("PRAGMA page_count").fetchone()[0]
    connection(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    store.begin()
    with pytest.raises(StoreFull, match="SQLITE_FULL"):
        for number in range(100):
            store.insert(ready(number), b'"%b"' % (b"x" * 900))
        ask(store)
    store.rollback()
    store.begin()
    store.commit()
    assert store.get("msg:q:000000") is None


def test_only_some_of_many_queues_are_cached_in_memory_and_none_is_lost(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RECORDS_LIMIT", 10)
    for turn in range(3):
        for number in range(100):
            store.begin()
            if turn == 0:
                store.add_queue(QueueRecord(f"many-{number}"))
            store.queue_for_update(f"many-{number}").total("turns")
            store.commit()
            if number % 7 == 0:
                store.flush()
                store.begin()
                store.queue_for_update(f"many-{number}").total("turns")
                store.rollback()
    assert reached(store, QueueRecord) <= 10 + 7
    for number in range(100):
        record = store.queue(f"many-{number}")
        assert record is not None and record.totals == {"turns": 3}


def test_a_rollback_after_sqlite_has_rolled_back_by_itself_is_no_error(store: SqliteStore) -> None:
    store.disk.tidy()
    store.begin()
    store.facts.put("x", 1)
    connection(store).execute("ROLLBACK")
    store.rollback()
    assert store.facts.get("x") is None


def test_committed_groups_are_never_rolled_back_silently(store: SqliteStore) -> None:
    insert(store, range(3))
    ask(store)
    store.begin()
    store.facts.put("x", 1)
    connection(store).execute("ROLLBACK")
    with pytest.raises(StoreError, match="reopen"):
        store.rollback()


@pytest.mark.parametrize("asks", [False, True])
def test_after_sqlite_has_rolled_back_for_a_failed_read_groups_in_memory_are_written_with_their_number_or_not_at_all(
    store: SqliteStore, asks: bool
) -> None:
    store.disk.tidy()
    store.begin()
    store.insert(ready(1), b"{}")
    store.applied = 5
    store.commit()
    connection(store).execute("ROLLBACK")  # as SQLite does when a page cannot be read
    if asks:
        ask(store)
    else:
        assert store.disk.checkpoint() == 5
    connection(store).close()  # as a process that is killed
    store.open()
    assert (store.applied, len(store.pages.entries("", 10))) == ((0, 0) if asks else (5, 1))


def test_after_a_failed_checkpoint_nothing_builds_on_the_lost_groups(store: SqliteStore) -> None:
    insert(store, range(10))
    store.disk.checkpoint()
    insert(store, range(10, 200))
    with file_size_limit(32 * 1024), pytest.raises(StoreFull):
        store.disk.checkpoint()
    assert not connection(store).in_transaction  # a commit that fails takes all of it back
    for act in (store.disk.checkpoint, store.disk.tidy, store.begin, store.rollback):
        with pytest.raises(StoreError, match="reopen"):
            act()
    store.close()
    store.open()
    assert [entry.seq for entry in store.pages.entries("", 1000)] == list(range(10))


@pytest.mark.parametrize("number", [2**63, 2**64])
def test_a_row_that_cannot_be_stored_is_an_error_of_the_store(store: SqliteStore, number: int) -> None:
    store.begin()
    entry = ready(1)
    entry.priority = number
    store.insert(entry, b"{}")
    store.commit()
    for act in (store.flush, lambda: ask(store)):
        with pytest.raises(StoreError, match="cannot be stored"):
            act()


def test_long_facts_count_among_the_bytes_that_wait_to_be_written(store: SqliteStore) -> None:
    before = store.disk.space_needed(1)
    for number in range(10):
        store.begin()
        store.facts.put(f"history:{number}", ["x" * 100_000])
        store.commit()
    assert store.disk.space_needed(1) - before >= 1_000_000
    for number in range(20):
        store.begin()
        store.facts.put(f"history:more:{number}", ["x" * 100_000])
        store.commit()
    assert store.disk.space_needed(1) - before < 2_100_000  # they were written


def test_groups_share_a_database_transaction_until_the_store_is_flushed(store: SqliteStore) -> None:
    insert(store, range(3))
    store.applied = 7
    assert connection(store).in_transaction
    store.disk.tidy()
    assert not connection(store).in_transaction
    for number in range(GROUPS_LIMIT + 1):
        insert(store, range(10 + number, 11 + number))
    connection(store).close()  # as a process that is killed
    store.open()
    assert [entry.seq for entry in store.pages.entries("", 1000)] == [0, 1, 2, *range(10, 10 + GROUPS_LIMIT)]


def test_the_next_message_of_a_queue_is_read_without_writing_what_has_changed_in_others(store: SqliteStore) -> None:
    store.begin()
    store.add_queue(QueueRecord("other"))
    store.insert(Entry("msg:other:1", "other", State.READY, 0, 1, 1, 1), b'"other"')
    store.commit()
    store.close()
    store.open()
    insert(store, range(2, 4))
    store.begin()
    store.insert(ready(4), b'"new"')
    before = connection(store).total_changes
    other = store.next_ready("other", "")
    assert other is not None and other.key == "msg:other:1"
    assert connection(store).total_changes == before
    first = store.next_ready("q", "")
    assert first is not None and first.key == "msg:q:000002"
    assert [entry.seq for entry in store.several.next_of("q", "", 9)] == [2, 3, 4]
    store.delete(first, State.READY)
    store.several.ready.clear()
    assert [entry.seq for entry in store.several.next_of("q", "", 9)] == [3, 4]
    store.commit()


def test_a_path_that_cannot_be_opened_says_what_to_check(tmp_path: Path) -> None:
    (tmp_path / "store.db").symlink_to(tmp_path / "not mounted" / "store.db")
    with pytest.raises(StoreError, match="owner, mode and mount"):
        SqliteStore(tmp_path / "store.db").open()
