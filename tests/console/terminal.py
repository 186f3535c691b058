"""The real process on a terminal: sends keys, reads what a terminal shows of its output."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyte

PATIENCE_S = 60.0
COMMAND = Path(sys.executable).with_name("postroom-console")
#: A sequence that controls a terminal: CSI, strings (OSC, DCS, SOS, PM, APC), a short escape, or a control character.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x1f\x7f-\x9f]"
)
#: Colours and attributes, cursor positions, and ends of lines.
_DRAWING = re.compile(r"\x1b\[[0-9;]*[mH]|\r|\n")


class Terminal:
    """``postroom-console`` on a pty of ``columns`` by ``lines``. ``is_controlling`` makes it the process's controlling
    terminal, whose end sends SIGHUP; ``ignored`` are signals that the process ignores from the start."""

    def __init__(
        self,
        *arguments: str,
        term: str = "xterm-256color",
        columns: int = 80,
        lines: int = 24,
        is_controlling: bool = True,
        ignored: tuple[int, ...] = (),
        stderr: IO[bytes] | None = None,
        **environment: str,
    ) -> None:
        self.output = bytearray()
        #: CPU seconds of the process, once it has ended.
        self.cpu_used_s = 0.0
        self._stands_still = False
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._set_size(columns, lines)
        self._modes = termios.tcgetattr(self._slave)

        def prepare() -> None:
            if is_controlling:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self.process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=stderr or self._slave,
            env={**kept, "LANG": "C.UTF-8", "TERM": term, **environment},
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - no thread is running here
        )
        self._end = os.pidfd_open(self.process.pid)  # readable once the process has ended

    # --- in ---------------------------------------------------------------------------------------------------

    def keys(self, text: str) -> None:
        self.sends(text.encode())

    def sends(self, data: bytes) -> None:
        """Send bytes, and wait until they are read."""
        os.write(self._master, data)
        self.waits(lambda: not self._untaken(), "the process has taken what was typed")

    def _untaken(self) -> int:
        """Bytes that were typed and not read yet."""
        reported = fcntl.ioctl(self._slave, termios.FIONREAD, struct.pack("i", 0))
        return int(struct.unpack("i", reported)[0])

    def resize(self, columns: int, lines: int) -> None:
        """Another size, which the process notices by a signal, as in a terminal.

        It has seen the size before that: of two signals at once it would notice one, and drawn nothing if the second
        size is the first one again.
        """
        self.waits(self._is_idle, "the process has drawn all that it has to draw")
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _is_idle(self) -> bool:
        """Whether it has handled every change of size and sleeps, with nothing left to read."""
        if select.select([self._master], [], [], 0)[0]:
            return False
        process = Path(f"/proc/{self.process.pid}")
        pending = re.findall(r"^S(?:ig|hd)Pnd:\t(\w+)$", (process / "status").read_text(), re.MULTILINE)
        if any(int(mask, 16) >> (signal.SIGWINCH - 1) & 1 for mask in pending):
            return False
        return all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "S" for task in (process / "task").iterdir()
        )

    def hang_up(self) -> None:
        """Close the terminal's side."""
        os.close(self._master)
        self._master = -1

    def stand_still(self) -> None:
        """Stop reading, until the terminal's buffer is full and the process has to wait."""
        self._stands_still = True
        os.set_blocking(self._slave, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self._slave, b"x" * 4096)
        os.set_blocking(self._slave, True)

    def others_use_it(self, text: str) -> None:
        """Another process leaves the screen, restores the terminal's modes, and writes."""
        termios.tcsetattr(self._slave, termios.TCSANOW, self._modes)
        os.write(self._slave, f"\x1b[?1049l\x1b[?25h\x1b[?7h\x1b[2J\x1b[H{text}".encode())

    # --- out --------------------------------------------------------------------------------------------------

    def pump(self, seconds: float = 0.02) -> None:
        """Take what the process sends within so many seconds; less if it ends."""
        is_read = self._master >= 0 and not self._stands_still
        places = [self._master] * is_read + [self._end] * (self.process.returncode is None)
        if self._master not in select.select(places, [], [], seconds)[0]:
            return
        data = b""
        with contextlib.suppress(BlockingIOError):  # a terminal gives little at a time
            while len(data) < 1 << 16 and (piece := self._read()):
                data += piece
        self.output += data
        self._stream.feed(self._decode(data))

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 1 << 16)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the process has closed its side

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def waits(self, condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
        """Let the process run until a condition holds."""
        ends = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < ends, f"waited in vain until {what}:\n{self.text()}"
            self.pump()

    def sees(self, *texts: str) -> None:
        def is_shown() -> bool:
            shown = self.text()
            return all(text in shown for text in texts)

        self.waits(is_shown, f"{texts} is shown")

    def ends(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for the end of the process; returns its status, or minus the signal that killed it."""
        self.waits(self._has_ended, "the process has ended", patience_s)
        while self._master >= 0 and select.select([self._master], [], [], 0)[0]:
            before = len(self.output)
            self.pump(0)
            if len(self.output) == before:
                break
        return int(self.process.returncode)

    def _has_ended(self) -> bool:
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_used_s = usage.ru_utime + usage.ru_stime
        return self.process.returncode is not None

    def drawn(self) -> None:
        """Wait until the process has sent something more."""
        before = len(self.output)
        self.waits(lambda: len(self.output) > before, "something is drawn")

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def cpu_s(self) -> float:
        """CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sequences(self) -> list[str]:
        """The control sequences in order, without those that only draw."""
        found = _SEQUENCE.findall(self.output.decode("utf-8", "replace"))
        return [one for one in found if not _DRAWING.fullmatch(one)]

    def colours(self) -> set[str]:
        """The parameters of all colours that were sent, except the default ones."""
        found = set()
        for parameters in re.findall(r"\x1b\[([0-9;]*)m", self.output.decode("utf-8", "replace")):
            numbers = parameters.split(";")
            found |= {one for one in numbers if re.fullmatch("[349][0-7]|10[0-7]|[34]8", one)}
        return found

    def has_modes_of_before(self) -> bool:
        """Whether the modes are those from before the start."""
        return termios.tcgetattr(self._slave) == self._modes

    def is_in_order(self) -> bool:
        """Whether the terminal was left as it was: its modes, screen, cursor and wrapping."""
        modes: dict[str, str] = {}
        for one in self.sequences():
            if one.startswith("\x1b[?"):
                modes[one[3:-1]] = one[-1]
        wanted = {"1049": "l", "25": "h", "2004": "l", "7": "h"}
        return modes == wanted and self.has_modes_of_before()

    def unreadable(self) -> list[str]:
        """Characters in the colour of their background, or in the terminal's own colour, which is unknown, on another
        background."""
        found = []
        for y, line in self.screen.buffer.items():
            for x, char in line.items():
                is_same = char.fg == char.bg and char.fg != "default"
                is_unknown = char.fg == "default" and char.bg != "default"
                if char.data.strip() and (is_same or is_unknown):
                    found.append(f"{char.data!r} at {x},{y}: {char.fg} on {char.bg}")
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self._master, self._slave, self._end):
            if fd >= 0:
                os.close(fd)


@contextlib.contextmanager
def terminal(*arguments: str, **options: Any) -> Iterator[Terminal]:
    """A terminal for the length of a block."""
    made = Terminal(*arguments, **options)
    try:
        yield made
    finally:
        made.close()
