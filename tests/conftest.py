"""Rules for every test: in CI a skipped test is a failed one; what takes long begins first; Spark starts once."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# On a loaded machine a slow example says nothing about the code.
settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")

MEMORY = Path("/dev/shm")
PIPELINE = "tests/pipeline/"
#: Its files that need a session of Spark of their worker, by the session that they share. One worker with all of them
#: would be the last to finish.
SESSIONS = {
    "reports": ("gold", "incremental", "report"),
    "tables": ("admission", "compact", "connect", "follow", "ingest", "mirror", "run_log", "session", "warehouse"),
}
SESSION_OF = {f"{PIPELINE}test_{name}.py": which for which, names in SESSIONS.items() for name in names}
#: Files of many tests, none of which is slow: together they take more than 20 s.
LONG = (
    "tests/console/test_languages.py",
    "tests/console/test_screens.py",
    "tests/console/test_screens_acting.py",
    "tests/console/test_terminal_ends.py",
    "tests/console/test_terminal_kinds.py",
    "tests/daemon/test_cli_local.py",
    "tests/daemon/test_damage_matrix.py",
    "tests/daemon/test_repair.py",
    "tests/daemon/test_state.py",
    "tests/daemon/test_verify.py",
    "tests/examples/test_fleet.py",
    "tests/wire/test_cpp_root.py",
    "tests/wire/test_damage.py",
    "tests/wire/test_dead_letters.py",
    "tests/wire/test_exactly_once.py",
)
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


def pytest_configure(config: pytest.Config) -> None:
    """Let the tests' children start with signals as they are by default, also under ``nohup`` or in the background.

    A child inherits a signal that its parent ignores, but not one that its parent handles: this process goes on
    ignoring what it was started to ignore, by a handler that does nothing. With xdist the workers do that; the process
    that started them has no other children.
    """
    if config.getoption("numprocesses", None):
        return
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_report_header() -> str:
    return f"postroom_daemon: {'compiled' if is_compiled() else 'interpreted'}"


def is_compiled() -> bool:
    """Whether the daemon's hot path is machine code here (``scripts/test --compiled``)."""
    found = find_spec("postroom_daemon.broker.broker")
    return found is not None and str(found.origin).endswith(".so")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """The files that share a session of Spark come first, then the pipeline's others and those with slow or very many
    tests, so that no worker is left alone with one at the end. A compiled daemon is not asked for what only an
    interpreted one can do."""
    if is_compiled():
        left_out = [item for item in items if item.get_closest_marker("interpreted")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    early = slow | {config.rootpath / file for file in LONG}
    early |= {item.path for item in items if item.nodeid.startswith(PIPELINE)}
    items.sort(key=lambda item: (item.nodeid.partition("::")[0] not in SESSION_OF, item.path not in early))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: the collector of garbage need not look through all of them each time."""
    gc.disable()
    collected = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return collected


class FewSessions(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests are run by one worker, and those that share a session of Spark, too: its start, and all that Java
    has to compile, cost more than most of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return SESSION_OF.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return FewSessions(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure in CI: {report.longrepr}"
    return report
