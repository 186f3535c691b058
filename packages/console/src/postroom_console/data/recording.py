"""Recordings of what a console saw: the format, and a source that writes one.

A recording is a file of lines, each a JSON object that ends with a checksum, as in the journal. The first line has
``format``, ``version``, ``device``, ``wallMs`` (when it started) and ``note``. Each further line is an update: ``ms``
(milliseconds since the start), ``kind`` (``answer``, ``failure`` or ``lines``), and the fields of the kind. ``events``
and ``requests`` are lines of the journal and of the traffic log as they were.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ..i18n import tr
from .records import from_event, from_request
from .text import clean, size
from .times import unix_ms
from .updates import Answer, Failure, Lines, Source, Steps, Update

FORMAT: Final = "postroom-console-recording"
#: It rises when an older console would misread a recording.
VERSION: Final = 1
#: Size at which a recording ends: a forgotten one does not fill the disk.
RECORDING_BYTES: Final = 1_000_000_000
#: The longest line that is read.
LINE_BYTES: Final = 64 * 1024 * 1024
#: The year 10000: no recording started later.
_WALL_MS_LIMIT: Final = 253_402_300_800_000
#: The beginning of an update's line.
PREFIX: Final = re.compile(rb'\{"ms":(\d{1,15}),"kind":"(answer|failure|lines)"(?:,"name":"([^"\\]{0,300})")?[,}]')
#: Queries that are always recorded, whatever the screen shows.
_ALWAYS: Final[Mapping[str, tuple[str, Mapping[str, Any], int]]] = {"leases": ("list_inflight", {"limit": 500}, 2000)}
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordingError(Exception):
    """A file is not a recording that can be replayed; the text says why."""


def encode_header(device: str, wall_ms: int) -> bytes:
    """The first line of a recording."""
    note = "Bodies of messages are in this file."
    return encode_line({"format": FORMAT, "version": VERSION, "device": device, "wallMs": wall_ms, "note": note})


def decode_header(line: bytes) -> dict[str, Any]:
    """Decode the first line. Raises ``RecordingError``."""
    try:
        fields = decode_line(line)
    except DamagedRecord:
        raise RecordingError(tr("not a recording of a console, or its beginning is damaged")) from None
    if fields.get("format") != FORMAT or type(fields.get("version")) is not int:
        raise RecordingError(tr("not a recording of a console"))
    if fields["version"] > VERSION:
        raise RecordingError(tr("this recording was made by a newer console"))
    wall_ms = fields.get("wallMs")
    if type(wall_ms) is not int or not 0 <= wall_ms < _WALL_MS_LIMIT or type(fields.get("device")) is not str:
        raise RecordingError(tr("not a recording of a console"))
    return fields


def encode_update(ms: int, update: Update) -> bytes:
    """The line of an update; empty for an update that is not recorded."""
    match update:
        case Answer(name, data):
            return encode_line({"ms": ms, "kind": "answer", "name": name, "data": data})
        case Failure(name, code, text):
            return encode_line({"ms": ms, "kind": "failure", "name": name, "code": code, "text": text})
        case Lines():
            return encode_line(
                {
                    "ms": ms,
                    "kind": "lines",
                    "events": [one.raw.decode() for one in update.records if one.is_event],
                    "requests": [one.raw.decode() for one in update.records if not one.is_event],
                    "skippedBytes": update.skipped_bytes,
                    "badLines": update.bad_lines,
                    "missingEvents": update.missing_events,
                    "problem": update.problem,
                }
            )
        case _:
            return b""


def decode_update(line: bytes) -> Update:
    """Decode a line. A damaged one becomes a bad line of the tail."""
    try:
        fields = decode_line(line)
        match fields["kind"]:
            case "answer":
                return Answer(str(fields["name"]), dict(fields["data"]))
            case "failure":
                return Failure(str(fields["name"]), str(fields["code"]), str(fields["text"]))
            case _:
                return _decode_lines(fields)
    except (DamagedRecord, AttributeError, KeyError, TypeError, ValueError):
        return Lines((), bad_lines=1)


def _decode_lines(fields: Mapping[str, Any]) -> Lines:
    events = [from_event(line.encode()) for line in fields["events"]]
    requests = [from_request(line.encode()) for line in fields["requests"]]
    records = sorted((one for one in events + requests if one), key=lambda one: one.engine_ms)
    return Lines(
        tuple(records),
        int(fields["skippedBytes"]),
        int(fields["badLines"]) + len(events) + len(requests) - len(records),
        str(fields["problem"]),
        int(fields["missingEvents"]),
    )


class Recorder:
    """A source that records the updates of another source to a new file of mode 0600. See ``Source``.

    The constructor raises ``OSError``. A later error ends the recording, not the console: ``status_text`` says so.
    """

    def __init__(
        self,
        source: Source,
        path: Path,
        device: str,
        limit_bytes: int = RECORDING_BYTES,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self._source = source
        self._limit_bytes = limit_bytes
        self._fd = os.open(path, _FLAGS, 0o600)
        self._size = 0
        self._begin_ms = -1
        self._problem = ""
        self._write(encode_header(device, wall_ms()))

    @property
    def is_live(self) -> bool:
        return self._source.is_live

    @property
    def problem(self) -> str:
        """Why the recording has ended; empty while it continues."""
        return self._problem

    def start(self) -> None:
        for name in _ALWAYS:
            self.unsubscribe(name)
        self._source.start()

    def stop(self) -> None:
        self._source.stop()
        self.drain()
        self._end()

    def drain(self) -> list[tuple[int, Update]]:
        updates = self._source.drain()
        if updates and self._begin_ms < 0:
            self._begin_ms = updates[0][0]
        self._write(b"".join(encode_update(max(0, at - self._begin_ms), update) for at, update in updates))
        return updates

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        self._source.subscribe(name, command, payload, every_ms)

    def unsubscribe(self, name: str) -> None:
        always = _ALWAYS.get(name)
        if always:
            self._source.subscribe(name, *always)
        else:
            self._source.unsubscribe(name)

    def refresh(self) -> None:
        self._source.refresh()

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        return self._source.execute(steps, rate)

    def cancel(self, ticket: int) -> None:
        self._source.cancel(ticket)

    def status_text(self) -> str:
        if self._problem:
            return f"{tr('RECORDING ENDED')}: {clean(self._problem)}"
        return f"{tr('REC')} {size(self._size)}"

    def _write(self, data: bytes) -> None:
        if self._fd < 0 or not data:
            return
        if self._size + len(data) > self._limit_bytes:
            self._problem = tr("it has reached {size}").format(size=size(self._limit_bytes))
            self._end()
            return
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            self._size += len(data)
        except OSError as error:
            self._problem = str(error.strerror)
            self._end()

    def _end(self) -> None:
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, self._size)  # a partial line would be damage
                os.fsync(self._fd)
            except OSError as error:
                self._problem = self._problem or str(error.strerror)
            os.close(self._fd)
            self._fd = -1


def open_recording(path: Path) -> int:
    """Open a recording; returns the descriptor. Raises ``RecordingError`` and ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RecordingError(f"{path}: {tr('not a regular file')}")
    return fd
