"""Following files that grow, have successors, are truncated, and are removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom_console.data import tails
from postroom_console.data.tails import Reader, Tail, whole_groups
from tests.console.lines import event_line, request_line

FIRST = f"{1:020d}.jsonl"
SECOND = f"{2:020d}.jsonl"
THIRD = f"{3:020d}.jsonl"


def add(root: Path, name: str, data: bytes) -> None:
    with (root / name).open("ab") as file:
        file.write(data)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a few bytes."""
    monkeypatch.setattr(tails, "READ_BYTES", 64)
    monkeypatch.setattr(tails, "BEHIND_BYTES", 256)


def test_only_complete_lines_are_returned_and_each_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\ntw")
    assert tail.read() == [b"one"]
    assert tail.read() == []
    add(tmp_path, FIRST, b"o\nthree\n")
    assert tail.read() == [b"two", b"three"]
    assert tail.read() == []


def test_the_end_of_existing_text_is_shown_from_the_beginning_of_a_line(tmp_path: Path) -> None:
    add(tmp_path, FIRST, b"first\nsecond\nthird\n")
    assert Tail(tmp_path, backlog_bytes=9).read() == [b"third"]
    assert Tail(tmp_path, backlog_bytes=6).read() == [b"third"]
    assert Tail(tmp_path, backlog_bytes=100).read() == [b"first", b"second", b"third"]


def test_a_new_file_does_not_hide_the_one_before(tmp_path: Path) -> None:
    add(tmp_path, FIRST, b"first\nsecond\n")
    add(tmp_path, SECOND, b"third\n")
    tail = Tail(tmp_path, backlog_bytes=13)
    assert tail.read() + tail.read() == [b"second", b"third"]


def test_a_file_is_read_to_its_end_before_the_next_one(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\n")
    assert tail.read() == [b"one"]
    add(tmp_path, FIRST, b"two\n")
    add(tmp_path, SECOND, b"three\n")
    add(tmp_path, THIRD, b"four\n")
    assert tail.read() == [b"two"]
    assert tail.read() == [b"three"]
    assert tail.read() == [b"four"]


def test_a_removed_file_is_still_read_to_its_end(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\n")
    assert tail.read() == [b"one"]
    add(tmp_path, FIRST, b"two\n")
    (tmp_path / FIRST).unlink()
    add(tmp_path, THIRD, b"three\n")
    assert tail.read() == [b"two"]
    assert tail.read() == [b"three"]


def test_a_file_that_is_rewritten_under_its_name_is_read_on_from_the_same_place(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\ntw")
    assert tail.read() == [b"one"]
    add(tmp_path, "new", b"one\nanother\n")
    (tmp_path / "new").rename(tmp_path / FIRST)
    assert tail.read() == [b"another"]


def test_a_truncated_file_is_read_on_from_the_cut(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\ntwo\n")
    assert tail.read() == [b"one", b"two"]
    os.truncate(tmp_path / FIRST, 4)
    assert tail.read() == []
    add(tmp_path, FIRST, b"three\n")
    assert tail.read() == [b"three"]


def test_a_torn_line_is_not_mixed_with_the_next(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"one\ntwo\n")
    assert tail.read() == [b"one", b"two"]
    os.truncate(tmp_path / FIRST, 6)
    assert tail.read() == []
    add(tmp_path, FIRST, b"rest\nthree\n")
    assert tail.read() == [b"three"]


def test_a_new_root_is_read_from_its_beginning(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, SECOND, b"old\n")
    assert tail.read() == [b"old"]
    (tmp_path / SECOND).unlink()
    add(tmp_path, FIRST, b"new\n")
    assert tail.read() == []
    assert tail.read() == [b"new"]


def test_a_directory_may_come_and_go_and_the_reason_for_reading_nothing_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "journal"
    tail = Tail(root)
    assert tail.read() == []
    assert tail.problem == f"{root}: No such file or directory"
    root.mkdir()
    assert tail.read() == []
    assert tail.problem == ""
    add(root, FIRST, b"one\n")
    assert tail.read() == [b"one"]
    (root / FIRST).unlink()
    root.rmdir()
    assert tail.read() == []
    assert "No such file" in tail.problem
    root.mkdir()
    add(root, SECOND, b"two\n")
    assert tail.read() == [b"two"] or tail.read() == [b"two"]


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_something_that_is_not_a_file_is_reported_and_not_opened(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "journal"
    root.mkdir()
    add(root, FIRST, b"one\n")
    (tmp_path / "secret").write_bytes(b"secret\n")
    wrong = root / SECOND
    {
        "link": lambda: wrong.symlink_to(tmp_path / "secret"),
        "directory": wrong.mkdir,
        "fifo": lambda: os.mkfifo(wrong),
    }[kind]()
    tail = Tail(root)
    assert tail.read() == [b"one"]
    assert tail.problem == f"{root}: {SECOND} is not a regular file"
    add(root, FIRST, b"two\n")
    assert tail.read() == [b"two"]


def test_an_unreadable_directory_is_reported(tmp_path: Path) -> None:
    add(tmp_path, FIRST, b"one\n")
    tail = Tail(tmp_path)
    tmp_path.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # who may read everything
            os.seteuid(65534)
        assert tail.read() == []
        assert tail.problem == f"{tmp_path}: Permission denied"
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)
    assert tail.read() == [b"one"]
    assert tail.problem == ""


@pytest.mark.usefixtures("small")
def test_a_reader_that_is_too_far_behind_continues_near_the_end_and_counts_what_it_skipped(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"begin\n")
    assert tail.read() == [b"begin"]
    lines = [b"line %03d" % number for number in range(100)]
    add(tmp_path, FIRST, b"".join(line + b"\n" for line in lines))
    seen = tail.read()
    assert seen == lines[-len(seen) :]
    assert 0 < len(seen) <= 64 // 9
    assert tail.skipped_bytes == 900 - 64


@pytest.mark.usefixtures("small")
def test_files_that_were_skipped_completely_are_counted_too(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"begin\n")
    assert tail.read() == [b"begin"]
    add(tmp_path, FIRST, b"x" * 99 + b"\n")
    add(tmp_path, SECOND, b"y" * 199 + b"\n")
    add(tmp_path, THIRD, b"end\n")
    assert tail.read() == [b"end"]
    assert tail.skipped_bytes == 300


@pytest.mark.usefixtures("small")
def test_a_line_longer_than_one_read_is_read_and_one_beyond_the_limit_is_skipped(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    add(tmp_path, FIRST, b"x" * 200 + b"\nshort\n")
    seen = [line for _ in range(5) for line in tail.read()]
    assert seen == [b"x" * 200, b"short"]
    for _ in range(8):
        add(tmp_path, FIRST, b"y" * 50)
        assert tail.read() == []
    add(tmp_path, FIRST, b"\nshort again\n")
    assert [line for _ in range(8) for line in tail.read()] == [b"short again"]
    assert tail.skipped_bytes > 200


def test_the_events_of_a_group_are_returned_when_it_is_complete(tmp_path: Path) -> None:
    tail = Tail(tmp_path, whole_groups)
    lines = [event_line(1), event_line(2, group=4), event_line(3, group=4), event_line(4)]
    add(tmp_path, FIRST, b"".join(lines[:3]) + lines[3][:20])
    assert tail.read() == [lines[0].rstrip()]
    assert tail.read() == []
    add(tmp_path, FIRST, lines[3][20:])
    assert tail.read() == [line.rstrip() for line in lines[1:]]


def test_a_truncated_group_is_not_returned_and_its_numbers_are_used_again(tmp_path: Path) -> None:
    tail = Tail(tmp_path, whole_groups)
    begin, torn, other = event_line(1), event_line(2, group=3), event_line(2, "acked") + event_line(3, "acked")
    add(tmp_path, FIRST, begin + torn)
    assert tail.read() == [begin.rstrip()]
    os.truncate(tmp_path / FIRST, len(begin))
    add(tmp_path, FIRST, other)
    assert tail.read() == other.splitlines()


def test_the_rest_of_a_torn_group_counts_when_the_journal_continues_after_it(tmp_path: Path) -> None:
    tail = Tail(tmp_path, whole_groups)
    torn, after = event_line(1, group=2), event_line(2, "clock_marked")
    add(tmp_path, FIRST, torn)
    assert tail.read() == []
    add(tmp_path, SECOND, after)
    assert tail.read() == [torn.rstrip(), after.rstrip()]


def test_journal_and_traffic_come_together_in_the_order_of_engine_time(tmp_path: Path) -> None:
    journal, traffic = tmp_path / "journal", tmp_path / "traffic"
    journal.mkdir()
    traffic.mkdir()
    add(journal, FIRST, event_line(1) + event_line(3))
    add(traffic, FIRST, request_line(engineMs=20))
    lines = Reader(journal, traffic).read()
    assert [record.engine_ms for record in lines.records] == [10, 20, 30]
    assert (lines.problem, lines.bad_lines) == ("", 0)


def test_damaged_lines_and_missing_events_are_counted(tmp_path: Path) -> None:
    reader = Reader(tmp_path, None)
    damaged = event_line(2).replace(b'"published"', b'"publicized"')
    add(tmp_path, FIRST, event_line(1) + damaged + event_line(3))
    lines = reader.read()
    assert [record.number for record in lines.records] == [1, 3]
    assert (lines.bad_lines, lines.missing_events) == (1, 0)
    add(tmp_path, f"{8:020d}.jsonl", event_line(8))
    lines = reader.read()
    assert [record.number for record in lines.records] == [8]
    assert (lines.bad_lines, lines.missing_events) == (0, 4)


def test_a_reader_says_whether_it_sees_anything(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "journal", tmp_path / "traffic")
    assert "No such file" in reader.read().problem
    assert reader.is_blind and reader.is_missing
    (tmp_path / "traffic").mkdir()
    reader.read()
    assert not reader.is_blind
