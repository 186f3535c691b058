"""Daemons that start fast: forked from a process that has imported everything already."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from multiprocessing import connection, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Lock

#: Everything that a daemon imports.
PRELOADED = [
    "postroom_daemon.cli.postroomd",
    "postroom_daemon.service.loop",
    "postroom_daemon.maintenance.system.permissions",
]


@cache
def _server() -> ForkServerContext:
    for name in PRELOADED:
        assert find_spec(name), f"{name} does not exist: the server would ignore that, and every daemon import it"
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Forked:
    """A process that runs ``postroomd`` with these words, as ``python -m postroom_daemon`` would; used as a ``Popen``.

    ``environment`` is all that it has of an environment; what it says goes behind what is in ``log``.
    """

    def __init__(self, words: list[str], environment: dict[str, str], log: Path) -> None:
        self._process = _server().Process(target=_run, args=(words, environment, str(log)), daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid: int = self._process.pid
        self._asking = Lock()

    def poll(self) -> int | None:
        with self._asking:  # its end is told once: of two threads the other would read nothing
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        connection.wait([self._process.sentinel], timeout)
        ended = self.poll()
        if ended is None:
            raise subprocess.TimeoutExpired(["postroomd"], timeout or 0)
        return ended

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(words: list[str], environment: dict[str, str], log: str) -> None:
    """In the new process."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["postroomd", *words]

    from postroom_daemon.cli import main

    try:
        main(words, prog_name="postroomd")
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing ends without them
