"""The key that writes a snapshot: the folder, the redaction, and the result."""

from __future__ import annotations

from pathlib import Path

from postroom_console.paths import find_paths
from tests.console.desk import Desk, sit_down
from tests.console.exports import Snapshot
from tests.wire.daemon import Daemon


def test_a_key_writes_a_snapshot_and_shows_its_path(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q", "body", attributes={"kind": "secret"})

    async def visit(desk: Desk) -> None:
        desk.console.paths = find_paths(daemon.root)
        await desk.sees("q")
        await desk.keys("E")
        await desk.sees("SNAPSHOT of the device", "to the folder:")
        await desk.keys("end")
        await desk.types("/out")
        await desk.keys("enter", "enter")
        await desk.sees("snapshot out -> ok", "events up to event")
        await desk.keys("6")
        await desk.sees("snapshot", "ok")

    sit_down(daemon, visit, size=(300, 40), read_only=True, save_root=tmp_path)
    (path,) = (tmp_path / "out").glob("*.gz")
    snapshot = Snapshot(path)
    assert snapshot.header["redaction"] == "payload"
    assert [line["attributes"] for line in snapshot.of("event") if line["type"] == "published"] == [{"kind": "secret"}]


def test_the_parts_to_leave_out_can_be_chosen(daemon: Daemon, tmp_path: Path) -> None:
    async def visit(desk: Desk) -> None:
        desk.console.paths = find_paths(daemon.root)
        await desk.keys("E", "enter", "end", "ctrl+u")
        await desk.types("all")
        await desk.keys("enter")
        await desk.sees("omit must be one of payload, attributes, none")
        await desk.keys("E", "enter", "end", "ctrl+u")
        await desk.types("attributes")
        await desk.keys("enter")
        await desk.sees("-> ok")

    sit_down(daemon, visit, size=(300, 40), save_root=tmp_path)
    (path,) = tmp_path.glob("*.gz")
    assert Snapshot(path).header["redaction"] == "attributes"


def test_an_unwritable_folder_is_reported(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    async def visit(desk: Desk) -> None:
        desk.console.paths = find_paths(daemon.root)
        await desk.keys("E", "end")
        await desk.types("/file")
        await desk.keys("enter", "enter")
        await desk.sees("-> refused", "File exists")
        await desk.keys("E", "escape")
        await desk.sees("-> refused")

    sit_down(daemon, visit, size=(300, 40), save_root=tmp_path)


def test_without_a_daemon_nothing_is_written(daemon: Daemon, tmp_path: Path) -> None:
    async def visit(desk: Desk) -> None:
        await desk.keys("E")
        await desk.sees("there is no daemon to export")

    sit_down(daemon, visit, save_root=tmp_path)
    assert list(tmp_path.glob("*.gz")) == []
