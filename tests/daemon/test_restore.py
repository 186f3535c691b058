"""postroomd restore: as of the backup's event, and what is refused before anything is changed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from postroom_daemon.maintenance.backup import BackupError
from postroom_daemon.maintenance.restore import RestoreError
from postroom_daemon.observe.state import StateError
from postroom_daemon.root.locks import RootBusy
from tests.daemon.pasts import STORES, MakeBench, Past, held, on_every_store, picture_of, restored

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
    before = past.bench.live.store.get_kv("epoch")
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
    past.bench.store.disk.checkpoint()
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
    assert [entry.state for entry in other.store.pages.entries("", 9)] == ["delayed", "inflight"]


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
    assert [entry.state for entry in other.store.pages.entries("", 9)] == ["inflight"]


# --- refused before anything is changed -------------------------------------------------------------------------


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
