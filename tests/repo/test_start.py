"""scripts/start: real telemetry flows through a real daemon, and nothing is left running."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from pathlib import Path

import pytest

PATIENCE_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture
def running(tmp_path):
    """What still runs on the test's directory; ended after the test, whatever happened."""

    def find():
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                words = (directory / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if any(str(tmp_path) in word for word in words):
                found[int(directory.name)] = " ".join(words)
        return found

    yield find
    for pid in find():
        os.kill(pid, signal.SIGKILL)


def command(root, directory, *arguments):
    launch = root / "examples" / "telemetry" / "launch.py"
    return [sys.executable, str(launch), "--root", str(directory / "run"), *arguments]


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_without_a_terminal_it_runs_a_while_and_prints_the_traffic(root, tmp_path, running):
    run = subprocess.run(
        command(root, tmp_path, "--seconds", "8"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "telemetry.accepted" in run.stdout
    assert "RUN" in run.stdout
    assert "\x1b" not in run.stdout
    assert "all stopped" in run.stderr
    assert not running()
    for name in ("sensor", "inspector", "worker"):
        log = (tmp_path / "run" / "log" / f"{name}.log").read_text()
        assert log.splitlines()[-1] == f"{name}: stopped"
        assert "error" not in log.lower()


def test_the_gateway_is_started_if_it_is_wanted(root, tmp_path, running):
    (tmp_path / "run").mkdir()
    configuration = '[daemon]\nsocket = "ipc/lane.sock"\n[observe]\nport = 0\n[doors.lmq-http]\nport = 0\n'
    (tmp_path / "run" / "gateway.toml").write_text(configuration)
    log = tmp_path / "run" / "log" / "gateway.log"
    launcher = subprocess.Popen(
        command(root, tmp_path, "--with-gateway", "--seconds", "60"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        wait_for("the gateway is connected", lambda: log.exists() and "connected to the daemon" in log.read_text())
        port = re.findall(r"door lmq-http at 127.0.0.1 port (\d+)", log.read_text())[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/messages/q", b"x", PATIENCE_S) as answer:
            assert answer.read() == b'{"accum":"no"}'
        json_type = {"content-type": "application/json"}
        url = f"http://127.0.0.1:{port}/properties/q"
        with urllib.request.urlopen(
            urllib.request.Request(url, b'{"retry":1}', json_type, method="PATCH"), timeout=PATIENCE_S
        ) as answer:
            assert answer.status == 204, "LMQ's clients may do what LMQ lets them do"
    finally:
        launcher.terminate()
        _, errors = launcher.communicate(timeout=PATIENCE_S)
    assert errors.splitlines()[-1] == b"start: all stopped"
    assert log.read_text().splitlines()[-1].find('"message":"stopped"') > 0
    assert not running()


@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_the_application_runs_unchanged_on_an_old_python(version, root, tmp_path, running):
    found = subprocess.run([root / "scripts" / "find-python", version], capture_output=True, text=True).stdout.strip()
    if not found:
        pytest.skip(f"this machine has no Python {version}")
    run = subprocess.run(
        command(root, tmp_path, "--seconds", "8", "--python", found), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stdout + run.stderr
    worked = (tmp_path / "run" / "log" / "worker.log").read_text()
    assert "worker: memory: " in worked
    assert "worker: stopped" in worked
    assert (tmp_path / "run" / "log" / "inspector.log").read_text() == "inspector: stopped\n"
    assert not running()


def test_on_a_terminal_it_opens_the_console_until_that_is_left(root, tmp_path, running):
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, command(root, tmp_path))
    screen = b""
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        while b"telemetry.accepted" not in screen:
            screen += os.read(terminal, 65536)
        os.write(terminal, b"q")
        while True:
            screen += os.read(terminal, 65536)
    except OSError:  # the terminal is closed: it has ended
        pass
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, screen.decode()
    assert b"QUEUE" in screen
    assert b"all stopped" in screen
    assert not running()


def test_if_a_program_ends_it_says_which_and_why_and_stops_the_others(root, tmp_path, running):
    launcher = subprocess.Popen(
        command(root, tmp_path, "--seconds", "60"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def worker():
        return [pid for pid, words in running().items() if "worker.py" in words]

    wait_for("the worker does not run", worker)
    os.kill(worker()[0], signal.SIGKILL)
    _, errors = launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 1
    assert "worker was ended by signal 9" in errors
    assert "worker.log" in errors
    assert not running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_even_where_the_starter_ignores_interrupts_but_nohup_keeps_it_running(
    number, root, tmp_path, running
):
    ignoring = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"]
    launcher = subprocess.Popen(
        [*ignoring, *command(root, tmp_path, "--seconds", "600")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    wait_for("the worker does not run", lambda: any("worker.py" in words for words in running().values()))
    launcher.send_signal(signal.SIGHUP)
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=PATIENCE_S)
    assert (launcher.returncode, errors.splitlines()[-1]) == (0, b"start: all stopped")
    assert not running()


def test_a_root_in_use_is_left_alone(root, tmp_path, running):
    first = subprocess.Popen(
        command(root, tmp_path, "--seconds", "60"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for("the sensor does not run", lambda: any("sensor.py" in words for words in running().values()))
    second = subprocess.run(
        command(root, tmp_path, "--seconds", "1"), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert second.returncode == 1
    assert "serves" in second.stderr
    assert "--root" in second.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0
    assert not running()
