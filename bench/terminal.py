"""A program on a terminal: what it sends, when, and what the kernel says of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .daemon import die_with_parent

PATIENCE_S = 60.0
#: Bytes of the output that are kept to look for words in.
_KEPT = 1 << 16
#: For how long a slow line brings bytes that come to the screen together.
_SLOW_S = 0.02


class Terminal:
    """Runs a command on a pty of 80x24 and takes its output as it comes, in a thread; ``bytes_per_s`` at most, where
    such a line is wanted."""

    def __init__(
        self, command: Sequence[str | Path], columns: int = 80, lines: int = 24, bytes_per_s: int | None = None
    ) -> None:
        self.bytes = 0
        self._rate = bytes_per_s
        #: Each chunk of the output since ``clear``, with the time of its coming (monotonic seconds).
        self.chunks: list[tuple[float, bytes]] = []
        self._tail = bytearray()
        self._came = threading.Condition()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**kept, "LANG": "C.UTF-8", "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - what it calls is safe beside threads
        )
        os.close(slave)
        self._is_closed = threading.Event()
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    def _read_on(self) -> None:
        room = max(1, int(self._rate * _SLOW_S)) if self._rate else 1 << 16
        while not self._is_closed.is_set():
            try:
                data = os.read(self._master, room)
            except OSError:
                return
            if self._rate:
                self._is_closed.wait(len(data) / self._rate)
            now = time.monotonic()
            with self._came:
                self.bytes += len(data)
                self.chunks.append((now, data))
                self._tail += data
                del self._tail[:-_KEPT]
                self._came.notify_all()

    def clear(self) -> None:
        """Forget what has come until now."""
        with self._came:
            self.chunks.clear()
            self._tail.clear()

    def waits_for(self, text: bytes) -> float:
        """Wait until a text has come since ``clear``; the time of its coming (monotonic seconds)."""
        ends = time.monotonic() + PATIENCE_S
        with self._came:
            while text not in self._tail:
                if self.process.poll() is not None or time.monotonic() > ends:
                    raise RuntimeError(f"{text!r} did not come; the last output was {bytes(self._tail[-1000:])!r}")
                self._came.wait(0.5)
            return self.chunks[-1][0]

    def asks(self, key: bytes, text: bytes) -> float:
        """Press a key and wait for a text; the seconds between."""
        self.clear()
        begun = time.monotonic()
        os.write(self._master, key)
        return self.waits_for(text) - begun

    def cpu_s(self) -> float:
        """CPU seconds of its threads. The kernel's ticks would be too coarse for an idle one."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def resident_mb(self) -> float:
        """Resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def close(self) -> None:
        """End it."""
        self._is_closed.set()
        self.process.kill()
        self.process.wait()
        self._reader.join()  # the number of its descriptor may soon be another terminal's
        os.close(self._master)


@contextlib.contextmanager
def on_terminal(command: Sequence[str | Path], bytes_per_s: int | None = None) -> Iterator[Terminal]:
    """A program for the length of a block."""
    terminal = Terminal(command, bytes_per_s=bytes_per_s)
    try:
        yield terminal
    finally:
        terminal.close()
