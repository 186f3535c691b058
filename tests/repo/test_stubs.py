"""The client's type stubs say what its code does."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_stubs_agree_with_the_code(root, tmp_path):
    environment = dict(os.environ, MYPYPATH=str(root / "packages" / "client" / "src"))
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "postroom_client"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
