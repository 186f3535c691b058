"""``bundle``: many files become few, nothing that is not whole gets in, and nothing is lost or twice."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import pytest
from click.testing import CliRunner

from postroom_common.snapshot import Kind
from postroom_common.snapshot_reader import check, read_lines
from postroom_pipeline.cli import main
from postroom_pipeline.errors import EnvironmentProblem
from postroom_pipeline.local import bundle_writer as writer
from postroom_pipeline.local.bundle import Bundler, Counts, Made, Rejected
from postroom_pipeline.local.bundle_writer import alone_in
from postroom_pipeline.local.validate import files_of
from tests.pipeline.making import Device, bundle, fleet, replace_text, text_of

SIZE = 1_000_000


def made_of(
    places: Iterable[Path], folder: Path, *, size: int = SIZE, remove: bool = False
) -> tuple[Counts, list[str], list[Rejected]]:
    """Counts, the bundles that were made, and what was refused."""
    events: list[Made | Rejected] = []
    with alone_in(folder):
        bundler = Bundler(folder, size, events.append, remove_originals=remove)
        bundler.run(files_of(tuple(places)))
    made = [event.bundle for event in events if isinstance(event, Made)]
    return bundler.counts, made, [event for event in events if isinstance(event, Rejected)]


def held(folder: Path) -> list[str]:
    """Ids of all whole snapshots of a folder's bundles; nothing else is in these."""
    found = []
    for path in sorted(folder.glob("bundle-*.jsonl.gz")):
        with path.open("rb") as file:
            members = list(check(file))
        assert [member.reason for member in members] == [None] * len(members)
        found += [member.snapshot for member in members]
    return found


def ids_of(paths: Iterable[Path]) -> list[str]:
    return [json.loads(text_of(path).splitlines()[0])["snapshot"] for path in paths]


def test_a_bundle_has_the_packed_snapshots_in_sequence_and_a_last_line_that_names_them(tmp_path: Path) -> None:
    paths = sorted(fleet(tmp_path / "in", 3))
    counts, (made,), refused = made_of([tmp_path / "in"], tmp_path / "out")
    data = Path(made).read_bytes()
    singles = b"".join(path.read_bytes() for path in paths)
    assert data.startswith(singles)
    last = json.loads(gzip.decompress(data[len(singles) :]))
    assert last == {"device": "", "snapshot": "", "kind": "bundle", "members": ids_of(paths)}
    assert (counts.files, counts.snapshots, counts.bundles, refused) == (6, 6, 1, [])
    assert all(path.exists() for path in paths)
    with Path(made).open("rb") as file:
        assert sum(line["kind"] == Kind.TRAILER for line in read_lines(file)) == 6


def test_a_bundle_is_closed_before_it_exceeds_its_size(tmp_path: Path) -> None:
    paths = fleet(tmp_path / "in", 3)
    largest = max(path.stat().st_size for path in paths)
    _, made, _ = made_of([tmp_path / "in"], tmp_path / "out", size=2 * largest)
    assert len(made) == 3
    _, made, _ = made_of([tmp_path / "in"], tmp_path / "tiny", size=1)
    assert len(made) == 6
    assert sorted(held(tmp_path / "out")) == sorted(held(tmp_path / "tiny")) == sorted(ids_of(paths))


def written(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written or replaced; reading it may change the time of access."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def test_a_second_run_makes_nothing_more(tmp_path: Path) -> None:
    paths = fleet(tmp_path / "in", 2)
    _, (made,), _ = made_of([tmp_path / "in"], tmp_path / "out")
    before = written(Path(made))
    bundle(tmp_path / "in" / "all.jsonl.gz", paths)
    (tmp_path / "in" / "renamed.jsonl.gz").write_bytes(paths[0].read_bytes())
    counts, again, refused = made_of([tmp_path / "in", tmp_path / "out"], tmp_path / "out")
    assert (counts.already_bundled, again, refused) == (9, [], [])
    assert written(Path(made)) == before
    assert len(held(tmp_path / "out")) == 4


def test_equal_snapshots_make_equal_bundles(tmp_path: Path) -> None:
    fleet(tmp_path / "in", 2)
    (one,), (two,) = (made_of([tmp_path / "in"], tmp_path / name)[1] for name in ("one", "two"))
    assert (Path(one).name, Path(one).read_bytes()) == (Path(two).name, Path(two).read_bytes())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


FAULTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "cut": ("truncated", cut),
    "without a trailer": ("truncated", lambda p: replace_text(p, b"".join(text_of(p).splitlines(True)[:-1]))),
    "without a header": ("no_header", lambda p: replace_text(p, b"".join(text_of(p).splitlines(True)[1:]))),
    "without its last newline": ("no_final_newline", lambda p: replace_text(p, text_of(p)[:-1])),
    "changed": ("checksum_differs", lambda p: replace_text(p, text_of(p).replace(b"worker-1", b"worker-7"))),
    "not packed": ("not_gzip", lambda p: p.write_bytes(text_of(p))),
    "empty": ("truncated", lambda p: p.write_bytes(b"")),
    "of an empty text": ("truncated", lambda p: replace_text(p, b"")),
    "of blank lines": ("empty", lambda p: replace_text(p, b"\n\n")),
    "of other text": ("not_json", lambda p: replace_text(p, b"hello\n")),
    "with rubbish behind it": ("not_gzip", lambda p: p.write_bytes(p.read_bytes() + b"rubbish")),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("remove", [False, True], ids=["kept", "removed"])
def test_an_incomplete_snapshot_stays_and_is_reported(tmp_path: Path, fault: str, remove: bool) -> None:
    paths = sorted(fleet(tmp_path / "in", 2))
    ids = ids_of(paths)
    reason, spoil = FAULTS[fault]
    spoil(paths[1])
    left = paths[1].read_bytes()
    _, _, (refused,) = made_of([tmp_path / "in"], tmp_path / "out", remove=remove)
    assert (refused.file, refused.reason) == (str(paths[1]), reason)
    assert paths[1].read_bytes() == left
    assert [path.exists() for path in paths] == [not remove, True, not remove, not remove]
    taken = ids if "behind" in fault else [ids[0], *ids[2:]]
    assert held(tmp_path / "out") == taken


def test_the_valid_snapshots_of_a_bundle_are_taken_and_the_invalid_one_stays(tmp_path: Path) -> None:
    paths = fleet(tmp_path / "single", 2)
    ids = ids_of(paths)
    replace_text(paths[1], b"".join(text_of(paths[1]).splitlines(True)[:-1]))
    source = tmp_path / "in" / "several.jsonl.gz"
    source.parent.mkdir()
    bundle(source, paths)
    _, _, (refused,) = made_of([source.parent], tmp_path / "out", remove=True)
    assert (refused.snapshot, refused.reason) == (ids[1], "truncated")
    assert held(tmp_path / "out") == [ids[0], *ids[2:]]
    assert source.exists()


def packed_once(texts: list[bytes]) -> bytes:
    return gzip.compress(b"".join(texts), mtime=0)


def packed_in_pieces(texts: list[bytes]) -> bytes:
    whole = b"".join(texts)
    return b"".join(gzip.compress(whole[place : place + 700], mtime=0) for place in range(0, len(whole), 700))


@pytest.mark.parametrize("pack", [packed_once, packed_in_pieces, b"".join], ids=["once", "in pieces", "not"])
@pytest.mark.parametrize("fault", ["none", "bad", "twice", "unfinished"])
def test_however_snapshots_are_packed_each_complete_one_is_taken_once(
    tmp_path: Path, pack: Callable[[list[bytes]], bytes], fault: str
) -> None:
    paths = fleet(tmp_path / "single", 2)
    ids, texts = ids_of(paths), [text_of(path) for path in paths]
    if fault == "bad":
        texts[1] = texts[1].replace(b"worker-2", b"worker-7")
    if fault == "unfinished":  # the next one's header is what shows it
        texts[1] = b"".join(texts[1].splitlines(True)[:-1])
    if fault == "twice":
        texts[2] = texts[0]
    source = tmp_path / "in" / ("all.jsonl" if pack == b"".join else "all.jsonl.gz")
    source.parent.mkdir()
    source.write_bytes(pack([b"\n", *texts, b'{"device":"","snapshot":"","kind":"bundle","members":[]}\n']))
    counts, _, refused = made_of([source], tmp_path / "out")
    missing = {"none": set(), "bad": {ids[1]}, "unfinished": {ids[1]}, "twice": {ids[2]}}[fault]
    assert held(tmp_path / "out") == [one for one in ids if one not in missing]
    assert (counts.already_bundled, len(refused)) == (int(fault == "twice"), int(fault in ("bad", "unfinished")))


def test_a_snapshot_of_the_same_id_with_other_content_is_refused(tmp_path: Path) -> None:
    for name, reason in (("a", "TIMEOUT"), ("b", "CRASH")):
        device = Device("press")
        device.publish("msg:1")
        device.lease("msg:1")
        device.retry("msg:1", reason)
        device.export(tmp_path / "in", name)
    _, _, (refused,) = made_of([tmp_path / "in"], tmp_path / "out")
    assert (Path(refused.file).name, refused.reason) == ("b.jsonl.gz", "other_content")


def test_originals_are_removed_only_when_they_are_completely_in_bundles(tmp_path: Path) -> None:
    paths = fleet(tmp_path / "in", 2)
    ids = ids_of(paths)
    bundle(tmp_path / "in" / "again.jsonl.gz", paths)
    counts, made, _ = made_of([tmp_path / "in"], tmp_path / "out", size=1, remove=True)
    assert (counts.removed, len(made), list((tmp_path / "in").iterdir())) == (5, 4, [])
    assert sorted(held(tmp_path / "out")) == sorted(ids)


def test_originals_of_an_earlier_run_are_removed_if_the_bundle_contains_them(tmp_path: Path) -> None:
    paths = sorted(fleet(tmp_path / "in", 2))
    _, (made,), _ = made_of([tmp_path / "in"], tmp_path / "out")
    data = Path(made).read_bytes()
    damaged = bytearray(data)
    place = data.index(paths[1].read_bytes()) + 60
    damaged[place : place + 20] = bytes(20)
    Path(made).write_bytes(damaged)
    counts, (second,), _ = made_of([tmp_path / "in"], tmp_path / "out", remove=True)
    assert (counts.already_bundled, counts.snapshots, counts.removed) == (1, 3, 4)
    with Path(second).open("rb") as file:
        assert [member.snapshot for member in check(file)] == ids_of_bundle(data)[1:]


def ids_of_bundle(data: bytes) -> list[str]:
    members: list[str] = json.loads(gzip.decompress(data).splitlines()[-1])["members"]
    return members


def test_a_file_that_is_rewritten_after_it_was_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = fleet(tmp_path / "in", 1)[:1]
    (tmp_path / "in" / "press-00-2.jsonl.gz").unlink()
    finish = writer.BundleWriter.finish

    def and_rewrite(self: writer.BundleWriter) -> Path:
        path.write_bytes(path.read_bytes() + b" ")
        return finish(self)

    monkeypatch.setattr(writer.BundleWriter, "finish", and_rewrite)
    _, _, (refused,) = made_of([tmp_path / "in"], tmp_path / "out", remove=True)
    assert (refused.reason, path.exists()) == ("changed", True)


def test_bytes_that_change_between_check_and_copy_never_enter_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(fleet(tmp_path / "in", 1))
    copy = writer.BundleWriter.copy

    def spoilt(self: writer.BundleWriter, source: BinaryIO, begin: int, end: int, crc: int) -> None:
        with paths[0].open("r+b") as file:
            file.seek(100)
            file.write(b"!!")
        copy(self, source, begin, end, crc)

    monkeypatch.setattr(writer.BundleWriter, "copy", spoilt)
    _, _, refused = made_of([tmp_path / "in"], tmp_path / "out")
    assert [(Path(one.file), one.reason) for one in refused] == [(paths[0], "changed")]
    monkeypatch.undo()
    assert held(tmp_path / "out") == ids_of(paths[1:])


def test_a_full_disk_ends_the_run_and_leaves_no_bundle_and_every_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = fleet(tmp_path / "in", 2)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match="No space left on device"):
        made_of([tmp_path / "in"], tmp_path / "out", remove=True)
    assert all(path.exists() for path in paths)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".bundle.lock"]


def run_killed_at(call: str, number: int, source: Path, folder: Path) -> None:
    """The command in a process of its own, which kills itself before a call of the operating system."""
    program = f"""
import os, signal, sys
from postroom_pipeline.cli import main
left = [{number}]
real = os.{call}
def killing(*arguments, **named):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **named)
os.{call} = killing
main({["bundle", str(source), "--out", str(folder), "--remove-originals"]!r})
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert run.returncode == -signal.SIGKILL, run.stderr


@pytest.mark.parametrize(("call", "number"), [("fsync", 1), ("fsync", 2), ("rename", 1), ("fsync", 3), ("unlink", 2)])
def test_a_run_that_is_killed_anywhere_loses_nothing_and_the_next_one_finishes_it(
    tmp_path: Path, call: str, number: int
) -> None:
    paths = fleet(tmp_path / "in", 2)
    ids = ids_of(paths)
    run_killed_at(call, number, tmp_path / "in", tmp_path / "out")
    left = [path for path in paths if path.exists()]
    assert {*held(tmp_path / "out"), *ids_of(left)} == {*ids}
    made_of([tmp_path / "in"], tmp_path / "out", remove=True)
    assert sorted(held(tmp_path / "out")) == sorted(ids)
    assert list((tmp_path / "in").iterdir()) == []
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_two_runs_cannot_make_bundles_in_one_folder(tmp_path: Path) -> None:
    fleet(tmp_path / "in", 1)
    with alone_in(tmp_path / "out"):
        run = CliRunner().invoke(main, ["bundle", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert (run.exit_code, run.stdout) == (3, "")
    assert "another run makes bundles there" in run.stderr


def test_a_large_file_is_taken_in_little_memory(tmp_path: Path) -> None:
    device, chance = Device("press"), random.Random(1)
    for number in range(40):
        device.publish(f"msg:{number}", attributes={"noise": chance.randbytes(200_000).hex()})
    path = device.export(tmp_path / "in")
    program = f"""
import resource
from pathlib import Path
from postroom_pipeline.local.bundle import Bundler
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
Path({str(tmp_path / "out")!r}).mkdir()
Bundler(Path({str(tmp_path / "out")!r}), {SIZE}, print).run([Path({str(path)!r})])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert path.stat().st_size > 8_000_000
    assert int(run.stdout.splitlines()[-1]) < 6_000  # KB


def test_the_command_reports_what_it_did_and_fails_if_something_was_refused(tmp_path: Path) -> None:
    paths = sorted(fleet(tmp_path / "in", 2))
    arguments = ["bundle", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--json"]
    cut(paths[0])
    run = CliRunner().invoke(main, arguments)
    refused, made = map(json.loads, run.stdout.splitlines())
    assert (run.exit_code, refused["reason"], made["snapshots"]) == (1, "truncated", 3)
    assert "snapshots: 3, bundles: 1, bundled before: 0, rejected: 1" in run.stderr
    paths[0].unlink()
    assert CliRunner().invoke(main, arguments).exit_code == 0
    run = CliRunner().invoke(main, ["bundle", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    assert (run.exit_code, "unreadable: No such file or directory" in run.stdout) == (1, True)


@pytest.mark.parametrize("size", ["much", "10", "500k", "1G", "0MB"])
def test_a_size_that_makes_no_good_bundle_is_refused(tmp_path: Path, size: str) -> None:
    run = CliRunner().invoke(main, ["bundle", str(tmp_path), "--out", str(tmp_path / "out"), "--size", size])
    assert (run.exit_code, f"'{size}' is not a size from 1MB to 128MB" in run.stderr) == (2, True)
