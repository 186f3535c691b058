"""Scenarios in a process of their own whose system calls strace makes fail: SQLite does not call ``Files``.

The process is a fork that waits until strace holds it, so that calls are counted from the scenario's first on. strace
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
import time
import traceback
from pathlib import Path
from typing import Any, Final

from tests.crash.server import Server

#: The system calls at which each kind of fault can occur.
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
#: As persistent faults these make the disk unreadable: the journal is quarantined, acknowledged messages are missing.
NOT_FOR_EVER: Final = {("EIO", "openat")}
#: After this a step counts as stuck (s).
PATIENCE_S: Final = 60
#: Time without an answer after which to check whether the process is dying (s).
_LOOK_S: Final = 0.2
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
        self.dead = False
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
        """Do a step in the process. Returns whether it succeeded; False if the process is dead."""
        try:
            os.write(self._orders, step.encode() + b"\n")
        except BrokenPipeError:
            self.dead = True
            return False
        ends = time.monotonic() + PATIENCE_S
        while not select.select([self._answers], [], [], _LOOK_S)[0]:
            if self.fault and self.fault.kills:
                self.fault.let_go()
            assert time.monotonic() < ends, f"stuck in {step}"
        answer = os.read(self._answers, 1)
        self.dead = not answer
        return answer == b"y"

    def open(self) -> bool:
        return self.order("open")

    def turn(self) -> None:
        self.order("turn")

    def tick(self) -> None:
        self.order("tick")

    def checkpoint(self) -> None:
        self.order("checkpoint")

    def stop(self) -> None:
        self.order("stop")

    def close(self) -> None:
        self.order("close")

    def serves(self) -> bool:
        """Whether the process lives and its root is open."""
        return self.order("serves")

    def pass_ms(self, milliseconds: int) -> None:
        self.bench.clocks.pass_ms(milliseconds)  # for what follows in this process
        self.order(f"pass_ms {milliseconds}")

    def end(self) -> None:
        """End the process and strace."""
        os.kill(self.pid, signal.SIGKILL)
        if self.fault:
            self.fault.end()
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def _serve(server: Server, orders: int, answers: int) -> None:
    """The main function of the forked process. It talks to the test by system calls at which no fault is injected."""
    logging.disable(logging.CRITICAL)
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
    try:
        while order := _read_line(orders):
            step, _, argument = order.partition(" ")
            result = getattr(server, step)(*([int(argument)] if argument else []))
            os.writev(answers, [b"n" if result is False else b"y"])
    except BaseException:
        traceback.print_exc()
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
    """strace on a process, which makes its ``number``-th call fail; with ``persistent`` all later ones, too.

    strace is only ever ended by SIGKILL, upon which the kernel lets go of what it holds. Asked to stop while threads
    of the process die, it waits for the first thread, which can not be reaped before the others, which nobody but
    strace can reap: for ever.
    """

    def __init__(self, pid: int, call: str, kind: str, number: int, persistent: bool) -> None:
        when = f"{number}+" if persistent else str(number)
        what = "signal=SIGKILL" if kind == "KILL" else f"error={kind}"
        fd, name = tempfile.mkstemp(prefix="strace-")
        os.close(fd)
        self._log = Path(name)
        self._call = call
        self._process: subprocess.Popen[Any] = subprocess.Popen(
            [find_strace(), "-f", "-p", str(pid), "-o", str(self._log), "-e", f"trace={call}",
             "-e", f"inject={call}:{what}:when={when}"],
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr
        line = self._process.stderr.readline()
        assert b"attached" in line, line

    @property
    def kills(self) -> bool:
        """Whether the process was killed by it; threads may still be dying."""
        text = self._log.read_text()
        return " = ?" in text or "killed by SIGKILL" in text

    def let_go(self) -> None:
        """Detach from the process: its calls work again, or it dies."""
        self._process.kill()
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()

    @property
    def fired(self) -> bool:
        """Whether a call was made to fail."""
        return "(INJECTED)" in self._log.read_text()

    @property
    def count(self) -> int:
        """How many such calls the process made."""
        return self._log.read_text().count(f" {self._call}(")

    def end(self) -> None:
        """Detach from the process and remove the log."""
        self.let_go()
        self._log.unlink()
