"""postroomd restore: as of the backup's event or a later one, all or nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import Event
from postroom_daemon.backup import BackupError
from postroom_daemon.changeover import MARKER_NAME, ChangeoverError
from postroom_daemon.files import Files
from postroom_daemon.locks import RootBusy
from postroom_daemon.restore import RestoreError, Wish
from postroom_daemon.root import StartError
from postroom_daemon.state import StateError
from tests.conformance.bench import Bench
from tests.crash.faults import FewerCalls, Killed
from tests.daemon.pasts import MakeBench, Past, held, restored

STORES = ("sqlite", "filesystem", "hybrid")
on_every_store = pytest.mark.parametrize("backend", STORES)


# --- as of the backup -------------------------------------------------------------------------------------------


@on_every_store
@pytest.mark.parametrize("target", STORES)
def test_a_root_that_is_restored_holds_what_was_backed_up(
    make_bench: MakeBench, tmp_path: Path, backend: str, target: str
) -> None:
    past = Past.begin(make_bench(backend, segment_bytes=4000))
    past.work(120)
    manifest = past.back_up(tmp_path / "backup")
    events = past.end()
    other = make_bench(target)
    other.hands = past.bench.hands
    done = restored(other, tmp_path / "backup")
    found = held(other.config.settings)
    assert found == past.told(events, manifest.event)
    assert (done.event, done.messages, done.queues) == (manifest.event, len(found["messages"]), 2)
    assert manifest.messages == done.messages > 5
    assert done.lost == done.replaced == []


@on_every_store
def test_it_goes_on_behind_the_backups_event_as_another_root(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    past = Past.begin(make_bench(backend, segment_bytes=3000))
    past.work(60)
    before = past.bench.live.store.fact("epoch")
    manifest = past.back_up(tmp_path / "backup")
    past.bench.open()
    past.work(5)
    earlier = past.end()
    done = restored(past.bench, tmp_path / "backup", replace=True)
    assert (done.epoch, done.history_from) == (before["epoch"] + 1, 1)
    assert done.root != before["root"]
    past.bench.open()
    key = past.publish()
    events = past.end()
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert events[: manifest.event] == earlier[: manifest.event]
    started = events[manifest.event]
    assert (started["type"], started["root"], started["epoch"]) == ("epoch_started", done.root, done.epoch)
    assert started["reason"] == f"restored from backup {tmp_path / 'backup'} at event {manifest.event}"
    assert [event["key"] for event in events if event["epoch"] == done.epoch and "key" in event] == [key]


@on_every_store
def test_a_restored_root_whose_store_is_lost_is_folded_from_its_journal(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    past = Past.begin(make_bench(backend, segment_bytes=3000))
    past.work(80)
    past.back_up(tmp_path / "backup")
    restored(past.bench, tmp_path / "backup", replace=True)
    expected = held(past.settings)
    past.bench.reopen(without_store=True)
    past.bench.store.checkpoint()
    past.bench.close()
    assert held(past.settings) == expected


def test_a_repeat_gets_its_first_answer_from_the_restored_history(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    sent = past.bench.send("publish", queue="q", message="once")
    past.back_up(tmp_path / "backup")
    restored(past.bench, tmp_path / "backup", replace=True)
    past.bench.open()
    again = past.bench.again(sent)
    past.bench.run(again)
    assert again.data["messageKey"] == sent.data["messageKey"]
    assert past.bench.do("status", queue="q")["metrics"]["ready"] == 1


def test_a_backup_without_journal_is_restored_to_a_root_that_begins_behind_it(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench())
    past.work(60)
    manifest = past.back_up(tmp_path / "backup", with_journal=False)
    events = past.end()
    other = make_bench()
    other.hands = past.bench.hands
    assert restored(other, tmp_path / "backup").history_from == 0
    assert held(other.config.settings) == past.told(events, manifest.event)
    other.open()
    assert other.do("health")["status"] == "ok"
    assert other.events()[0]["id"] == manifest.event + 1


def test_bodies_in_files_are_no_history_for_a_store_that_cannot_fold_them(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench("hybrid"))
    past.publish()
    past.back_up(tmp_path / "backup")
    other = make_bench("sqlite")
    other.hands = past.bench.hands
    assert restored(other, tmp_path / "backup").history_from == 0
    other.reopen(without_store=True)
    assert other.do("health")["status"] == "degraded"  # it starts, and tells what is lost


def test_leases_that_are_over_when_it_is_restored_end_as_usual(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    for name in ("first", "second"):
        past.publish(message=name)
    past.bench.do("consume_next", queue="q", visibilityTimeoutSec=30)
    past.bench.do("consume_next", queue="q", visibilityTimeoutSec=7200)
    manifest = past.back_up(tmp_path / "backup")
    other = make_bench()
    other.hands.boot_id, other.hands.boot_ms = "of another machine", 5
    other.hands.wall_ms = manifest.wall_ms + 3_600_000
    restored(other, tmp_path / "backup")
    other.open().run()
    assert other.event_types().count("retried") == 1
    assert [entry.state for entry in other.store.entries("", 9)] == ["delayed", "inflight"]


@pytest.mark.parametrize("wall_ms", [0, 2**45])
def test_on_a_machine_whose_clock_is_wrong_no_lease_runs_out(
    make_bench: MakeBench, tmp_path: Path, wall_ms: int
) -> None:
    past = Past.begin(make_bench())
    past.publish()
    past.bench.hands.pass_ms(1_000_000)
    past.bench.do("consume_next", queue="q", visibilityTimeoutSec=30)
    before = past.bench.live.clock.now().engine
    past.back_up(tmp_path / "backup", with_journal=False)
    other = make_bench()
    other.hands.boot_id, other.hands.boot_ms, other.hands.wall_ms = "of another machine", 5, wall_ms
    restored(other, tmp_path / "backup")
    other.open().run()
    assert before <= other.live.clock.now().engine < before + 30_000
    assert [entry.state for entry in other.store.entries("", 9)] == ["inflight"]


# --- up to a later event ----------------------------------------------------------------------------------------


@on_every_store
def test_it_can_be_restored_to_every_event_behind_the_backup(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    past = Past.begin(make_bench(backend, segment_bytes=3000), seed=3)
    past.work(50)
    manifest = past.back_up(tmp_path / "backup")
    past.bench.open()
    past.work(40)
    events = past.end()
    kept = shutil.copytree(past.bench.path, tmp_path / "kept")
    last = events[-1]["id"]
    assert last > manifest.event + 20
    for event_id in [*range(manifest.event, last + 1, 3), last]:
        done = restored(
            past.bench, tmp_path / "backup", Wish(event=event_id),
            journal=kept / "journal", payloads=kept / "data" / "payloads", replace=True,
        )  # fmt: skip
        taken = max(event["id"] for event in events if event["id"] == event["req"] <= event_id)
        assert done.event == taken
        expected = past.told(events, taken)
        lost = set(done.lost)
        expected["messages"] = [message for message in expected["messages"] if message["key"] not in lost]
        found = held(past.settings)
        assert found["messages"] == expected["messages"], event_id
        if not lost:
            assert found == expected
        shutil.rmtree(done.replaced[0])


def several(past: Past, tmp_path: Path) -> tuple[int, list[Event]]:
    """A backup, then three groups at three times. The backup's event, and the journal."""
    past.publish(message="before")
    manifest = past.back_up(tmp_path / "backup")
    past.bench.open()
    for name in ("first", "second", "third"):
        past.bench.hands.pass_ms(60_000)
        past.publish(message=name)
    return manifest.event, past.end()


def messages(past: Past) -> int:
    return len(held(past.settings)["messages"])


def test_the_journal_of_the_root_itself_is_gone_on_by(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    _, events = several(past, tmp_path)
    done = restored(past.bench, tmp_path / "backup", Wish(end=True), replace=True)
    assert (done.event, messages(past)) == (events[-1]["id"], 4)
    past.bench.open()
    assert past.bench.events()[: len(events)] == events


def test_a_time_means_the_last_event_before_the_clock_first_showed_a_later_one(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench())
    _, events = several(past, tmp_path)
    second = [event for event in events if event["type"] == "published"][2]
    journal = past.settings.journal_root
    for wall_ms in (second["wallMs"], second["wallMs"] + 59_999):
        done = restored(past.bench, tmp_path / "backup", Wish(wall_ms=wall_ms), replace=True, journal=journal)
        assert (done.event, done.wall_ms, messages(past)) == (second["id"], second["wallMs"], 3)
        journal = Path(done.replaced[0]) / "journal"


def test_a_request_is_taken_whole_or_not_at_all(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    manifest = past.back_up(tmp_path / "backup")
    past.bench.open()
    past.publish("new")  # the queue, then the message
    events = past.end()
    created = next(event for event in events if event["type"] == "queue_created")
    assert created["id"] < created["req"]
    done = restored(past.bench, tmp_path / "backup", Wish(event=created["id"]), replace=True)
    assert done.event == created["id"] - 1 >= manifest.event
    assert held(past.settings)["queues"] == []


def test_what_lies_before_the_backup_or_behind_the_journal_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    backed, events = several(past, tmp_path)
    wall = {event["id"]: event["wallMs"] for event in events}
    before = held(past.settings)
    for wish, text in (
        (Wish(event=backed - 1), f"is of event {backed} .* the earliest"),
        (Wish(wall_ms=wall[backed] - 1), f"is of event {backed} .* the earliest"),
        (Wish(event=events[-1]["id"] + 1), f"ends with event {events[-1]['id']} of .* the latest"),
        (Wish(wall_ms=wall[events[-1]["id"]] + 1), f"ends with event {events[-1]['id']} of .* the latest"),
    ):
        with pytest.raises(RestoreError, match=text):
            restored(past.bench, tmp_path / "backup", wish, replace=True)
    assert held(past.settings) == before
    assert past.bench.events() == events


def test_a_gap_in_the_events_that_are_needed_is_refused_and_named(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    _, events = several(past, tmp_path)
    first, second = [event["id"] for event in events if event["type"] == "published"][1:3]
    segment = past.bench.segments()[-1]
    lines = segment.read_bytes().splitlines(True)
    segment.write_bytes(b"".join(line for line in lines if b'{"id":%d,' % second not in line))
    with pytest.raises(RestoreError, match=f"event {second} is missing: .* latest .* is event {second - 1}"):
        restored(past.bench, tmp_path / "backup", Wish(end=True), replace=True)
    assert restored(past.bench, tmp_path / "backup", Wish(event=first), replace=True).event == first


def test_a_journal_that_does_not_go_on_from_the_backup_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    several(past, tmp_path)
    other = Past.begin(make_bench())
    other.work(30)
    other.end()
    for journal in (other.settings.journal_root, tmp_path / "nowhere"):
        with pytest.raises(RestoreError, match=r"does not go on from this backup|is no journal with events"):
            restored(past.bench, tmp_path / "backup", Wish(end=True), replace=True, journal=journal)


def test_a_journal_that_was_restored_to_before_the_backup_does_not_go_on_from_it(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench())
    past.back_up(tmp_path / "early")
    past.bench.open()
    several(past, tmp_path)
    restored(past.bench, tmp_path / "early", replace=True)
    past.bench.open()
    past.work(40)
    past.end()
    with pytest.raises(RestoreError, match="does not go on from this backup"):
        restored(past.bench, tmp_path / "backup", Wish(end=True), replace=True)


def test_a_restored_root_goes_on_from_the_backup_that_it_came_from(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    several(past, tmp_path)
    restored(past.bench, tmp_path / "backup", replace=True)
    past.bench.open()
    past.publish(message="later")
    events = past.end()
    done = restored(past.bench, tmp_path / "backup", Wish(end=True), replace=True)
    assert (done.event, done.epoch, messages(past)) == (events[-1]["id"], 3, 2)


def test_a_message_whose_body_is_gone_with_its_file_is_left_out_and_named(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench("hybrid"))
    past.back_up(tmp_path / "backup")
    past.bench.open()
    gone, done_with, kept = (past.publish(message=name) for name in ("gone", "done with", "kept"))
    for _ in range(2):
        lease = past.bench.do("consume_next", queue="q")["lease"]
        past.bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    events = past.end()
    acked = [event["id"] for event in events if event["type"] == "acked"]
    done = restored(past.bench, tmp_path / "backup", Wish(event=acked[0] - 1), replace=True)
    assert done.lost == [gone, done_with]
    assert [message["key"] for message in held(past.settings)["messages"]] == [kept]
    replaced = Path(done.replaced[0])
    done = restored(
        past.bench, tmp_path / "backup", Wish(end=True), replace=True,
        journal=replaced / "journal", payloads=replaced / "payloads",
    )  # fmt: skip
    assert done.lost == []
    past.bench.open()
    assert past.bench.do("consume_next", queue="q")["message"]["messageKey"] == kept


# --- refused before anything is changed -------------------------------------------------------------------------


def picture_of(root: Path) -> dict[str, bytes]:
    """Every file below a directory, but for what tools leave whenever they look."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in ("postroomd.lock", "reserve")
    }


@pytest.mark.parametrize("name", ["state.jsonl", "manifest.json", "journal/00000000000000000001.jsonl", "config.json"])
def test_a_backup_with_a_flipped_bit_is_refused_with_the_place(
    make_bench: MakeBench, tmp_path: Path, name: str
) -> None:
    past = Past.begin(make_bench())
    (past.bench.path / "config.json").write_text("{}")
    past.bench.config = replace(past.bench.config, file=past.bench.path / "config.json")
    past.work(30)
    past.back_up(tmp_path / "backup")
    path = tmp_path / "backup" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    before = picture_of(past.bench.path)
    with pytest.raises((BackupError, StateError), match=name):
        restored(past.bench, tmp_path / "backup", replace=True)
    assert picture_of(past.bench.path) == before


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_backup_that_is_cut_short_is_refused(make_bench: MakeBench, tmp_path: Path, part: float) -> None:
    past = Past.begin(make_bench())
    past.work(30)
    past.back_up(tmp_path / "backup")
    past.back_up(tmp_path / "backup.tar")
    past.back_up(tmp_path / "backup.tar.gz")
    for name in ("backup/state.jsonl", "backup/journal/00000000000000000001.jsonl", "backup.tar", "backup.tar.gz"):
        path = tmp_path / name
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole.rstrip(b"\0")) * part)])  # a tar ends with padding
        before = picture_of(past.bench.path)
        with pytest.raises((BackupError, StateError), match=r"cut short|no manifest|no tar"):
            restored(past.bench, tmp_path / name.partition("/")[0], replace=True)
        assert picture_of(past.bench.path) == before
        path.write_bytes(whole)


def test_a_root_that_is_in_use_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    past.publish()
    past.back_up(tmp_path / "backup")
    with pytest.raises(RestoreError, match=r"is in use: .* --replace"):
        restored(past.bench, tmp_path / "backup")
    past.bench.open()
    with pytest.raises(RootBusy):
        restored(past.bench, tmp_path / "backup", replace=True)


def test_what_was_there_is_moved_aside_whole(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench("hybrid", segment_bytes=2000))
    past.work(40)
    past.back_up(tmp_path / "backup")
    before = picture_of(past.bench.path)
    done = restored(past.bench, tmp_path / "backup", replace=True)
    aside = picture_of(Path(done.replaced[0]))
    assert sorted(aside.values()) == sorted(data for name, data in before.items() if name != "config.json")
    shutil.rmtree(past.bench.path / "data")
    for path in past.bench.segments():
        path.unlink()
    for name, place in (("payloads", "data/payloads"), ("yirangmq.db", "data/yirangmq.db")):
        (past.bench.path / place).parent.mkdir(exist_ok=True)
        (Path(done.replaced[0]) / name).rename(past.bench.path / place)
    for path in (Path(done.replaced[0]) / "journal").iterdir():
        path.rename(past.settings.journal_root / path.name)
    past.bench.open()
    assert past.bench.do("health")["status"] == "ok"


# --- interrupted ------------------------------------------------------------------------------------------------


@on_every_store
def test_killed_before_any_file_operation_the_root_is_the_old_one_or_waits_for_the_same_restore(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    past = Past.begin(make_bench(backend, segment_bytes=1500))
    past.work(12)
    manifest = past.back_up(tmp_path / "backup.tar")
    past.bench.open()
    past.work(8)
    events = past.end()
    new, old = past.told(events, manifest.event), past.told(events, events[-1]["id"])
    assert new != old
    counting = FewerCalls(10_000)
    rehearsal = copy_of(past, make_bench)
    restored(rehearsal, tmp_path / "backup.tar", files=counting, replace=True)
    calls = 10_000 - counting.left
    refused = served = 0
    # While it prepares, every few calls; every one of those that put it into place.
    for number in [*range(0, calls - 40, 4), *range(calls - 40, calls)]:
        bench = copy_of(past, make_bench)
        with pytest.raises(Killed):
            restored(bench, tmp_path / "backup.tar", files=FewerCalls(number), replace=True)
        try:
            bench.open()
            bench.store.checkpoint()
            served += 1
            bench.close()
            assert held(bench.config.settings) in (old, new), number
        except StartError as error:
            assert "restore was interrupted: give the same" in str(error)
            refused += 1
        restored(bench, tmp_path / "backup.tar", replace=True)
        assert held(bench.config.settings) == new, number
        assert not list(bench.path.rglob("*.restoring*")), number
        assert not (bench.path / MARKER_NAME).exists()
        ids = [event["id"] for event in bench.events()]
        assert ids == list(range(1, len(ids) + 1)), number
        shutil.rmtree(bench.path)
    assert refused > 20
    assert served > 3


def copy_of(past: Past, make_bench: MakeBench) -> Bench:
    """A bench on a copy of a root that nobody has open."""
    bench = make_bench(past.settings.backend, segment_bytes=1500)
    shutil.copytree(past.bench.path, bench.path)
    bench.hands = past.bench.hands
    return bench


def test_another_restore_finishes_the_one_that_was_interrupted_and_does_no_more(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    past = Past.begin(make_bench())
    manifest = past.back_up(tmp_path / "first")
    past.bench.open()
    past.publish()
    past.back_up(tmp_path / "second")
    marked = False

    class Marked(Files):
        def __init__(self) -> None:
            super().__init__()
            rename = self.rename

            def dying(source: Any, target: Any, **options: Any) -> None:
                nonlocal marked
                if marked:
                    raise Killed
                rename(source, target, **options)
                marked = target == MARKER_NAME

            self.rename = dying

    with pytest.raises(Killed):
        restored(past.bench, tmp_path / "first", replace=True, files=Marked())
    with pytest.raises(StartError, match="interrupted"):
        past.bench.open()
    with pytest.raises(RestoreError, match=f"{tmp_path / 'first'} .* finished now, up to event {manifest.event}"):
        restored(past.bench, tmp_path / "second", replace=True)
    assert messages(past) == 0
    restored(past.bench, tmp_path / "second", replace=True)
    assert messages(past) == 1


def test_a_list_of_renames_that_is_damaged_is_told_and_left(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench())
    past.back_up(tmp_path / "backup")
    for data in (b"{}", b"\0\0"):
        (past.bench.path / MARKER_NAME).write_bytes(data)
        with pytest.raises(ChangeoverError, match="is damaged"):
            restored(past.bench, tmp_path / "backup", replace=True)
        assert (past.bench.path / MARKER_NAME).read_bytes() == data


def test_a_disk_that_fills_up_leaves_the_root_as_it_was(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench("filesystem"))
    past.work(40)
    past.back_up(tmp_path / "backup")
    before = picture_of(past.bench.path)
    full = Files()

    def write(fd: int, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    full.write = write
    with pytest.raises(Exception, match="No space left"):
        restored(past.bench, tmp_path / "backup", replace=True, files=full)
    assert picture_of(past.bench.path) == before


def test_the_configuration_file_names_the_backend_that_was_chosen(make_bench: MakeBench, tmp_path: Path) -> None:
    past = Past.begin(make_bench("filesystem"))
    past.publish()
    past.back_up(tmp_path / "backup")
    (past.bench.path / "config.json").write_text('{"backend": "sqlite", "nodeId": "here"}')
    done = restored(past.bench, tmp_path / "backup", replace=True, write_backend=True)
    assert '"backend": "filesystem"' in (past.bench.path / "config.json").read_text()
    assert '"nodeId": "here"' in (past.bench.path / "config.json").read_text()
    assert '"backend": "sqlite"' in (Path(done.replaced[0]) / "config.json").read_text()
