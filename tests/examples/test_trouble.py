"""The telemetry programs say that the daemon is gone once, then at growing intervals, and when it is back."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

APPLICATION = Path(__file__).resolve().parents[2] / "examples" / "telemetry" / "application"
DEADLINE_S = 60


def trouble(name):
    spec = importlib.util.spec_from_file_location("trouble", APPLICATION / "trouble.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Trouble(name)


def test_failures_are_reported_at_growing_intervals(capsys):
    one = trouble("sensor")
    for _ in range(100):
        one.note("no daemon")
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == "sensor: no daemon"
    assert reported[1:] == [f"sensor: no daemon (failure {number} in a row)" for number in (10, 20, 40, 80)]


def test_the_end_of_failures_is_reported_once_and_the_next_failure_at_once(capsys):
    one = trouble("sensor")
    one.over()
    one.note("gone")
    one.note("gone")
    one.over()
    one.over()
    one.note("gone again")
    reported = capsys.readouterr().err.splitlines()
    assert reported == ["sensor: gone", "sensor: works again, after 2 failures", "sensor: gone again"]


@pytest.mark.slow
def test_a_sensor_without_a_daemon_reports_it_and_stops_when_asked(tmp_path):
    for name in ("requests", "responses"):
        (tmp_path / "ipc" / name).mkdir(parents=True)
    client = APPLICATION.parents[2] / "packages" / "client" / "src"
    line = [sys.executable, str(APPLICATION / "sensor.py"), "--ipc-root", str(tmp_path / "ipc"), "--every", "0.01"]
    environment = {**os.environ, "PYTHONPATH": str(client), "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "log").open("wb") as log:
        sensor = subprocess.Popen(line, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while b" is lost: " not in (tmp_path / "log").read_bytes():
            assert sensor.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sensor.send_signal(signal.SIGTERM)
        assert sensor.wait(DEADLINE_S) == 0
    finally:
        sensor.kill()
        sensor.wait()
    reported = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in reported if " is lost: " in line]) == 1
    assert reported[-1] == "sensor: stopped"
