"""A data directory that was put back to an earlier state uses ids again: no export skips the new events."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from postroom_console.export.exporter import Made
from postroom_console.export.folder import MEMORY_NAME
from tests.console.exports import Snapshot, export, make
from tests.wire.daemon import Daemon


def publish(daemon: Daemon, *bodies: str) -> None:
    for body in bodies:
        daemon.publish("q", body, attributes={"is": body})


def reported(snapshot: Snapshot) -> list[str]:
    """What was published, as the slice has it."""
    return [line["attributes"]["is"] for line in snapshot.of("event") if line["type"] == "published"]


def copy(daemon: Daemon, to: Path) -> None:
    """A copy of the root, as an operator makes one."""
    daemon.stop()
    shutil.copytree(daemon.root, to, ignore=shutil.ignore_patterns("lane.sock"))
    daemon.start()


def put_back(daemon: Daemon, copied: Path) -> None:
    daemon.stop()
    shutil.rmtree(daemon.root)
    shutil.copytree(copied, daemon.root)
    daemon.start()


def say(made: Made) -> str:
    return " ".join(made.warnings)


@pytest.mark.parametrize("later", [("x1", "x2", "x3", "x4", "x5", "x6", "x7"), ("x1",)], ids=["longer", "shorter"])
def test_events_of_a_restored_directory_are_in_the_next_slice(
    daemon: Daemon, tmp_path: Path, later: tuple[str, ...]
) -> None:
    """Also where the journal ends before the event that was exported last."""
    out = tmp_path / "out"
    publish(daemon, "a")
    first = export(daemon.root, out)
    publish(daemon, "b")
    copy(daemon, tmp_path / "copy")
    publish(daemon, "c", "d", "e", "f")
    second = export(daemon.root, out)
    put_back(daemon, tmp_path / "copy")
    publish(daemon, *later)
    made = make(daemon.root, out)
    third = Snapshot(made.path)
    assert reported(third) == ["b", *later]
    assert third.events == list(range(first.header["asOfEvent"] + 1, third.header["asOfEvent"] + 1))
    assert third.header["previousEvent"] == second.header["asOfEvent"] >= third.header["firstEvent"]
    assert not third.header["continuous"]
    assert f"no longer has event {second.header['asOfEvent']} as it was exported" in say(made)
    assert f"begin after {first.header['asOfEvent']} again" in say(made)
    publish(daemon, "y")
    fourth = make(daemon.root, out)
    assert reported(Snapshot(fourth.path)) == ["y"]
    assert Snapshot(fourth.path).header["continuous"]
    assert fourth.warnings == ()


def test_if_no_earlier_end_is_valid_the_slice_has_the_whole_journal(daemon: Daemon, tmp_path: Path) -> None:
    publish(daemon, "a")
    copy(daemon, tmp_path / "copy")
    publish(daemon, "b", "c")
    export(daemon.root, tmp_path / "out")
    put_back(daemon, tmp_path / "copy")
    publish(daemon, "x", "y", "z")
    snapshot = export(daemon.root, tmp_path / "out")
    assert reported(snapshot) == ["a", "x", "y", "z"]
    assert not snapshot.header["continuous"]
    assert "opening" not in snapshot.of("queue")[0]


def test_a_restored_directory_without_a_new_event_is_reported(daemon: Daemon, tmp_path: Path) -> None:
    publish(daemon, "a")
    export(daemon.root, tmp_path / "out")
    copy(daemon, tmp_path / "copy")
    publish(daemon, "b", "c")
    export(daemon.root, tmp_path / "out")
    put_back(daemon, tmp_path / "copy")
    snapshot = export(daemon.root, tmp_path / "out")
    assert reported(snapshot) == []
    assert not snapshot.header["continuous"]
    assert snapshot.header["asOfEvent"] < snapshot.header["previousEvent"]


def test_an_export_record_of_an_earlier_version_is_continued(daemon: Daemon, tmp_path: Path) -> None:
    publish(daemon, "a")
    first = export(daemon.root, tmp_path / "out")
    memory = tmp_path / "out" / MEMORY_NAME
    epoch, event, _, (file, offset, wall_ms) = next(iter(json.loads(memory.read_text())["roots"].values()))["points"][0]
    traffic = {"file": file, "offset": offset, "wall_ms": wall_ms}
    last = {"epoch": epoch, "event": event, "snapshot": first.header["snapshot"], "traffic": traffic}
    memory.write_text(json.dumps({"format": 1, "roots": {first.header["root"]: last}, "noted": None}))
    copy(daemon, tmp_path / "copy")
    publish(daemon, "b")
    second = export(daemon.root, tmp_path / "out")
    assert (reported(second), second.header["continuous"]) == (["b"], True)
    put_back(daemon, tmp_path / "copy")
    publish(daemon, "x", "y")
    third = export(daemon.root, tmp_path / "out")
    assert (reported(third), third.header["continuous"]) == (["x", "y"], False)


def test_an_exported_event_that_was_damaged_since_is_reported_and_nothing_is_skipped(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.audited = False
    publish(daemon, "a")
    export(daemon.root, tmp_path / "out")
    publish(daemon, "nr-1")
    export(daemon.root, tmp_path / "out")
    (path,) = daemon.segments()
    path.write_bytes(path.read_bytes().replace(b"nr-1", b"nr-7"))
    publish(daemon, "d")
    made = make(daemon.root, tmp_path / "out")
    assert reported(Snapshot(made.path)) == ["d"]
    assert not Snapshot(made.path).header["continuous"]
    assert "or is damaged" in say(made)
    assert len(Snapshot(made.path).header["holes"]) == 1
