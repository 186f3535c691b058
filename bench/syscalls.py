"""System calls of a daemon for each request, as strace counts them, beside the least that would do."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Final

from .daemon import Daemon, die_with_parent, running
from .inside import COMMANDS
from .lean import Call, LeanClients, Outcome
from .scaling import cycle

_CLIENTS: Final = 8
_TIMEOUT_S: Final = 30.0
#: The least for a request: open, fstat, read and close of the request; create, write, close and rename of the response;
#: unlink of the request.
_LEAST_A_REQUEST: Final = Counter(open=2, fstat=1, read=1, close=2, write=1, rename=1, unlink=1)
#: The least for a group: one write and one sync of the journal; to wake up, a wait, and a read of what woke it.
_LEAST_A_GROUP: Final = Counter(write=1, fdatasync=1, wait=1, read=1)
#: Calls that differ in their arguments only.
_SAME: Final = {
    "openat": "open",
    "newfstatat": "fstat",
    "renameat": "rename",
    "renameat2": "rename",
    "unlinkat": "unlink",
    "epoll_wait": "wait",
    "epoll_pwait": "wait",
    "poll": "wait",
}


class NoStrace(Exception):
    """System calls cannot be counted; the text says why."""


def count(root: Path, size: int, requests: int) -> dict[str, dict[str, float]]:
    """For each command the calls per request by name, in groups of ``size``: full groups, or of one client in a closed
    loop. Raises ``NoStrace``."""
    if not shutil.which("strace"):
        raise NoStrace("no strace on the PATH")
    found: dict[str, dict[str, float]] = {}
    commands = iter(COMMANDS)
    with (
        running(root, "--limits-group-requests", str(size)) as daemon,
        LeanClients(daemon, _CLIENTS if size > 1 else 1, "traced") as clients,
    ):
        run = clients.full_groups if size > 1 else clients.closed_loop

        def traced(calls: Sequence[Call]) -> Outcome:
            counts: Counter[str] = Counter()
            with _counted(daemon, root / "strace.txt", counts):
                outcome = run(calls)
            found[next(commands)] = {name: number / len(calls) for name, number in counts.most_common()}
            return outcome

        cycle(run, size, repeat("traced"), "{}")  # makes the response directories and the queue
        cycle(traced, requests, repeat("traced"), "{}")
    return found


@contextmanager
def _counted(daemon: Daemon, output: Path, counts: Counter[str]) -> Iterator[None]:
    """Count the calls of a daemon in a block. Raises ``NoStrace``."""
    tracer = subprocess.Popen(
        ["strace", "-f", "-c", "-o", output, "-p", str(daemon.pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread is running here
    )
    try:
        until = time.monotonic() + _TIMEOUT_S
        while f"TracerPid:\t{tracer.pid}\n" not in Path(f"/proc/{daemon.pid}/status").read_text():
            if tracer.poll() is not None or time.monotonic() > until:
                tracer.kill()
                raise NoStrace(f"strace: {tracer.communicate()[1].strip()}")
            time.sleep(0.01)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=_TIMEOUT_S)
    for line in output.read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            counts[_SAME.get(words[-1], words[-1])] += int(words[3])


def least(size: int) -> dict[str, float]:
    """The least calls per request by name in groups of ``size``."""
    names = [*_LEAST_A_REQUEST, *(_LEAST_A_GROUP.keys() - _LEAST_A_REQUEST.keys())]
    return {name: _LEAST_A_REQUEST[name] + _LEAST_A_GROUP[name] / size for name in names}
