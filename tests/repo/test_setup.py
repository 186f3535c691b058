"""scripts/setup does nothing, and needs no network, when nothing has changed; an interpreter is found by running it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_a_second_setup_changes_nothing_and_needs_no_network_and_no_home(root, tmp_path):
    if not sys.executable.startswith(str(root / ".venv")):
        pytest.skip("not run from the environment that scripts/setup made")
    before = (root / ".venv" / "postroom-setup.stamp").stat().st_mtime_ns
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    run = subprocess.run([root / "scripts" / "setup"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert (root / ".venv" / "postroom-setup.stamp").stat().st_mtime_ns == before
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_is_not_there_is_not_found(root, tmp_path):
    run = subprocess.run([root / "scripts" / "find-python", "2.6", "9.9"], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")


def test_the_first_interpreter_that_is_there_is_found(root):
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    run = subprocess.run([root / "scripts" / "find-python", "9.9", wanted], capture_output=True, text=True)
    assert run.returncode == 0
    found = subprocess.run(
        [run.stdout.strip(), "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
    )
    assert found.stdout.strip() == str(sys.version_info[:2])
