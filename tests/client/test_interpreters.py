"""The client on every interpreter: its own tests, a vendored copy, and a real daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import LEGACY, REQUIRED, missing_interpreters, run

_IMPORT = """
import sys, os
before = set(sys.modules)
import postroom_client, postroom_client.cli, postroom_client.__main__
here = os.path.realpath(os.getcwd())
library = os.path.realpath(os.path.dirname(os.__file__))
for name in sorted(set(sys.modules) - before):
    path = getattr(sys.modules[name], "__file__", None)
    if path:
        path = os.path.realpath(path)
        assert "site-packages" not in path, path
        assert path.startswith((here + os.sep + "postroom_client" + os.sep, library + os.sep)), path
print(postroom_client.__version__)
"""


def test_the_oldest_versions_are_required_if_ci_is_set() -> None:
    missing = [version for version in REQUIRED if version in missing_interpreters()]
    assert not (os.environ.get("CI") and missing), f"CI needs Python {', '.join(missing)}, by pyenv or on the PATH"


def test_the_client_passes_its_tests(interpreter: str, vendored: Path, request: pytest.FixtureRequest) -> None:
    """On the versions between the oldest and the newest without those of the command line, which start a process each
    and are most of the time."""
    pattern = "test_*[!e].py" if request.node.get_closest_marker("slow") else "test_*.py"
    done = run(interpreter, vendored, "-m", "unittest", "discover", "-s", str(LEGACY), "-p", pattern)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_the_client_talks_to_a_daemon(interpreter: str, vendored: Path, ipc_root: Path) -> None:
    done = run(interpreter, vendored, str(LEGACY / "wire.py"), POSTROOM_IPC_ROOT=str(ipc_root))
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_the_client_works_on_queues(interpreter: str, vendored: Path, ipc_root: Path, tmp_path: Path) -> None:
    done = run(
        interpreter, vendored, str(LEGACY / "wire_work.py"), POSTROOM_IPC_ROOT=str(ipc_root), POSTROOM_OUT=str(tmp_path)
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout, done.stdout


@pytest.mark.parametrize("name", ["postroom_client", "unter einem anderen Dach"])
def test_a_copied_folder_needs_nothing_but_the_standard_library(interpreter: str, vendored: Path, name: str) -> None:
    directory = vendored
    if name != "postroom_client":
        directory = vendored / name
        directory.mkdir()
        (vendored / "postroom_client").rename(directory / "postroom_client")
    isolated = run(interpreter, directory, "-S", "-s", "-c", _IMPORT)
    assert isolated.returncode == 0, isolated.stdout
    version = run(interpreter, directory, "-S", "-s", "-m", "postroom_client", "--version")
    assert version.stdout == f"postroom {isolated.stdout}"
