"""scripts/start: its programs never use the user's own mailbox, and wrong options are reported in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch import Ended, Program, own_environment

LAUNCH = Path(__file__).resolve().parents[2] / "examples" / "telemetry" / "launch.py"
PATIENCE_S = 60


def start(*arguments, **environment):
    line = [sys.executable, str(LAUNCH), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **environment})


def test_started_programs_inherit_no_postroom_settings():
    environ = {"POSTROOM_IPC_ROOT": "/mine/ipc", "POSTROOM_ROOT": "/mine", "PATH": "/bin"}
    assert own_environment(environ) == {"PATH": "/bin", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


@pytest.mark.slow
def test_an_exported_ipc_root_is_left_alone(tmp_path):
    mine = tmp_path / "mine"
    run = start("--root", str(tmp_path / "run"), "--seconds", "2", POSTROOM_IPC_ROOT=str(mine))
    assert run.returncode == 0, run.stderr
    assert not mine.exists()
    assert (tmp_path / "run" / "ipc" / "requests").is_dir()


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--root", "/proc/x"], "start: --root /proc/x: cannot be created: "),
        (["--python", "/nope"], "start: --python /nope: cannot be run: No such file or directory"),
        (["--python", "/bin/false"], "start: --python /bin/false: is not a working Python"),
        (["--seconds", "0"], "start: --seconds 0: expected a number above 0"),
        (["--seconds", "nan"], "start: --seconds nan: expected a number above 0"),
    ],
)
def test_an_impossible_option_is_reported_in_one_line(tmp_path, arguments, reported):
    run = start("--root", str(tmp_path / "run"), *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(reported)
    assert run.stderr.count("\n") == 1


def test_logs_are_appended_and_only_lines_of_this_start_are_shown(tmp_path):
    log = tmp_path / "p.log"
    for word in ("first", "second"):
        program = Program("p", [sys.executable, "-c", f"raise SystemExit('{word}')"], log, tmp_path)
        assert program.wait(PATIENCE_S) == 1
        with pytest.raises(Ended) as caught:
            program.check()
        assert word in str(caught.value)
    assert "first" not in str(caught.value)
    assert log.read_text() == "first\nsecond\n"


def test_an_interrupt_during_the_start_of_a_program_waits_until_the_program_is_registered():
    program = """
import signal
from launch import Interrupts
interrupts = Interrupts()
try:
    with interrupts.deferred():
        signal.raise_signal(signal.SIGTERM)
        print("registered")
except KeyboardInterrupt:
    print("interrupted")
"""
    environment = dict(os.environ, PYTHONPATH=str(LAUNCH.parent))
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (run.stdout.split(), run.stderr) == (["registered", "interrupted"], "")
