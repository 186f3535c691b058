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
from tests.daemon.origin import STORES, MakeBench, Origin, on_every_store, picture_of, restored, stored_state

# --- as of the backup -------------------------------------------------------------------------------------------


@on_every_store
@pytest.mark.parametrize("target", STORES)
def test_a_restored_root_has_everything_that_was_backed_up(
    make_bench: MakeBench, tmp_path: Path, backend: str, target: str
) -> None:
    origin = Origin.begin(make_bench(backend, segment_bytes=4000))
    origin.work(120)
    manifest = origin.back_up(tmp_path / "backup")
    events = origin.end()
    other = make_bench(target)
    other.clocks = origin.bench.clocks
    done = restored(other, tmp_path / "backup")
    found = stored_state(other.config.settings)
    assert found == origin.state_at(events, manifest.event)
    assert (done.event, done.messages, done.queues) == (manifest.event, len(found["messages"]), 2)
    assert manifest.messages == done.messages > 5
    assert done.lost == done.replaced == []


@on_every_store
def test_a_restored_root_continues_after_the_backups_event_as_another_root(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    origin = Origin.begin(make_bench(backend, segment_bytes=3000))
    origin.work(60)
    before = origin.bench.live.store.facts.get("epoch")
    manifest = origin.back_up(tmp_path / "backup")
    origin.bench.open()
    origin.work(5)
    earlier = origin.end()
    done = restored(origin.bench, tmp_path / "backup", replace=True)
    assert (done.epoch, done.history_from) == (before["epoch"] + 1, 1)
    assert done.root != before["root"]
    origin.bench.open()
    key = origin.publish()
    events = origin.end()
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
    origin = Origin.begin(make_bench(backend, segment_bytes=3000))
    origin.work(80)
    origin.back_up(tmp_path / "backup")
    restored(origin.bench, tmp_path / "backup", replace=True)
    expected = stored_state(origin.settings)
    origin.bench.reopen(without_store=True)
    origin.bench.store.disk.checkpoint()
    origin.bench.close()
    assert stored_state(origin.settings) == expected


def test_a_repeat_gets_its_first_answer_from_the_restored_history(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    sent = origin.bench.send("publish", queue="q", message="once")
    origin.back_up(tmp_path / "backup")
    restored(origin.bench, tmp_path / "backup", replace=True)
    origin.bench.open()
    again = origin.bench.again(sent)
    origin.bench.run(again)
    assert again.data["messageKey"] == sent.data["messageKey"]
    assert origin.bench.do("status", queue="q")["metrics"]["ready"] == 1


def test_a_backup_without_journal_is_restored_to_a_root_that_begins_after_it(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    origin = Origin.begin(make_bench())
    origin.work(60)
    manifest = origin.back_up(tmp_path / "backup", with_journal=False)
    events = origin.end()
    other = make_bench()
    other.clocks = origin.bench.clocks
    assert restored(other, tmp_path / "backup").history_from == 0
    assert stored_state(other.config.settings) == origin.state_at(events, manifest.event)
    other.open()
    assert other.do("health")["status"] == "ok"
    assert other.events()[0]["id"] == manifest.event + 1


def test_a_store_that_cannot_fold_bodies_in_files_does_not_restore_that_history(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    origin = Origin.begin(make_bench("hybrid"))
    origin.publish()
    origin.back_up(tmp_path / "backup")
    other = make_bench("sqlite")
    other.clocks = origin.bench.clocks
    assert restored(other, tmp_path / "backup").history_from == 0
    other.reopen(without_store=True)
    assert other.do("health")["status"] == "degraded"  # it starts, and tells what is lost


def test_leases_that_ended_before_the_restore_end_as_usual(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    for name in ("first", "second"):
        origin.publish(message=name)
    origin.bench.do("consume_next", queue="q", visibilityTimeoutSec=30)
    origin.bench.do("consume_next", queue="q", visibilityTimeoutSec=7200)
    manifest = origin.back_up(tmp_path / "backup")
    other = make_bench()
    other.clocks.boot_id, other.clocks.boot_ms = "of another machine", 5
    other.clocks.wall_ms = manifest.wall_ms + 3_600_000
    restored(other, tmp_path / "backup")
    other.open().run()
    assert other.event_types().count("retried") == 1
    assert [entry.state for entry in other.store.pages.entries("", 9)] == ["delayed", "inflight"]


@pytest.mark.parametrize("wall_ms", [0, 2**45])
def test_on_a_machine_whose_clock_is_wrong_no_lease_runs_out(
    make_bench: MakeBench, tmp_path: Path, wall_ms: int
) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    origin.bench.clocks.pass_ms(1_000_000)
    origin.bench.do("consume_next", queue="q", visibilityTimeoutSec=30)
    before = origin.bench.live.clock.now().engine
    origin.back_up(tmp_path / "backup", with_journal=False)
    other = make_bench()
    other.clocks.boot_id, other.clocks.boot_ms, other.clocks.wall_ms = "of another machine", 5, wall_ms
    restored(other, tmp_path / "backup")
    other.open().run()
    assert before <= other.live.clock.now().engine < before + 30_000
    assert [entry.state for entry in other.store.pages.entries("", 9)] == ["inflight"]


# --- refused before anything is changed -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["state.jsonl", "manifest.json", "journal/00000000000000000001.jsonl", "config.json"])
def test_a_backup_with_a_flipped_bit_is_refused_with_the_place(
    make_bench: MakeBench, tmp_path: Path, name: str
) -> None:
    origin = Origin.begin(make_bench())
    (origin.bench.path / "config.json").write_text("{}")
    origin.bench.config = replace(origin.bench.config, file=origin.bench.path / "config.json")
    origin.work(30)
    origin.back_up(tmp_path / "backup")
    path = tmp_path / "backup" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    before = picture_of(origin.bench.path)
    with pytest.raises((BackupError, StateError), match=name):
        restored(origin.bench, tmp_path / "backup", replace=True)
    assert picture_of(origin.bench.path) == before


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_backup_that_is_cut_short_is_refused(make_bench: MakeBench, tmp_path: Path, part: float) -> None:
    origin = Origin.begin(make_bench())
    origin.work(30)
    origin.back_up(tmp_path / "backup")
    origin.back_up(tmp_path / "backup.tar")
    origin.back_up(tmp_path / "backup.tar.gz")
    for name in ("backup/state.jsonl", "backup/journal/00000000000000000001.jsonl", "backup.tar", "backup.tar.gz"):
        path = tmp_path / name
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole.rstrip(b"\0")) * part)])  # a tar ends with padding
        before = picture_of(origin.bench.path)
        with pytest.raises((BackupError, StateError), match=r"truncated|cut short|no manifest|not a tar"):
            restored(origin.bench, tmp_path / name.partition("/")[0], replace=True)
        assert picture_of(origin.bench.path) == before
        path.write_bytes(whole)


def test_a_root_that_is_in_use_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    origin.back_up(tmp_path / "backup")
    with pytest.raises(RestoreError, match=r"is in use: .* --replace"):
        restored(origin.bench, tmp_path / "backup")
    origin.bench.open()
    with pytest.raises(RootBusy):
        restored(origin.bench, tmp_path / "backup", replace=True)


def test_existing_data_is_moved_aside_completely(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench("hybrid", segment_bytes=2000))
    origin.work(40)
    origin.back_up(tmp_path / "backup")
    before = picture_of(origin.bench.path)
    done = restored(origin.bench, tmp_path / "backup", replace=True)
    aside = picture_of(Path(done.replaced[0]))
    assert sorted(aside.values()) == sorted(data for name, data in before.items() if name != "config.json")
    shutil.rmtree(origin.bench.path / "data")
    for path in origin.bench.segments():
        path.unlink()
    for name, place in (("payloads", "data/payloads"), ("yirangmq.db", "data/yirangmq.db")):
        (origin.bench.path / place).parent.mkdir(exist_ok=True)
        (Path(done.replaced[0]) / name).rename(origin.bench.path / place)
    for path in (Path(done.replaced[0]) / "journal").iterdir():
        path.rename(origin.settings.journal_root / path.name)
    origin.bench.open()
    assert origin.bench.do("health")["status"] == "ok"
