"""The writer of snapshots: what it makes is whole, the same with and without its fast library, and there at once or
not at all."""

from __future__ import annotations

import gzip
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom_common.snapshot import PART_SUFFIX, SUFFIX, Kind
from postroom_common.snapshot_reader import check, read_lines
from postroom_common.snapshot_writer import LineEncoder, SnapshotWriter, file_name
from tests.common.snapshots import golden, lines_of

NAME = f"postroom-press-07{SUFFIX}"
SNAPSHOT = "0f6a2e8401a21eba167b7c3a9b1e5d0f"


def fields_of(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("device", "snapshot", "kind")}


def write_golden(folder: Path) -> Path:
    lines = lines_of(golden(2))
    with SnapshotWriter(folder, NAME, lines[0]["device"], lines[0]["snapshot"]) as writer:
        for line in lines[:-1]:
            writer.put(Kind(line["kind"]), fields_of(line))
        return writer.finish(lines[-1]["firstEvent"], lines[-1]["lastEvent"])


def test_the_golden_snapshot_is_written_byte_for_byte(tmp_path: Path) -> None:
    assert gzip.decompress(write_golden(tmp_path).read_bytes()) == golden(2)


def test_the_same_bytes_are_written_without_the_fast_library(tmp_path: Path) -> None:
    """On machines that have the standard library alone."""
    program = (
        "import sys; sys.modules['orjson'] = None\n"
        "from pathlib import Path\n"
        "from tests.common.test_snapshot_writer import write_golden\n"
        "write_golden(Path(sys.argv[1]))\n"
    )
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.mkdir()
    fast.mkdir()
    place = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", program, slow], check=True, cwd=place)
    assert (slow / NAME).read_bytes() == write_golden(fast).read_bytes()


def test_a_written_snapshot_can_be_read_back(tmp_path: Path) -> None:
    path = write_golden(tmp_path)
    with path.open("rb") as file:
        (member,) = check(file)
    assert member.reason is None
    with path.open("rb") as file:
        assert list(read_lines(file)) == lines_of(golden(2))


def test_empty_fields_are_left_out() -> None:
    line = LineEncoder("press-07", SNAPSHOT).encode(Kind.DEAD, {"queue": "q", "cause": None, "attempt": 0})
    assert json.loads(line) == {
        "device": "press-07", "snapshot": SNAPSHOT, "kind": "dead", "queue": "q", "attempt": 0,
    }  # fmt: skip
    assert line.startswith(b'{"device":"press-07","snapshot":"'), "a torn line says whose it is"


def test_the_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    seen: list[str] = []
    with SnapshotWriter(tmp_path, NAME, "press-07", SNAPSHOT) as writer:
        writer.put(Kind.HEADER, {"major": 2})
        writer.finish(None, None, lambda: seen.extend(path.name for path in tmp_path.iterdir()))
    assert seen == [f".{NAME}{PART_SUFFIX}"]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_an_abandoned_snapshot_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), SnapshotWriter(tmp_path, NAME, "press-07", SNAPSHOT) as writer:
        writer.put(Kind.HEADER, {"major": 2})
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [10, 5000, 60_000])
def test_a_full_disk_leaves_no_file(tmp_path: Path, room: int) -> None:
    with files_of_at_most(room), pytest.raises(OSError), SnapshotWriter(tmp_path, NAME, "d", SNAPSHOT) as writer:
        for _ in range(2000):
            writer.put(Kind.DEAD, {"message": os.urandom(60).hex()})
        writer.finish(None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_never_replaces_another_file(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("mine")
    with SnapshotWriter(tmp_path, NAME, "press-07", SNAPSHOT) as writer:
        writer.put(Kind.HEADER, {"major": 2})
        with pytest.raises(FileExistsError):
            writer.finish(None, None)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(NAME, "mine")]


def test_others_cannot_read_a_snapshot(tmp_path: Path) -> None:
    """Bodies may be in it. The group can: who collects the files need not be who writes them."""
    assert stat.S_IMODE(write_golden(tmp_path).stat().st_mode) & 0o007 == 0


@pytest.mark.parametrize(
    ("device", "shown"),
    [
        ("press-07", "press-07"),
        ("../../etc/passwd", "etc-passwd"),
        ("수집 7", "7"),
        ("\x1b]0;x\x07", "0-x"),
        ("", "device"),
        ("...", "device"),
        ("d" * 300, "d" * 64),
    ],
)
def test_a_name_is_valid_on_every_file_system(device: str, shown: str) -> None:
    name = file_name(device, "01a21eba-167b-7c3a-9b1e-5d0f6a2e8400", 1220, 1795811841655)
    assert name == f"postroom-{shown}-6a2e8400-1220-20261127T203721655Z{SUFFIX}"


@pytest.mark.parametrize("wall_ms", [-1, 0, 2**62])
def test_a_clock_outside_the_calendar_still_gives_a_name(wall_ms: int) -> None:
    assert file_name("d", "r", 1, wall_ms).endswith(f"Z{SUFFIX}")
