"""The files of logs: what is appended is read, over restarts, torn ends, and damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_common.log_blocks import block_of, check_blocks, read_block
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.log.contract import LogDamaged, Page
from postroom_daemon.stores.log.logs import LogFiles
from postroom_daemon.stores.log.records import records_of
from tests.daemon.log_work import Killed, KillingFiles

LOG = 3
BODY = b"x" * 200


class Opened:
    """Logs below a directory, which can be opened again. Each record has the body ``<position>:xxx``."""

    def __init__(self, path: Path) -> None:
        self.root = path / "logs"
        self.quarantine = path / "quarantine"
        self.logs = self._open()

    def _open(self) -> LogFiles:
        files = Files()
        logs = LogFiles(self.root, files, Quarantine(self.quarantine, files))
        logs.open()
        return logs

    def reopen(self) -> LogFiles:
        self.logs.close()
        self.logs = self._open()
        return self.logs

    def fill(self, first: int, last: int, segment_bytes: int = 0) -> None:
        if LOG not in self.logs.facts():
            self.logs.create(LOG, "telemetry")
        if segment_bytes:
            self.logs.use_segment_bytes(LOG, segment_bytes)
        for start in range(first, last + 1, 10):
            for position in range(start, min(start + 10, last + 1)):
                self.logs.append(LOG, position, 1000 * position, block(position))
            self.logs.commit()

    def segments(self) -> list[Path]:
        return sorted((self.root / f"{LOG:020d}").glob("*.log"))

    def positions(self, after: int = 0, limit: int = 7) -> list[int]:
        found: list[int] = []
        while (page := self.logs.read(LOG, after, limit, 100_000)).records:
            assert page.records <= limit
            for wall_ms, position, text in records_of(page.raw):
                assert (wall_ms, text) == (1000 * position, block(position))
                found.append(position)
            after = page.last
        return found


def block(position: int) -> bytes:
    return block_of({b"n": b"%d" % position}, b"%d:" % position + BODY)


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def test_what_is_committed_is_read_and_nothing_else_is(opened: Opened) -> None:
    logs = opened.logs
    opened.fill(10, 99)
    logs.append(LOG, 100, 100_000, block(100))
    assert opened.positions() == [*range(10, 100)]
    logs.rollback()
    logs.append(LOG, 99, 99_000, block(99))  # a replay
    logs.append(LOG, 105, 105_000, block(105))
    logs.commit()
    assert opened.positions(after=50, limit=1000) == [*range(51, 100), 105]
    assert [position for position in (0, 9, 10, 50, 99, 100, 105, 106) if logs.has(LOG, position)] == [10, 50, 99, 105]
    assert [logs.before_time(LOG, wall) for wall in (0, 10_001, 50_000, 99_999, 10**9)] == [0, 10, 49, 99, 105]
    assert logs.read(LOG, 9, 100, 300).records == 1  # more than its bytes would be
    assert logs.read(77, 0, 1, 1) == logs.read(LOG, 105, 1, 1) == Page(b"", 0, 0)
    facts = logs.facts()[LOG]
    assert (facts.name, facts.last, facts.records) == ("telemetry", 105, 91)
    assert facts.bytes == opened.segments()[0].stat().st_size
    logs.create(9, "never")
    logs.delete(LOG)
    logs.rollback()
    assert [*logs.facts()] == [LOG]


@pytest.mark.parametrize("checkpoint", [0, 40, 99])
def test_a_restart_reads_the_same_whatever_the_last_checkpoint_knows(opened: Opened, checkpoint: int) -> None:
    opened.fill(10, checkpoint, 3000)
    if checkpoint:
        opened.logs.checkpoint(checkpoint)
    opened.fill(checkpoint + 1 if checkpoint else 10, 99, 3000)
    facts = opened.logs.facts()
    assert len(opened.segments()) == 5
    logs = opened.reopen()
    assert (logs.facts(), logs.applied, logs.newest()) == (facts, checkpoint, 99)
    assert opened.positions() == [*range(10, 100)]
    opened.fill(90, 120)
    assert opened.positions(after=33) == [*range(34, 121)]


def test_an_index_that_is_missing_or_damaged_is_made_again(opened: Opened) -> None:
    opened.fill(1, 2000)
    opened.logs.checkpoint(2000)
    index = opened.segments()[0].with_suffix(".idx")
    marks = index.read_bytes()
    assert len(marks) > 10 * 28
    for number, damaged in enumerate((b"", marks[:100], marks[:200] + b"?" + marks[201:]), 2001):
        index.write_bytes(damaged)
        opened.reopen()
        assert opened.logs.read(LOG, 1700, 1, 100).last == 1701
        assert opened.logs.before_time(LOG, 1_500_500) == 1500
        opened.fill(number, number)
        opened.logs.checkpoint(number)
        assert index.read_bytes()[: len(marks)] == marks


def test_trimming_and_deleting_free_space_after_a_checkpoint(opened: Opened) -> None:
    logs = opened.logs
    opened.fill(10, 99, 3000)
    logs.checkpoint(99)
    assert logs.trimmable(LOG) is logs.trimmable(LOG, older_than_ms=10_000) is None
    assert logs.trimmable(LOG, older_than_ms=10**9, below=15) is None
    trimmable = logs.trimmable(LOG, keep_bytes=10_000)
    assert trimmable and trimmable == logs.trimmable(LOG, older_than_ms=trimmable.before * 1000)
    before, last, records, size = trimmable
    assert records == last - 9 == before - 10
    facts = logs.facts()[LOG]
    logs.trim(LOG, before, records, size)
    logs.commit()
    after = logs.facts()[LOG]
    assert (after.records, after.bytes) == (facts.records - records, facts.bytes - size) and after.bytes <= 10_000
    assert opened.positions() == [*range(before, 100)]
    # A part of a segment.
    logs.trim(LOG, before + 2, 2, 2 * (size // records))
    logs.commit()
    opened.reopen()
    assert opened.positions() == [*range(10, 100)]  # as of the checkpoint: the journal has it
    for trim in ((before, records, size), (before + 2, 2, 2 * (size // records))):
        opened.logs.trim(LOG, *trim)
    opened.logs.commit()
    facts = opened.logs.facts()[LOG]
    opened.logs.checkpoint(101)
    opened.reopen()
    assert opened.positions() == [*range(before + 2, 100)]
    assert opened.logs.facts()[LOG] == facts
    opened.logs.tidy()
    assert opened.segments()[0].name == f"{before:020d}.log"
    everything = opened.logs.trimmable(LOG, older_than_ms=10**9)
    assert everything
    opened.logs.trim(LOG, everything.before, everything.records, everything.bytes)
    opened.logs.commit()
    assert (opened.positions(), opened.logs.facts()[LOG][1:]) == ([], (99, 0, 0))
    opened.logs.delete(LOG)
    opened.logs.commit()
    assert not opened.logs.facts()
    opened.logs.checkpoint(103)
    logs = opened.reopen()
    assert not logs.facts()
    logs.tidy()
    assert [path.name for path in opened.root.iterdir()] == ["state.json"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def zero(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-300] + bytes(300))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(5000))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-400] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("tear", [cut, zero, empty, lengthen, flip, Path.unlink])
def test_what_a_power_cut_leaves_behind_a_checkpoint_is_cut_off_and_appended_again(
    opened: Opened, tear: Callable[[Path], object]
) -> None:
    opened.fill(10, 29, 3000)
    opened.logs.checkpoint(29)
    opened.fill(30, 59, 3000)
    tear(opened.segments()[-1])
    logs = opened.reopen()
    there = opened.positions()
    assert there == [*range(10, there[-1] + 1)] and there[-1] >= 29
    assert not [*logs.lost()]
    opened.fill(30, 70, 3000)
    assert opened.positions() == [*range(10, 71)]
    assert opened.reopen().facts()[LOG].records == 61


@pytest.mark.parametrize("damage", [cut, zero, empty, flip, Path.unlink])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_damage_is_found_by_a_start_or_a_reader_and_the_next_start_heals_it(
    opened: Opened, damage: Callable[[Path], object], which: int
) -> None:
    opened.fill(10, 99, 3000)
    opened.logs.checkpoint(99)
    damage(opened.segments()[which])
    opened.reopen()
    if damage in (zero, flip):
        with pytest.raises(LogDamaged):
            opened.positions()
        opened.reopen()
    (lost,) = opened.logs.lost()
    had = {*range(10, 100)}
    found = {at: (1000 * at, block(at)) for at in (40, lost.before - 1)}
    found = {position: one for position, one in found.items() if lost.after < position < lost.before}
    opened.logs.heal(lost, found)
    there = {*opened.positions()}
    gone = had - there
    assert {*found} and {*found} <= there and len(gone) < 20
    assert all(lost.after < position < lost.before for position in gone)
    logs = opened.reopen()
    assert not [*logs.lost()] and logs.facts()[LOG].records == len(there)
    opened.fill(100, 120, 3000)
    assert {*opened.positions()} == there | {*range(100, 121)}
    opened.logs.checkpoint(120)
    assert {*opened.positions()} == there | {*range(100, 121)} == {*Opened(opened.root.parent).positions()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pages_of_any_size_are_the_records_that_were_appended_and_damage_in_them_is_found(
    opened: Opened, seed: int
) -> None:
    chance = random.Random(seed)
    sizes: dict[int, int] = {}

    def read(after: int, limit: int, limit_bytes: int) -> list[int]:
        page = opened.logs.read(LOG, after, limit, limit_bytes)
        found = [(position, text) for _, position, text in records_of(page.raw)]
        assert found == [(position, block_of({}, b"y" * sizes[position])) for position, _ in found]
        assert (page.records, page.last) == (len(found), found[-1][0] if found else 0)
        return [position for position, _ in found]

    def read_all(limit: int) -> None:
        after = 0
        while found := read(after, limit, 60_000):
            after = found[-1]

    def read_somewhere() -> None:
        positions = [*sizes]
        at, limit, limit_bytes = chance.randrange(len(positions)), chance.choice((1, 15, 40, 255)), 60_000
        found = read(positions[at], limit, limit_bytes)
        while found:
            assert found == positions[at + 1 : at + 1 + len(found)]
            whole = sum(sizes[position] + 40 for position in found)
            assert len(found) <= limit and (whole <= limit_bytes or len(found) == 1)
            at += len(found)
            if chance.random() < 0.1:
                break
            found = read(positions[at], limit, limit_bytes)
        else:
            assert at == len(positions) - 1

    opened.logs.create(LOG, "telemetry")
    opened.logs.use_segment_bytes(LOG, 150_000)
    for _ in range(40):
        for _ in range(chance.choice((1, 3, 60))):
            position, size = max(sizes, default=0) + chance.choice((1, 1, 7)), chance.choice((1, 60, 200, 200, 5000))
            sizes[position] = size
            opened.logs.append(LOG, position, 1000, block_of({}, b"y" * size))
        opened.logs.commit()
        read_somewhere()
        if chance.random() < 0.1:
            opened.reopen()
    for _ in range(20):
        read_somewhere()
    read_all(255)
    path = opened.segments()[0]
    data = bytearray(path.read_bytes())
    data[chance.randrange(32, len(data)) - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged):
        read_all(chance.choice((20, 255)))


def test_blocks_are_checked() -> None:
    first, second = block_of({b"a": b"1", b"b": b""}, b"body"), block_of({}, b"\0")
    assert check_blocks(first + second) == [first, second]
    assert (read_block(first), read_block(second)) == (({b"a": b"1", b"b": b""}, b"body"), ({}, b"\0"))
    for wrong in (
        first[:-1],
        first + b"\0" * 7,
        bytes(8),
        b"\5\0\0\0\1\0\0\0" + b"\xff" * 5,
        b"\4\0\0\0\1\0\0\0" + b"\0" * 4,
    ):
        with pytest.raises(ValueError, match="block"):
            check_blocks(wrong)


Event = tuple[int, str, tuple[Any, ...]]


def history() -> list[Event]:
    """What is folded, one after the other; ``checkpoint`` is no event. Of each event its id is what matters."""
    events: list[Event] = [(3, "create", (3, "one")), (4, "create", (4, "two"))]
    trimmed = [32 + len(block(n)) for n in (6, 8, 10, 12)]
    for start in range(5, 45, 4):
        events += [(n, "append", (3 + n % 2, n, 1000 * n, block(n))) for n in range(start, start + 4)]
        events.append((start, "commit", ()))
        if start in (13, 25, 41):
            events.append((start + 3, "checkpoint", ()))
        if start == 21:
            events.append((0, "trim", (3, 14, 4, sum(trimmed))))
    return [*events, (45, "delete", (4,)), (45, "commit", ()), (45, "checkpoint", ())]


def fold(logs: LogFiles, events: list[Event]) -> None:
    for number, name, arguments in events:
        if name == "checkpoint":
            logs.checkpoint(number)
            logs.checkpointed()
            logs.tidy()
        elif name in ("commit", "trim") or number > logs.applied:
            getattr(logs, name)(*arguments)
            if name == "create":
                logs.use_segment_bytes(arguments[0], 1000)
            if name == "trim":
                logs.commit()
    logs.commit()


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_or_a_power_cut_at_any_call_loses_nothing_that_the_journal_folds_again(
    tmp_path: Path, power: bool
) -> None:
    def opened(name: str, files: Files) -> LogFiles:
        logs = LogFiles(tmp_path / name / "logs", files, Quarantine(tmp_path / name / "quarantine", files))
        logs.open()
        return logs

    def positions(logs: LogFiles) -> list[int]:
        after, found = 0, list[int]()
        while (page := logs.read(3, after, 100, 10**6)).records:
            found += [position for _, position, _ in records_of(page.raw)]
            after = page.last
        return found

    events = history()
    expected = opened("whole", Files())
    fold(expected, events)
    facts = expected.facts()
    assert positions(expected) == [*range(14, 45, 2)] and [*facts] == [3]
    for at in range(1000):
        files = KillingFiles(at)
        logs = opened(f"killed{at}", files)
        try:
            fold(logs, events)
        except Killed:
            if power:
                files.cut_power(logs.root)
        else:
            break
        again = opened(f"killed{at}", Files())
        assert not [*again.lost()]
        before = again.applied
        fold(again, [event for event in events if event[1] != "checkpoint"])
        assert (again.facts(), positions(again)) == (facts, [*range(14, 45, 2)]), (at, before)
        again.close()
        logs.close()
    assert at > 40
