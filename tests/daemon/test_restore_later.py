"""postroomd restore up to an event behind the backup, by a journal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from postroom_common.events import Event
from postroom_daemon.maintenance.restore import RestoreError, Wish
from tests.daemon.pasts import MakeBench, Past, held, messages, on_every_store, restored


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
