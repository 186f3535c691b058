"""A real daemon in a process of its own, and its figures from the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom_client import Client

from .box import NO_BOX, Box

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_TICKS_S = os.sysconf("SC_CLK_TCK")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """To be called in a child process: it ends with the benchmark, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """``postroomd run`` on ``root``. ``ready_s`` is the time from its start to READY."""

    def __init__(self, root: Path, *flags: str, box: Box = NO_BOX) -> None:
        self.root = root
        self.ipc = root / "ipc"
        root.mkdir(parents=True, exist_ok=True)
        address = f"postroom-bench-{os.getpid()}-{time.monotonic_ns()}"
        self._log = (root / "daemon.log").open("ab")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind("\0" + address)
            listener.settimeout(READY_TIMEOUT_S)

            def enter() -> None:
                die_with_parent()
                box.enter()

            started = time.monotonic()
            self._process = subprocess.Popen(
                [*box.prefix, sys.executable, "-m", "postroom_daemon", "run", "--root", str(root), *flags],
                env=_environment() | {"NOTIFY_SOCKET": "@" + address},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                preexec_fn=enter,  # noqa: PLW1509 - no thread is running here
            )
            self.pid = self._process.pid
            self._wait_for_ready(listener)
            self.ready_s = time.monotonic() - started
        self.client = Client(str(self.ipc), client_id="observer", timeout=30.0, transport="mailbox")

    def _wait_for_ready(self, listener: socket.socket) -> None:
        listener.settimeout(0.2)
        until = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                if b"READY=1" in listener.recv(1024):
                    return
            except TimeoutError:
                continue
        self._process.kill()
        self._process.wait()
        self._log.close()
        raise RuntimeError(f"the daemon did not start; its log says:\n{(self.root / 'daemon.log').read_text()[-2000:]}")

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """End ``pause``."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_idle(self) -> None:
        """Wait until it waits for something to do: only then is ``scheduled_s`` complete."""
        until = time.monotonic() + STOP_TIMEOUT_S
        while _stat(self.pid)[0] != "S" and time.monotonic() < until:
            time.sleep(0.0005)

    def stop(self) -> None:
        """Stop it cleanly. One that does not stop is killed, which is an error."""
        if self._process.returncode is not None:
            return
        self.client.close()
        self.go_on()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"the daemon did not stop within {STOP_TIMEOUT_S:g} s") from None
        finally:
            self._log.close()
        if code:
            raise RuntimeError(f"the daemon ended with {code}: {(self.root / 'daemon.log').read_text()[-2000:]}")

    def cpu_s(self) -> float:
        """CPU seconds that it has used, user and system."""
        return cpu_s(self.pid)

    def kernel_s(self) -> float:
        """The part of ``cpu_s`` spent in system calls."""
        return int(_stat(self.pid)[12]) / _TICKS_S

    def scheduled_s(self) -> float:
        """The same of its main thread, in nanoseconds' resolution."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def resident_mb(self) -> float:
        """Resident memory."""
        return resident_mb(self.pid)

    def groups(self) -> dict[str, int]:
        """The daemon's own count of groups, their requests and events."""
        metrics: dict[str, Any] = self.client.metrics()
        return {"count": 0, "requests": 0, **metrics["groups"]}


@contextmanager
def running(root: Path, *flags: str, box: Box = NO_BOX) -> Iterator[Daemon]:
    """A daemon for the length of a block."""
    daemon = Daemon(root, *flags, box=box)
    try:
        yield daemon
    finally:
        daemon.stop()


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, user and system."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def threads_cpu_s(pid: int) -> float:
    """The same of the threads that it has now, in nanoseconds' resolution."""
    total_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def directory_bytes(path: Path) -> int:
    """The sizes of all files below a directory."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
