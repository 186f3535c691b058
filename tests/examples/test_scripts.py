"""scripts/setup where pip gets nothing: what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_setup_without_network_says_how_long_it_takes_and_what_is_wrong(tmp_path):
    copied = [CHECKOUT / "constraints.txt", CHECKOUT / "pyproject.toml", *(CHECKOUT / "scripts").iterdir()]
    for package in (CHECKOUT / "packages").iterdir():
        copied += [*package.glob("pyproject.toml"), *package.glob("src/*/__init__.py")]
    for path in copied:
        target = tmp_path / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    run = subprocess.run([tmp_path / "scripts" / "setup"], env=environment, capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    first, *_, last = run.stderr.splitlines()
    assert first.startswith(f"setup: making {tmp_path}/.venv with Python 3.")
    assert first.endswith(" (half a minute)")
    assert last == "setup: pip could not get the packages (is there a network?); see above"
