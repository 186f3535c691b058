"""What only the hybrid store promises: bodies in files, durable before their event, and never a wrong one delivered."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.config.config import load
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.errors import BodyLost
from postroom_daemon.stores.hybrid.audit import HybridAudit
from tests.conformance.bench import Bench, descriptors

MakeBench = Callable[..., Bench]


def test_a_body_is_in_a_file_and_the_journal_and_the_index_only_refer_to_it(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    key = bench.publish("jobs", "a body that is easy to find")
    (path,) = bench.body_files()
    assert (
        path.read_bytes() == bench.store.bodies.envelope(key) == b'{"parts":[{"text":"a body that is easy to find"}]}'
    )
    (event,) = [event for event in bench.events() if event["type"] == "published"]
    assert "message" not in event and event["body"]["bytes"] == len(path.read_bytes())
    files = [*bench.segments(), *bench.path.glob("data/yirangmq.db*")]
    assert not any(b"easy to find" in file.read_bytes() for file in files)
    assert bench.do("consume_next", queue="jobs")["message"]["payload"] == "a body that is easy to find"


def test_a_small_body_stays_in_the_database_where_that_is_configured(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", **{"hybrid.inlineBelowBytes": "100"}).open()
    small, large = bench.publish("q", "small"), bench.publish("q", "large" * 30)
    assert len(bench.body_files()) == 1
    bench.reopen(without_store=True)
    assert b"small" in bench.store.bodies.envelope(small) and b"large" in bench.store.bodies.envelope(large)


def test_bodies_and_each_directory_once_are_synced_before_the_journal_is_written(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    done: list[str] = []

    def reported(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def telling(fd: int, *rest: Any) -> Any:
            place = Path(os.readlink(f"/proc/self/fd/{fd}"))
            done.append(
                f"{name} {'journal' if place.parent.name == 'journal' else 'file' if place.is_file() else 'dir'}"
            )
            return call(fd, *rest)

        return telling

    for name in ("write", "start_writing", "fsync", "fdatasync"):
        setattr(bench.files, name, reported(name, getattr(bench.files, name)))
    bench.run(*(bench.make("publish", queue="q", message="body") for _ in range(3)))
    assert done[:3] == ["write file"] * 3 and done[-2:] == ["write journal", "fdatasync journal"]
    begun = ["start_writing dir", *["start_writing file"] * 3]
    assert sorted(done[3:-2]) == ["fsync dir", *["fsync file"] * 3, *begun]  # by several threads


@pytest.mark.parametrize("fails", ["fsync", "write"])
def test_a_large_group_is_synced_in_parts_and_leaves_no_file_open(fails: str, make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    synced: list[int] = []
    really_sync, really_write = bench.files.fsync, bench.files.write

    def count_sync(fd: int) -> None:
        synced.append(fd)
        really_sync(fd)

    bench.files.fsync = count_sync
    before = descriptors(bench.path)
    bench.run(*(bench.make("publish", queue="q", message="body") for _ in range(300)))
    assert len(synced) == 301 and len(set(synced)) < 140
    assert len(bench.body_files()) == 301 and not descriptors(bench.path) - before

    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "no")

    setattr(bench.files, fails, fail)
    refused = [bench.make("publish", queue="q", message="body") for _ in range(5)]
    bench.run(*refused)
    assert {one.code for one in refused} == {"ERR_STORAGE_FAILED"}
    bench.files.fsync, bench.files.write = really_sync, really_write
    assert len(bench.body_files()) == 301 and not descriptors(bench.path) - before


def test_a_new_directory_is_synced_in_its_parents(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    synced: list[str] = []
    really = bench.files.fsync

    def telling(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        really(fd)

    bench.files.fsync = telling
    bench.publish("new")
    root = bench.config.settings.hybrid_payload_root
    assert {str(root), str(root / "new"), str(root / "new" / "00000000")} <= set(synced)


def test_a_body_is_removed_with_its_message_and_empty_directories_with_the_next_checkpoint(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert bench.body_files() == []
    bench.store.disk.checkpoint()
    assert list(bench.config.settings.hybrid_payload_root.rglob("*")) == []
    bench.publish()
    assert len(bench.body_files()) == 1


def test_a_refused_group_leaves_no_file(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()

    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    bench.files.write = full
    assert bench.send("publish", queue="q", message="body").code == "ERR_STORAGE_FULL"
    bench.files.write = os.write
    really = bench.files.write_all

    def journal_full(fd: int, data: bytes) -> None:
        if b'"published"' in data:
            raise OSError(errno.ENOSPC, "full")
        really(fd, data)

    bench.files.write_all = journal_full  # type: ignore[method-assign]
    assert bench.send("publish", queue="q", message="body").code == "ERR_STORAGE_FULL"
    assert len(bench.body_files()) == 1
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1


def test_a_sync_of_a_body_that_fails_fails_only_its_publish(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "no")

    bench.files.fsync = fail
    publish = bench.make("publish", queue="q", message="body")
    ack = bench.make("ack", messageKey=key, leaseId=lease["leaseId"])
    bench.run(publish, ack)
    assert (publish.code, ack.code) == ("ERR_STORAGE_FAILED", "OK")
    assert bench.body_files() == []


# --- bodies that are lost ---------------------------------------------------------------------------------------


def damage(path: Path, how: str, other: Path) -> None:
    match how:
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(path.read_bytes()[:-3])
        case "longer":
            path.write_bytes(path.read_bytes() + b" ")
        case "flipped":
            path.write_bytes(path.read_bytes().replace(b"mine", b"mind"))
        case "foreign":
            shutil.copy(other, path)
        case "link":
            path.unlink()
            path.symlink_to(other)
        case "NULs":
            path.write_bytes(bytes(path.stat().st_size))
        case "directory":
            path.unlink()
            path.mkdir()
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "socket":
            path.unlink()
            with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
                made.bind(path.name)


DAMAGES = ("gone", "empty", "cut", "longer", "flipped", "foreign", "link", "NULs", "directory", "fifo", "socket")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_message_whose_body_is_lost_dies_with_the_reason_and_the_next_is_delivered(
    how: str, make_bench: MakeBench
) -> None:
    bench = make_bench("hybrid").open()
    lost, sound = bench.publish("q", "mine"), bench.publish("q", "other")
    first, second = bench.body_files()
    whole = first.read_bytes()
    damage(first, how, second)
    with pytest.raises(BodyLost):
        bench.store.bodies.envelope(lost)
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == sound
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert (letter["messageKey"], letter["reasonCode"], letter["bodyLost"]) == (lost, "BODY_LOST", True)
    assert letter["preview"] == "" and letter["attempt"] == 0
    bench.reopen(without_store=True)
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 1
    if how == "directory":
        first.rmdir()
    first.unlink(missing_ok=True)
    first.write_bytes(whole)  # put back by hand, from a backup
    bench.do("reprocess_dlq", messageKey=lost)
    message = bench.do("consume_next", queue="q")["message"]
    assert (message["messageKey"], message["payload"]) == (lost, "mine")


@pytest.mark.parametrize("backend", ["hybrid", "filesystem"])
def test_a_waiting_consumer_is_served_past_a_message_whose_body_is_lost(backend: str, make_bench: MakeBench) -> None:
    bench = make_bench(backend).open()
    bench.publish("q", "mine", delayMs=1000)
    bench.store.disk.tidy()
    root = bench.config.settings
    for path in [*root.filesystem_root.rglob("*-message-*"), *root.hybrid_payload_root.rglob("*-message-*")]:
        path.write_bytes(b"{}")
    waiting = bench.make("consume_next", queue="q", waitMs=60_000)
    bench.run(waiting)
    bench.clocks.pass_ms(1500)
    bench.run()
    assert waiting.answers == []
    sound = bench.publish("q", "other")
    assert waiting.data["message"]["messageKey"] == sound
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 1
    bench.reopen(without_store=backend == "hybrid")
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 1


def test_many_lost_bodies_do_not_block_the_queue_for_ever(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.run(*(bench.make("publish", queue="q", message="body") for _ in range(150)))
    last = bench.publish("q", "sound")
    for path in bench.body_files()[:-1]:
        path.unlink()
    assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == last
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 150


def test_lost_bodies_become_dead_letters_even_if_a_queue_keeps_none(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.do("set_policy", queue="q", policy={"dlq": {"enabled": False}})
    bench.publish()
    bench.body_files()[0].write_bytes(b"half of it")
    assert bench.do("consume_next", queue="q") == {"message": None}
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 1
    assert bench.body_files()[0].read_bytes() == b"half of it"


def test_an_error_of_the_machine_is_not_a_loss(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    key = bench.publish()
    bench.store.disk.tidy()  # from now on it is read from its file
    really = bench.files.open

    def out_of_descriptors(path: Any, *rest: Any, **options: Any) -> int:
        if "message-" in str(path):
            raise OSError(errno.EMFILE, "too many")
        return int(really(path, *rest, **options))

    bench.files.open = out_of_descriptors
    assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    bench.files.open = really
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == key


def test_no_body_counts_as_lost_while_its_whole_disk_is_gone(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    key = bench.publish()
    bench.store.disk.tidy()
    really_read, really_sync = bench.files.read, bench.files.fsync

    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "the card was drawn")

    bench.files.read = bench.files.fsync = fail
    assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    bench.files.read, bench.files.fsync = really_read, really_sync
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == key


@pytest.mark.parametrize("mount_point", ["gone", "empty"])
@pytest.mark.parametrize("database", ["there", "lost"])
def test_without_the_directory_of_its_bodies_it_does_not_start(
    mount_point: str, database: str, make_bench: MakeBench
) -> None:
    bench = make_bench("hybrid").open()
    bench.publish("q", "mine")
    bench.close()
    root = bench.config.settings.hybrid_payload_root
    root.rename(root.with_name("unmounted"))
    if mount_point == "empty":
        root.mkdir()
    if database == "lost":
        bench.lose_store()
    for _ in range(2):
        with pytest.raises(StartError, match="mount it"):
            bench.open()
    if root.exists():
        root.rmdir()
    root.with_name("unmounted").rename(root)
    bench.open()
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "mine"


def test_bodies_that_are_lost_for_good_do_not_block_the_start_for_ever(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    bench.close()
    root = bench.config.settings.hybrid_payload_root
    shutil.rmtree(root)
    root.mkdir()
    (root / ".lost").touch()
    bench.open()
    assert bench.do("consume_next", queue="q") == {"message": None}
    assert bench.do("status", queue="q")["metrics"]["dlq"] == 1


def test_a_directory_replaced_while_in_use_is_reported_and_not_written_to(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    root = bench.config.settings.hybrid_payload_root
    root.rename(root.with_name("moved"))
    root.mkdir()
    check = bench.do("health")["checks"]["store"]
    assert not check["ok"] and "was replaced" in check["error"]
    bench.publish("q", "second")
    assert bench.body_files() == []
    root.rmdir()
    root.with_name("moved").rename(root)
    assert bench.do("health")["checks"]["store"]["ok"]
    assert len(bench.body_files()) == 2


def test_its_database_and_its_journal_are_refused_by_the_other_backends(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    bench.publish()
    bench.close()
    sqlite = make_bench("sqlite")
    shutil.copytree(bench.path, sqlite.path)
    with pytest.raises(StartError, match="backend hybrid"):
        sqlite.open()
    sqlite.lose_store()
    with pytest.raises(StartError, match="backend hybrid"):
        sqlite.open()


def test_a_database_of_the_sqlite_backend_is_adopted(make_bench: MakeBench) -> None:
    sqlite = make_bench("sqlite").open()
    key = sqlite.publish("q", "older")
    sqlite.close()
    bench = make_bench("hybrid")
    shutil.copytree(sqlite.path, bench.path)
    bench.ids = sqlite.ids
    bench.open()
    bench.publish("q", "newer", client="another")
    assert bench.do("consume_next", queue="q", client="another")["message"]["messageKey"] == key
    assert bench.do("consume_next", queue="q", client="another")["message"]["payload"] == "newer"


@pytest.mark.parametrize("sizes", [("0", "100"), ("100", "0")])
def test_the_size_from_which_bodies_are_files_may_change(sizes: tuple[str, str], make_bench: MakeBench) -> None:
    bench = make_bench("hybrid", **{"hybrid.inlineBelowBytes": sizes[0]}).open()
    keys = [bench.publish("q", "first"), bench.publish("q", "first" * 50)]
    bench.stop()
    bench.close()
    changed = make_bench("hybrid", **{"hybrid.inlineBelowBytes": sizes[1]})
    shutil.copytree(bench.path, changed.path)
    changed.ids = bench.ids
    changed.open()
    keys.append(changed.publish("q", "second", client="another"))
    for lost in (False, True):
        changed.reopen(without_store=lost)
        assert [b"first" in changed.store.bodies.envelope(key) for key in keys] == [True, True, False]
    for _ in keys:
        lease = changed.do("consume_next", queue="q", client="another")["lease"]
        changed.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"], client="another")
    assert changed.body_files() == []


@pytest.mark.parametrize("value", ["{}", "[]", "no JSON", '{"bytes":1,"blake2b":"00"}'])
@pytest.mark.parametrize("crc", ["crc", "NULL"])
def test_a_changed_reference_in_the_database_is_a_lost_body(value: str, crc: str, make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    lost, sound = bench.publish("q", "mine"), bench.publish("q", "other")
    bench.close()
    with contextlib.closing(sqlite3.connect(bench.config.settings.sqlite_db_path)) as db, db:
        db.execute(f"UPDATE kv SET value = ?, crc = {crc} WHERE key = ?", (value, lost))
    bench.open()
    assert isinstance(bench.store.audit, HybridAudit)
    assert [(one.kind, one.key) for one in bench.store.audit.payload_findings()] == [("wrong", lost)]
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == sound
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert (letter["messageKey"], letter["reasonCode"]) == (lost, "BODY_LOST")
    assert len(bench.body_files()) == 2


def test_by_default_only_a_body_of_a_block_or_more_has_a_file(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid")
    bench.config = load(bench.path, None, {}, {"backend": "hybrid", "traffic.enabled": "false"})
    bench.open()
    small, large = bench.publish("q", "x" * 3000), bench.publish("q", "y" * 4096)
    (path,) = bench.body_files()
    assert b"yyy" in path.read_bytes()
    bench.reopen()
    for key in (small, large):
        lease = bench.do("consume_next", queue="q")["lease"]
        assert lease["messageKey"] == key
        bench.do("ack", messageKey=key, leaseId=lease["leaseId"])
    assert bench.body_files() == []


def test_a_body_that_was_just_written_is_not_read_again(make_bench: MakeBench) -> None:
    bench = make_bench("hybrid").open()
    keys = [bench.publish("q", "first"), bench.publish("q", "second")]

    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "nothing is read")

    really_read, bench.files.read = bench.files.read, fail
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == keys[0]
    bench.files.read = really_read
    bench.store.disk.tidy()
    bench.files.read = fail
    assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    bench.files.read = really_read
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == keys[1]
