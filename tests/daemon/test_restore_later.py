"""postroomd restore up to an event behind the backup, by a journal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from postroom_common.events import Event
from postroom_daemon.maintenance.restore import RestoreError, RestorePoint
from tests.daemon.origin import MakeBench, Origin, messages, on_every_store, restored, stored_state


@on_every_store
def test_a_root_can_be_restored_to_every_event_after_the_backup(
    make_bench: MakeBench, tmp_path: Path, backend: str
) -> None:
    origin = Origin.begin(make_bench(backend, segment_bytes=3000), seed=3)
    origin.work(50)
    manifest = origin.back_up(tmp_path / "backup")
    origin.bench.open()
    origin.work(40)
    events = origin.end()
    kept = shutil.copytree(origin.bench.path, tmp_path / "kept")
    last = events[-1]["id"]
    assert last > manifest.event + 20
    for event_id in [*range(manifest.event, last + 1, 3), last]:
        done = restored(
            origin.bench, tmp_path / "backup", RestorePoint(event=event_id),
            journal=kept / "journal", payloads=kept / "data" / "payloads", replace=True,
        )  # fmt: skip
        taken = max(event["id"] for event in events if event["id"] == event["req"] <= event_id)
        assert done.event == taken
        expected = origin.state_at(events, taken)
        lost = set(done.lost)
        expected["messages"] = [message for message in expected["messages"] if message["key"] not in lost]
        found = stored_state(origin.settings)
        assert found["messages"] == expected["messages"], event_id
        if not lost:
            assert found == expected
        shutil.rmtree(done.replaced[0])


def several(origin: Origin, tmp_path: Path) -> tuple[int, list[Event]]:
    """A backup, then three groups at three times. The backup's event, and the journal."""
    origin.publish(message="before")
    manifest = origin.back_up(tmp_path / "backup")
    origin.bench.open()
    for name in ("first", "second", "third"):
        origin.bench.clocks.pass_ms(60_000)
        origin.publish(message=name)
    return manifest.event, origin.end()


def test_a_restore_continues_with_the_journal_of_the_root_itself(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    _, events = several(origin, tmp_path)
    done = restored(origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True)
    assert (done.event, messages(origin)) == (events[-1]["id"], 4)
    origin.bench.open()
    assert origin.bench.events()[: len(events)] == events


def test_a_time_means_the_last_event_before_the_clock_first_showed_a_later_one(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    origin = Origin.begin(make_bench())
    _, events = several(origin, tmp_path)
    second = [event for event in events if event["type"] == "published"][2]
    journal = origin.settings.journal_root
    for wall_ms in (second["wallMs"], second["wallMs"] + 59_999):
        done = restored(origin.bench, tmp_path / "backup", RestorePoint(wall_ms=wall_ms), replace=True, journal=journal)
        assert (done.event, done.wall_ms, messages(origin)) == (second["id"], second["wallMs"], 3)
        journal = Path(done.replaced[0]) / "journal"


def test_a_request_is_restored_completely_or_not_at_all(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    manifest = origin.back_up(tmp_path / "backup")
    origin.bench.open()
    origin.publish("new")  # the queue, then the message
    events = origin.end()
    created = next(event for event in events if event["type"] == "queue_created")
    assert created["id"] < created["req"]
    done = restored(origin.bench, tmp_path / "backup", RestorePoint(event=created["id"]), replace=True)
    assert done.event == created["id"] - 1 >= manifest.event
    assert stored_state(origin.settings)["queues"] == []


def test_a_point_before_the_backup_or_after_the_journal_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    backed, events = several(origin, tmp_path)
    wall = {event["id"]: event["wallMs"] for event in events}
    before = stored_state(origin.settings)
    for point, text in (
        (RestorePoint(event=backed - 1), f"is of event {backed} .* the earliest"),
        (RestorePoint(wall_ms=wall[backed] - 1), f"is of event {backed} .* the earliest"),
        (RestorePoint(event=events[-1]["id"] + 1), f"ends with event {events[-1]['id']} of .* the latest"),
        (RestorePoint(wall_ms=wall[events[-1]["id"]] + 1), f"ends with event {events[-1]['id']} of .* the latest"),
    ):
        with pytest.raises(RestoreError, match=text):
            restored(origin.bench, tmp_path / "backup", point, replace=True)
    assert stored_state(origin.settings) == before
    assert origin.bench.events() == events


def test_a_gap_in_the_needed_events_is_refused_and_named(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    _, events = several(origin, tmp_path)
    first, second = [event["id"] for event in events if event["type"] == "published"][1:3]
    segment = origin.bench.segments()[-1]
    lines = segment.read_bytes().splitlines(True)
    segment.write_bytes(b"".join(line for line in lines if b'{"id":%d,' % second not in line))
    with pytest.raises(RestoreError, match=f"event {second} is missing: .* latest .* is event {second - 1}"):
        restored(origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True)
    assert restored(origin.bench, tmp_path / "backup", RestorePoint(event=first), replace=True).event == first


def test_a_journal_that_does_not_continue_the_backup_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    several(origin, tmp_path)
    other = Origin.begin(make_bench())
    other.work(30)
    other.end()
    for journal in (other.settings.journal_root, tmp_path / "nowhere"):
        with pytest.raises(RestoreError, match=r"does not continue this backup|has no events"):
            restored(origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True, journal=journal)


def test_a_journal_restored_to_before_the_backup_does_not_continue_it(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.back_up(tmp_path / "early")
    origin.bench.open()
    several(origin, tmp_path)
    restored(origin.bench, tmp_path / "early", replace=True)
    origin.bench.open()
    origin.work(40)
    origin.end()
    with pytest.raises(RestoreError, match="does not continue this backup"):
        restored(origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True)


def test_a_restored_root_continues_the_backup_that_it_came_from(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    several(origin, tmp_path)
    restored(origin.bench, tmp_path / "backup", replace=True)
    origin.bench.open()
    origin.publish(message="later")
    events = origin.end()
    done = restored(origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True)
    assert (done.event, done.epoch, messages(origin)) == (events[-1]["id"], 3, 2)


def test_a_message_whose_body_file_is_gone_is_left_out_and_named(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench("hybrid"))
    origin.back_up(tmp_path / "backup")
    origin.bench.open()
    gone, done_with, kept = (origin.publish(message=name) for name in ("gone", "done with", "kept"))
    for _ in range(2):
        lease = origin.bench.do("consume_next", queue="q")["lease"]
        origin.bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    events = origin.end()
    acked = [event["id"] for event in events if event["type"] == "acked"]
    done = restored(origin.bench, tmp_path / "backup", RestorePoint(event=acked[0] - 1), replace=True)
    assert done.lost == [gone, done_with]
    assert [message["key"] for message in stored_state(origin.settings)["messages"]] == [kept]
    replaced = Path(done.replaced[0])
    done = restored(
        origin.bench, tmp_path / "backup", RestorePoint(end=True), replace=True,
        journal=replaced / "journal", payloads=replaced / "payloads",
    )  # fmt: skip
    assert done.lost == []
    origin.bench.open()
    assert origin.bench.do("consume_next", queue="q")["message"]["messageKey"] == kept
