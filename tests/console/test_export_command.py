"""``postroom-console export`` as people and timers call it."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom_console.data.link import Refused, Stopped
from postroom_console.export.exporter import Exporter
from postroom_console.export.folder import LOCK_NAME
from postroom_console.export.request import ExportRequest, read_size, read_span
from postroom_console.paths import find_paths
from tests.console.exports import Snapshot, make
from tests.console.test_plain import console
from tests.wire.daemon import PATIENCE_S, Daemon, wait_until

Begin = subprocess.Popen[str]


def begin(*words: str | Path) -> Begin:
    """The command, going on."""
    return subprocess.Popen(
        [sys.executable, "-m", "postroom_console", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.gz"))


def test_one_line_names_the_file_its_events_and_its_size(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("q")
    done = console("--root", daemon.root, "export", "--out", tmp_path / "new" / "out", "--device", "press-07")
    (path,) = files(tmp_path / "new" / "out")
    last = daemon.events()[-1]["id"]
    size = f"{path.stat().st_size / 1000:.1f}kB"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: {last} events up to event {last}, {size}\n", "")
    snapshot = Snapshot(path)
    assert snapshot.header["device"] == "press-07"
    assert path.name.startswith("postroom-press-07-")


def test_the_root_may_be_named_before_or_after_the_command(daemon: Daemon, tmp_path: Path) -> None:
    calls: list[tuple[str | Path, ...]] = [
        ("--root", daemon.root, "export"),
        ("export", "--root", daemon.root),
        ("--root", tmp_path / "none", "export", "--root", daemon.root),
        ("export", "--ipc-root", daemon.root / "ipc"),
    ]
    for number, words in enumerate(calls):
        done = console(*words, "--out", tmp_path / str(number))
        assert (done.returncode, done.stderr) == (0, ""), words
    watched = console("watch", "--root", daemon.root, "--no-follow")
    assert (watched.returncode, watched.stderr) == (0, "")


def test_the_help_explains_the_command_completely() -> None:
    reported = " ".join(console("export", "--help").stdout.split())
    for text in (
        "--since EVENT|TIME|last",
        "SIGTERM",
        "disk is full",
        "has the file's name",
        "Exit status: 0 done",
        "30m",
    ):
        assert text in reported


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "yesterday"),
        ("--max-size", "huge"),
        ("--max-size", "1k"),
        ("--every", "0h"),
        ("--every", "1"),
        ("--every", "1h", "--since", "2h"),
        ("--redact", "some"),
    ],
)
def test_meaningless_options_are_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = console("--root", tmp_path, "export", "--out", tmp_path / "out", *words)
    assert done.returncode == 2
    assert words[0] in done.stderr or words[1] in done.stderr
    assert not (tmp_path / "out").exists()


def test_spans_and_sizes_are_read_as_people_write_them() -> None:
    assert [read_span(text) for text in ("90s", "30m", "1h", "7d")] == [90, 1800, 3600, 604800]
    assert [read_size(text) for text in ("20000", "500k", "64M", "2GB")] == [20000, 500_000, 64_000_000, 2_000_000_000]


def test_without_a_daemon_no_file_is_left(tmp_path: Path) -> None:
    done = console("--root", tmp_path, "export", "--out", tmp_path / "out")
    assert done.returncode == 3, done.stderr
    assert files(tmp_path / "out") == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LOCK_NAME]


def test_what_the_file_lacks_is_reported(daemon: Daemon, tmp_path: Path) -> None:
    done = console("--root", daemon.root, "--journal", tmp_path / "none", "export", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "no events, and its state is not of one event" in done.stderr
    assert len(files(tmp_path / "out")) == 1


def test_two_exports_do_not_write_into_one_folder(daemon: Daemon, tmp_path: Path) -> None:
    make(daemon.root, tmp_path)
    lock = os.open(tmp_path / LOCK_NAME, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = console("--root", daemon.root, "export", "--out", tmp_path)
    finally:
        os.close(lock)
    assert done.returncode == 1
    assert "another export is writing into this folder" in done.stderr
    assert len(files(tmp_path)) == 1


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def test_a_full_disk_leaves_the_old_files_and_says_what_to_do(daemon: Daemon, tmp_path: Path) -> None:
    old = make(daemon.root, tmp_path / "out").path
    for _ in range(50):
        daemon.publish("q", os.urandom(100).hex())
    words = ("--root", daemon.root, "export", "--out", tmp_path / "out", "--redact", "none")
    done = console(*words, preexec_fn=small_files)
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert "free some" in done.stderr
    assert files(tmp_path / "out") == [old]
    assert list((tmp_path / "out").glob(".*.part")) == []
    again = make(daemon.root, tmp_path / "out")
    assert Snapshot(again.path).header["continuous"]


@pytest.fixture
def going(tmp_path: Path) -> Iterator[list[Begin]]:
    """Commands that go on, ended in any case."""
    found: list[Begin] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


def end(process: Begin, number: int) -> tuple[int, str, str]:
    process.send_signal(number)
    out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, error


def test_a_file_is_written_each_period_until_it_is_stopped(daemon: Daemon, tmp_path: Path, going: list[Begin]) -> None:
    """Also when nothing happens: that a device is silent is to be seen."""
    going.append(begin("--root", daemon.root, "export", "--out", tmp_path / "out", "--every", "1s"))
    wait_until(lambda: len(files(tmp_path / "out")) > 2, "there are three")
    status, out, error = end(going[0], signal.SIGTERM)
    assert (status, error) == (0, "")
    assert len(out.splitlines()) == len(files(tmp_path / "out"))
    found = [Snapshot(path).header for path in files(tmp_path / "out")]
    assert all(header["continuous"] for header in sorted(found, key=lambda one: one["wallMs"])[1:])


def test_it_waits_for_a_daemon_that_is_not_running(daemon: Daemon, tmp_path: Path, going: list[Begin]) -> None:
    daemon.stop()
    going.append(begin("--root", daemon.root, "export", "--out", tmp_path / "out", "--every", "1s"))
    assert going[0].stderr
    assert "retrying in" in going[0].stderr.readline()
    daemon.start()
    wait_until(lambda: files(tmp_path / "out"), "there is one")
    assert end(going[0], signal.SIGTERM)[0] == 0


def test_an_interrupt_ends_it_like_the_other_commands(daemon: Daemon, tmp_path: Path, going: list[Begin]) -> None:
    going.append(begin("--root", daemon.root, "export", "--out", tmp_path / "out", "--every", "1h"))
    wait_until(lambda: files(tmp_path / "out"), "there is one")
    assert end(going[0], signal.SIGINT)[0] == 130


def test_an_export_that_waits_for_its_daemon_ends_at_once(daemon: Daemon, tmp_path: Path, going: list[Begin]) -> None:
    daemon.freeze()
    try:
        going.append(begin("--root", daemon.root, "export", "--out", tmp_path / "out"))
        wait_until(lambda: any(daemon.requests.iterdir()), "it has asked")
        assert end(going[0], signal.SIGTERM)[0] == 130
    finally:
        daemon.thaw()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LOCK_NAME]


def test_an_export_that_is_ended_while_it_writes_leaves_nothing(daemon: Daemon, tmp_path: Path) -> None:
    for number in range(20):
        daemon.publish("q", number)
    for stage in ("state", "events", "file"):
        ended = threading.Event()

        def progress(what: str, count: int, stage: str = stage, ended: threading.Event = ended) -> None:
            if what == stage:
                ended.set()

        folder = tmp_path / stage
        work = Exporter(find_paths(daemon.root), ExportRequest(folder), ended.is_set, ended.wait, progress)
        with pytest.raises(Stopped):
            work.run()
        assert [path.name for path in folder.iterdir()] == [LOCK_NAME]


def test_a_folder_of_a_newer_version_is_left_alone(daemon: Daemon, tmp_path: Path) -> None:
    make(daemon.root, tmp_path)
    memory = tmp_path / ".postroom-export.json"
    memory.write_bytes(memory.read_bytes().replace(b'"format":2', b'"format":3'))
    with pytest.raises(Refused, match="newer version"):
        make(daemon.root, tmp_path)
    assert len(files(tmp_path)) == 1
