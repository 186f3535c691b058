"""The console without a screen: tables, JSON, lines, and exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_console.data.filters import FilterError
from postroom_console.data.link import Refused, Unreachable
from postroom_console.data.model import Model
from postroom_console.data.replay import Replay
from postroom_console.data.tails import Reader
from postroom_console.data.text import width
from postroom_console.plain import Reading, as_json, as_table, read_last, watch
from tests.console.lines import event_line, request_line
from tests.console.test_data_record import INCIDENT, Clock, write
from tests.wire.daemon import PATIENCE_S, Daemon, wait_until

JOURNAL = "journal/00000000000000000001.jsonl"
TRAFFIC = "traffic/00000000000000000001.jsonl"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A journal and a traffic log with a few lines, and no daemon."""
    made = tmp_path / "device"
    for name, data in (
        (JOURNAL, event_line(1, queue="alarms") + event_line(2, "died", queue="수집-센서", engineMs=30)),
        (TRAFFIC, request_line("publish", engineMs=20) + request_line("health", "ERR_X", queue="", engineMs=40)),
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    return made


class Watched:
    """What ``watch`` has written and warned of; left after so many looks."""

    def __init__(self, root: Path, queue: str = "", wanted: str = "", looks: int = 3, **options: Any) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self._looks = looks
        reader = Reader(root / "journal", root / "traffic")
        try:
            watch(reader, queue, wanted, 80, self.lines.append, self.warnings.append, self._is_left, **options)
        finally:
            reader.close()

    def _is_left(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def console(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command, with its standard output in a pipe."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-m", "postroom_console", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        **options,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def begun() -> Iterator[list[subprocess.Popen[str]]]:
    """Commands that still run, ended in any case."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


#: Starts a program as a script's background job, or ``nohup``, does.
IGNORING = ("sh", "-c", 'trap "" INT HUP; exec "$@"', "sh")


def begin(
    begun: list[subprocess.Popen[str]], *words: str | Path, wrapper: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*wrapper, sys.executable, "-m", "postroom_console", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun.append(process)
    return process


# --- one reading --------------------------------------------------------------------------------------------------


def reading(**queue: Any) -> Reading:
    model = Model()
    one = {"queue": "q\x1b[2J", "ready": 3, "inflight": 1, "delayed": 0, "dlq": 2, "oldestReadyAgeMs": 252_000, **queue}
    model.take("health", {"status": "ok", "nodeId": "site-a"}, 0)
    model.take("queues", {"queues": [one], "asOfEvent": 7, "engineNowMs": 99}, 0)
    lease = {"messageKey": "msg:q:01", "queue": "q", "consumerId": "w-1", "attempt": 1, "leasedAtEngineMs": 0}
    model.take("leases", {"messages": [{**lease, "leaseUntilEngineMs": 30_000}], "engineNowMs": 10_000}, 0)
    letter = {"messageKey": "msg:q:02", "queue": "q", "dlqAt": 0, "reasonCode": "REJECTED", "reason": "\u202eno"}
    model.take("dead:q", {"messages": [letter]}, 0)
    return Reading(model, 0)


@pytest.mark.parametrize("cells", [40, 60, 80, 120])
def test_a_table_has_no_line_that_is_too_wide_and_no_control_characters(cells: int) -> None:
    lines = list(as_table(reading(), cells))
    assert [line for line in lines if width(line) > max(cells, 57) or not line.isprintable()] == []


def test_a_table_shows_queues_leases_and_dead_letters() -> None:
    text = "\n".join(as_table(reading(), 100))
    for words in (
        "site-a RUN | 1 queue | dead 2! | oldest 4m12",
        "q\\x1b[2J",
        "1 LEASE",
        "2 DEAD LETTERS",
        "\\u202eno",
    ):
        assert words in text
    assert "20s [=======   ]" in text


def test_json_has_these_fields_and_says_what_is_incomplete() -> None:
    reported = json.loads(as_json(reading()))
    assert list(reported) == [
        *("format", "health", "queues", "inflight", "deadLetters", "more", "asOfEvent", "engineNowMs", "recordedAtMs")
    ]
    assert (reported["format"], reported["asOfEvent"], reported["engineNowMs"], reported["recordedAtMs"]) == (
        1,
        7,
        99,
        None,
    )
    assert reported["queues"][0]["queue"] == "q\x1b[2J"
    assert reported["more"] == ["deadLetters"]
    assert json.loads(as_json(reading(dlq=1)))["more"] == []


def test_the_end_of_a_recording_is_a_reading(tmp_path: Path) -> None:
    replay = Replay(write(tmp_path / "r", INCIDENT, wall_ms=lambda: 1_795_857_482_000), Clock())
    reported = read_last(replay)
    replay.stop()
    fields = json.loads(as_json(reported))
    assert (fields["asOfEvent"], fields["recordedAtMs"]) == (90, 1_795_857_482_000 + 90_010)
    assert fields["health"] == {}
    first, *_ = as_table(reported, 80)
    assert first.startswith("REPLAY 2026-11-")


# --- lines --------------------------------------------------------------------------------------------------------


def test_the_tail_is_written_line_by_line_in_the_order_of_engine_time(root: Path) -> None:
    lines = Watched(root).lines
    assert [line[10:21].strip() for line in lines] == ["published", ">publish", "died", ">health"]
    assert [line[0] for line in lines] == [" ", " ", "!", "!"]
    assert all(width(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("queue", "wanted", "kinds"),
    [("alarms", "", ["published", ">publish"]), ("", "ev:died", ["died"]), ("alarms", "ev:died", [])],
)
def test_a_queue_and_a_filter_leave_lines_out(root: Path, queue: str, wanted: str, kinds: list[str]) -> None:
    assert [line[10:21].strip() for line in Watched(root, queue, wanted).lines] == kinds


def test_lines_may_be_written_unchanged(root: Path) -> None:
    raw = "\n".join(Watched(root, raw=True, follow=False).lines)
    assert sorted(raw.encode().splitlines()) == sorted(
        b"".join((root / name).read_bytes() for name in (JOURNAL, TRAFFIC)).splitlines()
    )


def test_without_following_it_ends_after_the_existing_lines(root: Path) -> None:
    assert len(Watched(root, follow=False, looks=10**9).lines) == 4


def test_skipped_lines_are_warned_of_and_not_written(root: Path) -> None:
    with (root / JOURNAL).open("ab") as file:
        file.write(b"no event\n" + event_line(9))
    watched = Watched(root, follow=False)
    assert watched.warnings == ["bad lines 1; missing 5"]
    assert len(watched.lines) == 5


def test_one_of_two_logs_is_enough(root: Path) -> None:
    (root / TRAFFIC).unlink()
    (root / TRAFFIC).parent.rmdir()
    watched = Watched(root)
    assert len(watched.lines) == 2
    assert watched.warnings == [f"{root}/traffic: No such file or directory"]


def test_a_tail_that_cannot_be_read_at_all_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="No such file"):
        Watched(tmp_path)
    for name in ("journal", "traffic"):
        (tmp_path / name).write_text("no directory")
    with pytest.raises(Refused, match="Not a directory"):
        Watched(tmp_path)


def test_an_invalid_filter_is_an_error_before_anything_is_written(root: Path) -> None:
    with pytest.raises(FilterError):
        Watched(root, wanted="~(")


# --- the command --------------------------------------------------------------------------------------------------


def test_a_reading_of_a_running_daemon(daemon: Daemon) -> None:
    daemon.publish("수집-센서", "x")
    table = console("--root", daemon.root, "--once")
    assert (table.returncode, table.stderr) == (0, "")
    assert "수집-센서" in table.stdout
    reported = console("--root", daemon.root, "--json")
    assert reported.returncode == 0
    assert json.loads(reported.stdout)["queues"][0]["ready"] == 1


def test_without_a_terminal_there_is_one_reading_and_a_hint(daemon: Daemon) -> None:
    done = console("--root", daemon.root)
    assert done.returncode == 0
    assert "0 queues" in done.stdout
    assert done.stderr == "postroom-console: not a terminal: --once, --json and watch work without a screen\n"


@pytest.mark.parametrize("words", [["--once"], ["--json"], ["watch"]])
def test_no_daemon_is_exit_status_3(tmp_path: Path, words: list[str]) -> None:
    done = console("--root", tmp_path / "none", *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("postroom-console: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense"],
        ["watch", "--filter", "~("],
        ["--record", "x", "--replay", "y"],
        ["--record", "x", "--once"],
        ["--record", "x", "watch"],
        ["--replay", "x", "watch"],
        ["--width", "0", "--once"],
    ],
)
def test_wrong_usage_is_exit_status_2(root: Path, words: list[str]) -> None:
    done = console("--root", root, *words, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (root / "x").exists()


@pytest.mark.parametrize("words", [["--once"], ["--json"]])
def test_something_that_is_not_a_recording_is_exit_status_1(tmp_path: Path, words: list[str]) -> None:
    for name, data, reason in (("none", None, "No such file"), ("foreign", b"hello\n", "not a recording of a console")):
        if data:
            (tmp_path / name).write_bytes(data)
        done = console("--replay", tmp_path / name, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"postroom-console: {tmp_path / name}: ") and reason in done.stderr


def test_the_last_state_of_a_recording_is_printed(tmp_path: Path) -> None:
    path = write(tmp_path / "r", INCIDENT)
    assert "alarms" in console("--replay", path, "--once").stdout
    assert json.loads(console("--replay", path, "--json").stdout)["asOfEvent"] == 90
    with path.open("ab") as file:
        file.write(b"damage")
    done = console("--replay", path, "--once")
    assert done.returncode == 0
    assert "1 damaged line" in done.stderr


@pytest.mark.parametrize("wrapper", [(), IGNORING], ids=["default", "SIGINT ignored by the starter"])
def test_lines_are_written_until_it_is_interrupted(
    root: Path, begun: list[subprocess.Popen[str]], wrapper: tuple[str, ...]
) -> None:
    process = begin(begun, "--root", root, "watch", wrapper=wrapper)
    assert process.stdout
    seen = [process.stdout.readline() for _ in range(4)]
    assert "died" in seen[2] and "수집-센서" in seen[2]
    with (root / JOURNAL).open("ab") as file:
        file.write(event_line(3, "acked"))
    assert "acked" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 130


def test_it_ends_silently_when_nobody_reads_any_more(root: Path, begun: list[subprocess.Popen[str]]) -> None:
    process = begin(begun, "--root", root, "watch")
    assert process.stdout and process.stderr
    assert len([process.stdout.readline() for _ in range(4)]) == 4  # there is nothing more to write
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0
    assert process.stderr.read() == ""


def test_head_ends_a_long_output_silently(root: Path) -> None:
    (root / JOURNAL).write_bytes(b"".join(event_line(number) for number in range(1, 1000)))
    (root / TRAFFIC).write_bytes(request_line() * 1000)  # together more than a pipe holds
    command = f"{sys.executable} -m postroom_console --root {root} watch --json --no-follow"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("redirection", "status", "reported"), [(">&-", 0, ""), (">/dev/full", 1, "No space left on device")]
)
def test_an_output_that_accepts_nothing_is_an_orderly_error(
    tmp_path: Path, redirection: str, status: int, reported: str
) -> None:
    path = write(tmp_path / "r", INCIDENT)
    command = f"{sys.executable} -m postroom_console --replay {path} --json {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == (f"postroom-console: {reported}\n" if reported else "")


def test_a_terminal_of_another_encoding_gets_escapes(root: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = console("--root", root, "watch", "--no-follow", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\uc218\\uc9d1" in done.stdout


@pytest.mark.parametrize("wrapper", [(), IGNORING], ids=["default", "SIGINT ignored by the starter"])
def test_a_session_is_recorded_without_a_screen_and_printed_again(
    daemon: Daemon, tmp_path: Path, begun: list[subprocess.Popen[str]], wrapper: tuple[str, ...]
) -> None:
    daemon.publish("alarms", "a body")
    path = tmp_path / "incident"
    process = begin(begun, "--root", daemon.root, "--record", path, wrapper=wrapper)
    wait_until(
        lambda: path.exists() and b'"leases"' in path.read_bytes() and b"a body" in path.read_bytes(), "it is there"
    )
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, reported.count("\n")) == (130, 1)
    fields = json.loads(console("--replay", path, "--json").stdout)
    assert fields["queues"][0]["queue"] == "alarms"
    assert fields["health"]["status"] == "ok"
    again = console("--root", daemon.root, "--record", path)
    assert again.returncode == 1
    assert again.stderr.endswith(f"postroom-console: {path}: File exists\n")
