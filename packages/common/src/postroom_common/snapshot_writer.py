"""Writes a snapshot so that nobody ever sees half of one."""

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
except ImportError:  # twelve times slower, and enough for a snapshot
    _dumps = _standard_dumps

#: The next one costs two thirds more CPU for a twentieth less.
_GZIP_LEVEL: Final = 3
_BLOCK_BYTES: Final = 65_536
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_YEAR_9999_MS: Final = 253_402_300_799_000


def file_name(device: str, root: str, last_event: int, wall_ms: int) -> str:
    """What a snapshot is called, for people: nothing is parsed from it. ``root`` is shortened to its last 8 signs."""
    moment = datetime.fromtimestamp(min(max(wall_ms, 0), _YEAR_9999_MS) / 1000, UTC)
    safe = _UNFIT.sub("-", device)[:64].strip("-.") or "device"
    when = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z"
    return f"postroom-{safe}-{_UNFIT.sub('-', root)[-8:]}-{last_event}-{when}{SUFFIX}"


class LineEncoder:
    """Makes the lines of one snapshot, for a writer that may not be there yet: it needs to know the last event."""

    def __init__(self, device: str, snapshot: str) -> None:
        common = {"device": device, "snapshot": snapshot}
        self._begins = {kind: _dumps({**common, "kind": kind.value})[:-1] + b"," for kind in Kind}

    def encode(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        """A line without its newline: the common fields, then those of ``fields`` that are not None.

        There is at least one. Raises ``TypeError`` or ``ValueError`` for what JSON does not have.
        """
        if None in fields.values():
            fields = {name: value for name, value in fields.items() if value is not None}
        return self._begins[kind] + _dumps(fields)[1:]

    def opening(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        """What all lines of a kind begin with that have the same ``fields`` first; for those who encode the rest."""
        return self.encode(kind, fields)[:-1] + b","


class SnapshotWriter:
    """One snapshot, written line by line: the header first. As a context manager it removes what was not finished.

    ``finish`` writes the trailer, syncs the file, gives it its name and syncs the directory. Raises ``OSError``;
    ``FileExistsError`` where a file of that name is there already.
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
        fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)  # bodies may be in it
        self._file = os.fdopen(fd, "wb")
        # Without a name and a time in it: the same lines are the same bytes.
        self._gzip = gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file, mtime=0)

    def put(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Write a line; see ``LineEncoder``."""
        self.put_encoded(kind, [self._encoder.encode(kind, fields)])

    def put_encoded(self, kind: Kind, lines: Sequence[bytes]) -> None:
        """Write lines that a ``LineEncoder`` of the same device and snapshot has made."""
        self._crc += sum(map(crc32, lines))
        self._counts[kind] += len(lines)
        self._waiting += lines
        self._waiting_bytes += sum(map(len, lines))
        if self._waiting_bytes >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Compress the lines that wait: one by one it would take twice as long."""
        block = b"\n".join([*self._waiting, b""])
        self._waiting.clear()
        self._waiting_bytes = 0
        self._digest.update(block)
        self._gzip.write(block)

    def finish(
        self, first_event: int | None, last_event: int | None, before_naming: Callable[[], None] = lambda: None
    ) -> Path:
        """End it, durably; its path. ``before_naming`` is called once all of it is durable under the name that it has
        while it is written: who dies behind that leaves a file of either name, and can tell which."""
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
        with suppress(OSError, ValueError):  # what is in the buffers may not fit on the disk: it is not wanted
            self._gzip.close()
        with suppress(OSError):
            self._file.close()
        if not self._is_left:
            self._part.unlink(missing_ok=True)
        else:
            with suppress(OSError):
                os.truncate(self._part, 0)

    def leave(self) -> None:
        """Do not remove what was not finished, but for what it holds: by its part is seen that it has no name."""
        self._is_left = True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where its file system can do that (FAT cannot)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)
