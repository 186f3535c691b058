"""scripts/setup where pip gets nothing: what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pip
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
[ "$1 $2" = "-m venv" ] && shift 2 && set -- -m venv --without-pip "$@"
exec '{python}' "$@"
"""


@pytest.mark.slow
def test_a_setup_without_network_says_how_long_it_takes_and_what_is_wrong(tmp_path):
    copied = [CHECKOUT / "constraints.txt", CHECKOUT / "pyproject.toml", *(CHECKOUT / "scripts").iterdir()]
    for package in (CHECKOUT / "packages").iterdir():
        copied += [*package.glob("pyproject.toml"), *package.glob("src/*/__init__.py")]
    for path in copied:
        target = tmp_path / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    python, lent = tmp_path / "python", tmp_path / "lent"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    lent.mkdir()
    (lent / "pip").symlink_to(Path(pip.__file__).parent)  # to install one would take longer than all the rest
    environment = {"PATH": os.environ["PATH"], "PYTHON": python, "PYTHONPATH": lent, "PIP_NO_INDEX": "1"}
    environment |= {"PIP_FIND_LINKS": ""}
    run = subprocess.run([tmp_path / "scripts" / "setup"], env=environment, capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    first, *_, last = run.stderr.splitlines()
    assert first.startswith(f"setup: making {tmp_path}/.venv with Python 3.")
    assert first.endswith(" (half a minute)")
    assert "No module named" not in run.stderr
    assert last == "setup: pip could not get the packages (is there a network?); see above"
