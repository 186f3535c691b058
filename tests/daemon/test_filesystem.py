"""What only the filesystem store promises: its files, and how it comes back from any crash."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.platform.files import Files
from postroom_daemon.stores.errors import BodyLost, StoreError
from postroom_daemon.stores.filesystem import tree as fs_tree
from postroom_daemon.stores.filesystem.names import (
    queue_directory,
    queue_of_directory,
    read_entry,
    read_name,
    write_name,
)
from postroom_daemon.stores.filesystem.places import Places, PlainMessage
from postroom_daemon.stores.filesystem.store import GROUPS_LIMIT, FilesystemStore
from tests.conformance.bench import Bench, descriptors, seen_in
from tests.daemon.filesystem_store import MakeBench, bury, expected_of, files_of, fill, make, tree, work


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemStore]:
    made = make(tmp_path)
    made.open()
    yield made
    made.close()


# --- layout -----------------------------------------------------------------------------------------------------


def test_the_folder_shows_the_state(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    for _ in range(3):
        bench.publish("jobs")
    bench.publish("jobs", delayMs=5000)
    one = bench.do("consume_next", queue="jobs")["lease"]
    two = bench.do("consume_next", queue="jobs")["lease"]
    bench.do("nack", messageKey=two["messageKey"], leaseId=two["leaseId"], requeue=False)
    folders = [name.split("/")[:2] for name in tree(bench)]
    assert folders == [["jobs", folder] for folder in ("delayed", "dlq", "inbox", "processing")]
    bench.do("ack", messageKey=one["messageKey"], leaseId=one["leaseId"])
    assert [name.split("/")[1] for name in tree(bench)] == ["delayed", "dlq", "inbox"]


def test_names_sort_in_the_order_of_delivery(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = {bench.publish(priority=priority): priority for priority in (0, 5, -5, 5, 2**31 - 1, -(2**31), 0)}
    bench.store.disk.tidy()
    inbox = bench.config.settings.filesystem_root / "q" / "inbox"
    listed = [name.partition("-message-")[2].partition("~")[0] for name in sorted(os.listdir(inbox))]
    delivered = [bench.do("consume_next", queue="q")["message"]["messageKey"] for _ in keys]
    assert delivered == sorted(keys, key=lambda key: (-keys[key], int(key.rpartition("-")[2])))
    assert listed == [key.rpartition("-")[2] for key in delivered]


def test_folders_have_the_names_of_the_configuration(make_bench: MakeBench) -> None:
    flags = {"filesystem.inboxDir": "in", "filesystem.metaDir": "about", "filesystem.root": "elsewhere"}
    bench = make_bench("filesystem", **flags).open()
    bench.publish()
    bench.store.disk.checkpoint()
    assert {name.split("/")[0] + "/" + name.split("/")[1][:5] for name in files_of(bench.path / "elsewhere")} == {
        "q/in",
        "about/check",
    }


@pytest.mark.parametrize(
    "queue",
    [".", "..", "meta", "a/b", "../../etc", "%2e%2e", "~", "x" * 256, "ü" * 128, "\U0001f600" * 64, "a b", ".hidden"],
)
def test_a_queue_of_any_name_has_a_harmless_directory_that_shows_its_name(
    queue: str, make_bench: MakeBench, tmp_path: Path
) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish(queue)
    bench.store.disk.tidy()
    root = bench.config.settings.filesystem_root
    directories = [path.name for path in root.iterdir() if path.name != "meta"]
    assert directories == [queue_directory(queue, "meta")]
    assert len(directories[0].encode()) <= 200 and not directories[0].startswith(".")
    assert queue_of_directory(directories[0]) in (queue, None)
    bench.reopen()
    assert bench.do("consume_next", queue=queue)["message"]["messageKey"] == key
    lost = make(tmp_path)  # even without a checkpoint or a journal
    shutil.copytree(root, tmp_path / "fs")
    lost.open()
    lost.recovery.finish_replay(clean=False)
    assert lost.pages.queue_names("", 10) == [queue] and lost.get(key)
    lost.close()


def test_different_queues_have_different_directories() -> None:
    names = ["a", "A", "%41", "a%", "meta", "%6Deta", ".", "%2E", "..", ".%2E", "~", "%7E"]
    names += ["x" * length for length in (199, 201, 202)]
    assert len({queue_directory(name, "meta") for name in names}) == len(names)


def test_a_file_name_contains_what_fits_and_marks_what_does_not() -> None:
    entry = Entry(
        "msg:q:01a21eba-1678-7c3a-9b1e-5d0f6a2e8401", "q", State.INFLIGHT, -7, 1207, 1795811841655, 86402117,
        target="me~/..%", attempt=3, due=5, lease_id="f3b1c7d2-5a60-4e8f-9c14-2b7d90e6a100", consumer_id="ü" * 20,
        lease_until=86403000, leased_at=86402200, failures=1, phase="x",
    )  # fmt: skip
    name, facts = write_name(entry, 1208, 1208, [{}])
    assert len(name) <= 255 and "/" not in name
    assert facts == {"history": [{}], "phase": "x", "consumer_id": "ü" * 20}
    parsed = read_name(name)
    assert parsed is not None and parsed.inside == 1208
    assert read_entry(parsed, entry.key, "q", facts) == entry


def test_a_folder_has_10000_files_directly_and_the_rest_in_shards(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fs_tree.FOLDER_LIMIT == 10_000
    monkeypatch.setattr(fs_tree, "FOLDER_LIMIT", 10)
    fill(store, 35)
    store.flush()
    inbox = tmp_path / "fs" / "q" / "inbox"
    held = {path.name: len(list(path.iterdir())) for path in inbox.iterdir() if path.is_dir()}
    assert held == {"00001": 10, "00002": 10, "00003": 5}
    store.close()
    again = make(tmp_path)
    again.open()
    again.recovery.finish_replay(clean=False)
    again.begin()
    order = []
    while head := again.next_ready("q", ""):
        order.append(head.seq)
        again.delete(head, State.READY)
    assert order == list(range(1, 36))
    again.applied = 40
    again.commit()
    again.disk.checkpoint()
    assert list(inbox.iterdir()) == []
    again.close()


def test_it_works_with_few_descriptors(make_bench: MakeBench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bench = make_bench("filesystem").open()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, hard))
    try:
        for number in range(20):
            bench.publish(f"queue-{number}")
            bench.do("consume_next", queue=f"queue-{number}")
        bench.store.disk.checkpoint()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    bench.reopen()  # the directory is there now, and is locked
    before = len(descriptors(bench.path))
    bench.reopen()
    assert len(descriptors(bench.path)) == before


def test_a_start_reads_names_and_three_files_of_each_queue(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    for number in range(50):
        bench.publish(priority=number % 3, delayMs=number % 2 * 1000)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    opened: list[str] = []
    really = bench.files.open

    def telling(path: Any, *rest: Any, **options: Any) -> int:
        opened.append(str(path))
        return int(really(path, *rest, **options))

    bench.files.open = telling
    bench.open()
    assert len([path for path in opened if "message-" in path]) == 3


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_cut_each_file_may_have_the_state_of_another_moment(seed: int, make_bench: MakeBench) -> None:
    """What was not synced: each file has any of the places that it had since the checkpoint, or lacks its end."""
    chance = random.Random(seed)
    bench = make_bench("filesystem").open()
    root = bench.config.settings.filesystem_root
    bench.publish("q", "old", priority=1)
    kept = bench.do("consume_next", queue="q", visibilityTimeoutSec=1)["lease"]
    bench.publish("q", "older", priority=9)
    bench.do("nack", messageKey=kept["messageKey"], leaseId=kept["leaseId"], requeue=True)
    bench.clocks.pass_ms(1500)
    bench.run()
    moments: list[dict[str, tuple[str, bytes]]] = []

    def take() -> None:
        seen = {}
        for path in root.rglob("*.json"):
            if path.parent.name != "meta":
                seen[path.name.partition("~")[0].split("-", 1)[1]] = (str(path.relative_to(root)), path.read_bytes())
        moments.append(seen)

    bench.store.disk.checkpoint()
    commit = bench.store.commit

    def commit_and_take() -> None:
        commit()
        take()

    bench.store.commit = commit_and_take  # type: ignore[method-assign]
    take()
    work(bench)
    bench.close()
    durable = moments[0]
    for path in list(root.rglob("*.json")):
        if path.parent.name != "meta":
            path.unlink()
    for name in {name for moment in moments for name in moment}:
        moment = chance.choice(moments)
        if name not in moment:
            continue
        place, content = moment[name]
        safe = len(durable[name][1]) if name in durable else 0
        if chance.random() < 0.4:
            cut = chance.randint(safe, len(content))
            content = content[:cut] + bytes(len(content) - cut if chance.random() < 0.5 else 0)
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)
    bench.open()
    assert seen_in(bench) == expected_of(bench, make_bench)
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_a_settled_message_stays_settled_even_if_only_its_end_was_not_synced(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish()
    bench.store.disk.checkpoint()
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert [name.split("/")[1] for name in tree(bench)] == ["archive"]
    bench.reopen()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 0
    bench.store.disk.checkpoint()
    assert tree(bench) == []


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    work(bench)
    bench.store.disk.checkpoint()
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    bench.store.disk.checkpoint()
    bench.close()
    newest = max((bench.config.settings.filesystem_root / "meta").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    bench.open()
    assert any(name.startswith(newest.name) for name in bench.quarantined())
    seen, expected = seen_in(bench), expected_of(bench, make_bench)
    for record in (*seen["queues"].values(), *expected["queues"].values()):
        record.totals.clear()  # what was done between the two is not counted again
    assert seen == expected


def test_a_store_that_is_ahead_of_the_journal_continues_after_it(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    for _ in range(5):
        bench.publish()
    bench.store.disk.tidy()
    last = bench.live.journal.last_id
    bench.close()
    (bench.journal_root / "recent").unlink()  # the second copy would repair the journal's end
    segment = bench.segments()[-1]
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(True)[:-2]))
    bench.open()
    gap = next(event for event in bench.events() if event["type"] == "gap")
    assert (gap["after"], gap["next"]) == (last - 2, last + 1)
    assert bench.do("status", queue="q")["metrics"]["ready"] == 5


def test_messages_whose_files_could_not_be_written_are_written_by_the_next_attempt(tmp_path: Path) -> None:
    files = Files()
    store = make(tmp_path, files)
    store.open()
    store.recovery.finish_replay(clean=True)
    fill(store, 3)
    written, really_write = [0], files.write

    def fail_in_the_second(fd: int, data: bytes) -> int:
        written[0] += 1
        if written[0] == 2:
            really_write(fd, data[:20])
            raise OSError(5, "no")
        return int(really_write(fd, data))

    files.write = fail_in_the_second
    with pytest.raises(StoreError):
        store.flush()
    store.begin()
    assert [store.bodies.envelope(f"msg:q:{number}") for number in (1, 2, 3)] == [b"{}"] * 3
    store.rollback()
    store.flush()
    contents = [(tmp_path / "fs" / name).read_bytes() for name in files_of(tmp_path / "fs")]
    assert len(contents) == 3 and all(content.endswith(b"}\n") for content in contents)
    store.close()


def test_on_a_full_disk_what_is_not_written_yet_stays_in_memory(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("q", "kept")
    really_write = bench.files.write

    def fail(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    bench.files.write = fail
    bench.store.disk.tidy()
    bench.files.write = really_write
    assert bench.do("consume_next", queue="q")["message"]["messageKey"] == key
    assert [name.split("/")[1] for name in tree(bench)] == ["processing"]


def test_a_message_that_comes_and_goes_between_two_writes_has_no_file(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    for text in ("a", "b"):
        bench.publish("q", text)
        lease = bench.do("consume_next", queue="q")["lease"]
        bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    assert tree(bench) == []
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert bench.store.queue("q").totals["acked"] == 2  # type: ignore[union-attr]


def test_files_are_written_without_a_call_once_there_are_many_groups(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    for _ in range(GROUPS_LIMIT):
        bench.publish()
    inbox = bench.config.settings.filesystem_root / "q" / "inbox"
    assert len(list(inbox.iterdir())) >= GROUPS_LIMIT - 1


# --- files moved by hand ----------------------------------------------------------------------------------------


def move_by_hand(bench: Bench, origin: str, to: str) -> None:
    root = bench.config.settings.filesystem_root / "q"
    (root / to).mkdir(exist_ok=True)
    for path in (root / origin).iterdir():
        shutil.move(path, root / to)


def test_dead_letters_moved_to_the_inbox_after_an_orderly_stop_are_reprocessed(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    keys = [bury(bench), bury(bench)]
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    move_by_hand(bench, "dlq", "inbox")
    bench.open()
    assert [e["key"] for e in bench.events() if e["type"] == "reprocessed"] == keys
    assert seen_in(bench) == expected_of(bench, make_bench)
    message = bench.do("consume_next", queue="q")["message"]
    assert (message["messageKey"], message["attempt"]) == (keys[0], 1)
    bench.reopen()
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_after_a_crash_files_that_were_moved_are_put_back(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bury(bench)
    bench.store.disk.tidy()
    bench.close()
    move_by_hand(bench, "dlq", "inbox")
    bench.open()
    assert "reprocessed" not in bench.event_types()
    assert [name.split("/")[1] for name in tree(bench)] == ["dlq"]
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_files_that_were_moved_anywhere_else_are_put_back_too(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish(delayMs=10_000)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    move_by_hand(bench, "delayed", "inbox")
    bench.open()
    assert [name.split("/")[1] for name in tree(bench)] == ["delayed"]
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_a_message_that_moved_before_it_was_written_and_returned_belongs_to_its_queue(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key = bench.publish("other", "known").replace("other", "q").replace("-1", "-2")
    born = bench.make("publish", queue="q", message="born")
    bench.run(born, bench.make("move", messageKey=key, to="other"))
    assert bench.do("status", queue="other")["metrics"]["ready"] == 2
    bench.do("move", messageKey=key, to="q")
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1
    assert bench.do("consume_next", queue="q")["message"]["payload"] == "born"
    assert seen_in(bench) == expected_of(bench, make_bench)


def test_files_that_are_not_messages_are_left_alone(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bench.publish()
    bench.store.disk.tidy()
    bench.close()
    inbox = bench.config.settings.filesystem_root / "q" / "inbox"
    (inbox / "notes.txt").write_text("mine")
    (inbox / "p7fffffff-x.json").write_text("{}")
    bench.config.settings.filesystem_root.joinpath("%zz").mkdir()
    bench.open()
    assert bench.do("status", queue="q")["metrics"]["ready"] == 1
    assert (inbox / "notes.txt").read_text() == "mine" and (inbox / "p7fffffff-x.json").exists()


def test_a_copy_of_a_file_is_set_aside(make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    bury(bench)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    root = bench.config.settings.filesystem_root / "q"
    (letter,) = (root / "dlq").iterdir()
    shutil.copy(letter, root / "inbox" / letter.name)
    bench.open()
    assert seen_in(bench) == expected_of(bench, make_bench)
    assert any(letter.name in name for name in bench.quarantined())


@pytest.mark.parametrize("damage", ["gone", "empty", "flipped", "foreign"])
def test_a_damaged_body_is_never_delivered(damage: str, make_bench: MakeBench) -> None:
    bench = make_bench("filesystem").open()
    key, other = bench.publish("q", "mine"), bench.publish("q", "other")
    bench.store.disk.tidy()
    inbox = bench.config.settings.filesystem_root / "q" / "inbox"
    first, second = sorted(inbox.iterdir())
    if damage == "gone":
        first.unlink()
    else:
        flipped = first.read_bytes().replace(b"mine", b"mind")
        first.write_bytes({"empty": b"", "flipped": flipped, "foreign": second.read_bytes()}[damage])
    with pytest.raises(BodyLost):
        bench.store.bodies.envelope(key)
    assert bench.store.bodies.envelope(other)


def test_a_backlog_is_read_some_messages_at_a_time_and_each_is_what_its_name_says(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.recovery.finish_replay(clean=True)
    keys = [f"msg:q:{UUID(int=number << 64 | number * 7919 % 1009)}" for number in range(1, 301)]
    store.begin()
    store.add_queue(QueueRecord("q"))
    for seq, key in enumerate(keys, 1):
        store.applied = store.folding = seq
        store.insert(Entry(key, "q", State.READY, seq % 3 - 1, seq, seq + 5, seq + 9, size=seq % 7), b'{"parts":[]}')
    store.commit()
    store.flush()
    store._entries.clear()
    reads: list[str] = []
    read = Places.neighbours

    def neighbours(places: Places, key: str) -> list[PlainMessage]:
        reads.append(key)
        return read(places, key)

    monkeypatch.setattr(Places, "neighbours", neighbours)
    files = store.message_files
    assert [store.get(key) for key in keys] == [files.entry(key) for key in keys]
    assert len(reads) <= 11
    store.begin()
    for key in keys[::3]:  # the file of each of them is removed, or gets another name
        entry = store.get(key)
        assert entry is not None and store.bodies.envelope(key) == b'{"parts":[]}'
        leased = entry.copy()
        leased.state, leased.lease_until, leased.lease_id = State.INFLIGHT, 99, "l"
        store.applied = store.folding = store.applied + 1
        store.update(leased, State.READY)
        if entry.seq % 2:
            store.delete(leased, State.INFLIGHT)
    store.commit()
    store.flush()
    store._entries.clear()
    for number, key in enumerate(keys):
        seen = store.get(key)
        if number % 3:
            assert seen and seen == files.entry(key) and seen.state is State.READY
        elif number % 2 == 0:
            assert seen is None
        else:
            assert seen and seen == files.entry(key) and seen.state is State.INFLIGHT
            assert store.bodies.envelope(key) == b'{"parts":[]}'
