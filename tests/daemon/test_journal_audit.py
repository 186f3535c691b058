"""The audit of a journal, which changes nothing: each fault is reported, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroom_common.events import Event, encode_event
from postroom_daemon.journal.audit import JournalAudit, JournalFinding, JournalFindingKind, JournalSummary
from postroom_daemon.journal.segments import LINE_LIMIT, segment_name
from tests.conformance.bench import Bench
from tests.daemon.segment_files import flip, group, line_starts, write


def kinds(root: Path) -> list[tuple[str, int, int]]:
    return [(finding.kind.value, finding.first_id, finding.last_id) for finding in findings(root)]


def findings(root: Path) -> list[JournalFinding]:
    before = {path: path.lstat() for path in root.iterdir()}
    found = list(JournalAudit(root).findings())
    assert {path: path.lstat().st_mtime_ns for path in root.iterdir()} == {p: s.st_mtime_ns for p, s in before.items()}
    return found


def write_events(directory: Path, /, *events: Event, **changed: Any) -> Path:
    path = directory / segment_name(events[0]["id"])
    path.write_bytes(b"".join(encode_event(event | changed) for event in events))
    return path


def test_a_journal_that_was_used_killed_and_reopened_has_no_finding(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=900).open()
    for number in range(12):
        bench.publish(message=f"m{number}")
        bench.do("ack", messageKey=bench.do("consume_next", queue="q")["lease"]["messageKey"])
        if number % 4 == 0:
            bench.reopen()
    audit = JournalAudit(bench.journal_root)
    assert list(audit.findings()) == []
    events = bench.events()
    summary = audit.summary
    assert (summary.events, summary.first_id, summary.last_id) == (len(events), 1, events[-1]["id"])
    assert (summary.segments, summary.epoch, summary.root) == (len(bench.segments()), 1, "root-id")
    assert summary.bytes == sum(path.stat().st_size for path in bench.segments())


def test_damaged_bytes_and_the_rest_of_their_request_are_reported_with_their_place(tmp_path: Path) -> None:
    path = write(tmp_path, group(1, 1), group(2, 3), group(5, 1))
    starts = line_starts(path)
    flip(path, starts[2] + 9)
    flip(path, starts[3] + 9)
    found = findings(tmp_path)
    assert [(one.kind, one.offset, one.length) for one in found] == [
        (JournalFindingKind.INCOMPLETE_REQUEST, starts[1], starts[2] - starts[1]),
        (JournalFindingKind.DAMAGED, starts[2], starts[4] - starts[2]),
        (JournalFindingKind.MISSING, starts[4], 0),
    ]
    assert all(one.is_fault for one in found)


def test_missing_events_are_reported_unless_a_gap_event_covers_them(tmp_path: Path) -> None:
    write(tmp_path, group(1, 1))
    write(tmp_path, group(5, 1))
    assert kinds(tmp_path) == [("missing events", 2, 4)]
    write_events(tmp_path, *group(5, 1), type="gap", after=1, next=5)
    assert kinds(tmp_path) == [("gap", 2, 4)] and not findings(tmp_path)[0].is_fault


def test_a_lost_last_line_of_a_request_makes_it_incomplete(tmp_path: Path) -> None:
    path = write(tmp_path, group(1, 3), group(4, 1))
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert kinds(tmp_path) == [("missing events", 3, 3), ("incomplete request", 1, 2)]
    path.write_bytes(b"".join(lines[1:]))
    assert ("incomplete request", 2, 3) in kinds(tmp_path)


def test_wrong_names_and_overlapping_segments_are_reported(tmp_path: Path) -> None:
    write(tmp_path, group(1, 1), group(2, 1), group(3, 1))
    second = write(tmp_path, group(4, 1))
    second.rename(tmp_path / segment_name(9))
    assert kinds(tmp_path) == [("misnamed", 4, 4)]
    (tmp_path / segment_name(9)).rename(tmp_path / segment_name(4))
    (tmp_path / segment_name(2)).write_bytes(b"".join(map(encode_event, group(2, 1))))
    assert kinds(tmp_path) == [("disorder", 2, 2)]


def test_another_root_a_falling_epoch_and_a_newer_version_are_reported(tmp_path: Path) -> None:
    write_events(tmp_path, *group(1, 1), type="epoch_started", root="mine")
    write_events(tmp_path, *group(2, 1), root="other")
    write_events(tmp_path, *group(3, 1), epoch=2)
    write_events(tmp_path, *group(4, 1), format=9, epoch=2)
    write_events(tmp_path, *group(5, 1), type="split", queue="q", epoch=2)
    write_events(tmp_path, *group(6, 1), epoch=1)
    assert kinds(tmp_path) == [
        ("foreign root", 2, 2),
        ("epoch", 3, 3),
        ("format", 4, 4),
        ("unknown type", 5, 5),
        ("epoch", 6, 6),
    ]


def test_a_new_epoch_may_have_another_root(tmp_path: Path) -> None:
    write_events(tmp_path, *group(1, 1), root="mine")
    write_events(tmp_path, *group(2, 1), type="epoch_started", root="restored", epoch=2)
    write_events(tmp_path, *group(3, 1), root="restored", epoch=2)
    assert kinds(tmp_path) == []


def test_the_end_may_still_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, group(1, 1), group(2, 2, 2))
    data, starts = path.read_bytes(), line_starts(path)
    for cut in range(starts[1] + 1, len(data)):
        path.write_bytes(data[:cut])
        found = findings(tmp_path)
        assert found and {one.kind for one in found} <= {
            JournalFindingKind.UNFINISHED,
            JournalFindingKind.INCOMPLETE_REQUEST,
        }
        assert cut in starts or found[-1].kind is JournalFindingKind.UNFINISHED


def test_a_request_that_recovery_kept_of_a_torn_group_is_not_a_fault(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench().open()
    bench.run(*[bench.make("publish", queue="q", message="x") for _ in range(3)])
    bench.close()
    path = bench.segments()[-1]
    path.write_bytes(path.read_bytes()[:-9])
    for name in ("end", "recent"):
        (bench.journal_root / name).unlink()  # a group that was torn was not synced
    bench.lose_store()
    bench.open()
    bench.publish(message="next")
    found = findings(bench.journal_root)
    assert [one.kind for one in found] == [JournalFindingKind.TORN_GROUP] and not found[0].is_fault


def test_something_that_is_not_a_file_is_reported_and_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, group(1, 1))
    (tmp_path / segment_name(2)).mkdir()
    os.mkfifo(tmp_path / segment_name(3))
    (tmp_path / segment_name(4)).symlink_to("/dev/zero")
    assert [kind for kind, _, _ in kinds(tmp_path)] == ["not a file"] * 3


def test_a_segment_of_zeros_is_read_in_pieces(tmp_path: Path) -> None:
    write(tmp_path, group(2, 1))
    with (tmp_path / segment_name(1)).open("wb") as file:
        file.truncate(LINE_LIMIT + 5)
    found = findings(tmp_path)
    assert [(one.kind, one.length) for one in found] == [(JournalFindingKind.DAMAGED, LINE_LIMIT + 5)]


def test_the_audit_runs_while_segments_come_and_go(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(segment_bytes=600).open()
    while len(bench.segments()) < 6:
        bench.publish(message="x" * 100)
    flip(bench.segments()[0], 20)
    audit = JournalAudit(bench.journal_root)
    reading = audit.findings()
    first = next(reading)
    removed = bench.live.journal.drop_segments(10**9, 2**62, 10**9, 2**62)
    for _ in range(3):
        bench.publish(message="y")
    assert len(removed) == 5 and first.kind is JournalFindingKind.DAMAGED
    assert {one.kind for one in reading} <= {JournalFindingKind.MISSING}, "of the segment that is read already"
    assert list(JournalAudit(bench.journal_root).findings()) == []


def test_an_empty_journal_is_reported_as_such(tmp_path: Path) -> None:
    audit = JournalAudit(tmp_path)
    assert list(audit.findings()) == []
    assert audit.summary == JournalSummary()
