"""Damage in the journal, in every position: what stays, what is cut, what is set aside."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import Event, decode_event, encode_event
from postroom_daemon.journal import segments
from postroom_daemon.journal.segments import Damage, find_request, list_segments, place_of, read_requests, segment_name
from postroom_daemon.journal.tail import examine_tail
from postroom_daemon.root.open_root import StartError
from tests.conformance.bench import Bench
from tests.daemon.segment_files import flip, group, ids, line_starts, write

#: Requests of one last group: (events of the request) each.
SHAPES = [(1,), (2,), (1, 1), (1, 3, 1), (2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_last_group_cut_at_any_byte_keeps_its_complete_requests_and_everything_before_it(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path = write(tmp_path, group(1, 2), group(3, 1), group(4, *shape))
    data = path.read_bytes()
    starts = line_starts(path)
    ends = dict(zip(starts[1:], [decode_event(line)["id"] for line in data.splitlines(True)], strict=True))
    complete = {0, 2, 3} | {event["id"] for event in group(4, *shape) if event["id"] == event["req"]}
    for cut in range(starts[3], len(data)):
        path.write_bytes(data[:cut])
        tail = examine_tail(path)
        expected = max(number for end, number in ends.items() if end <= cut and number in complete)
        assert tail.last_id == expected >= 3
        assert tail.size == cut
        assert [decode_event(line)["id"] for line in data[: tail.keep_bytes].splitlines(True)] == [
            *range(1, expected + 1)
        ]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_flipped_bit_anywhere_never_loses_a_request_of_another_group(tmp_path: Path, shape: tuple[int, ...]) -> None:
    groups = [group(1, 2), group(3, 1, 1), group(5, 1), group(6, *shape)]
    path = write(tmp_path, *groups)
    data = path.read_bytes()
    starts = line_starts(path)
    events = [event for one in groups for event in one]
    for event, (start, end) in zip(events, pairwise(starts), strict=True):
        for offset in (start, (start + end) // 2, end - 2, end - 1):
            path.write_bytes(data)
            flip(path, offset)
            tail = examine_tail(path)
            path.write_bytes(path.read_bytes()[: tail.keep_bytes])
            kept = ids(tmp_path)
            before = [other["id"] for other in events if other["grp"] < event["grp"]]
            assert [number for number in kept if number in before] == before
            assert event["id"] not in kept
            if event["grp"] != events[-1]["grp"] and offset != end - 1:
                # Before the last group only the request itself is lost; a lost newline takes the next line with it.
                assert kept == [other["id"] for other in events if other["req"] != event["req"]]


def test_damage_in_an_earlier_segment_loses_its_request_and_is_reported_with_all_its_bytes(tmp_path: Path) -> None:
    first = write(tmp_path, group(1, 1), group(2, 3, 1))
    write(tmp_path, group(6, 2))
    whole = first.read_bytes()
    starts = line_starts(first)
    for number, start in zip(range(1, 6), starts, strict=False):
        first.write_bytes(whole)
        flip(first, start + 8)
        damages: list[Damage] = []
        lost = {2, 3, 4} if number in (2, 3, 4) else {number}
        assert ids(tmp_path, damages) == [other for other in range(1, 8) if other not in lost]
        assert sorted(starts.index(damage.offset) + 1 for damage in damages) == sorted(lost)
        damaged = first.read_bytes()
        assert all(damaged[d.offset : d.offset + len(d.data)] == d.data for d in damages)


def test_an_earlier_segment_that_ends_inside_a_request_loses_that_request_only(tmp_path: Path) -> None:
    first = write(tmp_path, group(1, 1), group(2, 3))
    write(tmp_path, group(5, 1))
    for cut in range(line_starts(first)[1] + 1, first.stat().st_size):
        whole = first.read_bytes()
        first.write_bytes(whole[:cut])
        damages: list[Damage] = []
        assert ids(tmp_path, damages) == [1, 5]
        assert b"".join(damage.data for damage in damages) == whole[line_starts(first)[1] : cut]
        first.write_bytes(whole)


def test_a_line_that_vanished_without_a_trace_loses_its_request(tmp_path: Path) -> None:
    path = write(tmp_path, group(1, 1), group(2, 3), group(5, 1), group(6, 1))
    lines = path.read_bytes().splitlines(True)
    for missing in (1, 2, 3):
        path.write_bytes(b"".join(lines[:missing] + lines[missing + 1 :]))
        assert ids(tmp_path) == [1, 5, 6]


def test_reading_from_an_id_starts_with_the_request_that_ends_there(tmp_path: Path) -> None:
    write(tmp_path, group(1, 1), group(2, 3))
    write(tmp_path, group(5, 2), group(7, 1))
    assert ids(tmp_path, begin=1) == [1, 2, 3, 4, 5, 6, 7]
    assert ids(tmp_path, begin=3) == [2, 3, 4, 5, 6, 7]
    assert ids(tmp_path, begin=5) == [5, 6, 7]
    assert ids(tmp_path, begin=7) == [7]
    assert ids(tmp_path, begin=8) == []


def test_only_the_end_of_a_long_segment_is_read_for_its_last_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, *(group(first, 1, 2) for first in range(1, 15_001, 3)))
    decoded: list[bytes] = []

    def decode(line: bytes) -> Event:
        decoded.append(line)
        return decode_event(line)

    monkeypatch.setattr(segments, "decode_event", decode)
    assert examine_tail(path) == (15_000, path.stat().st_size, path.stat().st_size)
    at_the_end = len(decoded)
    assert ids(tmp_path, begin=14_899) == [*range(14_899, 15_001)]
    assert at_the_end < 3000 and len(decoded) - at_the_end < 1500


@pytest.mark.parametrize("begin", [1, 2, 3, 4, 5_000, 7_501, 14_998, 14_999, 15_000, 15_001])
def test_a_long_segment_is_read_from_any_id_whatever_is_damaged_before_it(tmp_path: Path, begin: int) -> None:
    path = write(tmp_path, *(group(first, 1, 2) for first in range(1, 15_001, 3)))
    everything = ids(tmp_path)
    read = [one for one in everything if one >= begin or (one == begin - 1 and begin % 3 == 0)]
    assert ids(tmp_path, begin=begin) == read
    for number in (0, 2_500, 7_499, 7_500, 11_249, 11_250, 14_000):
        flip(path, line_starts(path)[number] + 3)
    intact = ids(tmp_path)
    assert len(intact) > 14_980
    assert ids(tmp_path, begin=begin) == [one for one in read if one in intact]


def test_a_last_group_larger_than_what_is_read_first_is_examined_completely(tmp_path: Path) -> None:
    path = write(tmp_path, group(1, 1), group(2, *[1] * 4000))
    whole = path.read_bytes()
    assert examine_tail(path) == (4001, len(whole), len(whole))
    path.write_bytes(whole[:-1])
    assert examine_tail(path).last_id == 4000


def test_segments_are_listed_in_order_and_other_files_ignored(tmp_path: Path) -> None:
    strangers = ["7.jsonl", f"{3:020}.jsonl.tmp", f"{4:020}.json", f"x{5:020}.jsonl", "notes.txt"]
    for name in [segment_name(10), segment_name(2), *strangers]:
        (tmp_path / name).touch()
    assert [first for first, _ in list_segments(tmp_path)] == [2, 10]


def test_a_request_is_read_completely_at_its_offset(tmp_path: Path) -> None:
    write(tmp_path, group(1, 1), group(2, 3))
    second = write(tmp_path, group(5, 2), group(7, 1))
    places = {place.events[0]["id"]: place.place for place in read_requests(tmp_path, 1, lambda damage: None)}
    for first, last in zip(places, [*(first - 1 for first in list(places)[1:]), 7], strict=True):
        found = find_request(tmp_path, places[first])
        assert found is not None and [event["id"] for event in found] == list(range(first, last + 1))
    assert find_request(tmp_path, place_of(8, 0)) is None and find_request(tmp_path, place_of(0, 0)) is None
    assert find_request(tmp_path, place_of(6, 0)) is None and find_request(tmp_path, place_of(7, 10**6)) is None
    flip(second, 10)
    assert find_request(tmp_path, place_of(5, 0)) is None


# --- the same through a whole root ----------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "sqlite without its file"])
def reopen(request: pytest.FixtureRequest) -> Callable[[Bench], None]:
    """Opens a closed root again, with its store or with none."""

    def reopen(bench: Bench) -> None:
        if "without" in request.param:
            bench.lose_store()
        bench.open()

    return reopen


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.jsonl*") if path.is_file()}


def published(bench: Bench) -> list[str]:
    """The bodies that a consumer gets."""
    found = []
    while message := bench.do("consume_next", queue="q")["message"]:
        found.append(message["payload"])
    return found


def closed_root(make_bench: Callable[..., Bench], **options: Any) -> Bench:
    bench = make_bench(**options)
    bench.open()
    for number in range(6):
        bench.publish(message=f"m{number}")
    bench.close()
    return bench


def test_a_torn_last_group_is_cut_and_quarantined_and_the_rest_is_read(
    make_bench: Callable[..., Bench], reopen: Callable[[Bench], None]
) -> None:
    bench = closed_root(make_bench)
    torn = b'{"id":9,"epoch":1,"req":9,"gr'
    with bench.segments()[-1].open("ab") as file:
        file.write(torn)
    reopen(bench)
    assert list(bench.quarantined().values()) == [torn]
    assert published(bench) == [f"m{number}" for number in range(6)]
    assert [event["id"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))


def test_opening_a_damaged_journal_twice_is_the_same_as_once(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench, segment_bytes=900)
    segments = bench.segments()
    assert len(segments) > 2
    flip(segments[0], 10)
    flip(segments[1], segments[1].stat().st_size - 20)
    os.truncate(segments[-1], segments[-1].stat().st_size - 3)
    bench.lose_store()
    bench.open()
    bench.close()
    once = snapshot(bench.path)
    bench.open()
    bench.close()
    assert snapshot(bench.path) == once
    bench.lose_store()
    bench.open()
    assert snapshot(bench.path).items() >= {name: data for name, data in once.items() if "quarantine" in name}.items()


def test_an_empty_last_segment_is_replaced_by_the_next(
    make_bench: Callable[..., Bench], reopen: Callable[[Bench], None]
) -> None:
    bench = closed_root(make_bench)
    last = bench.events()[-1]["id"]
    (bench.journal_root / segment_name(last + 1)).touch()
    reopen(bench)
    bench.publish(message="next")
    assert [event["id"] for event in bench.events()] == list(range(1, len(bench.events()) + 1))
    assert published(bench) == [*(f"m{number}" for number in range(6)), "next"]


def test_a_last_segment_of_rubbish_is_set_aside_completely(
    make_bench: Callable[..., Bench], reopen: Callable[[Bench], None]
) -> None:
    bench = closed_root(make_bench)
    last = bench.events()[-1]["id"]
    rubbish = b"\x00\xff\n" * 100 + b"{}"
    (bench.journal_root / segment_name(last + 1)).write_bytes(rubbish)
    reopen(bench)
    assert list(bench.quarantined().values()) == [rubbish]
    bench.publish(message="next")
    assert published(bench) == [*(f"m{number}" for number in range(6)), "next"]


def test_without_the_last_segment_the_store_is_ahead_and_a_gap_records_it(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench, segment_bytes=900)
    kept = bench.events()
    lost = bench.segments()[-1]
    lost_first = int(lost.stem)
    lost.write_bytes(b"rubbish\n")
    bench.open()
    events = bench.events()
    gap = next(event for event in events if event["type"] == "gap")
    assert (gap["after"], gap["next"]) == (lost_first - 1, kept[-1]["id"] + 1)
    assert gap["id"] == kept[-1]["id"] + 1
    assert published(bench) == [f"m{number}" for number in range(6)]
    bench.reopen()
    bench.publish(message="next")
    assert published(bench) == ["next"]


def test_a_missing_middle_segment_is_reported_and_the_rest_is_delivered(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(segment_bytes=300).open()
    for number in range(6):
        bench.publish(message=f"m{number}")
    bench.close()
    lost = bench.segments()[3]
    first, last = int(lost.stem), int(bench.segments()[4].stem) - 1
    lost.unlink()
    bench.lose_store()
    caplog.clear()
    bench.open()
    assert f"events {first} to {last} are missing" in caplog.text
    health = bench.do("health")
    assert health["checks"]["journal"]["missingEvents"] == [[first, last]]
    assert len(published(bench)) == 5


def test_a_journal_of_a_newer_format_is_refused_and_left_as_it_is(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench)
    path = bench.segments()[0]
    lines = path.read_bytes().splitlines(True)
    marked = next(index for index, line in enumerate(lines) if b'"clock_marked"' in line)
    event = decode_event(lines[marked]) | {"format": 99}
    del event["crc"]
    lines[marked] = encode_event(event)
    path.write_bytes(b"".join(lines))
    with pytest.raises(StartError, match="format 99, newer"):
        bench.open()
    assert path.read_bytes() == b"".join(lines)


def test_a_journal_of_another_root_is_not_mixed_into_a_store(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench)
    path = bench.segments()[0]
    lines = [decode_event(line) for line in path.read_bytes().splitlines(True)]
    for event in lines:
        del event["crc"]
        if "root" in event:
            event["root"] = "another"
    path.write_bytes(b"".join(encode_event(event) for event in lines))
    with pytest.raises(StartError, match="of root another"):
        bench.open()


def test_an_empty_file_with_a_name_far_ahead_changes_no_number(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench)
    last = bench.events()[-1]["id"]
    (bench.journal_root / segment_name(10**15)).touch()
    (bench.journal_root / "notes.jsonl").write_text("a stranger's")
    bench.open()
    bench.publish(message="next")
    assert bench.events()[-1]["id"] == last + 2  # a clock mark, the publish
    assert (bench.journal_root / "notes.jsonl").read_text() == "a stranger's"


def test_a_queue_whose_creation_was_damaged_keeps_every_later_message(make_bench: Callable[..., Bench]) -> None:
    bench = closed_root(make_bench)
    data = bench.segments()[0].read_bytes()
    flip(bench.segments()[0], data.index(b'"queue_created"'))
    (bench.journal_root / "recent").unlink()
    bench.lose_store()
    bench.open()
    assert published(bench) == [f"m{number}" for number in range(1, 6)]
    assert bench.do("status", queue="q")["metrics"]["inflight"] == 5
    assert len(bench.quarantined()) == 1  # the line, and behind it the publish of the same request


def test_a_message_whose_publish_was_damaged_does_not_stop_the_fold(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench().open()
    bench.publish(message="first")
    second = bench.publish(message="second")
    bench.publish(message="third")
    for _ in range(3):
        bench.do("ack", messageKey=bench.do("consume_next", queue="q")["lease"]["messageKey"])
    bench.publish(message="fourth")
    bench.close()
    data = bench.segments()[0].read_bytes()
    flip(bench.segments()[0], data.index(f'"type":"published","queue":"q","key":"{second}"'.encode()) + 9)
    bench.lose_store()
    bench.open()
    assert published(bench) == ["fourth"]
    assert bench.store.applied == bench.live.journal.last_id
