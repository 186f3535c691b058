"""The suite can be started where signals are ignored: by ``nohup``, or in the background of a script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TEST = """
import signal, subprocess, sys

def test_children():
    tell = "import signal; print([signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGINT)])"
    told = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True).stdout
    assert "SIG_IGN" not in told and told.count("SIG_DFL") + told.count("default_int_handler") == 2, told

def test_itself():
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_children_of_tests_get_signals_that_the_suite_ignores(processes: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", processes, "-o", f"pythonpath={ROOT}"]
    ignoring = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # no other plugin, whose start is most of the time
    run = subprocess.run([*ignoring, *command], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert "2 passed" in run.stdout, run.stdout + run.stderr
