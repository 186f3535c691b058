"""postroomd backup of a stopped root; of one that is served, see tests/wire."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_common.events import decode_event, decode_line, encode_line
from postroom_daemon.cli import main
from postroom_daemon.maintenance.backup import BackupError, make, make_backup, open_backup
from postroom_daemon.maintenance.backup.format import Manifest
from postroom_daemon.observe.state import State
from postroom_daemon.platform.atomic_create import PathTaken
from postroom_daemon.root.swap import SwapInterrupted
from tests.daemon.cpp_database import CppDatabase
from tests.daemon.origin import MakeBench, Origin


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_of_a_backup_match_the_manifest_and_are_private(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench(segment_bytes=2000))
    (origin.bench.path / "config.json").write_text('{"nodeId": "here"}')
    origin.bench.config = replace(origin.bench.config, file=origin.bench.path / "config.json")
    origin.work(40)
    manifest = origin.back_up(tmp_path / "backup")
    found = contents(tmp_path / "backup")
    assert Manifest.decode(found.pop("manifest.json"), "").files == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in found.items()
    }
    assert found["config.json"] == b'{"nodeId": "here"}'
    assert len([name for name in found if name.startswith("journal/")]) > 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "backup").rglob("*")} == {0o600, 0o700}
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o700
    lines = b"".join(found[name] for name in sorted(found) if name.startswith("journal/")).splitlines(True)
    events = [decode_event(line) for line in lines]
    assert [event["id"] for event in events] == list(range(1, manifest.event + 1))
    assert (events[-1]["crc"], events[-1]["wallMs"]) == (manifest.event_crc, manifest.event_wall_ms)


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz"])
def test_a_tar_contains_the_same_files(make_bench: MakeBench, tmp_path: Path, ending: str) -> None:
    origin = Origin.begin(make_bench())
    origin.work(30)
    path = tmp_path / f"backup{ending}"
    manifest = origin.back_up(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == (ending != ".tar")
    with tarfile.open(path) as tar:
        assert {name.partition("/")[0] for name in tar.getnames()} == {"postroom-backup"}
    with open_backup(path, tmp_path / "unpacked") as backup:
        backup.check()
        assert backup.manifest == manifest
        assert set(contents(backup.folder)) == {*manifest.files, "manifest.json"}
    assert not (tmp_path / "unpacked").exists()


def test_a_tar_goes_to_standard_output(make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    origin.bench.close()

    class Output:
        buffer = io.BytesIO()

    monkeypatch.setattr("sys.stdout", Output)
    make_backup(origin.bench.config, "-", True, {})
    (tmp_path / "piped").write_bytes(Output.buffer.getvalue())
    with open_backup(tmp_path / "piped", tmp_path / "unpacked") as backup:
        backup.check()
        assert backup.manifest.messages == 1


def test_the_journal_can_be_left_out(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    origin.back_up(tmp_path / "backup", with_journal=False)
    assert set(contents(tmp_path / "backup")) == {"state.jsonl", "manifest.json"}


def test_an_existing_target_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    for name in ("folder", "file.tar"):
        (tmp_path / name).mkdir()
        with pytest.raises(PathTaken, match="already exists"):
            origin.back_up(tmp_path / name)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(PathTaken, match="already exists"):
        origin.back_up(tmp_path / "link")


@pytest.mark.parametrize("name", ["backup.zip", "backup.tar.xz", "state.json.gz"])
def test_a_name_with_the_suffix_of_another_kind_of_file_makes_no_folder(tmp_path: Path, name: str) -> None:
    root, to = tmp_path / "root", tmp_path / name
    root.mkdir()
    done = CliRunner().invoke(main, ["backup", "--root", str(root), "--to", str(to)])
    assert done.exit_code == 2 and "a backup is a folder, or ends in .tar" in done.stderr
    assert not to.exists()


@pytest.mark.parametrize("name", ["backup", "backup.tar", "backup.tar.gz"])
def test_a_backup_that_fails_leaves_nothing(
    make_bench: MakeBench, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin.begin(make_bench())
    origin.work(20)
    (tmp_path / "to").mkdir()

    def failing(state: State, file: Any) -> Any:
        file.write(b"the beginning")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(make, "write_state", failing)
    with pytest.raises(OSError, match="No space left"):
        origin.back_up(tmp_path / "to" / name)
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
def test_the_remains_of_a_killed_backup_are_replaced_unless_it_is_still_running(
    make_bench: MakeBench, tmp_path: Path, name: str
) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    left = tmp_path / (name + ".unfinished")
    if name == "backup":
        left.mkdir()
        (left / "state.jsonl").write_text("half")
    else:
        left.write_text("half")
    origin.back_up(tmp_path / name)
    assert not left.exists()
    with (
        make.open_sink(str(tmp_path / f"other-{name}"), tmp_path),
        pytest.raises(PathTaken, match="another process is writing"),
    ):
        origin.back_up(tmp_path / f"other-{name}")


@pytest.mark.parametrize("place", ["data/payloads", "data/fs", "data/fs/q/inbox", "journal", "ipc/requests"])
def test_a_target_among_the_daemons_own_files_is_refused(make_bench: MakeBench, place: str) -> None:
    origin = Origin.begin(make_bench("hybrid"))
    origin.work(5)
    inside = origin.bench.path / place
    inside.mkdir(parents=True, exist_ok=True)
    for name in ("backup", "backup.tar"):
        with pytest.raises(PathTaken, match="among the daemon's own files: name a place elsewhere"):
            origin.back_up(inside / name)
        assert not (inside / name).exists()


@pytest.mark.parametrize("words", [("backup", "--to", "-"), ("export",)], ids=" ".join)
def test_a_database_of_the_cpp_system_must_be_imported_first(make_bench: MakeBench, words) -> None:
    bench = make_bench()
    database = CppDatabase(bench.config.settings.sqlite_db_path, bench.clocks.wall_ms)
    database.message("one")
    database.db.close()
    done = CliRunner().invoke(main, [words[0], "--root", str(bench.path), *words[1:]])
    assert (
        done.exit_code == 1
        and "a database of the C++ system: import it first with `postroomd import cpp" in done.stderr
    )


def test_a_directory_without_a_journal_is_not_a_root(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = make_bench()
    bench.path.mkdir()
    with pytest.raises(BackupError, match="nothing to back up"):
        make_backup(bench.config, str(tmp_path / "backup"), True, {})
    assert list(bench.path.iterdir()) == []


def test_segments_removed_meanwhile_make_the_copied_journal_begin_later(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin.begin(make_bench(segment_bytes=2000))
    origin.work(60)
    oldest = origin.bench.segments()[:2]
    files = make.FolderSink.file

    @contextmanager
    def losing(self: make.Sink, name: str) -> Iterator[Any]:
        with files(self, name) as file:
            yield file
        if name.startswith("journal/"):
            for path in oldest:
                path.unlink(missing_ok=True)

    monkeypatch.setattr(make.FolderSink, "file", losing)
    manifest = origin.back_up(tmp_path / "backup")
    kept = sorted(name for name in manifest.files if name.startswith("journal/"))
    assert kept[0] == f"journal/{origin.bench.segments()[0].name}"
    assert len(kept) == len([path for path in origin.bench.segments() if path.name <= kept[-1].partition("/")[2]])


def test_bodies_that_are_lost_are_counted(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench("hybrid"))
    origin.publish(message="kept")
    origin.publish(message="lost")
    for path in origin.settings.hybrid_payload_root.rglob("*.json"):
        if b"lost" in path.read_bytes():
            path.unlink()
    assert origin.back_up(tmp_path / "backup").bodies_lost == 1


def test_a_root_whose_restore_was_interrupted_is_not_backed_up(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    (origin.bench.path / "restore.json").write_text("{}")
    with pytest.raises(SwapInterrupted, match="run the same postroomd restore again"):
        origin.back_up(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_other_files_in_a_tar_are_ignored(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.publish()
    origin.back_up(tmp_path / "backup")
    with tarfile.open(tmp_path / "packed.tar", "w") as tar:
        tar.add(tmp_path / "backup", ".")
        for name, kind in (
            ("journal/00000000000000000009.jsonl", tarfile.SYMTYPE),
            ("../../stranger", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    with open_backup(tmp_path / "packed.tar", tmp_path / "unpacked") as backup:
        backup.check()
        assert set(contents(backup.folder)) == set(contents(tmp_path / "backup"))
    assert not list(tmp_path.rglob("stranger"))


@pytest.mark.parametrize("data", [b"", b"no tar at all", bytes(10240)])
def test_something_that_is_not_a_backup_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    for name in ("file", "missing", "."):
        with (
            pytest.raises(BackupError, match=r"not a tar|does not exist|no manifest"),
            open_backup(tmp_path / name, tmp_path / "unpacked"),
        ):
            pass
    assert not (tmp_path / "unpacked").exists()


def test_a_newer_format_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    origin = Origin.begin(make_bench())
    origin.back_up(tmp_path / "backup")
    path = tmp_path / "backup" / "manifest.json"
    fields = decode_line(path.read_bytes())
    del fields["crc"]
    path.write_bytes(encode_line(fields | {"format": 2}))
    with pytest.raises(BackupError, match="newer than this"), open_backup(tmp_path / "backup", tmp_path / "unpacked"):
        pass
