"""Consecutive exports leave no gap and no overlap, and report what is missing."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from postroom_console.export.exporter import Exporter
from postroom_console.export.folder import MEMORY_NAME, ExportFolder
from postroom_console.export.request import ExportRequest, Since, read_since
from postroom_console.paths import find_paths
from tests.console.exports import Snapshot, busy, export, make
from tests.console.lines import event_line, request_line
from tests.wire.conftest import MakeDaemon, on_stores
from tests.wire.daemon import Daemon, wait_until


def snapshots(folder: Path) -> list[Snapshot]:
    """The snapshots of a folder, oldest first."""
    return sorted(map(Snapshot, folder.glob("*.gz")), key=lambda one: one.header["wallMs"])


def all_events(folder: Path) -> list[int]:
    return [event for snapshot in snapshots(folder) for event in snapshot.events]


def requests_of(snapshot: Snapshot) -> list[str]:
    return [line["request"] for line in snapshot.of("traffic")]


def test_consecutive_exports_have_each_event_once(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    """Over many files of the journal."""
    daemon = make_daemon(config={"journal": {"segmentBytes": 65536}}).start()
    folder = tmp_path / "out"
    with busy(daemon, seed=1) as answered:
        for number in range(5):
            wait_until(lambda least=100 * (number + 1): answered() > least, "more has happened")  # type: ignore[misc]
            export(daemon.root, folder)
    last = export(daemon.root, folder).header["asOfEvent"]
    assert len(daemon.segments()) > 2
    assert all_events(folder) == list(range(1, last + 1))
    first, *later = [one.header for one in snapshots(folder)]
    assert "previousEvent" not in first
    assert not first["continuous"]
    for before, after in pairwise([first, *later]):
        assert after["previousEvent"] == before["asOfEvent"]
        assert after["continuous"]
        assert not after["cut"]
    reported = [request for snapshot in snapshots(folder) for request in requests_of(snapshot)]
    assert len(reported) == len(set(reported)), "each request is told once"


def test_the_lines_of_events_agree_with_the_journal(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q", {"a": [1]}, priority=4, attributes={"kind": "x"})
    daemon.settle("nack", daemon.consume("q", consumerId="w"), reason="no", requeue=False)
    reported = {line["event"]: line for line in export(daemon.root, tmp_path / "out").of("event")}
    for event in daemon.events():
        line = reported[event["id"]]
        names = {"id": "event", "key": "message", "req": "requestEnd"}
        common = ("id", "epoch", "req", "engineMs", "wallMs", "type", "queue", "key", "priority", "lease")
        for name in common:
            if name in event:
                assert line[names.get(name, name)] == event[name]
        if "by" in event:
            assert (line["client"], line["request"]) == (event["by"]["client"], event["by"]["request"])
        if "failure" in event:
            assert (line["reasonCode"], line["reasonMessage"]) == ("REJECTED", "no")
    shapes = [line["payloadShape"] for line in reported.values() if line["type"] == "published"]
    assert shapes == ['{"a":["integer"]}']


def test_the_first_snapshot_has_the_state_before_its_events(daemon: Daemon, tmp_path: Path) -> None:
    for number in range(5):
        daemon.publish("q", number)
    daemon.settle("ack", daemon.consume("q"))
    daemon.ask("move", queue="q", to="other", state="ready", limit=2)
    first_here = daemon.events()[-1]["id"] + 1
    known_bytes = sum(path.stat().st_size for path in daemon.segments())
    daemon.publish("q", "late")
    daemon.settle("ack", daemon.consume("q"))
    known = tmp_path / "journal"  # as if older files of the journal had gone by age
    known.mkdir()
    rest = b"".join(path.read_bytes() for path in daemon.segments())[known_bytes:]
    (known / f"{first_here:020d}.jsonl").write_bytes(event_line(first_here - 1, "clock_marked", root="r") + rest)
    places = find_paths(daemon.root, journal=known)
    made = Exporter(places, ExportRequest(tmp_path / "out"), lambda: False, lambda seconds: None).run()
    queues = {line["queue"]: line for line in Snapshot(made.path).of("queue")}
    assert (queues["q"]["opening"], queues["other"]["opening"]) == (2, 2)
    assert queues["q"]["ready"] == 2


def test_only_the_first_snapshot_of_a_folder_has_an_opening(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q")
    assert export(daemon.root, tmp_path / "out").of("queue")[0]["opening"] == 0
    assert "opening" not in export(daemon.root, tmp_path / "out").of("queue")[0]
    assert export(daemon.root, tmp_path / "other").of("queue")[0]["opening"] == 0


def test_nothing_new_is_an_empty_slice(daemon: Daemon, tmp_path: Path) -> None:
    export(daemon.root, tmp_path / "out")
    second = export(daemon.root, tmp_path / "out")
    assert second.events == []
    assert second.header["continuous"]
    assert "firstEvent" not in second.header


@pytest.mark.parametrize("moment", ["announce", "commit"])
def test_a_kill_between_writing_the_file_and_its_record_leaves_no_gap_and_no_overlap(
    daemon: Daemon, tmp_path: Path, moment: str
) -> None:
    """``announce``: announced, but without its name yet. ``commit``: it has its name, but is not committed."""
    folder = tmp_path / "out"
    export(daemon.root, folder)
    daemon.publish("q")
    pid = os.fork()
    if not pid:
        done = getattr(ExportFolder, moment)

        def die(*arguments: object) -> None:
            if moment == "announce":
                done(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(ExportFolder, moment, die)
        try:
            make(daemon.root, folder)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    files, parts = len(list(folder.glob("*.gz"))), len(list(folder.glob(".*.part")))
    assert (files, parts) == {"announce": (1, 1), "commit": (2, 0)}[moment]
    daemon.publish("q")
    last = export(daemon.root, folder).header["asOfEvent"]
    assert all_events(folder) == list(range(1, last + 1))
    assert list(folder.glob(".*.part")) == []


def test_a_snapshot_that_was_taken_away_still_counts(daemon: Daemon, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    first = make(daemon.root, folder)
    first.path.rename(tmp_path / "elsewhere.gz")
    daemon.publish("q")
    assert min(export(daemon.root, folder).events) == first.last_event + 1


def test_an_unreadable_export_record_is_reported_and_the_export_starts_over(daemon: Daemon, tmp_path: Path) -> None:
    make(daemon.root, tmp_path / "out")
    (tmp_path / "out" / MEMORY_NAME).write_text('{"format":1,"roots":{"x":3}')
    made = make(daemon.root, tmp_path / "out")
    assert any("cannot be read" in warning for warning in made.warnings)
    assert Snapshot(made.path).events[0] == 1


def test_a_slice_that_is_too_large_ends_at_a_group_and_the_next_continues_there(daemon: Daemon, tmp_path: Path) -> None:
    for number in range(300):
        daemon.publish("q", os.urandom(150).hex() + str(number))
    folder, limit = tmp_path / "out", 20_000
    while (snapshot := export(daemon.root, folder, max_bytes=limit)).header["cut"]:
        assert snapshot.events
    found = snapshots(folder)
    assert len(found) > 2
    ends = {event["grp"] for event in daemon.events()}
    for one in found[:-1]:
        assert one.header["lastEvent"] in ends
    assert all(path.stat().st_size <= limit for path in folder.glob("*.gz"))
    assert all_events(folder) == list(range(1, snapshot.header["asOfEvent"] + 1))
    assert [one.of("queue")[0].get("opening") for one in found] == [0] + [None] * (len(found) - 1)
    reported = [request for one in found for request in requests_of(one)]
    assert len(reported) == len(set(reported))


def test_a_limit_that_nothing_fits_into_still_makes_progress(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q", "x" * 100)
    daemon.publish("q", "x" * 100)
    while Snapshot((made := make(daemon.root, tmp_path / "out", max_bytes=10)).path).header["cut"]:
        cut, large = made.warnings
        assert cut.startswith(f"--max-size ends the events at {made.last_event}: those up to")
        assert "more than --max-size: the state is always complete" in large
    assert len(snapshots(tmp_path / "out")) > 2
    last = snapshots(tmp_path / "out")[-1].header["asOfEvent"]
    assert all_events(tmp_path / "out") == list(range(1, last + 1))


def test_an_export_from_a_given_event_is_not_part_of_the_chain(daemon: Daemon, tmp_path: Path) -> None:
    daemon.ask("publish_batch", queue="q", messages=[{"message": number} for number in range(5)])
    third = daemon.events("published")[2]["id"]
    folder = tmp_path / "out"
    first = export(daemon.root, folder)
    asked = export(daemon.root, folder, since=Since(str(third), event=third))
    assert asked.events == list(range(third, asked.header["asOfEvent"] + 1)), "from the middle of a request, too"
    assert asked.header["since"] == str(third)
    daemon.publish("q")
    again = export(daemon.root, folder)
    assert again.header["previousEvent"] == first.header["asOfEvent"]


def test_an_export_may_start_at_a_time(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q", "before")
    now_ms = time.time_ns() // 1_000_000 + 1
    wait_until(lambda: time.time_ns() // 1_000_000 > now_ms, "the clock goes on")
    daemon.publish("q", "behind")
    snapshot = export(daemon.root, tmp_path / "out", since=Since("then", wall_ms=now_ms))
    assert [line["type"] for line in snapshot.of("event")] == ["published"]
    assert min(line["wallMs"] for line in snapshot.of("traffic")) >= now_ms
    assert snapshot.header["trafficFromMs"] == now_ms


def test_times_are_read_as_people_write_them() -> None:
    assert read_since("last").is_last
    assert read_since("1207").event == 1207
    assert read_since("2026-11-28T10:15:00+00:00").wall_ms == 1795860900000
    ago = read_since("2h").wall_ms
    assert ago is not None
    assert 0 <= time.time_ns() // 1_000_000 - 7_200_000 - ago < 60_000
    for text in ("", "yesterday", "-5", "2 h", "²", "9" * 30, "1e3"):
        with pytest.raises(ValueError, match="is not an event id"):
            read_since(text)


def test_a_damaged_line_is_a_gap_with_the_rest_of_its_request(daemon: Daemon, tmp_path: Path) -> None:
    daemon.audited = False
    export(daemon.root, tmp_path / "out")
    daemon.ask("publish_batch", queue="q", messages=[{"message": f"nr-{number}"} for number in range(3)])
    daemon.publish("q", "sound")
    hurt = next(event for event in daemon.events("published") if "nr-1" in str(event))
    path = daemon.segments()[-1]
    path.write_bytes(path.read_bytes().replace(b"nr-1", b"nr-7"))
    second = export(daemon.root, tmp_path / "out")
    batch = [event["id"] for event in _intact(path) if event["req"] == hurt["req"]]
    first_lost, last_lost = min(*batch, hurt["id"]), hurt["req"]
    assert second.header["holes"] == [[first_lost, last_lost]]
    assert second.events == list(range(last_lost + 1, second.header["asOfEvent"] + 1))
    assert second.header["continuous"]


def _intact(path: Path) -> list[dict[str, int]]:
    from postroom_console.data.records import from_event

    return [record.fields() for line in path.read_bytes().splitlines() if (record := from_event(line))]


def test_an_unreadable_journal_is_reported_and_the_state_is_exported(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q")
    places = find_paths(daemon.root, journal=tmp_path / "none")
    made = Exporter(places, ExportRequest(tmp_path / "out"), lambda: False, lambda seconds: None).run()
    assert "no events, and its state is not of one event" in made.warnings[0]
    snapshot = Snapshot(made.path)
    assert not snapshot.header["consistent"]
    assert snapshot.of("event") == []
    assert [(line["queue"], line["ready"]) for line in snapshot.of("queue")] == [("q", 1)]
    assert export(daemon.root, tmp_path / "out").events[0] == 1, "nothing was remembered"


def test_an_unreadable_traffic_log_is_reported(daemon: Daemon, tmp_path: Path) -> None:
    places = find_paths(daemon.root, traffic=tmp_path / "none")
    made = Exporter(places, ExportRequest(tmp_path / "out"), lambda: False, lambda seconds: None).run()
    assert any("the snapshot has no requests" in warning for warning in made.warnings)
    assert Snapshot(made.path).of("traffic") == []


@on_stores("hybrid")
def test_the_length_is_given_of_a_body_that_the_journal_does_not_contain(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q", "x" * 100_000)
    (event,) = daemon.events("published")
    (line,) = [one for one in export(daemon.root, tmp_path / "out").of("event") if one["type"] == "published"]
    assert "message" not in event
    assert line["payloadBytes"] == event["body"]["bytes"]
    assert "payloadDigest" not in line
    assert "payloadShape" not in line


def test_a_new_traffic_log_is_read_from_its_beginning(daemon: Daemon, tmp_path: Path) -> None:
    traffic = tmp_path / "traffic"
    traffic.mkdir()
    (traffic / f"{7:020d}.jsonl").write_bytes(request_line(request="old") * 3)
    places = find_paths(daemon.root, traffic=traffic)

    def reported() -> list[str]:
        made = Exporter(places, ExportRequest(tmp_path / "out"), lambda: False, lambda seconds: None).run()
        return requests_of(Snapshot(made.path))

    assert reported() == ["old"] * 3
    with (traffic / f"{7:020d}.jsonl").open("ab") as file:
        file.write(request_line(request="new") + b'{"wallMs":1,' + request_line(request="torn")[:20])
    assert reported() == ["new"]
    (traffic / f"{7:020d}.jsonl").unlink()
    (traffic / f"{1:020d}.jsonl").write_bytes(b"nonsense\n" + request_line(request="anew"))
    assert reported() == ["anew"]


def test_a_snapshot_that_gets_no_name_does_not_count(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails between the note and the name."""
    folder = tmp_path / "out"
    export(daemon.root, folder)
    daemon.publish("q")

    def failing(self: Path, target: Path) -> Path:
        if target.suffix == ".gz":
            raise OSError(5, "Input/output error", str(target))
        os.replace(self, target)
        return target

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="Input/output"):
            make(daemon.root, folder)
    assert list(folder.glob(".*.part")) == []
    last = export(daemon.root, folder).header["asOfEvent"]
    assert all_events(folder) == list(range(1, last + 1))
