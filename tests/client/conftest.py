"""The interpreters of this machine, the client as an application vendors it, and a running daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from tempfile import gettempdir

import pytest

from postroom_client import Client

ROOT = Path(__file__).resolve().parents[2]
LEGACY = Path(__file__).resolve().parent / "legacy"
PACKAGE = ROOT / "packages" / "client" / "src" / "postroom_client"
collect_ignore = ["legacy"]  # run by each interpreter with unittest
#: What the client promises to run on. Where CI is set, those of ``REQUIRED`` must be there.
VERSIONS = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
REQUIRED = ("2.7", "3.6")
#: The oldest of each kind, and the newest: where the quick tests run, and those with a daemon.
QUICK = ("2.7", "3.6", "3.13")
PATIENCE_S = 60


@lru_cache
def available_interpreters() -> dict[str, str]:
    """Version to path, for the versions that the PATH or pyenv has."""

    def find(version: str) -> str:
        command = [str(ROOT / "scripts" / "find-python"), version]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()

    with ThreadPoolExecutor(len(VERSIONS)) as pool:
        paths = dict(zip(VERSIONS, pool.map(find, VERSIONS), strict=True))
    return {version: path for version, path in paths.items() if path}


def missing_interpreters() -> list[str]:
    return [version for version in VERSIONS if version not in available_interpreters()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A daemon is the same for every interpreter, and the client's own tests run on each: those with a daemon run on
    ``QUICK``, or on the newest if there is none of them."""
    if "interpreter" in metafunc.fixturenames:
        paths = available_interpreters()
        versions = list(paths)
        if "ipc_root" in metafunc.fixturenames:
            versions = [version for version in versions if version in QUICK] or versions[-1:]
        found = [
            pytest.param(paths[version], id=version, marks=() if version in QUICK else pytest.mark.slow)
            for version in versions
        ]
        metafunc.parametrize("interpreter", found, scope="session")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if available_interpreters.cache_info().currsize and missing_interpreters():
        missing = ", ".join(missing_interpreters())
        terminalreporter.write_line(f"the client was not tested on Python {missing}: not found by pyenv or on the PATH")


@pytest.fixture
def vendored(tmp_path: Path) -> Path:
    """A directory with a copy of the client's folder and nothing else."""
    subprocess.run(["cp", "-r", str(PACKAGE), str(tmp_path)], check=True)
    return tmp_path


@pytest.fixture(scope="session")
def ipc_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The mailbox of a daemon that runs."""
    root = tmp_path_factory.mktemp("daemon") / "root"
    log = root.with_suffix(".log")
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "postroom_daemon", "run", "--root", str(root)], stdout=output, stderr=output
        )
    try:
        with Client(root / "ipc", timeout=PATIENCE_S) as client:
            assert client.health()["status"] == "ok", log.read_text()
        yield root / "ipc"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        daemon.kill()
        daemon.wait()


def run(interpreter: str, directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter on the client vendored in ``directory``; warnings are errors there too."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROOM"))}
    return subprocess.run(
        [interpreter, "-W", "error", *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": str(directory), "TMPDIR": gettempdir(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=10 * PATIENCE_S,
    )
