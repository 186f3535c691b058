"""Exports into folders with hostile neighbours, and with invalid options."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_console.data.link import Refused
from postroom_console.export.exporter import Exporter
from postroom_console.export.folder import LOCK_NAME, MEMORY_NAME, ExportFolder
from postroom_console.export.queries import Queries
from postroom_console.export.request import ExportRequest, Since
from postroom_console.paths import find_paths
from tests.console.exports import Snapshot, export, make
from tests.console.lines import event_line
from tests.console.test_plain import console
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon

PLANTED: list[Callable[[Path], object]] = [lambda path: path.symlink_to("/etc/passwd"), Path.mkdir, os.mkfifo]


@pytest.mark.parametrize("name", [LOCK_NAME, MEMORY_NAME])
@pytest.mark.parametrize("plant", PLANTED, ids=["link", "directory", "pipe"])
def test_something_that_is_not_a_file_is_not_taken_for_a_snapshot(
    tmp_path: Path, name: str, plant: Callable[[Path], object]
) -> None:
    plant(tmp_path / name)
    with pytest.raises(Refused, match="is not a regular file"), ExportFolder(tmp_path):
        pass


@pytest.mark.parametrize("name", [LOCK_NAME, MEMORY_NAME])
def test_in_a_folder_of_everybody_a_file_of_another_is_not_believed(tmp_path: Path, name: str) -> None:
    """It could say that events were exported that never were."""
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / name).write_text('{"format":2,"roots":{},"noted":null}')
    folder.chmod(0o1777)
    with ExportFolder(folder) as opened:
        assert opened.problem == "", "one's own is, and so is one of the folder's owner"
    if os.geteuid() == 0:  # only a superuser can make one of another
        os.chown(folder / name, 12345, 12345)
        with pytest.raises(Refused, match="belongs to another user"), ExportFolder(folder):
            pass


def test_partial_files_that_cannot_be_removed_do_no_harm(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / ".postroom-x.jsonl.gz.part").mkdir()
    (tmp_path / ".postroom-y.jsonl.gz.part").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("precious")
    make(daemon.root, tmp_path)
    assert (tmp_path / "precious").read_text() == "precious"


def test_the_export_record_is_not_written_into_a_file_that_somebody_has_put_there(
    daemon: Daemon, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.link(precious, tmp_path / (MEMORY_NAME + ".new"))
    make(daemon.root, tmp_path)
    assert precious.read_text() == "precious"
    assert (tmp_path / MEMORY_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"format":2,"roots":[],"noted":null}',
        '{"format":2,"roots":{"r":{"snapshot":"s","points":[["1",2,"",[0,0,0]]]}},"noted":null}',
        '{"format":2,"roots":{"r":{"snapshot":"s","points":[]}},"noted":null}',
        '{"format":2,"roots":{},"noted":{"name":"x","root":[],"last":3}}',
        '{"format":1,"roots":{"r":{"epoch":1,"event":"9","snapshot":"s","traffic":{}}},"noted":null}',
    ],
)
def test_no_content_of_the_export_record_breaks_anything(tmp_path: Path, text: str) -> None:
    (tmp_path / MEMORY_NAME).write_text(text)
    with ExportFolder(tmp_path) as folder:
        assert "cannot be read" in folder.problem
        assert folder.last("r") is None


@pytest.mark.parametrize(
    "words",
    [
        ("--device", b"\xff\xfe"),
        ("--hide-attribute", b"\xff"),
        ("--every", "999999999d"),
        ("--since", "999999999d"),
        ("--since", "-5"),
        ("--max-size", "1"),
        ("--out", ""),
    ],
)
def test_options_that_no_file_or_clock_accepts_are_wrong_usage(tmp_path: Path, words: tuple[str, str | bytes]) -> None:
    done = console("--root", tmp_path, "export", *map(os.fsdecode, words), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_slice_that_begins_in_the_future_is_reported(daemon: Daemon, tmp_path: Path) -> None:
    for since, words in (
        (Since("99999", event=99_999), "there is no event 99999 yet"),
        (Since("9999-01-01", wall_ms=253_370_764_800_000), "9999-01-01 is in the future"),
    ):
        made = make(daemon.root, tmp_path / "out", since=since)
        assert [words in warning for warning in made.warnings] == [True]
        assert Snapshot(made.path).events == []


def test_events_removed_by_age_are_reported(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q")
    out, known = tmp_path / "out", tmp_path / "journal"
    first = export(daemon.root, out)
    for number in range(3):
        daemon.publish("q", number)
    events = daemon.events()
    (path,) = daemon.segments()
    begin = events[-1]["id"]
    known.mkdir()
    owner = event_line(begin - 1, "clock_marked", root=first.header["root"])
    (known / f"{begin:020d}.jsonl").write_bytes(owner + path.read_bytes().splitlines(keepends=True)[-1])
    gone = f"events {first.header['asOfEvent'] + 1} to {begin - 1} are no longer in the journal"
    for request in (ExportRequest(out), ExportRequest(out, since=Since("2", event=first.header["asOfEvent"] + 1))):
        places = find_paths(daemon.root, journal=known)
        made = Exporter(places, request, lambda: False, lambda seconds: None).run()
        assert made.warnings == (gone,)
        assert Snapshot(made.path).header["availableFrom"] == begin


def test_a_data_directory_that_is_replaced_meanwhile_is_not_mixed_with_the_other(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon().start()
    for number in range(3):
        daemon.publish("q", number)
    replaced = False

    def replace(_: float) -> None:
        nonlocal replaced
        if not replaced:
            replaced = True
            daemon.stop()
            shutil.rmtree(daemon.root)
            daemon.start()
            for number in range(9):
                daemon.publish("other", number)

    work = Exporter(find_paths(daemon.root), ExportRequest(tmp_path / "out"), lambda: False, replace)
    with pytest.raises(Refused, match=r"replaced during the export|restored to an earlier state"):
        work.run()
    assert list((tmp_path / "out").glob("*.gz")) == []


def test_a_daemon_that_restarts_meanwhile_is_described_as_one(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    daemon = make_daemon().start()
    for number in range(3):
        daemon.publish("q", number)
    rests = iter(range(1000))

    def restart(_: float) -> None:
        if next(rests) in (1, 4):
            daemon.restart(kill=True)
            daemon.publish("q", "more")

    made = Exporter(find_paths(daemon.root), ExportRequest(tmp_path / "out"), lambda: False, restart, page=2).run()
    snapshot = Snapshot(made.path)
    (queue,) = snapshot.of("queue")
    assert queue["ready"] == sum(line["type"] == "published" for line in snapshot.of("event")) == 5
    assert snapshot.events == list(range(1, snapshot.header["asOfEvent"] + 1))


def test_a_snapshot_without_a_name_does_not_count_even_if_that_cannot_be_recorded(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails for good between the note and the name."""
    folder = tmp_path / "out"
    daemon.publish("q")

    def failing(self: Path, target: Path) -> Path:
        if target.suffix == ".gz":
            monkeypatch.setattr(os, "fsync", full)
            raise OSError(5, "Input/output error", str(target))
        os.replace(self, target)
        return target

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output"):
        make(daemon.root, folder)
    monkeypatch.undo()
    assert [path.stat().st_size for path in folder.glob(".*.part")] == [0], "the name alone is of use"
    snapshot = export(daemon.root, folder)
    assert snapshot.events == list(range(1, snapshot.header["asOfEvent"] + 1))
    assert list(folder.glob(".*.part")) == []


@pytest.mark.parametrize("room", [0, 1])
def test_if_the_disk_has_no_space_for_the_export_record_the_snapshot_is_complete_or_absent(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """For the note before the name, or for what is kept behind it, which the note tells as well."""
    folder, writes = tmp_path / "out", iter(range(10))
    daemon.publish("q")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".new") and next(writes) >= room:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    if room:
        make(daemon.root, folder)
    else:
        with pytest.raises(Refused, match="no space left, so there is no new snapshot"):
            make(daemon.root, folder)
    monkeypatch.undo()
    assert len(list(folder.glob("*.gz"))) == room
    assert list(folder.glob(".*.part")) == []
    assert export(daemon.root, folder).header["continuous"] == bool(room)


def test_segments_removed_while_the_journal_is_read_are_reported(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    daemon = make_daemon(config={"journal": {"segmentBytes": 65536}}).start()
    daemon.audited = False
    for number in range(400):
        daemon.publish("q", f"{number:0200}")
    kept = daemon.segments()[-1]

    def progress(what: str, count: int) -> None:
        if what == "events":
            for path in daemon.segments()[:-1]:
                path.unlink()

    work = Exporter(
        find_paths(daemon.root), ExportRequest(tmp_path / "out"), lambda: False, lambda seconds: None, progress
    )
    snapshot = Snapshot(work.run().path)
    assert snapshot.header["availableFrom"] == snapshot.header["firstEvent"] == int(kept.stem)
    assert snapshot.events == list(range(int(kept.stem), snapshot.header["asOfEvent"] + 1))


def test_large_dead_letters_are_requested_a_few_at_a_time(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        daemon.publish("q", f"{number:0100000}")
        daemon.settle("nack", daemon.consume("q"), reason="no", requeue=False)
    sizes: list[int] = []
    pages = Queries.pages

    def counted(self: Queries, command: str, payload: dict[str, Any], rest: float = 0) -> Iterator[dict[str, Any]]:
        for page in pages(self, command, payload, rest):
            if command == "list_dlq":
                sizes.append(sum(reported["bytes"] for reported in page["messages"]))
            yield page

    monkeypatch.setattr(Queries, "pages", counted)
    snapshot = export(daemon.root, tmp_path / "out")
    assert len(snapshot.of("dead")) == 50
    assert max(sizes) <= 2_000_000
    assert max(sizes[1:]) <= 1_000_000
