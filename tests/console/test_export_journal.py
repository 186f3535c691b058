"""Reading the journal for an export: from any event on, over damage, restores and files that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom_common.events import decode_event
from postroom_console.export.folder import START, ExportPoint, ExportProgress
from postroom_console.export.journal import Journal, JournalPosition, JournalUnreadable
from postroom_console.export.traffic import TrafficPosition
from tests.console.lines import event_line


def write(root: Path, first: int, *lines: bytes) -> Path:
    """A file of the journal that begins with an event."""
    root.mkdir(exist_ok=True)
    path = root / f"{first:020d}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def ids(journal: Journal, behind: int, last: int, epoch: int | None = None) -> list[int]:
    return [event["id"] for event in journal.events(JournalPosition(epoch, behind), last)]


def fill(root: Path, count: int, per_file: int) -> Journal:
    for first in range(1, count + 1, per_file):
        events = range(first, min(first + per_file, count + 1))
        write(root, first, *(event_line(number, text="x" * (number % 90)) for number in events))
    return Journal(root)


@pytest.mark.parametrize("per_file", [7, 5000])
def test_the_journal_is_read_from_any_event_to_any_other(tmp_path: Path, per_file: int) -> None:
    count = 5000 if per_file > 1000 else 60
    journal = fill(tmp_path / "journal", count, per_file)
    step = count // 12
    for behind in range(0, count + 1, step):
        for last in (behind, behind + 1, behind + step, count):
            assert ids(journal, behind, last) == list(range(behind + 1, min(last, count) + 1))
    last_event = journal.last()
    assert last_event
    assert last_event["id"] == count


def test_nothing_after_the_named_event_is_returned(tmp_path: Path) -> None:
    """Also where more of its group stands there."""
    write(tmp_path / "journal", 1, event_line(1, group=3), event_line(2, group=3), event_line(3))
    assert ids(Journal(tmp_path / "journal"), 0, 2) == [1, 2]


def test_a_line_that_is_being_written_is_not_returned(tmp_path: Path) -> None:
    write(tmp_path / "journal", 1, event_line(1), event_line(2)[:-9])
    journal = Journal(tmp_path / "journal")
    assert ids(journal, 0, 2) == [1]
    with pytest.raises(JournalUnreadable, match="does not have event 2"):
        journal.wait_for(2, lambda seconds: None, 0.0)


def test_the_reader_waits_for_an_event(tmp_path: Path) -> None:
    path = write(tmp_path / "journal", 1, event_line(1))

    def arrive(_: float) -> None:
        path.write_bytes(event_line(1) + event_line(2))

    assert Journal(tmp_path / "journal").wait_for(2, arrive, 60.0) == 1


def test_events_between_damage_are_returned(tmp_path: Path) -> None:
    hurt = event_line(3).replace(b"published", b"publicized")
    junk = b"\0" * 5000 + b"\n"
    write(tmp_path / "journal", 1, event_line(1), event_line(2), hurt, junk, event_line(4), b"[]\n{}\n", event_line(5))
    assert ids(Journal(tmp_path / "journal"), 0, 9) == [1, 2, 4, 5]
    assert ids(Journal(tmp_path / "journal"), 2, 9) == [4, 5]


def test_a_request_that_lacks_an_event_is_not_returned(tmp_path: Path) -> None:
    whole = [event_line(1, req=2), event_line(2, req=2, n=2)]
    headless = [event_line(4, req=5), event_line(5, req=5, n=3)]
    endless = [event_line(6, req=7)]
    write(tmp_path / "journal", 1, *whole, *headless, *endless, event_line(8))
    assert ids(Journal(tmp_path / "journal"), 0, 9) == [1, 2, 8]


def test_a_missing_file_is_missing_events(tmp_path: Path) -> None:
    journal = fill(tmp_path / "journal", 30, 10)
    (tmp_path / "journal" / f"{11:020d}.jsonl").unlink()
    assert ids(journal, 5, 30) == [*range(6, 11), *range(21, 31)]


def test_after_a_restore_the_events_of_the_new_epoch_follow(tmp_path: Path) -> None:
    """Up to event 8 was exported, then the root went back to event 4 and on from there."""
    old = [event_line(number) for number in range(1, 5)]
    new = [event_line(number, "epoch_started" if number == 5 else "published", epoch=2) for number in range(5, 8)]
    write(tmp_path / "journal", 1, *old)
    write(tmp_path / "journal", 5, *new)
    journal = Journal(tmp_path / "journal")
    assert ids(journal, 8, 7, 1) == [5, 6, 7]
    assert ids(journal, 6, 7, 2) == [7]
    third = ExportPoint(1, 3, decode_event(old[2])["crc"], TrafficPosition())
    other = ExportPoint(1, 4, "00000000", TrafficPosition())
    assert (
        ExportProgress(ExportPoint(1, 8, "00000000", TrafficPosition()), "", (other, third)).trusted(journal) == third
    )
    assert ExportProgress(ExportPoint(1, 8, "00000000", TrafficPosition()), "", (other,)).trusted(journal) == START


def test_an_event_is_located_by_its_epoch_and_number(tmp_path: Path) -> None:
    journal = fill(tmp_path / "journal", 3000, 2000)
    for number in (1, 2, 1999, 2000, 2001, 3000):
        found = journal.find(1, number)
        assert found
        assert found["id"] == number
    assert journal.find(1, 3001) is None
    assert journal.find(2, 5) is None


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    journal = fill(tmp_path / "journal", 3, 3)
    (tmp_path / "journal" / "reserve").write_bytes(b"\0" * 10)
    (tmp_path / "journal" / f"{4:020d}.jsonl").mkdir()
    (tmp_path / "journal" / f"{5:020d}.jsonl").symlink_to("/dev/zero")
    assert ids(journal, 0, 9) == [1, 2, 3]


def test_an_empty_newest_segment_does_no_harm(tmp_path: Path) -> None:
    journal = fill(tmp_path / "journal", 3, 3)
    write(tmp_path / "journal", 4)
    assert ids(journal, 1, 3) == [2, 3]
    assert journal.wait_for(3, lambda seconds: None, 0.0) == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_directory_without_a_journal_says_so(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "journal").mkdir()
    with pytest.raises(JournalUnreadable, match="journal"):
        ids(Journal(tmp_path / "journal"), 0, 1)


def test_the_newest_segment_names_the_root_of_the_journal(tmp_path: Path) -> None:
    write(tmp_path / "journal", 1, event_line(1, "epoch_started", root="01a2"))
    write(tmp_path / "journal", 2, event_line(2, "clock_marked", root="01a2"))
    assert Journal(tmp_path / "journal").owner() == "01a2"
    write(tmp_path / "journal", 1, event_line(1))
    write(tmp_path / "journal", 2, event_line(2))
    with pytest.raises(JournalUnreadable, match="no segment names its"):
        Journal(tmp_path / "journal").owner()


def test_a_time_is_located_by_its_segment(tmp_path: Path) -> None:
    journal = fill(tmp_path / "journal", 30, 10)
    at = {event["id"]: event["wallMs"] for event in journal.events(JournalPosition(None, 0), 30)}
    assert journal.position_of_time(at[15]) == JournalPosition(None, 10)
    assert journal.position_of_time(at[1]) == JournalPosition(None, 0)
    assert journal.position_of_time(at[30] + 5) == JournalPosition(None, 20)
