"""What hands, copies and damage have left among the files of the filesystem store keeps no daemon from starting, is put
in order where that is certain, and is told."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom_daemon.broker.engine_state import READS, READS_MS
from postroom_daemon.platform.files import Files
from postroom_daemon.stores.errors import StoreError
from postroom_daemon.stores.filesystem import tree as fs_tree
from postroom_daemon.stores.filesystem.store import FilesystemStore
from postroom_daemon.stores.recovery import FileProblem
from tests.conformance.bench import Bench, seen_in
from tests.daemon.filesystem_store import MakeBench, bury, expected_of, files_of, make

FOLDERS = ("inbox", "processing", "delayed", "dlq", "archive")


@pytest.fixture
def stopped(make_bench: MakeBench) -> Bench:
    """A root with a message in each folder, that was stopped in order."""
    bench = make_bench("filesystem").open()
    bury(bench)
    bench.publish("q", "leased")
    bench.do("consume_next", queue="q")
    bench.publish("q", "ready")
    bench.publish("q", "later", delayMs=60_000)
    bench.publish("other", "elsewhere")
    stop(bench)
    return bench


def stop(bench: Bench) -> None:
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()


def root_of(bench: Bench) -> Path:
    return bench.config.settings.filesystem_root


def delivered(bench: Bench, queue: str = "q") -> list[str]:
    """The bodies of the queue's ready messages, each acknowledged."""
    found = []
    while (reply := bench.do("consume_next", queue=queue))["message"]:
        found.append(reply["message"]["payload"])
        bench.do("ack", messageKey=reply["message"]["messageKey"], leaseId=reply["lease"]["leaseId"])
    return found


def reopens_with_expected_state(bench: Bench, make_bench: MakeBench) -> None:
    """It opens with the state of the journal, and again after a crash."""
    for _ in range(2):
        bench.open()
        assert seen_in(bench) == expected_of(bench, make_bench)
        bench.close()
    bench.open()


# --- strange files ----------------------------------------------------------------------------------------------


def test_a_foreign_file_in_each_directory_is_left_alone_and_named(
    stopped: Bench, make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    root = root_of(stopped)
    strange = [root / "notes", root / "q" / "notes", root / "empty" / "notes", root / "meta" / "notes"]
    strange += [root / "q" / folder / "mine.tmp" for folder in FOLDERS]
    strange += [root / "q" / "backup" / "notes"]
    for path in strange:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    reopens_with_expected_state(stopped, make_bench)
    assert [path.read_text() for path in strange] == ["mine"] * len(strange)
    for name in ("notes", "q/notes", "q/inbox/mine.tmp", "q/backup"):
        assert name in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        "p7fffffff-000000000000001-x~v1~aX.json",  # no number
        "pffffffffffffff0-000000000000001-x~v1.json",
        "dabcdef12-000000000000001-x~v1.json",  # no time
        "u000000000000001-000000000000001-x~v1~c%ff.json",  # no UTF-8
        "p7fffffff-000000000000001-x~v9999999999999999999.json",  # all events would be numbered behind it
        "p7fffffff-000000000000001-x~v1~J1.json",
    ],
)
def test_a_name_that_only_resembles_a_messages_is_a_foreign_file(
    name: str, stopped: Bench, make_bench: MakeBench
) -> None:
    path = root_of(stopped) / "q" / "inbox" / name
    path.write_text("{}")
    reopens_with_expected_state(stopped, make_bench)
    assert path.read_text() == "{}"


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("what", ["a file", "a link"])
def test_a_file_in_the_place_of_a_folder_is_moved_aside(folder: str, what: str, stopped: Bench) -> None:
    path = root_of(stopped) / "q" / folder
    if path.exists():
        path.rename(root_of(stopped) / "aside")
    if what == "a file":
        path.write_text("in the way")
    else:
        path.symlink_to("/nowhere")
    stopped.open()
    stopped.publish("q", "more")
    reply = stopped.do("consume_next", queue="q")
    stopped.do("nack", messageKey=reply["message"]["messageKey"], leaseId=reply["lease"]["leaseId"], requeue=False)
    assert any(name.startswith(folder) for name in os.listdir(stopped.path / "quarantine"))


def test_a_file_with_the_name_of_a_shard_is_avoided(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_tree, "FOLDER_LIMIT", 3)
    bench = make_bench("filesystem").open()
    bench.publish("q", "0")
    bench.store.disk.tidy()
    bench.close()
    inbox = root_of(bench) / "q" / "inbox"
    (inbox / "00001").write_text("mine")
    bench.open()
    for number in range(1, 9):
        bench.publish("q", str(number))
    bench.reopen()
    assert delivered(bench) == [str(number) for number in range(9)]
    assert (inbox / "00001").read_text() == "mine"


def test_a_file_in_the_place_of_meta_is_moved_aside(stopped: Bench, make_bench: MakeBench) -> None:
    meta = root_of(stopped) / "meta"
    shutil.rmtree(meta)
    meta.write_text("no directory")
    reopens_with_expected_state(stopped, make_bench)
    stopped.store.disk.checkpoint()
    assert meta.is_dir()


@pytest.mark.parametrize("damage", ["a directory", "NULs", "empty", "another", "both"])
def test_invalid_checkpoints_are_set_aside(damage: str, stopped: Bench, make_bench: MakeBench) -> None:
    stopped.open()
    stop(stopped)
    found = sorted((root_of(stopped) / "meta").iterdir())
    assert len(found) == 2
    newest = found[-1]
    for path in found if damage == "both" else [newest]:
        size = path.stat().st_size
        path.unlink()
        if damage == "a directory":
            path.mkdir()
        else:
            path.write_bytes({"NULs": bytes(size), "empty": b"", "another": b'{"id":1}', "both": b"x"}[damage])
    reopens_with_expected_state(stopped, make_bench)
    assert any(newest.name in name for name in os.listdir(stopped.path / "quarantine"))


# --- damaged messages -------------------------------------------------------------------------------------------


def replace_by(make_other: Callable[[Path], None]) -> Callable[[Path], object]:
    def replace(path: Path) -> None:
        path.unlink()
        make_other(path)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "NULs": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes().replace(b"body 0", b"body 1")),
    "empty": lambda path: path.write_bytes(b""),
    "a directory": replace_by(Path.mkdir),
    "a link": replace_by(lambda path: path.symlink_to("/etc/passwd")),
    "a pipe": replace_by(os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_message_blocks_no_other_and_can_be_removed(damage: str, make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    lost = bench.publish("q", "body 0")
    for number in range(1, 4):
        bench.publish("q", f"body {number}")
    stop(bench)
    DAMAGES[damage](min((root_of(bench) / "q" / "inbox").iterdir()))
    bench.open()
    assert delivered(bench) == ["body 1", "body 2", "body 3"]
    (letter,) = bench.do("list_dlq", queue="q")["messages"]
    assert letter["messageKey"] == lost
    bench.store.disk.checkpoint()
    bench.reopen()
    assert [one["messageKey"] for one in bench.do("list_dlq", queue="q")["messages"]] == [lost]


def test_a_damaged_file_is_quarantined_before_it_is_rewritten_from_the_journal(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("filesystem").open()
    bench.publish("q", "whole")
    bench.store.disk.tidy()
    bench.close()
    (path,) = (root_of(bench) / "q" / "inbox").iterdir()
    damaged = path.read_bytes().replace(b"whole", b"wholly other")
    path.write_bytes(damaged)
    bench.open()
    assert delivered(bench) == ["whole"]
    assert damaged in bench.quarantined().values()


def test_remnants_of_a_file_after_a_power_cut_are_not_quarantined(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish("q", "whole")
    bench.store.disk.tidy()
    bench.close()
    (path,) = (root_of(bench) / "q" / "inbox").iterdir()
    path.write_bytes(path.read_bytes()[:30] + bytes(50))
    bench.open()
    assert delivered(bench) == ["whole"]
    assert bench.quarantined() == {}


def test_a_file_that_must_not_be_read_is_a_lost_body_and_a_directory_that_must_not_is_a_fault_of_the_machine(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("filesystem").open()
    keys = [bench.publish("q", "locked"), bench.publish("q", "open")]
    bench.store.disk.tidy()
    really_open, really_stat = bench.files.open, bench.files.stat
    searchable = True

    def refuse(path: object, flags: int, *rest: int, **options: int) -> int:
        if "message-1~" in str(path) and not flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return int(really_open(path, flags, *rest, **options))

    def stat(path: object, **options: int) -> object:
        if not searchable:
            raise PermissionError(13, "Permission denied")
        return really_stat(path, **options)

    searchable = False
    bench.files.open, bench.files.stat = refuse, stat
    assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    searchable = True
    for _ in range(READS - 1):
        assert bench.send("consume_next", queue="q").code == "ERR_STORAGE_FAILED"
    bench.clocks.pass_ms(READS_MS)
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == keys[1]
    assert bench.do("list_dlq", queue="q")["messages"][0]["messageKey"] == keys[0]


def test_a_target_too_long_for_the_name_counts_even_if_its_line_is_damaged(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    target = "t" * 250
    bench.publish("q", "for one only", targetConsumerId=target)
    stop(bench)
    (path,) = (root_of(bench) / "q" / "inbox").iterdir()
    first, newline, _ = path.read_bytes().partition(b"\n")
    path.write_bytes(first + newline)
    bench.open()
    assert bench.do("consume_next", queue="q", consumerId="another")["message"] is None
    assert bench.do("consume_next", queue="q", consumerId=target)["message"]["payload"] == "for one only"


# --- moved, copied, renamed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_renamed_directory_of_a_queue_gets_its_name_back(clean: bool, stopped: Bench, make_bench: MakeBench) -> None:
    if not clean:
        stopped.open()
        stopped.close()
    (root_of(stopped) / "q").rename(root_of(stopped) / "renamed")
    reopens_with_expected_state(stopped, make_bench)
    assert not (root_of(stopped) / "renamed").exists()


def test_a_copy_of_a_queues_directory_is_not_a_queue(stopped: Bench, make_bench: MakeBench) -> None:
    root = root_of(stopped)
    shutil.copytree(root / "q", root / "q.bak")
    before = files_of(root / "q.bak")
    reopens_with_expected_state(stopped, make_bench)
    assert files_of(root / "q.bak") == before
    assert [queue["queue"] for queue in stopped.do("list_queues")["queues"]] == ["other", "q"]


def test_files_in_another_queues_directory_are_put_back(
    stopped: Bench, make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    root = root_of(stopped)
    for path in (root / "q" / "inbox").iterdir():
        shutil.move(path, root / "other" / "inbox")
    with caplog.at_level(logging.ERROR):
        reopens_with_expected_state(stopped, make_bench)
    assert "a message of queue 'q', and is put back" in caplog.text
    assert (delivered(stopped), delivered(stopped, "other")) == (["ready"], ["elsewhere"])


def test_a_copy_in_another_queues_directory_is_set_aside(stopped: Bench, make_bench: MakeBench) -> None:
    root = root_of(stopped)
    (path,) = (root / "q" / "inbox").iterdir()
    shutil.copy(path, root / "other" / "inbox")
    reopens_with_expected_state(stopped, make_bench)
    assert any(path.name in name for name in stopped.quarantined())
    assert (delivered(stopped), delivered(stopped, "other")) == (["ready"], ["elsewhere"])


def test_a_copy_with_a_name_of_full_length_is_set_aside_too(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish("q", "x")
    bench.do("consume_next", queue="q", consumerId="c" * 154)
    stop(bench)
    (path,) = (root_of(bench) / "q" / "processing").iterdir()
    assert len(path.name) > 235
    (root_of(bench) / "q" / "inbox").mkdir(exist_ok=True)
    shutil.copy(path, root_of(bench) / "q" / "inbox")
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 1
    assert len(bench.quarantined()) == 1


def test_removed_files_are_counted_in_the_log(stopped: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for path in (root_of(stopped) / "q" / "inbox").iterdir():
        path.unlink()
    stopped.open()
    assert "queue 'q' has 1 messages fewer than before" in caplog.text
    assert delivered(stopped) == []


def test_many_dead_letters_moved_among_shards_are_all_reprocessed(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs_tree, "FOLDER_LIMIT", 4)
    bench = make_bench("filesystem").open()
    keys = [bury(bench) for _ in range(15)]
    stop(bench)
    root = root_of(bench) / "q"
    shutil.rmtree(root / "inbox")
    (root / "dlq").rename(root / "inbox")
    bench.open()
    assert [event["key"] for event in bench.events() if event["type"] == "reprocessed"] == keys
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert bench.do("status", queue="q")["metrics"]["ready"] == 15


def test_files_moved_under_a_running_daemon_are_put_back_at_the_next_start(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bury(bench)
    bench.store.disk.tidy()
    (path,) = (root_of(bench) / "q" / "dlq").iterdir()
    shutil.move(path, root_of(bench) / "q" / "inbox")
    bench.do("reprocess_dlq", messageKey=key)
    with pytest.raises(StoreError, match="No such file"):
        bench.store.disk.tidy()
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1


# --- to be looked at --------------------------------------------------------------------------------------------


def test_findings_are_reported_without_a_change(stopped: Bench, tmp_path: Path) -> None:
    root = root_of(stopped)
    (ready,) = (root / "q" / "inbox").iterdir()
    (dead,) = (root / "q" / "dlq").iterdir()
    shutil.move(dead, ready.parent)
    (root / "q" / "inbox" / "notes").write_text("mine")
    store = looked_at(stopped)
    try:
        notes, moved = root / "q" / "inbox" / "notes", ready.parent / dead.name
        assert store.audit.foreign_files() == [notes]
        found = [(one.problem, one.path) for one in store.audit.file_findings(last=0, clean=True)]
        assert found == [(FileProblem.FOREIGN, str(notes)), (FileProblem.MOVED_BY_HAND, str(moved))]
    finally:
        store.close()
    assert (ready.parent / dead.name).exists()


def looked_at(bench: Bench) -> FilesystemStore:
    store = make(bench.path / "data", Files())
    store.open()
    return store


@pytest.fixture(autouse=True)
def warnings_are_caught(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.WARNING)
    yield
