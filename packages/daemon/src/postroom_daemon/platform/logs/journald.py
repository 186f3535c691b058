"""Records in systemd's journal, with fields of their own, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

The protocol is a datagram of ``NAME=value`` lines. The library of systemd does no more for it that is of use here, and
would have to be compiled on the device.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any, Final

from .records import fields_of, suppressed, text_of, trace_of
from .stream import Stream

SOCKET: Final = "/run/systemd/journal/socket"
#: Longest wait (s) for a journal that is slow to read; a record that it has not taken by then is lost.
WAIT_S: Final = 0.2
#: Severities of syslog by our levels.
_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def is_journal(stream: Any, environ: dict[str, str] | os._Environ[str]) -> bool:
    """Whether a stream leads to systemd's journal: ``JOURNAL_STREAM`` names its device and inode, and is inherited by
    processes whose stream leads elsewhere."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class JournaldHandler(logging.Handler):
    """Sends records to the journal's socket. Where there is none, as in a file system of the service's own, they go to
    standard error in the form that systemd reads there. ``lost`` counts those that the journal was too slow for."""

    def __init__(self, address: str | Path = SOCKET) -> None:
        super().__init__()
        self._late = 0
        self._stream = Stream()
        self._address = os.fspath(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(WAIT_S)

    @property
    def lost(self) -> int:
        """Records that were not taken."""
        return self._late + self._stream.lost

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._socket.sendto(encode(record), self._address)
        except (TimeoutError, BlockingIOError):
            self._late += 1
            self._socket.settimeout(0)  # the daemon does not wait for it again until it reads
        except OSError:
            self._stream.put(prefixed(record))
        else:
            self._socket.settimeout(WAIT_S)

    def close(self) -> None:
        self._socket.close()
        super().close()


def prefixed(record: logging.LogRecord) -> str:
    """A record as sd-daemon(3) has it on standard error: each line with its severity."""
    start = f"<{_PRIORITIES.get(record.levelname, 6)}>"
    return "".join(f"{start}{line}\n" for line in [text_of(record), *trace_of(record)])


def encode(record: logging.LogRecord) -> bytes:
    """The datagram of a record."""
    fields: dict[str, int | str] = {
        "MESSAGE": "\n".join([text_of(record), *trace_of(record)]),
        "PRIORITY": _PRIORITIES.get(record.levelname, 6),
        "SYSLOG_IDENTIFIER": "postroomd",
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
