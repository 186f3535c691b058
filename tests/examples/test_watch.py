"""The table of queues and events: fits the terminal, shows no control character, follows the journal."""

from __future__ import annotations

import pytest

from postroom_common.events import encode_event
from watch import Journal, cut, event_line, printable, queue_table, screen

NASTY = "a\x1b[31m\nb\t\x9b\u202e\u200b"


def queue(name):
    return {"queue": name, "ready": 1, "inflight": 0, "delayed": 0, "dlq": 2, "oldestReadyAgeMs": 1500}


def event(number, **fields):
    own = {"id": number, "epoch": 1, "req": number, "grp": number, "engineMs": 0, "wallMs": 0}
    own |= {"type": "published", "queue": "q"}
    return own | {"key": f"msg:q:{number:012}"} | fields


def width(line):
    return sum(2 if char == "語" else 1 for char in line)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60), (20, 6)])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_a_screen_fits_its_terminal(columns, rows, count):
    queues = [queue("語" * 30 + NASTY) for _ in range(count)]
    events = [event(number, queue="語" * 30, reasonMessage="x" * 300) for number in range(100)]
    lines = screen(["title " * 20, "flow"], queues, events, columns, rows)
    assert len(lines) <= rows
    assert all(width(line) <= columns for line in lines)
    assert all(line.isprintable() for line in lines)


def test_many_queues_leave_room_for_events_and_are_counted():
    lines = screen(["t"], [queue(f"q{number}") for number in range(50)], [event(7)], 80, 24)
    shown = sum(line.startswith("q") for line in lines)
    assert f"... and {50 - shown} more" in lines
    assert "000000000007" in lines[-1]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, ["QUEUE", "READY", "INFLIGHT", "DELAYED", "DEAD", "OLDEST"]),
        (60, ["QUEUE", "READY", "INFLIGHT", "DELAYED", "DEAD"]),
        (50, ["QUEUE", "READY", "INFLIGHT", "DEAD"]),
    ],
)
def test_a_narrow_table_spares_oldest_and_delayed_before_dead(columns, shown):
    head, line = queue_table([queue("telemetry.accepted")], columns)
    assert head.split() == shown
    assert line.startswith("telemetry.accepted ")
    assert len(head) == len(line) <= columns


def test_the_names_column_is_as_wide_as_the_longest_name_that_is_shown():
    head, *_ = queue_table([queue("a"), queue("telemetry")], 80)
    assert head.startswith("QUEUE" + " " * (len("telemetry") - len("QUEUE") + 8 - len("READY")) + "READY")
    _, line = queue_table([queue("語" * 200)], 80)
    assert width(line) <= 80
    assert "…" in line


def test_what_stands_below_the_table_leaves_room_for_events():
    below = [f"below {number}" for number in range(9)]
    lines = screen(["t", "flow"], [queue("q")], [event(number) for number in range(50)], 80, 24, below)
    assert lines[5:14] == below
    assert sum("published" in line for line in lines) == 24 - 5 - 9 - 2
    lines = screen(["t", "flow"], [queue("q")], [event(number) for number in range(50)], 80, 12, below)
    assert sum("published" in line for line in lines) == 3


def test_control_and_direction_characters_are_shown_as_escapes():
    assert printable(NASTY) == r"a\x1b[31m\nb\t\x9b\u202e\u200b"
    assert printable("é 語") == "é 語"


def test_a_line_shows_the_reason_of_a_death():
    assert event_line(event(3, type="died", failure={"reasonMessage": "too hot\n"})).endswith(r"too hot\n")


def test_a_text_is_cut_to_cells():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert cut("語語語語", 6) == "語語…"


def lines(*events):
    return b"".join(encode_event(event) for event in events)


def shown(journal):
    journal.read()
    return [event["id"] for event in journal.last]


def test_the_journal_is_followed_over_segments_and_half_written_lines(tmp_path):
    journal = Journal(tmp_path)
    assert shown(journal) == []
    first = tmp_path / "00000000000000000001.jsonl"
    line = encode_event(event(2))
    first.write_bytes(lines(event(1)) + line[:10])
    assert shown(journal) == [1]
    first.write_bytes(lines(event(1)) + line)
    (tmp_path / "00000000000000000003.jsonl").write_bytes(lines(event(3)))
    assert shown(journal) == [1, 2, 3]
    assert shown(journal) == [1, 2, 3]


def test_a_damaged_line_is_shown_as_one_once_a_group_stands_behind_it(tmp_path):
    journal = Journal(tmp_path)
    segment = tmp_path / "00000000000000000001.jsonl"
    segment.write_bytes(lines(event(1)) + b"garbage\n")
    assert shown(journal) == [1]
    segment.write_bytes(lines(event(1)) + b"garbage\n" + lines(event(2)))
    journal.read()
    assert [event["type"] for event in journal.last] == ["published", "(damaged line)", "published"]
    assert "(damaged line)" in event_line(journal.last[1])


def test_an_event_is_shown_when_its_group_has_ended(tmp_path):
    journal = Journal(tmp_path)
    segment = tmp_path / "00000000000000000001.jsonl"
    segment.write_bytes(lines(event(1), event(2, grp=4), event(3, grp=4)))
    assert shown(journal) == [1]
    with segment.open("ab") as file:
        file.write(lines(event(4, gn=3)))
    assert shown(journal) == [1, 2, 3, 4]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_group_that_was_cut_back_is_not_shown_and_its_ids_mean_what_came_after(tmp_path, kept):
    journal = Journal(tmp_path)
    segment = tmp_path / "00000000000000000001.jsonl"
    torn = [event(2, grp=9), event(3, grp=9, queue="never"), event(4, grp=9, queue="never")]
    segment.write_bytes(lines(event(1), *torn))
    assert shown(journal) == [1]
    after = [event(number, queue="after") for number in range(2 + kept, 6)]
    segment.write_bytes(lines(event(1), *torn[:kept], *after))
    assert shown(journal) == [1, 2, 3, 4, 5]
    assert {event["queue"] for event in list(journal.last)[1 + kept :]} == {"after"}


def test_what_was_kept_of_a_torn_group_is_shown_from_a_segment_that_ended_with_it(tmp_path):
    journal = Journal(tmp_path)
    (tmp_path / "00000000000000000001.jsonl").write_bytes(lines(event(1), event(2, grp=9)))
    assert shown(journal) == [1]
    (tmp_path / "00000000000000000003.jsonl").write_bytes(lines(event(3)))
    assert shown(journal) == [1, 2, 3]


def test_a_long_journal_is_read_from_its_last_lines_on(tmp_path):
    (tmp_path / "00000000000000000001.jsonl").write_bytes(b"".join(encode_event(event(n)) for n in range(1, 5001)))
    journal = Journal(tmp_path)
    journal.read()
    assert journal.last[-1]["id"] == 5000
    assert all("id" in event for event in journal.last)
