"""A database of the C++ system is imported completely or not at all, and nothing in it is lost."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from postroom_common.protocol import State
from postroom_daemon.cli import main
from postroom_daemon.maintenance.import_cpp import CppImport, ImportRefused, check_cpp, import_cpp
from postroom_daemon.model.facts import history_fact
from postroom_daemon.platform.files import Files
from postroom_daemon.root.cpp_data import is_cpp_database
from postroom_daemon.root.open_root import Sources, StartError
from tests.conformance.bench import Bench, CountedIds, picture
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.cpp_database import MAKES, CppDatabase
from tests.daemon.cpp_files import write_body
from tests.daemon.cpp_states import check_imported

MakeBench = Callable[..., Bench]
MINUTE = 60_000


def database(bench: Bench, make: str = "as shipped") -> CppDatabase:
    """A database of the C++ system where the bench's store will be."""
    bench.path.mkdir(parents=True, exist_ok=True)
    return CppDatabase(bench.config.settings.sqlite_db_path, bench.clocks.wall_ms, make)


def import_into(bench: Bench, accept_loss: bool = False) -> CppImport:
    """Import the database as ``postroomd import cpp`` does."""
    sources = Sources(bench.files, bench.clocks.clock, CountedIds(bench.ids))
    return import_cpp(bench.config, sources, accept_loss)


def before(bench: Bench) -> Path:
    path = bench.config.settings.sqlite_db_path
    return path.with_name(path.name + ".before-migration")


def rows_aside(bench: Bench) -> list[dict[str, Any]]:
    return [
        orjson.loads(line)
        for name, data in sorted(bench.quarantined().items())
        if ".rows." in name
        for line in data.splitlines()
    ]


def every_state(old: CppDatabase) -> dict[str, str]:
    """A message in each state that there is. Their keys by what they are."""
    now = old.now
    return {
        "first": old.message("A1", created=now - 50 * MINUTE, priority=2, attributes='{"k":"v"}', payload="text"),
        "ready": old.message("A2", created=now - 40 * MINUTE),
        "requeued": old.message("A3", created=now - 30 * MINUTE, attempt=3),
        "delayed": old.message("A4", "delayed", created=now, available=now + 5 * MINUTE),
        "due": old.message("A5", "delayed", created=now - 20 * MINUTE, available=now - MINUTE),
        "retried": old.message("A6", "delayed", created=now - 10 * MINUTE, available=now + 7 * MINUTE, attempt=2),
        "leased": old.message("A7", "inflight", created=now - 9 * MINUTE, until=now + 20_000, attempt=1),
        "over": old.message("A8", "inflight", created=now - 8 * MINUTE, until=now - 5_000, attempt=1),
        "dead": old.message("A9", "dlq", created=now - 70 * MINUTE, attempt=5, died=now - MINUTE,
                            reason="retry limit exceeded (attempt 5)"),
        "nacked": old.message("A10", "dlq", created=now - 60 * MINUTE, attempt=1, queue="other"),
        "targeted": old.message("A11", created=now - 5 * MINUTE, target="worker-7", queue="other"),
    }  # fmt: skip


def test_every_message_is_imported_with_its_state_body_and_age(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    keys = every_state(old)
    old.close()
    import_into(bench)
    bench.open()
    check_imported(bench, keys, reason_of_nacked="")
    assert bench.counts("telemetry") == {"ready": 4, "inflight": 1, "delayed": 3, "dlq": 1}
    assert bench.do("status", queue="telemetry")["oldestReadyAgeMs"] == 50 * MINUTE


def test_messages_come_in_the_order_in_which_they_were_published_there(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    for age, name in ((5, "C"), (9, "A"), (7, "B"), (5, "D")):
        old.message(name, created=old.now - age * MINUTE, payload=name)
    old.message("E", priority=9, payload="E")
    old.close()
    import_into(bench)
    bench.open()
    taken = [bench.do("consume_next", queue="telemetry")["message"]["payload"] for _ in range(5)]
    assert taken == ["E", "A", "B", "C", "D"]


def test_an_imported_lease_lasts_until_its_end_and_then_counts_as_failed(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    key = old.message("A", "inflight", until=old.now + 20_000, attempt=1)
    old.close()
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"] is None
    assert bench.send("ack", messageKey=key).code == "ERR_LEASE_MISMATCH"
    bench.clocks.pass_ms(20_001)
    bench.run()
    entry = bench.store.get(key)
    assert entry is not None and (entry.state, entry.attempt) == (State.DELAYED, 1)
    assert bench.store.facts.get(history_fact(key))[0]["reasonCode"] == "LEASE_EXPIRED"


def test_what_was_imported_is_in_the_journal_and_comes_back_from_it(make_bench: MakeBench) -> None:
    bench = make_bench(segment_bytes=2000)
    old = database(bench)
    keys = list(every_state(old).values())
    old.policy("telemetry", visibilityTimeoutSec=7)
    old.close()
    import_into(bench)
    bench.open()
    assert len(bench.segments()) > 1 and bench.events()[0]["type"] == "epoch_started"
    assert [event["id"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))
    there = picture(bench.store, keys)
    bench.reopen(without_store=True)
    assert picture(bench.store, keys) == there
    bench.publish("telemetry")


@pytest.mark.parametrize("make", MAKES)
def test_each_version_of_its_tables_is_imported(make_bench: MakeBench, make: str) -> None:
    bench = make_bench()
    old = database(bench, make)
    key = old.message("A", payload="body")
    old.close()
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"]["messageKey"] == key


def test_a_stored_policy_counts_if_the_configuration_differs(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.policy(
        "telemetry", visibilityTimeoutSec=30, retry={"limit": 9, "backoff": "fixed", "initialDelaySec": 1},
        dlq={"enabled": True, "queue": "alarms", "retentionDays": 14},
    )  # fmt: skip
    old.policy("unchanged", visibilityTimeoutSec=30)
    old.message("A", queue="alarms")
    old.close()
    import_into(bench)
    bench.open()
    policy = bench.do("get_policy", queue="telemetry")
    assert policy["override"] == {"retry": {"limit": 9, "backoff": "fixed"}}
    assert bench.send("get_policy", queue="unchanged").code == "ERR_QUEUE_NOT_FOUND"


ODD: dict[str, dict[str, Any]] = {
    "its body is missing": {"body": False},
    "its value is no JSON object": {"value": '{"payload": "x'},
    "its payload or its attributes are no text": {"value": '{"payload": 5}'},
    "its body's file": {"value": '{"payloadPath": "./data/payloads/telemetry/active/X.json"}'},
    "unknown state": {"state": "archive"},
    "the key of a message must begin with msg:": {"key": "telemetry/X"},
    "attempt is no integer": {"attempt": "many"},
    "queue: must not contain control characters": {"queue": "a\nb"},
}


@pytest.mark.parametrize("reason", ODD)
def test_an_unusable_row_is_set_aside_with_the_reason(make_bench: MakeBench, reason: str) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("X", **ODD[reason])
    old.message("sound")
    old.close()
    import_into(bench)
    bench.open()
    (row,) = [row for row in rows_aside(bench) if row["reason"].startswith(reason)]
    assert "X" in str(row["row"])
    assert bench.do("consume_next", queue="telemetry")["message"]["messageId"] == "sound"


def test_a_second_row_of_a_message_an_orphaned_body_and_a_cut_reason_lose_nothing(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench, "without a primary key")
    key = old.message("A", created=1)
    old.message("A", "dlq", created=1)
    dead = old.message("B", "dlq", attempt=1, reason="x")
    old.db.execute("UPDATE msg_index SET dlq_reason = CAST(x'c3a96bc3' AS TEXT) WHERE message_key = ?", (dead,))
    old.db.execute("INSERT INTO kv VALUES ('msg:telemetry:C', '{}', 'message', 1, 1, NULL)")
    old.db.execute("INSERT INTO kv VALUES ('policy:telemetry', '{\"wrong\": 1}', 'policy', 1, 1, NULL)")
    old.close()
    import_into(bench)
    bench.open()
    entry = bench.store.get(key)
    assert entry is not None and entry.state is State.READY
    assert [row["reason"] for row in rows_aside(bench)][:2] == [
        "another row of the same message comes before it",
        "a body without a row in the index",
    ]
    assert len(rows_aside(bench)) == 3
    assert bench.do("list_dlq", queue="telemetry")["messages"][0]["reason"] == "ék\ufffd"


def test_bodies_of_its_hybrid_backend_are_read_from_their_files(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid")
    old = database(bench)
    folder = bench.path / "data/payloads/telemetry/dlq"
    folder.mkdir(parents=True)
    (folder / "A.json").write_text('{"payload": "in a file", "attributes": "{}"}')
    old.message("A", value='{"messageId": "A", "payloadPath": "./data/payloads/telemetry/active/A.json"}')
    old.close()
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"]["payload"] == "in a file"


def test_bodies_beside_a_database_elsewhere_are_read_and_renamed_where_the_store_has_its_own(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    data = tmp_path / "srv/data"
    bench = make_bench("hybrid", **{"sqlite.dbPath": str(data / "yirangmq.db")})
    old = database(bench)
    old.message("A", created=old.now - 2, value=write_body(data, "A", "beside it"))
    own = bench.path / "data"
    old.message("B", created=old.now - 1, value=write_body(own, "B", "in the root"))
    old.close()
    done = import_into(bench)
    assert done.old == (before(bench), own / "payloads.before-migration") and (data / "payloads").is_dir()
    bench.open()
    taken = [bench.do("consume_next", queue="telemetry")["message"]["payload"] for _ in range(2)]
    assert taken == ["beside it", "in the root"]
    assert not list(bench.store.audit.file_findings(10**9, clean=True))


def test_a_start_with_the_hybrid_backend_before_the_old_files_came_does_not_bar_their_import(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("hybrid").open()
    bench.stop()
    bench.close()
    bench.lose_store()
    old = database(bench)
    key = old.message("A", value=write_body(bench.path / "data", "A", "body"))
    old.close()
    import_into(bench)
    bench.open()
    assert bench.store.get(key)


def test_where_most_bodies_are_missing_nothing_changes_unless_the_loss_is_accepted(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid")
    old = database(bench)
    data = bench.path / "data"
    key = old.message("A", value=write_body(data, "A", "there"))
    for name in ("B", "C"):
        old.message(name, value=write_body(data, name, "lost"))
        (data / f"payloads/telemetry/active/{name}.json").unlink()
    old.close()
    there = contents(data / "payloads")
    with pytest.raises(ImportRefused, match=r"2 of 3 messages cannot be used .*looked for in .*--accept-loss"):
        import_into(bench)
    assert contents(data / "payloads") == there and bench.config.settings.sqlite_db_path.exists()
    assert not bench.segments() and not bench.quarantined()
    import_into(bench, accept_loss=True)
    bench.open()
    assert bench.store.get(key)


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_the_reason_of_a_dead_letter_is_in_its_value_where_the_columns_are_empty(
    make_bench: MakeBench, backend: str
) -> None:
    bench = make_bench(backend)
    old = database(bench)
    facts = {"dlqReason": "retry limit exceeded (attempt 3)", "dlqAt": old.now - MINUTE}
    plain = {"messageId": "A", "queue": "telemetry", "payload": "x"}
    if backend == "hybrid":
        plain = orjson.loads(write_body(bench.path / "data", "A", "x", folder="dlq"))
    old.message("A", "dlq", attempt=3, value=orjson.dumps(plain | facts).decode())
    old.close()
    import_into(bench)
    bench.open()
    (letter,) = bench.do("list_dlq", queue="telemetry")["messages"]
    assert (letter["reason"], letter["reasonCode"], letter["dlqAt"]) == (
        "retry limit exceeded (attempt 3)", "RETRY_LIMIT", bench.clocks.wall_ms - MINUTE,
    )  # fmt: skip


OBJECTS = {
    '{"messageId": "A", "payload": {"t": 1.50, "n": 12345678901234567}, "attributes": {"priority" : 3}}': (
        '{"t": 1.50, "n": 12345678901234567}',
        '{"priority" : 3}',
    ),
    '{"payload": "cut", "x":[1,2] , "payload":[1, {"payload": 2}]}': ('[1, {"payload": 2}]', "{}"),
    '{"temp": 36.10}': ('{"temp": 36.10}', "{}"),
}


@pytest.mark.parametrize("value", OBJECTS)
def test_bodies_that_are_objects_are_imported_as_the_text_that_stands_there(make_bench: MakeBench, value: str) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A", value=value)
    old.close()
    assert import_into(bench).unusable == 0
    bench.open()
    message = bench.do("consume_next", queue="telemetry")["message"]
    assert (message["payload"], message["attributes"]) == OBJECTS[value]


def test_headers_of_an_envelope_are_imported(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A", value='{"type": "sensor.reading", "version": 1, "traceId": "t-1", "queue": "q", "payload": {}}')
    old.close()
    import_into(bench)
    bench.open()
    message = bench.do("consume_next", queue="telemetry")["message"]
    assert (message["type"], message["version"], message["traceId"]) == ("sensor.reading", 1, "t-1")


def test_a_database_whose_daemon_was_killed_is_imported_with_its_write_ahead_log(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    key = old.message("A", payload="only in the log")
    path = bench.config.settings.sqlite_db_path
    killed = {name: path.with_name(path.name + name).read_bytes() for name in ("", "-wal", "-shm")}
    old.close()
    for name, data in killed.items():
        path.with_name(path.name + name).write_bytes(data)
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"]["messageKey"] == key


def test_the_old_database_stays_as_it_was_under_another_name(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A", payload="body")
    dump = list(old.db.iterdump())
    old.close()
    import_into(bench)
    bench.open()
    again = sqlite3.connect(before(bench))
    assert list(again.iterdump()) == dump
    again.close()


def test_killed_at_any_file_operation_it_is_imported_completely_by_the_same_command(make_bench: MakeBench) -> None:
    clean = make_bench(segment_bytes=1500)
    old = database(clean)
    keys = list(every_state(old).values())
    old.close()
    counting = FewerCalls(10**9)
    clean.files = counting
    import_into(clean)
    used = 10**9 - counting.left
    clean.open()
    there = picture(clean.store, keys)["entries"].keys()
    for calls in range(0, used, 3):
        bench = make_bench(segment_bytes=1500)
        old = database(bench)
        every_state(old)
        old.close()
        bench.files = FewerCalls(calls)
        try:
            import_into(bench)
        except (Killed, StartError):
            pass
        bench.files = Files()
        try:
            bench.open()  # either all of it is there, or it says what to do
        except StartError as error:
            assert "postroomd import cpp" in str(error)
            import_into(bench)
            bench.open()
        assert picture(bench.store, keys)["entries"].keys() == there, calls
        assert before(bench).exists() and not list(bench.journal_root.glob("ta*"))
        bench.close()


def test_a_full_disk_leaves_the_old_database_as_it_was(make_bench: MakeBench) -> None:
    bench = make_bench(**{"storage.reserveBytes": "0"})
    old = database(bench)
    old.message("A", payload="body")
    old.close()
    really = bench.files.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    bench.files.write = full
    with pytest.raises(OSError, match="No space left"):
        import_into(bench)
    assert not before(bench).exists() and not bench.segments()
    bench.files.write = really
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"]["payload"] == "body"


def test_it_is_refused_while_the_old_daemon_has_it_open(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A")
    old.db.execute("SELECT count(*) FROM kv").fetchone()
    with pytest.raises(ImportRefused, match=r"stop the C\+\+ daemon"):
        import_into(bench)
    assert not before(bench).exists()
    old.close()
    import_into(bench)


def test_it_is_refused_if_the_journal_has_other_messages(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    bench.publish()
    bench.close()
    bench.lose_store()
    old = database(bench)
    old.message("A")
    old.close()
    with pytest.raises(ImportRefused, match="import the old one into a new root"):
        import_into(bench)
    assert not before(bench).exists()


def test_a_start_before_the_database_was_copied_does_not_prevent_its_import(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    bench.stop()
    bench.close()
    bench.lose_store()
    old = database(bench)
    key = old.message("A")
    old.close()
    import_into(bench)
    bench.open()
    assert bench.store.get(key)
    assert [event["id"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))
    assert any("a journal" in name or ".jsonl." in name for name in bench.quarantined())


@pytest.mark.parametrize("backend", ["sqlite", "hybrid"])
def test_a_start_with_a_database_that_was_not_imported_says_how_and_changes_nothing(
    make_bench: MakeBench, backend: str
) -> None:
    bench = make_bench(backend)
    old = database(bench)
    old.message("A")
    old.close()
    there = contents(bench.path)
    with pytest.raises(StartError, match=f"postroomd import cpp --root {bench.path}"):
        bench.open()
    assert contents(bench.path) == there


def test_a_check_counts_and_changes_nothing(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench()
    old = database(bench)
    every_state(old)
    old.message("X", body=False)
    old.policy("telemetry", visibilityTimeoutSec=7)
    old.close()
    there = contents(bench.path)
    found = check_cpp(bench.config, tmp_path)
    assert (found.unusable, found.old) == (1, ())
    assert found.counts == {
        "queues": 2, "policies": 1, "messages ready": 4, "messages delayed": 3, "messages inflight": 2,
        "messages dlq": 2,
    }  # fmt: skip
    assert contents(bench.path) == there
    assert import_into(bench).counts == found.counts


def test_an_unusable_database_is_refused_and_left_alone(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A", body=False)
    old.message("B", body=False)
    old.close()
    with pytest.raises(ImportRefused, match=r"none of its 2 rows can be used \(the first: its body is missing\)"):
        import_into(bench)
    assert not before(bench).exists() and not bench.segments() and not bench.quarantined()


def test_a_database_that_a_daemon_has_for_itself_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "yirangmq.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA journal_mode = wal; PRAGMA locking_mode = exclusive; CREATE TABLE kv (key)")
        asked = time.monotonic()
        assert not is_cpp_database(path, "kv", "msg")
        assert time.monotonic() - asked < 4


def test_older_tables_have_the_reason_of_a_dead_letter_in_its_value(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench, "older")
    value = {"payload": "x", "dlqReason": "retry limit exceeded (attempt 3)", "dlqAt": old.now - MINUTE}
    old.message("A", "dlq", attempt=3, value=orjson.dumps(value).decode())
    old.close()
    import_into(bench)
    bench.open()
    (letter,) = bench.do("list_dlq", queue="telemetry")["messages"]
    assert (letter["reason"], letter["reasonCode"], letter["dlqAt"]) == (
        "retry limit exceeded (attempt 3)", "RETRY_LIMIT", bench.clocks.wall_ms - MINUTE,
    )  # fmt: skip


def test_it_can_be_imported_into_a_new_root_of_the_filesystem_store(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem")
    old = database(bench)
    key = old.message("A", payload="body")
    old.close()
    import_into(bench)
    bench.open()
    assert bench.do("consume_next", queue="telemetry")["message"]["messageKey"] == key


def test_the_command_imports_and_a_second_one_says_where_the_imported_data_is(make_bench: MakeBench) -> None:
    bench = make_bench()
    old = database(bench)
    old.message("A")
    old.close()
    arguments = ["import", "cpp", "--root", str(bench.path)]
    checked = CliRunner().invoke(main, [*arguments, "--check"])
    assert checked.exit_code == 0 and "would import 1 messages ready, 1 queues" in checked.output
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    shown = orjson.loads(done.stdout)
    assert shown["counts"] == {"queues": 1, "messages ready": 1} and shown["old"] == str(before(bench))
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 1 and f"was imported already; it is in {before(bench)} now" in again.output


def test_a_shell_completes_the_system_after_import() -> None:
    context = {"COMP_WORDS": "postroomd import c", "COMP_CWORD": "2", "_POSTROOMD_COMPLETE": "bash_complete"}
    shown = CliRunner().invoke(main, prog_name="postroomd", env=context)
    assert "plain,cpp" in shown.output.splitlines()


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
