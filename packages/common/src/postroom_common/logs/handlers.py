"""The handlers that write log records: to standard error, and to systemd's journal."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
from pathlib import Path
from typing import Any, Final

from .records import fields_of, suppressed, text_of, trace_of

#: Longest wait (s) for a slow reader; a record that it does not accept by then is lost.
_WAIT_S: Final = 0.2
#: A pipe that is writable accepts at least this many bytes without blocking (PIPE_BUF).
_PIECE: Final = 4096


def fill_standard_streams() -> None:
    """Open closed standard streams to /dev/null. Otherwise files of the program would get their numbers, and a
    traceback might be written into them. Raises ``OSError``."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    if sys.stderr is None:  # which it is if it was closed from the beginning
        sys.stderr = os.fdopen(2, "w", closefd=False)


class Stream:
    """Writes texts to standard error, whose reader may be slow or gone. ``lost`` counts those that it did not
    accept."""

    def __init__(self) -> None:
        self.lost = 0
        self._wait_s = _WAIT_S
        self._torn = False

    def put(self, text: str) -> None:
        """Write complete lines. If the reader does not accept them in time, only the beginning may be written."""
        try:
            fd = sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # closed, or replaced by something without a descriptor
            _print(text)
            return
        data = ("\n" * self._torn + text).encode("utf-8", "backslashreplace")
        try:
            self._write(fd, data)
        except OSError:
            self.lost += 1

    def _write(self, fd: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            if not self._can_write(fd):
                self.lost += 1
                self._wait_s = 0.0  # do not wait for it again until it reads
                return
            at += os.write(fd, data[at : at + _PIECE])
            self._torn = at < len(data)
        self._wait_s = _WAIT_S

    def _can_write(self, fd: int) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(self._wait_s * 1000))


def _print(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # nobody reads it


class StreamHandler(logging.Handler):
    """Writes records to standard error with its formatter. ``lost`` counts those for which the reader was too slow."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = Stream()

    @property
    def lost(self) -> int:
        """Number of records that the reader did not accept."""
        return self._stream.lost

    def emit(self, record: logging.LogRecord) -> None:
        self._stream.put(self.format(record) + "\n")


SOCKET: Final = "/run/systemd/journal/socket"
#: The severities of syslog by level.
_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def is_journal(stream: Any, environ: dict[str, str] | os._Environ[str]) -> bool:
    """Whether a stream leads to systemd's journal. ``JOURNAL_STREAM`` names the device and inode of its socket;
    processes inherit the variable even if their stream leads elsewhere."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class JournaldHandler(logging.Handler):
    """Sends records to systemd's journal by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

    The protocol is a datagram of ``NAME=value`` lines, so that systemd's library, which would have to be compiled on
    the device, adds nothing useful. If there is no socket, as in a mount namespace of the service, records go to
    standard error in the form that systemd reads there. ``lost`` counts those for which the journal was too slow."""

    def __init__(self, program: str, address: str | Path = SOCKET) -> None:
        super().__init__()
        self._program = program
        self._late = 0
        self._stream = Stream()
        self._address = os.fspath(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_WAIT_S)

    @property
    def lost(self) -> int:
        """Number of records that the reader did not accept."""
        return self._late + self._stream.lost

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._socket.sendto(encode(record, self._program), self._address)
        except (TimeoutError, BlockingIOError):
            self._late += 1
            self._socket.settimeout(0)  # do not wait for it again until it reads
        except OSError:
            self._stream.put(prefixed(record))
        else:
            self._socket.settimeout(_WAIT_S)

    def close(self) -> None:
        self._socket.close()
        super().close()


def prefixed(record: logging.LogRecord) -> str:
    """A record in the form of sd-daemon(3) for standard error: each line starts with its severity."""
    start = f"<{_PRIORITIES.get(record.levelname, 6)}>"
    return "".join(f"{start}{line}\n" for line in [text_of(record), *trace_of(record)])


def encode(record: logging.LogRecord, program: str) -> bytes:
    """The datagram for a record of a program."""
    fields: dict[str, int | str] = {
        "MESSAGE": "\n".join([text_of(record), *trace_of(record)]),
        "PRIORITY": _PRIORITIES.get(record.levelname, 6),
        "SYSLOG_IDENTIFIER": program,
        "CODE_FILE": record.filename,
        "CODE_LINE": record.lineno,
        "CODE_FUNC": record.funcName or "",
        "POSTROOM_LOGGER": record.name,
    }
    if suppressed(record):
        fields["POSTROOM_SUPPRESSED"] = suppressed(record)
    fields |= {f"POSTROOM_{name.upper()}": value for name, value in fields_of(record).items()}
    return b"".join(_encoded(name, str(value).encode()) for name, value in fields.items())


def _encoded(name: str, value: bytes) -> bytes:
    if b"\n" in value:
        return b"%b\n%b%b\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
    return b"%b=%b\n" % (name.encode(), value)
