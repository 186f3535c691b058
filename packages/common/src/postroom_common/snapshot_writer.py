"""Writes snapshots atomically: a file with its final name is complete."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from zlib import crc32

from .snapshot import PART_SUFFIX, SUFFIX, Kind


def _standard_dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


_dumps: Callable[[Any], bytes]
try:
    from orjson import dumps as _dumps
except ImportError:  # twelve times slower, but fast enough for a snapshot
    _dumps = _standard_dumps

#: The next level costs two thirds more CPU and saves a twentieth.
_GZIP_LEVEL: Final = 3
_BLOCK_BYTES: Final = 65_536
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_YEAR_9999_MS: Final = 253_402_300_799_000


def file_name(device: str, root: str, last_event: int, wall_ms: int) -> str:
    """The file name of a snapshot. It is for people: never parse it. It has the last 8 characters of ``root``."""
    moment = datetime.fromtimestamp(min(max(wall_ms, 0), _YEAR_9999_MS) / 1000, UTC)
    safe = _UNFIT.sub("-", device)[:64].strip("-.") or "device"
    when = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z"
    return f"postroom-{safe}-{_UNFIT.sub('-', root)[-8:]}-{last_event}-{when}{SUFFIX}"


class LineEncoder:
    """Encodes the lines of one snapshot. It needs no writer, whose file name requires the last event."""

    def __init__(self, device: str, snapshot: str) -> None:
        common = {"device": device, "snapshot": snapshot}
        self._begins = {kind: _dumps({**common, "kind": kind.value})[:-1] + b"," for kind in Kind}

    def encode(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        """A line without its newline: the common fields, then those of ``fields`` that are not None (at least one).

        Raises ``TypeError`` or ``ValueError`` for a value that JSON cannot represent.
        """
        if None in fields.values():
            fields = {name: value for name, value in fields.items() if value is not None}
        return self._begins[kind] + _dumps(fields)[1:]

    def opening(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        """The common start of all lines of a kind that start with ``fields``, for callers that encode the rest."""
        return self.encode(kind, fields)[:-1] + b","


class SnapshotWriter:
    """Writes one snapshot line by line, the header first. As a context manager it removes an unfinished file.

    ``finish`` writes the trailer, syncs the file, renames it and syncs the directory. Raises ``OSError``;
    ``FileExistsError`` if a file with that name exists.
    """

    def __init__(self, folder: Path, name: str, device: str, snapshot: str) -> None:
        self.path = folder / name
        self._part = folder / f".{name}{PART_SUFFIX}"
        self._encoder = LineEncoder(device, snapshot)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._crc = 0
        self._digest = sha256()
        self._counts: Counter[Kind] = Counter()
        self._is_left = False
        fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)  # it may contain bodies
        self._file = os.fdopen(fd, "wb")
        # No name and no time: the same lines give the same bytes.
        self._gzip = gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file, mtime=0)

    def put(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Write a line. See ``LineEncoder``."""
        self.put_encoded(kind, [self._encoder.encode(kind, fields)])

    def put_encoded(self, kind: Kind, lines: Sequence[bytes]) -> None:
        """Write lines that a ``LineEncoder`` of the same device and snapshot has encoded."""
        self._crc += sum(map(crc32, lines))
        self._counts[kind] += len(lines)
        self._waiting += lines
        self._waiting_bytes += sum(map(len, lines))
        if self._waiting_bytes >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Compress the buffered lines. Compressing each line separately would take twice as long."""
        block = b"\n".join([*self._waiting, b""])
        self._waiting.clear()
        self._waiting_bytes = 0
        self._digest.update(block)
        self._gzip.write(block)

    def finish(
        self, first_event: int | None, last_event: int | None, before_naming: Callable[[], None] = lambda: None
    ) -> Path:
        """Finish the snapshot durably, and return its path.

        ``before_naming`` is called when the file is durable under its temporary name. If the process dies after that,
        the file has either name, and the next process can tell which.
        """
        self._flush()
        trailer = {
            "lines": self._counts.total(),
            "counts": {kind.value: count for kind, count in sorted(self._counts.items())},
            "firstEvent": first_event,
            "lastEvent": last_event,
            "lineCrc": self._crc,
            "digest": self._digest.hexdigest(),
        }
        self._gzip.write(self._encoder.encode(Kind.TRAILER, trailer) + b"\n")
        self._gzip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self.path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))
        sync_folder(self.path.parent)
        before_naming()
        self._part.rename(self.path)
        sync_folder(self.path.parent)
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, ValueError):  # the disk may be too full for the buffers, which are not needed
            self._gzip.close()
        with suppress(OSError):
            self._file.close()
        if not self._is_left:
            self._part.unlink(missing_ok=True)
        else:
            with suppress(OSError):
                os.truncate(self._part, 0)

    def leave(self) -> None:
        """On exit, truncate an unfinished file instead of removing it, so that its temporary name remains visible."""
        self._is_left = True


def sync_folder(folder: Path) -> None:
    """Make the names in a directory durable, if its file system supports that (FAT does not)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)
