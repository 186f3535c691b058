"""The terminal driver: sends nothing that asks for an answer, notices a hang-up, ends on signals, and knows whether the
terminal keeps up.

It is built on Textual's abstract ``Driver`` alone. Textual's own driver for Linux queries the terminal, looks for keys
ten times a second (a fifth of the CPU of an idle console), does not say how many frames wait, and leaves a process that
spins behind a terminal that is gone without SIGHUP.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from asyncio import get_running_loop
from codecs import getincrementaldecoder
from contextlib import suppress
from queue import Queue
from typing import Any, Final, Protocol, cast

from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.driver import Driver
from textual.events import Key, Resize
from textual.geometry import Size

from .ansi_compress import compress
from .environment import is_plain_terminal
from .key_parser import KeyParser

#: Seconds that the process has for an orderly end; after them it is ended by force.
FORCED_END_S: Final = 1.3
#: Seconds that it may then take to leave the screen.
_LEAVE_S: Final = 0.3
#: Seconds that a screen closed by ESC has to go: a key that came together with ESC is meant for what is below it.
_CLOSE_S: Final = 0.05
#: Seconds between two checks of the hang-up thread whether it is still needed.
_HANG_UP_CHECK_S: Final = 1.0
#: Bytes of input read at a time.
_READ_BYTES: Final = 4096
#: Frames that may wait for a slow line; drawing blocks beyond them.
_QUEUED_FRAMES: Final = 30
_HUNG_UP: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL
_ENDING_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
#: Operating system commands, such as titles and pointer shapes. Only a copy to the clipboard passes, which the
#: technician asks for by a key, and only to terminals that know it.
_OSC: Final = "\x1b]"
_COPY: Final = "\x1b]52;c;"
#: The alternate screen, no cursor, bracketed paste, no line wrap.
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?7l"
_LEAVE: Final = "\x1b[?2004l\x1b[?7h\x1b[?1049l\x1b[?25h"


class _Writer:
    """Writes frames to the terminal in a thread of its own. A terminal that is gone takes everything."""

    def __init__(self, fd: int, encoding: str) -> None:
        self._fd = fd
        self._encoding = encoding
        self._queue: Queue[str | threading.Event | None] = Queue(_QUEUED_FRAMES)
        self._is_writing = False
        self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
        self._thread.start()

    @property
    def frames_behind(self) -> int:
        """Frames that are not written yet, the current one included."""
        return self._queue.qsize() + self._is_writing

    def write(self, text: str) -> None:
        """Queue a frame. Blocks while the queue is full."""
        self._queue.put(text)

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is written, or for so long."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(timeout_s)

    def write_past(self, text: str) -> None:
        """Write at once, past everything that is queued."""
        with suppress(OSError):
            os.write(self._fd, text.encode(self._encoding, "replace"))

    def stop(self) -> None:
        """Write what is queued, then end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            self._is_writing = True
            data = memoryview(item.encode(self._encoding, "replace"))
            with suppress(OSError):  # the hang-up thread ends the process
                while data:
                    data = data[os.write(self._fd, data) :]
            self._is_writing = False


class TerminalApp(Protocol):
    """An application that is given its driver, to ask how far the terminal is behind."""

    terminal: TerminalDriver | None


class TerminalDriver(Driver):
    """Textual's driver for a real terminal; see the module.

    A signal that was ignored at the start (``nohup``) stays ignored.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = False, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stdin__ is not None and sys.__stdout__ is not None
        cast(TerminalApp, app).terminal = self
        self._console = app
        self._event_loop = get_running_loop()
        self._input_fd = sys.__stdin__.fileno()
        self._writer = _Writer(sys.__stdout__.fileno(), sys.__stdout__.encoding)
        self._is_plain = is_plain_terminal()
        self._modes: list[Any] | None = None  # the terminal's modes as they were before
        self._is_over = threading.Event()
        self._end_input_fds = os.pipe()  # something to read in it ends the input thread
        self._input_thread = threading.Thread(target=self._run_input, name="terminal-input")

    @property
    def frames_behind(self) -> int:
        """Frames that wait for a slow line, the one being written included."""
        return self._writer.frames_behind

    # --- start and end ----------------------------------------------------------------------------------------

    def start_application_mode(self) -> None:
        with suppress(termios.error):
            self._modes = termios.tcgetattr(self._input_fd)
        self._enter()
        self._send_size()
        self._input_thread.start()
        threading.Thread(target=self._watch_hang_up, name="terminal-hang-up", daemon=True).start()
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._event_loop.add_signal_handler(number, self._end, 128 + number)
        self._event_loop.add_signal_handler(signal.SIGWINCH, self._send_size)
        self._event_loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._event_loop.add_signal_handler(signal.SIGCONT, self._continue)

    def stop_application_mode(self) -> None:
        self._is_over.set()
        self._force_end(self._console.return_code or 0)
        self.disable_input()
        self._restore_modes()
        self._writer.write(_LEAVE)

    def disable_input(self) -> None:
        self._event_loop.remove_signal_handler(signal.SIGWINCH)
        if self._input_thread.is_alive():
            os.write(self._end_input_fds[1], b"\0")
            self._input_thread.join()
            with suppress(termios.error):
                termios.tcflush(self._input_fd, termios.TCIFLUSH)

    def close(self) -> None:
        self._writer.stop()

    def _watch_hang_up(self) -> None:
        poll = select.poll()
        poll.register(self._input_fd, 0)  # hang-ups and errors are always reported
        while not self._is_over.is_set():
            if any(events & _HUNG_UP for _, events in poll.poll(_HANG_UP_CHECK_S * 1000)):
                status = 128 + signal.SIGHUP
                self._force_end(status)
                with suppress(RuntimeError):  # SIGHUP came first, and the loop is closed by now
                    self._event_loop.call_soon_threadsafe(self._console.exit, None, status)
                return

    def _end(self, status: int) -> None:
        self._force_end(status)
        self._console.exit(return_code=status)

    def _force_end(self, status: int) -> None:
        """End the process soon, even if a stopped terminal line or a thread blocks an orderly end. If that is only
        slow, because the machine is busy, leave the screen as well."""

        def end() -> None:
            self._restore_modes()
            leaving = threading.Thread(target=self._writer.write_past, args=(_LEAVE,), daemon=True)
            leaving.start()
            leaving.join(_LEAVE_S)
            os._exit(status)

        timer = threading.Timer(FORCED_END_S, end)
        timer.daemon = True
        timer.start()

    # --- modes of the terminal --------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Take the terminal: its screen, and keys as they are pressed."""
        self._writer.write(_ENTER)
        with suppress(termios.error):
            modes = termios.tcgetattr(self._input_fd)
            modes[tty.LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
            modes[tty.IFLAG] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
            modes[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self._input_fd, termios.TCSANOW, modes)

    def _restore_modes(self) -> None:
        if self._modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._input_fd, termios.TCSANOW, self._modes)

    def _stop(self) -> None:
        """Stop the process as SIGTSTP asks, with the terminal as it was before."""
        self._writer.write(_LEAVE)
        self._writer.flush(_CLOSE_S)
        self._restore_modes()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continue(self) -> None:
        """Take the terminal back, which others may have used, and draw everything."""
        if not self._is_over.is_set():
            self._enter()
            self._send_size()
            self._console.refresh()

    def _send_size(self) -> None:
        size = Size(*shutil.get_terminal_size())
        self.send_message(Resize(size, size))

    # --- input ------------------------------------------------------------------------------------------------

    def _run_input(self) -> None:
        try:
            self._read_keys()
        except Exception:
            from rich.traceback import Traceback  # here, because it takes memory and time at the start

            self._console.call_later(self._console.panic, Traceback())

    def _read_keys(self) -> None:
        """Wait for keys. The clock matters only to distinguish the ESC key from the beginning of a sequence."""
        parser = KeyParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        poll = select.poll()
        for fd in (self._input_fd, self._end_input_fds[0]):
            poll.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(ESCAPE_DELAY * 1000 if parser.is_pending else None)]
            if self._end_input_fds[0] in ready:
                return
            data = b""
            if ready:
                with suppress(OSError):
                    data = os.read(self._input_fd, _READ_BYTES)
                if not data:
                    return  # the terminal is gone; the hang-up thread ends the process
            for event in parser.feed(decode(data)) if data else parser.flush():
                self.process_message(event)
                if isinstance(event, Key) and event.key == "escape":
                    self._is_over.wait(_CLOSE_S)

    # --- output -----------------------------------------------------------------------------------------------

    def write(self, data: str) -> None:
        if not data.startswith(_OSC) or (data.startswith(_COPY) and not self._is_plain):
            self._writer.write(compress(data))
