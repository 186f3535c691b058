"""The terminal: it is asked nothing, its end is noticed, signals end in order, and whether it keeps up is known."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from codecs import getincrementaldecoder
from typing import Any, Final, cast

from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.geometry import Size

from .environment import is_plain_terminal
from .escape import Keys
from .thrift import thrifty

#: Seconds that the process may take to end in order; after them it ends at once.
END_S: Final = 1.3
#: Seconds in which what ESC leaves is left: a key that came with it is meant for what is shown then.
_LEFT_S: Final = 0.05
#: How often the thread that waits for a hang-up looks whether it is still needed.
_LOOK_EVERY_S: Final = 1.0
#: Bytes of keys that are read at a time.
_KEYS_BYTES: Final = 4096
_GONE: Final = select.POLLHUP | select.POLLERR | select.POLLNVAL
_ENDING_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
#: What a terminal that does not know it may show as letters, and what nothing here needs: reports of the focus, the
#: end of a keyboard protocol that was not begun.
_LEFT_OUT: Final = frozenset({"\x1b[?1004h", "\x1b[?1004l", "\x1b[<u"})
#: Commands to the terminal's surroundings, as titles and pointers are; and what a technician gives to the clipboard by
#: a key, where the terminal is not a plain one.
_OSC: Final = "\x1b]"
_COPIED: Final = "\x1b]52;c;"
_SCREEN_ON: Final = "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?7l"


class _Line:
    """The way to the terminal. Of one writing thread; a terminal that is gone takes everything."""

    def __init__(self, fd: int, encoding: str) -> None:
        self.is_busy = False
        self._fd = fd
        self._encoding = encoding

    def write(self, text: str) -> None:
        """Write all of it, however slowly it goes."""
        data = memoryview(text.encode(self._encoding, "replace"))
        self.is_busy = True
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:  # the thread that waits for the hang-up ends the process
            pass
        finally:
            self.is_busy = False

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._fd


class PlainDriver(LinuxDriver):
    """Asks the terminal nothing, and ends the process when the terminal is gone or a signal says so.

    Without a hang-up signal a terminal that is gone gives an end of file for ever, on which the input thread would
    spin. A signal that was ignored at the start (``nohup``) stays ignored.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        out = sys.__stdout__
        assert out is not None
        self._line = _Line(out.fileno(), out.encoding)
        self._file = cast(Any, self._line)
        self._is_plain = is_plain_terminal()
        self._is_suspended = False
        self._is_left = threading.Event()
        self._no_keys: tuple[int, int] | None = None  # a pipe, in which something stands when no keys are wanted

    # --- beginning and end ------------------------------------------------------------------------------------

    def start_application_mode(self) -> None:
        self._is_suspended = False
        for fd in self._no_keys or ():
            os.close(fd)
        self._no_keys = os.pipe()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._is_left = threading.Event()
        threading.Thread(target=self._watch, args=(self._is_left,), name="terminal", daemon=True).start()
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._end, 128 + number)

    def suspend_application_mode(self) -> None:
        self._is_suspended = True
        super().suspend_application_mode()

    def stop_application_mode(self) -> None:
        self._is_left.set()
        if not self._is_suspended:
            self._end_by_force(self._app.return_code or 0)
        super().stop_application_mode()

    def _watch(self, is_left: threading.Event) -> None:
        poll = select.poll()
        poll.register(self.fileno, 0)  # hang-ups and errors are always told
        while not is_left.is_set():
            if any(told & _GONE for _, told in poll.poll(_LOOK_EVERY_S * 1000)):
                status = 128 + signal.SIGHUP
                self._end_by_force(status)
                self._loop.call_soon_threadsafe(self._app.exit, None, status)
                return

    def _end(self, status: int) -> None:
        self._end_by_force(status)
        self._app.exit(return_code=status)

    def _end_by_force(self, status: int) -> None:
        """See to it that the process is gone soon, even if a line that stands still, or a thread, holds it up."""

        def end() -> None:
            if self.attrs_before is not None:
                try:
                    termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
                except termios.error:
                    pass
            os._exit(status)

        timer = threading.Timer(END_S, end)
        timer.daemon = True
        timer.start()

    # --- keys -------------------------------------------------------------------------------------------------

    def disable_input(self) -> None:
        if self._no_keys:
            os.write(self._no_keys[1], b"\0")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Wait for keys, and look at the clock only where it tells the key ESC from the beginning of a sequence.

        To look ten times a second, as Textual does, takes a fifth of the CPU of an idle console.
        """
        assert self._no_keys is not None
        no_keys = self._no_keys[0]
        parser = Keys(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(no_keys, select.POLLIN)
        patience_ms = None
        while no_keys not in (ready := [fd for fd, _ in poll.poll(patience_ms)]):
            if ready:
                try:
                    data = os.read(self.fileno, _KEYS_BYTES)
                except OSError:
                    data = b""
                if not data:
                    return  # the terminal is gone, which the other thread sees to
                for event in parser.feed(decode(data)):
                    self.process_message(event)
                    if isinstance(event, Key) and event.key == "escape":
                        self._is_left.wait(_LEFT_S)
            for event in parser.tick():
                self.process_message(event)
            patience_ms = ESCAPE_DELAY * 1000 if ready else None

    # --- stopped and continued --------------------------------------------------------------------------------

    def _sigcont_application(self, *told: Any) -> None:
        """Come back: from a key of this application by starting again, from a signal (``kill -STOP``), of which nothing
        was known before, by taking the terminal as it is now."""
        if self._is_suspended:
            super()._sigcont_application(*told)
        elif self._writer_thread is not None:
            self._make_raw()
            self.write(_SCREEN_ON)
            self._loop.call_soon_threadsafe(self._draw_again)

    def _make_raw(self) -> None:
        try:
            modes = termios.tcgetattr(self.fileno)
            modes[tty.LFLAG] = self._patch_lflag(modes[tty.LFLAG])
            modes[tty.IFLAG] = self._patch_iflag(modes[tty.IFLAG])
            modes[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self.fileno, termios.TCSANOW, modes)
        except termios.error:
            pass

    def _draw_again(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(Resize(size, size))
        self._app.refresh()

    # --- what is sent -----------------------------------------------------------------------------------------

    def write(self, data: str) -> None:
        if data in _LEFT_OUT:
            return
        if data.startswith(_OSC) and (self._is_plain or not data.startswith(_COPIED)):
            return
        super().write(thrifty(data))

    def _query_in_band_window_resize(self) -> None:
        pass

    def _request_terminal_sync_mode_support(self) -> None:
        pass

    @property
    def frames_behind(self) -> int:
        """Frames that wait for a slow line, the one that is on its way included."""
        writer = self._writer_thread
        return writer._queue.qsize() + self._line.is_busy if writer else 0
