"""Daemons, gateways, and commands of ``postroomd``, that start fast: forked from a process that has all imported."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import connection, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Lock

#: Everything that a daemon or a gateway imports, also what it imports only when it comes to it.
PRELOADED = [
    "jsonschema_rs",
    "postroom_daemon.cli.postroomd",
    "postroom_daemon.maintenance.system.permissions",
    "postroom_daemon.maintenance.verify",
    "postroom_daemon.platform.simulated_clock",
    "postroom_daemon.service.loop",
    "postroom_gateway.cli",
    "postroom_gateway.service",
    "watchdog.observers.inotify_c",
]


@cache
def _server() -> ForkServerContext:
    for name in PRELOADED:
        assert find_spec(name), f"{name} does not exist: the server would ignore that, and every daemon import it"
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Forked:
    """A process that runs ``postroomd`` with these words, as ``python -m postroom_daemon`` would, or another program of
    ours; used as a ``Popen``.

    ``environment`` is all that it has of an environment; what it says goes behind what is in ``log``.
    """

    def __init__(
        self, words: list[str], environment: dict[str, str], log: Path, program: str = "postroom_daemon"
    ) -> None:
        arguments = (words, environment, str(log), str(log), os.devnull, program)
        self._process = _server().Process(target=_run, args=arguments, daemon=True)
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
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return ended

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_command(words: list[str], environment: dict[str, str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The result of a command of ``postroomd``, as ``subprocess.run`` gives it. ``data`` is its standard input."""
    with tempfile.TemporaryDirectory() as directory:
        given, output, errors = (Path(directory) / name for name in ("input", "output", "errors"))
        given.write_bytes(data)
        process = _server().Process(target=_run, args=(words, environment, str(output), str(errors), str(given)))
        process.start()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, output.read_bytes(), errors.read_bytes())


def _run(
    words: list[str],
    environment: dict[str, str],
    output: str,
    errors: str,
    given: str = os.devnull,
    program: str = "postroom_daemon",
) -> None:
    """In the new process."""
    sys.stdin.close()
    os.dup2(os.open(given, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), stream)
    os.environ.clear()
    os.environ.update(environment)
    name = "postroomd" if program == "postroom_daemon" else program.replace("_", "-")
    sys.argv = [name, *words]
    main = import_module(f"{program}.cli").main
    try:
        main(words, prog_name=name)
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing ends without them
