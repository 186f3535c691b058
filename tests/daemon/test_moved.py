"""Stores with files: messages that have moved to other queues, are held, or wait for their turn, as their files have
them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import decode_line, encode_line
from postroom_common.protocol import State
from postroom_daemon.maintenance.verify import Kind
from postroom_daemon.platform.files import Files
from postroom_daemon.stores.filesystem import tree as fs_tree
from postroom_daemon.stores.filesystem.content import FORMAT
from tests.conformance.bench import Bench, seen_in
from tests.daemon.database import connection
from tests.daemon.filesystem_store import expected_of, make
from tests.daemon.maintenance_runs import repair_of, repaired
from tests.daemon.populated_root import stop

MakeBench = Callable[..., Bench]
FAR = "far " + "away " * 50  # its directory does not tell its name


def consume(bench: Bench, queue: str) -> str | None:
    message = bench.do("consume_next", queue=queue)["message"]
    return message["payload"] if message else None


def bury(bench: Bench, queue: str = "q") -> str:
    """The key of the next message of a queue, which dies."""
    lease = bench.do("consume_next", queue=queue)["lease"]
    bench.do("nack", messageKey=lease["messageKey"], leaseId=lease["leaseId"], requeue=False)
    return str(lease["messageKey"])


def folder(bench: Bench, *parts: str) -> Path:
    return bench.config.settings.filesystem_root.joinpath(*parts)


def reopen_with_expected_state(bench: Bench, make_bench: MakeBench) -> None:
    bench.open()
    assert seen_in(bench) == expected_of(bench, make_bench)


# --- moved --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["b", FAR])
def test_a_moved_message_is_in_its_queues_directory_and_is_read_there(target: str, make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    first, second = bench.publish(message="first"), bench.publish(message="second", priority=2)
    bench.store.disk.tidy()
    for key in (first, second):
        bench.do("move", messageKey=key, to=target)
        bench.store.disk.tidy()
    assert not list(folder(bench, "q", "inbox").iterdir())
    stop(bench)
    reopen_with_expected_state(bench, make_bench)
    assert [consume(bench, target), consume(bench, target)] == ["second", "first"]
    bench.do("ack", **lease_of(bench, first))
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)


def lease_of(bench: Bench, key: str) -> dict[str, str]:
    entry = bench.store.get(key)
    assert entry is not None
    return {"messageKey": key, "leaseId": entry.lease_id}


def test_a_moved_message_that_comes_home_has_its_name_again(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish()
    bench.store.disk.tidy()
    (before,) = folder(bench, "q", "inbox").iterdir()
    bench.do("move", messageKey=key, to="b")
    bench.store.disk.tidy()
    bench.do("move", messageKey=key, to="q")
    bench.store.disk.tidy()
    (after,) = folder(bench, "q", "inbox").iterdir()
    assert re.sub("~v[0-9]+", "", after.name) == re.sub("~v[0-9]+", "", before.name)
    stop(bench)
    reopen_with_expected_state(bench, make_bench)


def test_a_moved_message_in_a_third_queues_directory_is_put_back_where_it_was_moved_to(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish(message="moved")
    bench.publish("c")
    bench.do("move", messageKey=key, to="b")
    stop(bench)
    (path,) = folder(bench, "b", "inbox").iterdir()
    shutil.move(path, folder(bench, "c", "inbox"))
    reopen_with_expected_state(bench, make_bench)
    assert consume(bench, "b") == "moved"


def test_a_moved_message_truncated_by_a_power_cut_is_rewritten(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish(message="whole", orderingKey="k" * 180)
    bench.do("move", messageKey=key, to="b")
    bench.store.disk.tidy()
    bench.close()
    (path,) = folder(bench, "b", "inbox").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    reopen_with_expected_state(bench, make_bench)
    assert consume(bench, "b") == "whole"


def test_the_line_that_records_a_move_may_be_lost(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish(message="whole")
    bench.do("move", messageKey=key, to="b")
    bench.do("move", messageKey=key, to="c")
    bench.store.disk.tidy()
    bench.close()
    (path,) = folder(bench, "c", "inbox").iterdir()
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:3]))
    reopen_with_expected_state(bench, make_bench)
    assert consume(bench, "c") == "whole"


def test_the_directory_of_a_deleted_queue_is_removed_by_the_next_checkpoint(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs_tree, "FOLDER_LIMIT", 1)
    bench = make_bench("filesystem").open()
    for _ in range(3):
        bench.publish()
    bench.store.disk.checkpoint()
    for _ in range(3):
        lease = bench.do("consume_next", queue="q")["lease"]
        bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    bench.do("delete_queue", queue="q")
    assert folder(bench, "q").is_dir()
    bench.store.disk.checkpoint()
    assert not folder(bench, "q").exists()
    bench.publish(message="anew")
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert consume(bench, "q") == "anew"


# --- turns, and what is held --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order_key", ["k", "k" * 200])
def test_the_turn_of_an_ordering_key_is_restored_at_a_start(order_key: str, make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    target = "t" * 150
    for text in ("first", "second", "third"):
        bench.publish(message=text, orderingKey=order_key, targetConsumerId=target)
    stop(bench)
    reopen_with_expected_state(bench, make_bench)
    lease = bench.do("consume_next", queue="q", consumerId=target)["lease"]
    assert bench.do("consume_next", queue="q", consumerId=target)["message"] is None
    bench.reopen()
    assert bench.do("consume_next", queue="q", consumerId=target)["message"] is None
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert bench.do("consume_next", queue="q", consumerId=target)["message"]["payload"] == "second"


def test_a_dead_letter_with_an_ordering_key_that_is_moved_to_the_inbox_has_its_turn(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish(message="first", orderingKey="k")
    bench.publish(message="second", orderingKey="k")
    bury(bench)
    stop(bench)
    (path,) = folder(bench, "q", "dlq").iterdir()
    shutil.move(path, folder(bench, "q", "inbox"))
    bench.open()
    assert consume(bench, "q") == "first"
    assert consume(bench, "q") is None


@pytest.mark.parametrize(("source", "to"), [("held", "inbox"), ("inbox", "held"), ("dlq", "held"), ("held", "dlq")])
def test_files_moved_into_or_out_of_held_by_hand_are_put_back(source: str, to: str, make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = [bench.publish(message=text) for text in ("dies", "is held", "is ready")]
    bury(bench)
    bench.do("hold", messageKey=keys[1])
    stop(bench)
    before = {path.parent.name: path.name for path in folder(bench, "q").rglob("*.json")}
    (path,) = folder(bench, "q", source).iterdir()
    shutil.move(path, folder(bench, "q", to))
    reopen_with_expected_state(bench, make_bench)
    assert {path.parent.name: path.name for path in folder(bench, "q").rglob("*.json")} == before


# --- files of before ----------------------------------------------------------------------------------------------


def test_files_of_format_1_are_read_and_get_their_names_when_they_change(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish(message="a message of before")
    bench.publish(message="dies")
    bench.publish(message="later", delayMs=10_000_000)
    keys = [bench.publish(message=text, priority=9) for text in ("leased", "dies")]
    bench.do("consume_next", queue="q", visibilityTimeoutSec=3000)
    assert bury(bench) == keys[1]
    stop(bench)
    for path in folder(bench).rglob("*.json"):
        as_format_1(path)
    bench.open()
    status = bench.do("status", queue="q")["metrics"]
    assert (status["ready"], status["delayed"], status["inflight"], status["dlq"]) == (2, 1, 1, 1)
    record = bench.store.queue("q")
    assert record is not None and (record.bytes, record.reasons) == (0, {})
    bench.do("reprocess_dlq", messageKey=keys[1])
    assert [consume(bench, "q") for _ in range(3)] == ["dies", "a message of before", "dies"]
    stop(bench)
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 4


def test_files_of_format_2_are_read(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish(message="a message of before")
    stop(bench)
    for path in folder(bench).rglob("*.json"):
        lines = [decode_line(line) for line in path.read_bytes().split(b"\n") if line]
        for line in lines:
            del line["crc"]
            line["format"] = 2
        path.write_bytes(b"".join(map(encode_line, lines)))
    bench.open()
    assert consume(bench, "q") == "a message of before"


def as_format_1(path: Path) -> None:
    """A file as format 1 had it."""
    lines = [decode_line(line) for line in path.read_bytes().split(b"\n") if line]
    for line in lines:
        line.pop("crc", None)
        if "format" in line:
            line["format"] = 1
        for record in line.get("queues", ()):
            del record["bytes"], record["reasons"], record["usedEngineMs"]
    path.write_bytes(b"\n".join(encode_line(line).rstrip(b"\n") + b"\n" for line in lines))
    path.rename(path.with_name(re.sub("~[sr][A-Za-z0-9_]+", "", path.name)))


def test_a_store_of_a_newer_format_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench("filesystem").open()
    stop(bench)
    (path, *_) = folder(bench, "meta").iterdir()
    path.write_bytes(encode_line({"id": 1, "format": FORMAT + 1, "facts": {}, "queues": []}))
    store = make(bench.path / "data", Files())
    with pytest.raises(Exception, match=f"format {FORMAT + 1} is newer"):
        store.open()


# --- bodies in files of their own ---------------------------------------------------------------------------------


def moved_hybrid(make_bench: MakeBench) -> tuple[Bench, list[str]]:
    bench = make_bench("hybrid").open()
    keys = [bench.publish(message=f"body {number}") for number in range(3)]
    bench.do("move", messageKey=keys[0], to="q:b")
    bench.do("move", messageKey=keys[1], to=FAR)
    return bench, keys


def test_the_body_of_a_moved_message_is_read_and_removed_with_it(make_bench: MakeBench) -> None:
    bench, keys = moved_hybrid(make_bench)
    bench.reopen(without_store=True)
    assert [consume(bench, queue) for queue in ("q:b", FAR, "q")] == ["body 0", "body 1", "body 2"]
    bench.do("ack", **lease_of(bench, keys[0]))
    left = list(bench.config.settings.hybrid_payload_root.rglob("*.json"))
    assert len(left) == 2


def test_verify_accepts_moved_bodies_and_repair_can_fix_them(make_bench: MakeBench, tmp_path: Path) -> None:
    bench, _ = moved_hybrid(make_bench)
    stop(bench)
    assert not repair_of(bench, tmp_path).apply().before.findings
    root = bench.config.settings.hybrid_payload_root
    (path,) = root.rglob("*message-1.json")
    path.write_bytes(b"?")
    result = repaired(bench, tmp_path)
    assert result.before.counts[Kind.BODY_LOST] or result.before.counts[Kind.BODY_WRONG]
    bench.open()
    assert consume(bench, FAR) == "body 1"


def test_a_lost_row_of_a_moved_message_is_restored_with_its_body(make_bench: MakeBench, tmp_path: Path) -> None:
    bench, keys = moved_hybrid(make_bench)
    stop(bench)
    bench.open()
    store: Any = bench.store
    for table, column in (("kv", "key"), ("msg_index", "message_key")):
        connection(store).execute(f"DELETE FROM {table} WHERE {column} = ?", (keys[1],))
    connection(store).commit()
    bench.close()
    repaired(bench, tmp_path)
    bench.open()
    entry = bench.store.get(keys[1])
    assert entry is not None and (entry.queue, entry.state) == (FAR, State.READY)
    assert consume(bench, FAR) == "body 1"
