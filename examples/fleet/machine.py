"""A simulated machine: one daemon, and the clocks that it sees."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

_PATIENCE_S = 60
#: How often, in driven time, the daemon does what it else does each second: days would take long otherwise.
_TICK_MS = 120_000
#: A machine serves after so long.
BOOT_MS = 12_000


class MachineError(Exception):
    """The daemon has ended, or does not answer."""


class Machine:
    """A device's hardware: power, a wall clock that may be wrong, and ``postroomd run`` on ``root`` while it is on."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.log = root.parent / "postroomd.log"
        self.boots = 0
        self.booted_ms = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lines: IO[bytes] | None = None

    @property
    def is_on(self) -> bool:
        """Whether the daemon runs."""
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The daemon, which runs."""
        assert self._process
        return self._process

    def hang_up(self) -> None:
        """Leave the daemon without a driver."""
        assert self._socket
        self._socket.shutdown(socket.SHUT_RDWR)

    def boot(self, wall_ms: int) -> None:
        """Switch it on: a new boot, with the clock at ``wall_ms``."""
        self.boots += 1
        self.booted_ms = BOOT_MS
        self.start(wall_ms)

    def start(self, wall_ms: int) -> None:
        """Start the daemon alone, within the same boot."""
        mine, theirs = socket.socketpair()
        command = [sys.executable, "-m", "postroom_daemon", "run", "--root", str(self.root)]
        with theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--test-clock", str(theirs.fileno())], stderr=log, pass_fds=[theirs.fileno()]
            )
        mine.settimeout(_PATIENCE_S)
        self._socket, self._lines = mine, mine.makefile("rb")
        boot_id = f"test-{self.name}-{self.boots}"
        self._say({"bootId": boot_id, "bootMs": self.booted_ms, "wallMs": wall_ms, "tickMs": _TICK_MS})
        self._order({"advanceMs": 0})

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.booted_ms += ms
        if self.is_on:
            self._order({"advanceMs": ms})

    def set_wall(self, wall_ms: int) -> None:
        """Set the wall clock, as NTP or a hand does."""
        self._order({"wallMs": wall_ms})

    def cut(self) -> None:
        """The power is gone."""
        if self._process:
            self._process.kill()
            self._end()

    def stop(self) -> None:
        """Stop the daemon in order."""
        if self._process:
            self._process.terminate()
            code = self._end()
            if code:
                raise MachineError(f"{self.name}: the daemon ended with {code}; see {self.log}")

    def _end(self) -> int:
        assert self._process and self._socket and self._lines
        try:
            return self._process.wait(_PATIENCE_S)
        finally:
            self._lines.close()
            self._socket.close()
            self._process = self._socket = self._lines = None

    def _say(self, order: dict[str, Any]) -> None:
        assert self._socket
        self._socket.sendall(json.dumps(order).encode() + b"\n")

    def _order(self, order: dict[str, Any]) -> None:
        assert self._lines
        try:
            self._say(order)
            line = self._lines.readline()
        except OSError as error:
            raise MachineError(f"{self.name}: the daemon does not answer: {error}; see {self.log}") from None
        if not line:
            raise MachineError(f"{self.name}: the daemon has ended; see {self.log}")
