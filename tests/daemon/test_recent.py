"""The recent file: what was answered survives a power cut, though its segment was not synced, and nothing else is taken
for it."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from postroom_common.events import encode_event
from postroom_daemon.cli.postroomd import main
from postroom_daemon.journal.journal import JournalUnknown
from postroom_daemon.journal.recent import RECENT_NAME, find_lacking, read_recent
from postroom_daemon.platform.files import Files
from tests.conformance.bench import Bench
from tests.conformance.power_cut import Disk
from tests.daemon.damage import OwnRoots
from tests.daemon.segment_files import flip

MakeBench = Callable[..., Bench]


def synced(bench: Bench) -> Disk:
    """From now on, a cut of power leaves of the journal what was synced."""
    disk = Disk(bench.journal_root)
    disk.watch(bench.files)
    return disk


def cut(bench: Bench, disk: Disk, chance: random.Random | None = None) -> None:
    bench.close()
    disk.cut(chance)


def payloads(bench: Bench) -> list[str]:
    """The payloads of all messages, which the queue no longer has afterwards."""
    found = []
    while message := bench.do("consume_next", queue="q", visibilityTimeoutSec=3600).get("message"):
        found.append(message["payload"])
    return found


def segment(bench: Bench) -> Path:
    return bench.segments()[-1]


def recent(bench: Bench) -> Path:
    return bench.journal_root / RECENT_NAME


# --- what was answered ------------------------------------------------------------------------------------------------


def test_small_groups_are_durable_without_a_sync_of_their_segment(make_bench: MakeBench) -> None:
    bench = make_bench()
    disk = synced(bench)
    bench.open()
    bench.publish(message="first")
    before = disk.segment_syncs
    for number in range(20):
        bench.publish(message=f"m{number}")
    assert disk.segment_syncs == before
    events = bench.events()
    cut(bench, disk)
    assert len(bench.events()) < len(events)
    bench.lose_store()
    bench.open()
    assert bench.events()[: len(events)] == events
    assert payloads(bench) == ["first", *(f"m{number}" for number in range(20))]
    assert bench.do("health")["status"] == "ok"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_pages_a_power_cut_leaves_all_that_was_answered_is_there(make_bench: MakeBench, seed: int) -> None:
    chance = random.Random(seed)
    bench = make_bench(segment_bytes=40_000)
    disk = synced(bench)
    bench.open()
    sent: list[str] = []
    for turn in range(4):
        for _ in range(chance.randrange(1, 40)):
            size = chance.choice([10, 300, 3000, 6000, 30_000])
            group = [f"{len(sent) + number} " + "x" * size for number in range(chance.choice([1, 1, 3]))]
            bench.run(*[bench.make("publish", queue="q", message=one) for one in group])
            sent += group
        events = bench.events()
        cut(bench, disk, None if turn == 0 else chance)
        bench.lose_store()
        bench.open()
        assert bench.events()[: len(events)] == events
        assert bench.do("health")["status"] == "ok"
    assert payloads(bench) == sent


def test_a_full_recent_file_and_a_large_group_sync_the_segment(make_bench: MakeBench) -> None:
    bench = make_bench()
    disk = synced(bench)
    bench.open()
    bench.publish(message="first")
    before = disk.segment_syncs
    bench.publish(message="x" * 20_000)
    assert disk.segment_syncs == before + 1
    for _ in range(60):
        bench.publish(message="x" * 8000)
    assert before + 2 <= disk.segment_syncs <= before + 4
    assert recent(bench).stat().st_size == 256 * 1024
    cut(bench, disk)
    bench.lose_store()
    bench.open()
    assert len(payloads(bench)) == 62


def test_a_stop_in_order_leaves_everything_in_the_segments(make_bench: MakeBench) -> None:
    bench = make_bench()
    disk = synced(bench)
    bench.open()
    for number in range(5):
        bench.publish(message=f"m{number}")
    bench.stop()
    bench.close()
    disk.cut()
    recent(bench).unlink()
    bench.lose_store()
    bench.files = Files()
    bench.open()
    assert payloads(bench) == [f"m{number}" for number in range(5)]


def test_the_first_group_of_a_segment_is_synced_with_it(make_bench: MakeBench) -> None:
    """The name of a new file is durable before its inode is."""
    bench = make_bench(segment_bytes=2000)
    disk = synced(bench)
    bench.open()
    for _ in range(30):
        segments, syncs = len(bench.segments()), disk.segment_syncs
        bench.publish(message="x" * 100)
        assert len(bench.segments()) == segments or disk.segment_syncs >= syncs + 2
    cut(bench, disk)
    bench.lose_store()
    bench.open()
    assert len(payloads(bench)) == 30


# --- what the segment has instead ----------------------------------------------------------------------------------


def killed(make_bench: MakeBench) -> tuple[Bench, bytes, int]:
    """A root whose daemon was killed, the bytes of its last segment, and the offset of the first group in the recent
    file."""
    bench = make_bench().open()
    for number in range(6):
        bench.publish(message=f"m{number} " + "x" * 2000)
    bench.close()
    bench.lose_store()
    return bench, segment(bench).read_bytes(), read_recent(bench.journal_root)[0].offset


INSTEAD: dict[str, Callable[[bytes, int], bytes]] = {
    "nothing": lambda data, begin: data[:begin],
    "a part of a line": lambda data, begin: data[: begin + 700],
    "NULs": lambda data, begin: data[:begin] + bytes(len(data) - begin),
    "NULs to the end of the block": lambda data, begin: data[:begin] + bytes(2**16),
    "a hole": lambda data, begin: data[: begin + 50] + bytes(4096) + data[begin + 4146 :],
    "a torn line in the middle of NULs": lambda data, begin: (
        data[:begin] + bytes(3000) + data[begin + 3000 : begin + 3400] + bytes(len(data) - begin - 3400)
    ),
    "garbage": lambda data, begin: data[:begin] + random.Random(1).randbytes(len(data) - begin + 900),
    "lines of another place": lambda data, begin: data[:begin] + data[500:begin][: len(data) - begin],
    "an older end": lambda data, begin: data[: begin - 300],
}


@pytest.mark.parametrize("instead", INSTEAD)
def test_what_the_segment_lacks_is_written_again_and_what_it_has_instead_is_set_aside(
    make_bench: MakeBench, instead: str
) -> None:
    bench, data, begin = killed(make_bench)
    found = INSTEAD[instead](data, begin)
    segment(bench).write_bytes(found)
    bench.open()
    if instead != "an older end":  # that has lost events that had been synced
        assert segment(bench).read_bytes()[: len(data)] == data
        assert bench.do("health")["status"] == "ok"
        assert [payload.split()[0] for payload in payloads(bench)] == [f"m{number}" for number in range(6)]
    else:
        assert [payload.split()[0] for payload in payloads(bench)][-4:] == ["m2", "m3", "m4", "m5"]
    rest = found[begin : begin + 600].strip(b"\0")
    aside = b"".join(bench.quarantined().values())
    assert rest in aside or rest in segment(bench).read_bytes()


def test_a_damaged_group_in_the_recent_file_takes_no_other_with_it(make_bench: MakeBench) -> None:
    bench, data, begin = killed(make_bench)
    groups = read_recent(bench.journal_root)
    at = recent(bench).read_bytes().index(groups[1].data)
    flip(recent(bench), at + 100)
    assert [group.offset for group in read_recent(bench.journal_root)] == [
        group.offset for group in groups if group is not groups[1]
    ]
    segment(bench).write_bytes(data[:begin])
    bench.open()
    left = [payload.split()[0] for payload in payloads(bench)]
    assert len(left) == 5 and left[-1] == "m5"
    assert bench.do("health")["checks"]["journal"]["missingEvents"]


def test_what_is_damaged_in_the_recent_file_may_stand_in_the_segment(make_bench: MakeBench) -> None:
    bench, data, _ = killed(make_bench)
    groups = read_recent(bench.journal_root)
    flip(recent(bench), recent(bench).read_bytes().index(groups[1].data) + 100)
    segment(bench).write_bytes(data[: groups[1].end] + bytes(len(data) - groups[1].end))
    bench.open()
    assert segment(bench).read_bytes()[: len(data)] == data
    assert bench.do("health")["status"] == "ok"


@pytest.mark.parametrize("damage", [b"", b"\0" * 262144, b"garbage\n" * 32768, b'{"run":"', b'{"run":1}\n' * 100])
def test_a_recent_file_that_says_nothing_changes_nothing(make_bench: MakeBench, damage: bytes) -> None:
    bench, data, _ = killed(make_bench)
    recent(bench).write_bytes(damage)
    bench.open()
    assert segment(bench).read_bytes()[: len(data)] == data
    assert len(payloads(bench)) == 6
    bench.publish(message="after")
    assert recent(bench).stat().st_size == 262144


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_something_else_under_its_name_changes_nothing(make_bench: MakeBench, make: Callable[[Path], Any]) -> None:
    bench, _, _ = killed(make_bench)
    recent(bench).unlink()
    make(recent(bench))
    bench.open()
    for _ in range(3):
        bench.publish(message="after")
    assert len(payloads(bench)) == 9


# --- what is out of date ----------------------------------------------------------------------------------------------


def test_groups_of_an_earlier_run_behind_the_last_one_are_not_taken(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    for number in range(30):
        bench.publish(message=f"old {number}")
    assert len(read_recent(bench.journal_root)) > 20
    bench.reopen()
    for number in range(3):
        bench.publish(message=f"new {number}")
    groups = read_recent(bench.journal_root)
    assert b"old 29" in recent(bench).read_bytes()
    assert [group.events[-1]["id"] for group in groups] == [event["id"] for event in bench.events()[-2:]]


@pytest.mark.parametrize("end_is_noticed", [True, False])
def test_a_journal_that_was_continued_without_the_recent_file_is_left_alone(
    make_bench: MakeBench, end_is_noticed: bool
) -> None:
    """An older version has started on what a power cut left."""
    bench, data, begin = killed(make_bench)
    segment(bench).write_bytes(data[:begin])
    stale = recent(bench).read_bytes()
    recent(bench).unlink()
    if not end_is_noticed:  # by which it continues behind the lost events, in a new segment
        (bench.journal_root / "end").unlink()
    bench.open()
    assert len(bench.segments()) == (2 if end_is_noticed else 1)
    for number in range(3):
        bench.publish(message=f"other {number}")
    bench.stop()
    bench.close()
    continued = segment(bench).read_bytes()
    recent(bench).write_bytes(stale)
    bench.open()
    assert segment(bench).read_bytes()[: len(continued)] == continued
    assert any(name.startswith(RECENT_NAME) for name in bench.quarantined())
    assert [payload.split()[0] for payload in payloads(bench)][-3:] == ["other"] * 3


def test_the_recent_file_of_another_segment_or_root_is_not_taken(make_bench: MakeBench, tmp_path: Path) -> None:
    bench, data, begin = killed(make_bench)
    other = Bench(tmp_path / "other")
    with patch("tests.conformance.bench.CountedIds", OwnRoots):
        other.open()
    for number in range(9):
        other.publish(message=f"other {number} " + "x" * 2100)
    other.close()
    shutil.copy(recent(other), recent(bench))
    segment(bench).write_bytes(data[:begin])
    bench.open()
    assert bench.segments()[0].read_bytes()[:begin] == data[:begin]
    assert not any(payload.startswith("other") for payload in payloads(bench))


def test_events_that_were_shifted_in_their_segment_are_not_written_twice(make_bench: MakeBench) -> None:
    """An older version's repair has cut something out."""
    bench, data, _ = killed(make_bench)
    lines = data.splitlines(keepends=True)
    del lines[1]
    segment(bench).write_bytes(b"".join(lines))
    bench.open()
    ids = [event["id"] for event in bench.events()]
    assert len(set(ids)) == len(ids)


# --- when the disk fails ----------------------------------------------------------------------------------------------


def failing(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_without_the_recent_file_every_group_syncs_its_segment(make_bench: MakeBench) -> None:
    bench = make_bench()
    disk = synced(bench)
    bench.files.statvfs = lambda path: SimpleNamespace(f_bavail=2**20, f_frsize=1, f_files=0, f_favail=0)
    bench.open()
    for _ in range(4):
        bench.publish()
    assert not recent(bench).exists()
    cut(bench, disk)
    bench.lose_store()
    bench.files = Files()
    bench.open()
    assert len(payloads(bench)) == 4


def test_a_recent_file_that_cannot_be_written_is_given_up(make_bench: MakeBench) -> None:
    bench = make_bench()
    disk = synced(bench)
    bench.open()
    bench.publish(message="first")
    bench.publish(message="second")
    bench.files.pwrite = failing
    before = disk.segment_syncs
    for number in range(3):
        bench.publish(message=f"m{number}")
    assert disk.segment_syncs == before + 3
    cut(bench, disk)
    bench.lose_store()
    bench.files = Files()
    bench.open()
    assert len(payloads(bench)) == 5


def test_after_a_sync_of_it_has_failed_another_file_is_used(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    bench.publish(message="first")
    bench.publish(message="second")
    inode = recent(bench).stat().st_ino
    unanswered = bench.make("publish", queue="q", message="unknown")
    bench.files.fdatasync = failing
    with pytest.raises(JournalUnknown):
        bench.run(unanswered)
    assert unanswered.answers == []
    bench.close()
    bench.files = Files()
    bench.open(rewrite_journal=True)
    again = bench.again(unanswered)
    bench.run(again)
    assert again.code == "OK"
    bench.publish(message="last")
    assert recent(bench).stat().st_ino != inode
    assert payloads(bench) == ["first", "second", "unknown", "last"]


def test_a_segment_whose_sync_fails_later_is_written_anew(make_bench: MakeBench) -> None:
    """What was answered is in the recent file."""
    bench = make_bench().open()
    for number in range(3):
        bench.publish(message=f"m{number}")
    bench.files.fdatasync = failing
    with pytest.raises(JournalUnknown):
        bench.live.journal.sync_segment()
    bench.close()
    begin = read_recent(bench.journal_root)[0].offset
    os.truncate(segment(bench), begin)  # its pages have left the memory
    bench.files = Files()
    bench.lose_store()
    bench.open(rewrite_journal=True)
    assert payloads(bench) == ["m0", "m1", "m2"]


# --- other readers ----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, [*arguments], env={"POSTROOM_BACKEND": "sqlite"})


def test_verify_says_what_the_next_start_restores_and_calls_nothing_lost(make_bench: MakeBench) -> None:
    bench, data, begin = killed(make_bench)
    segment(bench).write_bytes(data[:begin])
    lacking = find_lacking(bench.journal_root)
    assert lacking
    found = json.loads(run("verify", "--root", str(bench.path), "--json").output)
    assert [one["where"] for one in found["findings"] if one["kind"] == "journal-recent"] == [
        f"{lacking.first_id}-{lacking.last_id}"
    ]
    assert not [one for one in found["findings"] if one["kind"] == "events-lost"]
    assert segment(bench).read_bytes() == data[:begin]
    bench.open()
    bench.stop()
    bench.close()
    found = json.loads(run("verify", "--root", str(bench.path), "--json").output)
    assert found["ok"] and not [one for one in found["findings"] if one["kind"] == "journal-recent"]


def test_a_restore_rolls_forward_over_what_only_the_recent_file_has(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench().open()
    bench.publish(message="before")
    bench.stop()
    bench.close()
    backup = tmp_path / "backup"
    assert run("backup", "--root", str(bench.path), "--to", str(backup)).exit_code == 0
    bench.open()
    for number in range(3):
        bench.publish(message=f"m{number}")
    bench.close()
    os.truncate(segment(bench), read_recent(bench.journal_root)[0].offset)
    other = tmp_path / "elsewhere"
    shutil.copytree(bench.journal_root, other)
    restore = ("restore", "--root", str(bench.path), "--from", str(backup), "--replace", "--to-event", "last")
    refused = run(*restore, "--journal", str(other))
    assert refused.exit_code != 0 and RECENT_NAME in refused.output
    assert run(*restore).exit_code == 0
    assert not recent(bench).exists()
    bench.open()
    assert payloads(bench) == ["before", "m0", "m1", "m2"]


def test_a_line_that_a_client_has_written_is_no_group(make_bench: MakeBench) -> None:
    bench = make_bench().open()
    bench.publish(message="first")
    fields = {"run": "0" * 16, "root": "root-id", "segment": segment(bench).name, "offset": 0, "bytes": 10}
    head = encode_event(fields)
    bench.publish(message=json.loads(head))
    bench.publish(message=head.decode())
    data, groups = recent(bench).read_bytes(), read_recent(bench.journal_root)
    assert len(groups) == 2
    for group in groups:
        flip(recent(bench), data.index(group.data) - 20)
    assert read_recent(bench.journal_root) == []
