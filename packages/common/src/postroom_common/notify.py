"""Status messages to systemd (sd_notify(3)). Without systemd nothing happens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

#: Time (s) that each step of long work requests.
STEP_S: Final = 120
#: The same for work that cannot report its progress, such as reading a large store from a slow disk.
UNMEASURED_S: Final = 1800
#: Longest wait (s) for a service manager that does not accept a message.
_SEND_TIMEOUT_S: Final = 1.0


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1`` to the service manager that started this process, if there is one."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or address[0] not in "/@":
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_TIMEOUT_S)
            sender.sendto("\n".join(lines).encode("utf-8", "replace"), address)
    except OSError:
        pass  # a service manager that does not listen must not stop the service


def notify_busy(what: str, seconds: int = STEP_S) -> None:
    """Report what a start or a stop is doing, and request ``seconds`` more for it."""
    notify(f"EXTEND_TIMEOUT_USEC={seconds * 1_000_000}", "WATCHDOG=1", f"STATUS={what}")


def notify_reloading() -> None:
    """Report that a new configuration is being read; ``READY=1`` must follow."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


class Progress:
    """Reports the progress of long work every ``every_s`` seconds, and requests another ``STEP_S`` each time."""

    def __init__(self, what: str, total: int, every_s: float = 1.0) -> None:
        self._what = what
        self._total = total
        self._every_s = every_s
        self._next = 0.0

    def at(self, done: int) -> None:
        """Note that ``done`` of ``total`` is done."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every_s
            notify_busy(f"{self._what} {done:,} of {self._total:,}")


class Watchdog:
    """The service manager's watchdog, which kills a daemon that hangs. Does nothing unless one is set up."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        wanted, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())
        self._every_s = int(wanted) / 4e6 if ours and wanted.isdecimal() else 0.0
        self._next = 0.0

    def feed(self) -> None:
        """Report that the daemon works. The loop that does the work calls this as often as it likes."""
        now = time.monotonic()
        if self._every_s and now >= self._next:
            self._next = now + self._every_s
            notify("WATCHDOG=1")
