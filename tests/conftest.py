"""Rules for every test: with CI set, a skipped test is a failed one; what takes long begins first."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# On a loaded machine a slow example says nothing about the code.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")

MEMORY = Path("/dev/shm")
#: So much must be free there: a few roots at a time, each with its reserve.
ROOM_BYTES = 2**30


def use_memory_for_roots() -> None:
    """Fresh directories are in memory where there is room: no power is cut here, so it is the order of calls that
    counts, not the medium. ``PYTEST_DEBUG_TEMPROOT`` names another place."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        tempfile.tempdir = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def compile_once() -> None:
    """A thousand daemons are started: what they import is compiled once, outside the tree if no bytecode is wished in
    it."""
    if sys.dont_write_bytecode and not sys.pycache_prefix:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


use_memory_for_roots()
compile_once()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files with slow tests come first, so that no worker is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure in CI: {report.longrepr}"
    return report
