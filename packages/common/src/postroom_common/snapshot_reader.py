"""Reads snapshots, single or in bundles, and checks each: complete, or why not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from math import isfinite
from typing import Any, BinaryIO, Final
from zlib import crc32

from .snapshot import COMMON, FIELDS, FORMAT_MAJOR, OLDEST_MAJOR, Kind, Line, Type, upgrade

#: Maximum length of a line, in bytes. A body has at most 16 MB.
LINE_BYTES_LIMIT: Final = 64 * 1024 * 1024
#: Valid clock values: 1970 to the year 9999, in Unix milliseconds.
CLOCK_RANGE_MS: Final = (0, 253_402_300_799_999)


class Reason(StrEnum):
    """Why a snapshot is refused. The first reason that applies, in this order, is reported."""

    NOT_GZIP = "not_gzip"  # the file is not a gzip file
    NOT_JSON = "not_json"  # the content is not JSON lines
    NO_HEADER = "no_header"  # lines without a header before them
    UNKNOWN_MAJOR = "unknown_major"  # a format that this version cannot read
    TRUNCATED = "truncated"  # it ends before its trailer: the copy is incomplete
    CORRUPT_LINES = "corrupt_lines"  # a line is not a JSON object, or a field has another type
    FOREIGN_LINES = "foreign_lines"  # lines of another snapshot among its own
    COUNTS_DIFFER = "counts_differ"  # the numbers of lines differ from those in the trailer
    CHECKSUM_DIFFERS = "checksum_differs"  # a line was changed
    DIGEST_DIFFERS = "digest_differs"  # lines were changed or are in another order
    NO_FINAL_NEWLINE = "no_final_newline"  # a snapshot appended to it would be lost
    BAD_CLOCK = "bad_clock"  # an impossible time


@dataclass(slots=True)
class Member:
    """A checked snapshot of a file. ``reason`` is None if it is complete; ``detail`` is a text for people."""

    device: str = ""
    snapshot: str = ""
    header: Line = field(default_factory=dict)
    trailer: Line = field(default_factory=dict)
    lines: int = 0
    reason: Reason | None = None
    detail: str = ""


def read_lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file of complete snapshots, upgraded to the current format. Checks nothing: see ``check``.

    Raises ``OSError``, ``EOFError``, ``zlib.error``, ``ValueError``.
    """
    with gzip.GzipFile(fileobj=file) as lines:
        for line in lines:
            yield upgrade(json.loads(line))


def check(file: BinaryIO, *, compressed: bool = True) -> Iterator[Member]:
    """Each snapshot of a gzip file, checked. Data after a compression error is not readable.

    Memory does not grow with the file. Raises ``OSError`` if the file cannot be read.

    :param compressed: false for an uncompressed file.
    """
    judge = _Judge()
    try:
        with gzip.GzipFile(fileobj=file) if compressed else nullcontext(file) as lines:
            while data := lines.readline(LINE_BYTES_LIMIT):
                yield from judge.take(data)
    except gzip.BadGzipFile as error:
        yield judge.broken(Reason.TRUNCATED if judge.began else Reason.NOT_GZIP, str(error))
    except (EOFError, zlib.error) as error:
        yield judge.broken(Reason.TRUNCATED, str(error))
    else:
        yield from judge.end()
        if not judge.began:
            yield judge.broken(Reason.TRUNCATED, "it is empty")


class _Judge:
    """Checks the lines of a file, which it takes in order."""

    def __init__(self) -> None:
        self.began = False
        self._reset()

    def _reset(self) -> None:
        self._now: Member | None = None
        self._crc = 0
        self._digest = sha256()
        self._counts: Counter[str] = Counter()
        self._corrupt = self._foreign = 0

    def take(self, data: bytes) -> Iterator[Member]:
        self.began = True
        text = data.rstrip(b"\n")
        if not text:
            return
        line = _object(text)
        kind = line.get("kind") if line else None
        if kind == Kind.BUNDLE:
            return
        if kind == Kind.HEADER:
            yield from self.end()
            self._now = Member(str(line.get("device", "")), str(line.get("snapshot", "")), line)
        if self._now is None:
            self._now = Member(reason=Reason.NO_HEADER if line else Reason.NOT_JSON, detail=_shown(text))
        if kind == Kind.TRAILER:
            self._now.trailer = line
            yield self._judged(data.endswith(b"\n"))
            self._reset()
            return
        fault = _fault(upgrade(line))
        self._now.lines += 1
        self._crc += crc32(text)
        self._digest.update(data)
        self._counts[str(kind)] += 1
        if not line or fault:
            self._corrupt += 1
            self._now.detail = self._now.detail or fault or _shown(text)
        elif (line.get("device"), line.get("snapshot")) != (self._now.device, self._now.snapshot):
            self._foreign += not self._now.reason

    def end(self) -> Iterator[Member]:
        """End of the file: an unfinished snapshot has no trailer."""
        if self._now is not None:
            yield self._ended(self._now.reason or Reason.TRUNCATED, self._now.detail or "it has no trailer")

    def broken(self, reason: Reason, detail: str) -> Member:
        """An error of the file ends the unfinished snapshot."""
        return self._ended((self._now and self._now.reason) or reason, detail)

    def _ended(self, reason: Reason, detail: str) -> Member:
        member = self._now or Member()
        member.reason, member.detail = reason, detail
        self._reset()
        return member

    def _judged(self, has_newline: bool) -> Member:
        member = self._now
        assert member is not None
        if member.reason is None:
            member.reason, member.detail = self._verdict(member, has_newline)
        return member

    def _verdict(self, member: Member, has_newline: bool) -> tuple[Reason | None, str]:
        header, trailer = member.header, member.trailer
        major = header.get("major")
        if type(major) is not int or not OLDEST_MAJOR <= major <= FORMAT_MAJOR:
            return Reason.UNKNOWN_MAJOR, f"format {major}, this version reads {OLDEST_MAJOR} to {FORMAT_MAJOR}"
        if self._corrupt:
            return Reason.CORRUPT_LINES, f"{self._corrupt} lines, the first: {member.detail}"
        if self._foreign or (trailer.get("device"), trailer.get("snapshot")) != (member.device, member.snapshot):
            return Reason.FOREIGN_LINES, f"{self._foreign} lines of another snapshot"
        if trailer.get("lines") != member.lines or trailer.get("counts") != dict(self._counts):
            return Reason.COUNTS_DIFFER, f"{member.lines} lines {dict(self._counts)}, trailer: {trailer.get('counts')}"
        if trailer.get("lineCrc") not in (None, self._crc):  # version 1 has none
            return Reason.CHECKSUM_DIFFERS, f"{self._crc}, trailer: {trailer.get('lineCrc')}"
        if trailer.get("digest") != self._digest.hexdigest():
            return Reason.DIGEST_DIFFERS, "the lines were changed, or are in another order"
        for name in _CLOCKS:
            value = header.get(name)
            if type(value) is not int or not CLOCK_RANGE_MS[0] <= value <= CLOCK_RANGE_MS[1]:
                return Reason.BAD_CLOCK, f"{name} is {value}"
        if not has_newline:
            return Reason.NO_FINAL_NEWLINE, "the last line has no newline"
        return None, ""


def _object(text: bytes) -> Line:
    """The JSON object of a line, without NaN and infinities; empty for anything else."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return {}
    return value if type(value) is dict else {}


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _fault(line: Line) -> str:
    """The first field of a line whose value has the wrong type, as a text; empty if there is none."""
    clocks = _CLOCKS if line.get("kind") == Kind.HEADER else ()  # the header's clocks have their own reason
    for name, value in line.items():
        wanted = None if name in clocks else _TYPES.get(name)
        if wanted is not None and value is not None and not _fits(value, wanted):
            return f"{name} is {_shown(repr(value).encode())}, not {wanted.value}"
    return ""


def _fits(value: Any, wanted: Type) -> bool:
    match wanted:
        case Type.INTEGER:
            return type(value) is int and -(2**63) <= value < 2**63
        case Type.NUMBER:
            return type(value) in (int, float)
        case Type.BOOLEAN:
            return type(value) is bool
        case Type.COUNTS:
            return type(value) is dict and all(v is None or _fits(v, Type.INTEGER) for v in value.values())
        case _:  # any value fits a text: other values are stored as JSON
            return True


_CLOCKS: Final = ("wallMs", "engineMs")
#: By name: a name has the same type in all kinds.
_TYPES: Final = {field.name: field.type for fields in (COMMON, *FIELDS.values()) for field in fields}


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("utf-8", "backslashreplace"))
