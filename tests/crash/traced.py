"""The same lives in a process of its own, whose system calls strace makes fail: SQLite's calls go past any seam.

The process is a fork that waits until strace holds it, so that calls are counted from the life's first on. strace
cannot make a write short: it would only be told so.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.crash.office import Server

#: System calls by what can go wrong at them.
SYSTEM_CALLS: Final[dict[str, tuple[str, ...]]] = {
    "KILL": ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "openat", "rename", "renameat", "unlink",
             "unlinkat", "mkdirat", "fallocate"),
    "ENOSPC": ("pwrite64", "write", "ftruncate", "openat", "mkdirat", "renameat", "fallocate"),
    "EDQUOT": ("pwrite64", "write", "openat", "mkdirat", "fallocate"),
    "EIO": ("pwrite64", "pread64", "write", "fdatasync", "fsync", "ftruncate", "openat", "renameat", "unlink",
            "unlinkat"),
    "EROFS": ("pwrite64", "write", "ftruncate", "openat", "renameat", "unlink", "unlinkat", "mkdirat"),
    "EMFILE": ("openat",),
}  # fmt: skip
#: For ever, this is a disk that cannot be read: its journal is set aside, and what was answered is not to be seen.
NOT_FOR_EVER: Final = {("EIO", "openat")}
#: Longest step of a process that is not stuck (s).
STUCK_S: Final = 20
HOW_TO_GET_STRACE: Final = "strace is missing: install it (Debian: apt-get install strace)"
_PR_SET_PTRACER: Final = 0x59616D61
_ANYBODY: Final = ctypes.c_ulong(-1)


def find_strace() -> str:
    """The path of strace. Raises ``AssertionError`` that says how to get it."""
    found = shutil.which("strace")
    assert found, HOW_TO_GET_STRACE
    return found


class RemoteServer:
    """A ``Server`` in a forked process. A step of a process that has died does nothing."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.bench = server.bench
        self.problem = ""
        self.fault: Fault | None = None
        self._orders, child_orders = os.pipe()[::-1]
        child_answers, self._answers = os.pipe()[::-1]
        self.pid = os.fork()
        if not self.pid:
            os.close(self._orders)
            os.close(self._answers)
            _serve(server, child_orders, child_answers)
        os.close(child_orders)
        os.close(child_answers)

    def order(self, step: str) -> bool:
        """Let it do a step. Whether that went well; False from one that is dead."""
        try:
            os.write(self._orders, step.encode() + b"\n")
            if not select.select([self._answers], [], [], STUCK_S)[0] and self.fault:
                self.fault.let_die()
            return os.read(self._answers, 1) == b"y"
        except BrokenPipeError:
            return False

    def open(self) -> bool:
        return self.order("open")

    def turn(self) -> None:
        self.order("turn")

    def checkpoint(self) -> None:
        self.order("checkpoint")

    def stop(self) -> None:
        self.order("stop")

    def close(self) -> None:
        self.order("close")

    def serves(self) -> bool:
        """Whether it lives, and its root is open."""
        return self.order("serves")

    def pass_ms(self, milliseconds: int) -> None:
        self.bench.hands.pass_ms(milliseconds)  # here, for what comes after the process
        self.order(f"pass_ms {milliseconds}")

    def end(self) -> None:
        """End the process, if it is still there."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def _serve(server: Server, orders: int, answers: int) -> None:
    """The life of the forked process. Its own words go by calls that no fault is put into."""
    logging.disable(logging.CRITICAL)
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    try:
        while order := _read_line(orders):
            step, _, argument = order.partition(" ")
            result = getattr(server, step)(*([int(argument)] if argument else []))
            os.writev(answers, [b"n" if result is False else b"y"])
    finally:
        os._exit(0)


def _read_line(fd: int) -> str:
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = bytearray(1)
        if not os.readv(fd, [byte]):
            return ""
        line += byte
    return line.decode().strip()


class Fault:
    """strace, holding a process and failing its calls: the ``number``-th, and with ``persistent`` all from there on."""

    def __init__(self, pid: int, call: str, kind: str, number: int, persistent: bool) -> None:
        when = f"{number}+" if persistent else str(number)
        what = "signal=SIGKILL" if kind == "KILL" else f"error={kind}"
        self._log = Path(tempfile.mkstemp(prefix="strace-")[1])
        self._process: subprocess.Popen[Any] = subprocess.Popen(
            [find_strace(), "-f", "-p", str(pid), "-o", str(self._log), "-e", f"trace={call}",
             "-e", f"inject={call}:{what}:when={when}"],
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr
        line = self._process.stderr.readline()
        assert b"attached" in line, line

    def let_die(self) -> None:
        """End strace: it may hold the other threads of a process that it has killed."""
        self._process.kill()

    def lift(self) -> bool:
        """Let go of the process: its calls work again. Whether one had failed."""
        self._process.terminate()
        self._process.communicate()
        text = self._log.read_text()
        self._log.unlink()
        return "(INJECTED)" in text or "killed by SIGKILL" in text
