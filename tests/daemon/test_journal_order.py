"""Files of the journal that were renamed, copied, swapped, or replaced by something else."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import encode_event
from postroom_daemon.journal.audit import JournalAudit
from postroom_daemon.journal.journal import Journal
from postroom_daemon.journal.segments import begun_at, list_segments, read_span, segment_name
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.root.open_root import StartError
from tests.conformance.bench import Bench, CountedIds
from tests.daemon.segment_files import flip, group, ids, line_starts, write


def order(root: Path) -> Journal:
    """Open the journal in ``root`` and close it again."""
    journal = Journal(root, Files(), Quarantine(root.parent / "quarantine", Files()), 10**6)
    journal.open()
    journal.close()
    return journal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three segments: events 1 to 3, 4 to 6, 7 to 8."""
    directory = tmp_path / "journal"
    directory.mkdir()
    write(directory, group(1, 2), group(3, 1))
    write(directory, group(4, 1), group(5, 2))
    write(directory, group(7, 1), group(8, 1))
    return directory


def rename(directory: Path, old: int, new: int) -> None:
    (directory / segment_name(old)).rename(directory / segment_name(new))


def names(directory: Path) -> list[int]:
    return [first for first, _ in list_segments(directory)]


def aside(directory: Path) -> list[str]:
    quarantine = directory.parent / "quarantine"
    return sorted(path.name for path in quarantine.iterdir()) if quarantine.is_dir() else []


@pytest.mark.parametrize("old", [1, 4, 7])
@pytest.mark.parametrize("new", [2, 3, 5, 6, 8, 100])
def test_a_renamed_segment_gets_its_name_back(root: Path, old: int, new: int) -> None:
    rename(root, old, new)
    assert order(root).last_id == 8
    assert names(root) == [1, 4, 7] and aside(root) == []
    assert ids(root, begin=1) == list(range(1, 9)) and ids(root, begin=5)[-4:] == [5, 6, 7, 8]


@pytest.mark.parametrize("names_given", list(itertools.permutations([1, 4, 7]))[1:])
def test_swapped_segments_get_their_names_back_also_after_a_crash_in_between(
    root: Path, names_given: tuple[int, ...]
) -> None:
    for old, new in zip([1, 4, 7], names_given, strict=True):
        (root / segment_name(old)).rename(root / f"{new}.swap")
    for new in names_given:
        (root / f"{new}.swap").rename(root / segment_name(new))
    files = Files()
    renames = iter(range(10**6))

    def killed(*arguments: Any, **options: Any) -> None:
        if next(renames) == 2:
            raise OSError(errno.EINTR, "killed")
        os.rename(*arguments, **options)

    files.rename = killed
    journal = Journal(root, files, Quarantine(root.parent / "quarantine", Files()), 10**6)
    with pytest.raises(OSError, match="killed"):
        journal.open()
    journal.close()
    assert order(root).last_id == 8
    assert names(root) == [1, 4, 7] and aside(root) == []
    assert ids(root) == list(range(1, 9))


@pytest.mark.parametrize("copied", [1, 4, 7])
@pytest.mark.parametrize("new", [2, 5, 9, 100])
def test_a_copy_under_another_name_is_set_aside(root: Path, copied: int, new: int) -> None:
    shutil.copy(root / segment_name(copied), root / segment_name(new))
    assert order(root).last_id == 8
    assert names(root) == [1, 4, 7] and [name.partition(".")[0] for name in aside(root)] == [f"{new:020d}"]


def test_a_part_of_a_segment_under_a_fitting_name_is_set_aside_and_hides_nothing(root: Path) -> None:
    data, starts = (root / segment_name(1)).read_bytes(), line_starts(root / segment_name(1))
    (root / segment_name(2)).write_bytes(data[starts[1] : starts[2]])
    order(root)
    assert names(root) == [1, 4, 7] and ids(root, begin=3) == list(range(3, 9))


def test_a_segment_whose_beginning_is_damaged_keeps_its_name_unless_that_is_impossible(root: Path) -> None:
    flip(root / segment_name(4), 5)
    order(root)
    assert names(root) == [1, 4, 7]
    rename(root, 4, 2)
    order(root)
    assert names(root) == [1, 5, 7]
    assert ids(root) == [1, 2, 3, 5, 6, 7, 8]


def test_a_damaged_file_with_the_name_of_another_is_moved_aside(root: Path) -> None:
    rename(root, 4, 60)
    (root / segment_name(4)).write_bytes(b"\0" * 300)
    order(root)
    assert names(root) == [1, 4, 7] and ids(root) == list(range(1, 9))
    assert [name.partition(".")[0] for name in aside(root)] == [f"{4:020d}"]


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [Path.mkdir, make_fifo, make_link], ids=["directory", "pipe", "link"])
@pytest.mark.parametrize("name", [1, 4, 7, 9])
def test_something_that_is_not_a_file_is_moved_aside_and_kept(
    root: Path, make: Callable[[Path], None], name: int
) -> None:
    path = root / segment_name(name)
    path.unlink(missing_ok=True)
    make(path)
    order(root)
    assert name not in names(root)
    assert [kept.partition(".")[0] for kept in aside(root)] == [f"{name:020d}"]
    assert ids(root) == [number for first in (1, 4, 7) if first != name for number in range(first, min(first + 3, 9))]


# --- what the disk does not give --------------------------------------------------------------------------------------


def bad_blocks(monkeypatch: pytest.MonkeyPatch, name: str, first: int, last: int) -> None:
    """Reading these bytes of a segment fails, as with a broken block."""
    read = os.preadv

    def preadv(fd: int, buffers: list[Any], offset: int) -> int:
        if Path(os.readlink(f"/proc/self/fd/{fd}")).name == name:
            if first <= offset <= last:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if offset < first:
                buffers = [buffers[0][: first - offset]]
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)


def long_segment(directory: Path) -> Path:
    return write(directory, *[group(number, 1) for number in range(9, 209)])


def test_after_an_unreadable_block_events_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_segment(root)
    write(root, group(209, 1))
    bad_blocks(monkeypatch, path.name, 8192, 12287)
    assert order(root).last_id == 209
    lost = set(range(1, 210)) - set(ids(root))
    starts = line_starts(path)
    assert lost == {9 + index for index in range(200) if starts[index] < 12288 and starts[index + 1] > 8192}


def test_an_unreadable_tail_is_set_aside_with_its_file_and_not_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_segment(root)
    data = path.read_bytes()
    bad_blocks(monkeypatch, path.name, len(data) // 4096 * 4096, len(data) - 1)
    journal = order(root)
    assert 9 < journal.last_id < 208
    assert [kept.partition(".")[0] for kept in aside(root)] == [path.stem]
    assert (root.parent / "quarantine" / aside(root)[0]).stat().st_size == len(data)
    assert data.startswith(path.read_bytes())
    assert ids(root) == list(range(1, journal.last_id + 1))


def test_an_unreadable_last_segment_is_set_aside_and_its_numbers_are_not_reused(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(segment_bytes=900).open()
    for number in range(9):
        bench.publish(message=f"m{number}" + "x" * 500)
    last = bench.events()[-1]["id"]
    bench.close()
    bench.lose_store()
    path = bench.segments()[-1]
    real = os.open

    def refuse(name: Any, *arguments: Any, **options: Any) -> int:
        if name == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(name, *arguments, **options)

    path.write_bytes(path.read_bytes() * 8)
    monkeypatch.setattr(os, "open", refuse)
    bench.open()
    monkeypatch.undo()
    assert path.name in [name.rpartition(".")[0] for name in bench.quarantined()]
    gap = next(event for event in bench.events() if event["type"] == "gap")
    assert gap["after"] == int(path.stem) - 1 and gap["id"] > last
    health = bench.do("health")
    assert health["checks"]["journal"]["missingEvents"] == [[int(path.stem), gap["id"] - 1]]
    assert next(iter(JournalAudit(bench.journal_root).findings())).is_fault is False


def test_retention_and_the_search_for_an_answer_skip_unreadable_data(root: Path, tmp_path: Path) -> None:
    flip(root / segment_name(4), 5)
    assert begun_at(root / segment_name(4)) == 5, "the first event that is intact tells when"
    (root / segment_name(7)).unlink()
    (root / segment_name(7)).symlink_to(tmp_path)
    assert begun_at(root / segment_name(7)) is None


# --- other roots ------------------------------------------------------------------------------------------------------


class OwnRoots(CountedIds):
    """Ids of which no two roots have the same."""

    def root(self) -> str:
        return f"root-{os.urandom(4).hex()}"


@pytest.fixture(autouse=True)
def own_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.bench.CountedIds", OwnRoots)


def filled(bench: Bench, text: str, count: int = 8) -> Bench:
    bench.open()
    for number in range(count):
        bench.publish(message=f"{text}{number}")
    return bench


def consumed(bench: Bench) -> list[str]:
    found = []
    while message := bench.do("consume_next", queue="q")["message"]:
        found.append(message["payload"])
    return found


@pytest.mark.parametrize("lost", [False, True], ids=["with its store", "without its store"])
def test_a_segment_of_another_root_is_set_aside_and_never_folded(make_bench: Callable[..., Bench], lost: bool) -> None:
    mine, other = (filled(make_bench(segment_bytes=500), text) for text in ("mine", "other's"))
    other.publish(message="x" * 100)
    mine.close()
    stranger = other.segments()[-1]
    shutil.copy(stranger, mine.journal_root / segment_name(int(mine.segments()[-1].stem) + 1000))
    if lost:
        mine.lose_store()
    mine.open()
    assert consumed(mine) == [f"mine{number}" for number in range(8)]
    assert stranger.read_bytes() in mine.quarantined().values()


def test_a_segment_that_was_replaced_by_that_of_another_root_costs_its_events_only(
    make_bench: Callable[..., Bench],
) -> None:
    mine, other = (filled(make_bench(segment_bytes=500), text) for text in ("mine", "other's"))
    mine.close()
    shutil.copy(other.segments()[2], mine.segments()[2])
    mine.lose_store()
    mine.open()
    assert {text[:4] for text in consumed(mine)} == {"mine"}
    assert mine.do("health")["status"] == "degraded"


def test_a_whole_journal_of_another_root_is_refused_and_left_as_it_is(make_bench: Callable[..., Bench]) -> None:
    mine, other = (filled(make_bench(segment_bytes=500), text) for text in ("mine", "other's"))
    mine.close()
    for path in mine.segments():
        path.unlink()
    for path in other.segments():
        shutil.copy(path, mine.journal_root)
    before = {path: path.read_bytes() for path in mine.segments()}
    with pytest.raises(StartError, match="put back the journal or the store that belongs here"):
        mine.open()
    assert {path: path.read_bytes() for path in mine.segments()} == before


def test_a_root_rebuilt_from_a_part_of_its_journal_starts_repeatedly(
    make_bench: Callable[..., Bench],
) -> None:
    bench = filled(make_bench(segment_bytes=500), "m")
    bench.close()
    bench.segments()[0].unlink()
    bench.lose_store()
    for _ in range(3):
        bench.open()
        bench.publish(message="next")
        bench.close()
    bench.open()
    assert consumed(bench)[-3:] == ["next"] * 3


def test_a_line_with_a_valid_checksum_that_is_not_an_event_is_damage(root: Path) -> None:
    path = root / segment_name(4)
    path.write_bytes(encode_event({"id": 4, "req": 4, "grp": 4}) + path.read_bytes())
    assert ids(root) == list(range(1, 9))
    span = read_span(path)
    assert span is not None and span.first == 4 and not span.whole_from_start
