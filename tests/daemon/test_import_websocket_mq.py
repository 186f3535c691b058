"""A database of WebSocket MQ is imported completely or not at all, and nothing in it is lost or changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from postroom_common.protocol import NO_PRIORITY, named_key
from postroom_daemon.cli import main
from postroom_daemon.maintenance.foreign_data import ImportRefused
from postroom_daemon.maintenance.import_websocket_mq import MqImport, import_websocket_mq
from postroom_daemon.model.records import Entry
from postroom_daemon.platform.files import Files
from postroom_daemon.root.open_root import Sources, StartError
from tests.conformance.bench import Bench, CountedIds, picture
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.websocket_mq_database import MINUTE, STATES, MqDatabase, hash_of

MakeBench = Callable[..., Bench]


@pytest.fixture
def old(tmp_path: Path, make_bench: MakeBench) -> MqDatabase:
    """A database with a queue, ``jobs``."""
    database = MqDatabase(tmp_path / "mq" / "data.db", Bench(tmp_path).clocks.wall_ms)
    database.queue()
    return database


def import_into(bench: Bench, given: Path, accept_loss: bool = False) -> MqImport:
    """Import a database as ``postroomd import websocket-mq`` does."""
    sources = Sources(bench.files, bench.clocks.clock, CountedIds(bench.ids))
    return import_websocket_mq(bench.config, given, given.parent, sources, accept_loss)


def imported(make_bench: MakeBench, old: MqDatabase, backend: str = "sqlite") -> Bench:
    """An open root with what was in a database."""
    bench = make_bench(backend)
    import_into(bench, old.close())
    return bench.open()


def entry(bench: Bench, message: str, queue: str = "jobs") -> Entry:
    """A message by its id there."""
    shown = bench.do("get_message", messageKey=named_key(queue, message), payloadAs="none")
    found = bench.store.get(shown["message"]["messageKey"])
    assert found
    return found


def parts(bench: Bench, message: str) -> dict[str, Any]:
    """The values of a message's slots."""
    shown = bench.do("get_message", messageKey=named_key("jobs", message), payloadAs="value")["message"]
    return {part["name"]: part["payload"] for part in shown["parts"]}


def names(bench: Bench, state: str, queue: str = "jobs") -> list[str]:
    """The ids there of the messages in a state, in order."""
    return [row["name"] for row in bench.do("browse", queue=queue, state=state)["messages"]]


def aside(bench: Bench) -> list[dict[str, Any]]:
    """The rows that were set aside."""
    files = [data for name, data in sorted(bench.quarantined().items()) if ".rows." in name]
    return [orjson.loads(line) for data in files for line in data.splitlines()]


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid"])
def test_messages_in_every_state_come_with_their_slots_priorities_and_ages(
    make_bench: MakeBench, old: MqDatabase, backend: str
) -> None:
    slots = {"b": {"x": [1, None, 2.5]}, "a": None, "emoji": "é\N{PARTY POPPER}"}
    ids = {state: old.message(state, age=(9 - n) * 1000, slots=slots, priority=n) for n, state in enumerate(STATES)}
    ids["drafting"] = old.message("drafting", texts={"set": "1", "not": None}, id="a draft: 50%")
    kept = old.message("completed", slots={}, age=MINUTE)
    given_up = old.message("abandoned", texts={"set": '"x"', "not": None}, age=MINUTE)
    old.db.execute("DELETE FROM mq_message WHERE state = 0 AND id = 'message-00'")
    bench = imported(make_bench, old, backend)
    status = bench.do("status", queue="jobs")
    counted = {"drafting": 1, "ready": 1, "inflight": 2, "ordered": 1, "dlq": 3, "done": 2}
    assert {name: count for name, count in status["metrics"].items() if name in counted} == counted
    assert status["reasons"] == {"REJECTED": 1, "ABANDONED": 2}
    assert status["tally"] == {"completed": 0, "abandoned": 0}
    now = bench.clocks.wall_ms
    for number, state in enumerate(STATES[1:], 1):
        found = entry(bench, ids[state])
        assert (found.priority, found.created_wall) == (number, now - (9 - number) * 1000), state
        assert parts(bench, ids[state]) == slots, state
    assert entry(bench, ids["drafting"]).priority == NO_PRIORITY
    assert parts(bench, ids["drafting"]) == {"set": 1} and parts(bench, given_up) == {"set": "x"}
    assert bench.do("get_message", messageKey=named_key("jobs", kept))["message"]["payload"] == ""
    assert names(bench, "done") == [kept, ids["completed"]]
    assert names(bench, "dead") == [given_up, ids["failed"], ids["abandoned"]]
    keys = [entry(bench, one).key for one in (*ids.values(), kept, given_up)]
    there = picture(bench.store, keys)
    bench.reopen(without_store=True)
    assert picture(bench.store, keys) == there


def test_what_waits_is_delivered_in_the_order_of_the_server(make_bench: MakeBench, old: MqDatabase) -> None:
    rows = [(None, 9), (-5, 1), (None, 4), (0, 3), (0, 8), (7, 0), (0, 8), (1.5, 2), ("high", 0), (2**40, 6)]
    ids = [old.message(priority=priority, age=age) for priority, age in rows]
    bench = imported(make_bench, old)
    taken = [bench.do("consume_next", queue="jobs")["message"]["name"] for _ in rows]
    assert [ids.index(one) for one in taken] == [9, 8, 5, 7, 4, 6, 3, 1, 0, 2]


def test_a_lease_lasts_until_its_time_there_is_over_and_then_returns_the_message_behind_the_others(
    make_bench: MakeBench, old: MqDatabase
) -> None:
    ordered = old.message("ordered", age=MINUTE - 5000)
    active = old.message("active", age=MINUTE - 9000)
    over = [old.message("ordered", age=MINUTE), old.message("active", age=2 * MINUTE)]
    waiting = old.message(age=1)
    bench = imported(make_bench, old)
    bench.run()
    assert (entry(bench, ordered).phase, entry(bench, active).phase) == ("ordered", "")
    bench.do("ack", messageKey=named_key("jobs", active), anyHolder=True)  # by who has been working on it
    bench.clocks.pass_ms(5000)
    bench.run()
    taken = [bench.do("consume_next", queue="jobs")["message"]["name"] for _ in range(4)]
    assert taken[0] == waiting and sorted(taken[1:3]) == sorted(over) and taken[3] == ordered


def test_a_draft_goes_on_until_its_time_there_is_over(make_bench: MakeBench, old: MqDatabase) -> None:
    draft = old.message("drafting", age=MINUTE - 5000, texts={"a": "1", "b": None})
    late = old.message("drafting", age=MINUTE - 5000, texts={"a": None})
    old.message("drafting", age=MINUTE, texts={"a": None})
    bench = imported(make_bench, old)
    bench.run()
    assert sorted(names(bench, "drafting")) == [draft, late]
    bench.do("set", messageKey=named_key("jobs", draft), part="b", message=2)
    bench.clocks.pass_ms(5001)
    bench.run()
    assert names(bench, "ready") == [draft] and not names(bench, "drafting")


def test_equal_slots_are_refused_as_long_as_a_message_of_then_is_there(make_bench: MakeBench, old: MqDatabase) -> None:
    old.queue("unique", uniq=1)
    old.queue("later", uniq=1)
    slots = {"n": 1.5, "deep": {"b": [True], "a": "é"}}
    done = {"slot": "done"}
    old.message("waiting", "unique", slots=slots, hash=hash_of(slots), id="first")
    old.message("waiting", "unique", slots=slots, hash=hash_of(slots), id="second")  # a fault of the server lets it in
    old.message("completed", "unique", slots={}, hash=hash_of(done), id="done")
    old.message("waiting", "later", slots=slots, id="without a hash")
    bench = imported(make_bench, old)

    def publish(queue: str, values: dict[str, Any]) -> str:
        key = bench.do("draft", queue=queue, parts=[*values])["messageKey"]
        sent = [bench.send("set", messageKey=key, part=n, message=v) for n, v in values.items()]
        return sent[-1].code

    assert publish("unique", slots) == publish("unique", done) == "ERR_DUPLICATE_MESSAGE"
    assert publish("unique", slots | {"n": 2}) == publish("later", slots) == "OK"
    for name in ("done", "first"):
        bench.do("purge", queue="unique", messageKey=named_key("unique", name))
    assert publish("unique", done) == publish("unique", slots) == "OK"


# --- queues -----------------------------------------------------------------------------------------------------------


def test_queues_come_with_their_configuration_and_what_they_have_counted(
    make_bench: MakeBench, old: MqDatabase
) -> None:
    day = 24 * 3600 * 1000
    old.queue("full", uniq=1, drafting_timeout=500 * day, ordered_timeout=1500, active_timeout=30 * day, concurrency=3,
              behavior_when_completed=1, behavior_when_abandoned=2, completed=1000, abandoned=8)  # fmt: skip
    old.message("completed", "full")
    old.message("abandoned", "full")
    old.queue("blocked", concurrency=0, completed=-3)
    old.message("waiting", "blocked")
    bench = imported(make_bench, old)
    policy = bench.do("get_policy", queue="full")["policy"]
    assert policy["deduplication"]["mode"] == "while-present" and policy["deduplication"]["content"]
    assert (policy["draftingSec"], policy["orderedSec"], policy["visibilityTimeoutSec"]) == (0, 1.5, 7 * 24 * 3600)
    assert (policy["limits"]["inflight"], policy["done"]["keep"], policy["abandon"]["keep"]) == (3, "none", "headers")
    assert policy["retry"]["returnTo"] == "end" and policy["dlq"]["retentionDays"] == 36500
    assert bench.do("status", queue="full")["tally"] == {"completed": 1000, "abandoned": 8}
    assert bench.do("status", queue="blocked")["tally"] == {"completed": 0, "abandoned": 0}
    assert bench.do("consume_next", queue="blocked")["message"] is None
    bench.do("purge", queue="full", state="any", resetTally=True)
    assert bench.do("status", queue="full")["tally"] == {"completed": 0, "abandoned": 0}


# --- the database -----------------------------------------------------------------------------------------------------


def test_a_database_of_a_killed_server_is_imported_as_that_would_have_found_it(
    make_bench: MakeBench, old: MqDatabase
) -> None:
    there = [old.message() for _ in range(50)]
    old.db.execute("PRAGMA cache_size = 1")
    old.db.execute("BEGIN")
    for _ in range(300):
        old.message()  # the transaction has begun to change the file, and never ends
    path = old.killed("-journal")
    before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    bench = make_bench()
    done = import_into(bench, path)
    assert done.counts == {"queues": 1, "messages waiting": 50} and names(bench.open(), "ready") == there
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == before


def test_a_write_ahead_log_that_is_left_is_part_of_the_database(make_bench: MakeBench, old: MqDatabase) -> None:
    old.db.execute("PRAGMA journal_mode = WAL")
    message = old.message()
    bench = make_bench()
    import_into(bench, old.killed("-wal").parent)  # named by its directory
    assert names(bench.open(), "ready") == [message]


ODD: dict[str, dict[str, Any]] = {
    "slot 'slot' is no JSON": {"texts": {"slot": "{oops"}},
    "its queue was not imported": {"queue": "removed"},
    "it is waiting, but some of its slots are not set": {"texts": {"a": "1", "b": None}},
    "it has no slots": {"slots": {}},
    "unknown state 9": {"number": 9},
    "state_updated_at is no number": {"since": "yesterday"},
    "the name of a slot has 300 characters": {"slots": {"x" * 300: 1}},
    "it has 300 slots": {"slots": {str(n): n for n in range(300)}},
    "id is no text": {"id": b"\xff\xfe"},
}


def test_what_cannot_be_used_is_set_aside_with_the_reason(make_bench: MakeBench, old: MqDatabase) -> None:
    old.queue("a\nb")
    old.message("waiting", "a\nb", slots={"slot": "of the queue"})
    old.queue("odd", ordered_timeout="soon")
    for row in ODD.values():
        old.message(**row)
    old.db.execute("INSERT INTO mq_message_slot VALUES ('jobs', 'nobody', 'slot', '1')")
    sound = [old.message("waiting", "odd"), *(old.message() for _ in range(10))]
    old.message("waiting", "odd", id="")
    bench = imported(make_bench, old)
    reasons = [row["reason"] for row in aside(bench)]
    for reason in (*ODD, "the id of a queue must not contain control", "a slot without a message"):
        assert any(text.startswith(reason) for text in reasons), (reason, reasons)
    assert "the queue is imported without its configuration: The orderedTimeout must be greater" in reasons[1]
    assert len(reasons) == len(ODD) + 4 and "of the queue" in str(aside(bench))
    assert names(bench, "ready") == sound[1:] and bench.counts("odd") == {"ready": 2}


def test_unless_the_loss_is_accepted_a_database_of_which_most_is_unusable_changes_nothing(
    make_bench: MakeBench, old: MqDatabase
) -> None:
    message = old.message()
    for _ in range(2):
        old.message(slots={})
    bench, path = make_bench(), old.close()
    with pytest.raises(ImportRefused, match=r"data.db: 2 of 3 messages cannot be used .*no slots.* --accept-loss"):
        import_into(bench, path)
    assert not bench.segments() and not bench.quarantined() and not list(bench.journal_root.glob("ta*"))
    import_into(bench, path, accept_loss=True)
    assert names(bench.open(), "ready") == [message] and len(aside(bench)) == 2


def test_what_is_no_database_of_the_server_is_refused(make_bench: MakeBench, old: MqDatabase) -> None:
    bench, path = make_bench(), old.close()
    other = path.with_name("other.db")
    sound = path.read_bytes()
    for data, text in (
        (b"", "no tables of queues"),
        (b"no database" * 1000, "file is not a database"),
        (sound[:60] + (7).to_bytes(4, "big") + sound[64:], "tables have version 7"),
        (sound[: len(sound) // 2], "damaged"),
    ):
        other.write_bytes(data)
        with pytest.raises(ImportRefused, match=f"{other}: .*{text}"):
            import_into(bench, other)
    with pytest.raises(ImportRefused, match=r"missing/data.db does not exist: name the file data.db"):
        import_into(bench, path.with_name("missing") / "data.db")
    assert not bench.segments()


def test_a_server_that_writes_meanwhile_is_noticed(
    make_bench: MakeBench, old: MqDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old.close()

    def copy_slowly(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())
        with sqlite3.connect(path) as db:
            db.execute("UPDATE mq_queue SET completed = completed + 1")

    monkeypatch.setattr("shutil.copyfile", copy_slowly)
    with pytest.raises(ImportRefused, match="changes while it is copied: stop the server of WebSocket MQ"):
        import_into(make_bench(), path)


# --- the root ---------------------------------------------------------------------------------------------------------


def test_a_root_with_messages_is_refused_and_one_that_was_only_started_is_not(
    make_bench: MakeBench, old: MqDatabase
) -> None:
    old.message()
    path, bench = old.close(), make_bench().open()
    bench.stop()
    bench.close()
    import_into(bench, path)
    with pytest.raises(ImportRefused, match=r"already has messages .*earlier import: import into a new root"):
        import_into(bench, path)
    assert bench.open().counts("jobs") == {"ready": 1}
    with pytest.raises(ImportRefused, match="backend memory stores nothing"):
        import_into(make_bench("memory"), path)


def test_a_failure_at_any_call_leaves_all_of_it_or_nothing(make_bench: MakeBench, old: MqDatabase) -> None:
    old.message()
    path, number = old.close(), 0
    is_complete = False
    while not is_complete:
        bench = make_bench().open()
        bench.stop()
        bench.close()
        bench.files = FewerCalls(number)
        try:
            import_into(bench, path)
            is_complete = True
        except (Killed, StartError):
            number += 3
        bench.files = Files()
        bench.open()
        if not bench.counts("jobs"):
            bench.close()
            import_into(bench, path)
            bench.open()
        assert bench.counts("jobs") == {"ready": 1}, number
        bench.close()


def test_the_command_shows_what_it_would_do_does_it_once_and_leaves_a_sound_root(
    tmp_path: Path, old: MqDatabase
) -> None:
    for state in STATES:
        old.message(state, texts={"slot": "1", "other": None if state == "drafting" else "2"})
    words = ["import", "websocket-mq", str(old.close()), "--root", str(tmp_path / "root")]
    checked = CliRunner().invoke(main, [*words, "--check"])
    assert checked.exit_code == 0 and "would import 1 messages abandoned, 1 messages active" in checked.output
    assert not (tmp_path / "root").exists()
    done = CliRunner().invoke(main, [*words, "--json"])
    assert done.exit_code == 0, done.output
    shown = orjson.loads(done.stdout)
    assert shown["counts"] == {"queues": 1} | {f"messages {state}": 1 for state in STATES} and not shown["unusableRows"]
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 1 and "perhaps those of an earlier import" in again.output
    verified = CliRunner().invoke(main, ["verify", "--root", str(tmp_path / "root")])
    assert verified.exit_code == 0, verified.output
