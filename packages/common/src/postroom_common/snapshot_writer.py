"""Writes a snapshot so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable
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

#: A better one costs three times the CPU for a twentieth less.
_GZIP_LEVEL: Final = 6
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_YEAR_9999_MS: Final = 253_402_300_799_000


def file_name(device: str, root: str, last_event: int, wall_ms: int) -> str:
    """What a snapshot is called, for people: nothing is parsed from it. ``root`` is shortened to its last 8 signs."""
    moment = datetime.fromtimestamp(min(max(wall_ms, 0), _YEAR_9999_MS) / 1000, UTC)
    safe = _UNFIT.sub("-", device)[:64].strip("-.") or "device"
    when = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z"
    return f"postroom-{safe}-{_UNFIT.sub('-', root)[-8:]}-{last_event}-{when}{SUFFIX}"


class SnapshotWriter:
    """One snapshot, written line by line: the header first. As a context manager it removes what was not finished.

    ``put`` leaves out fields that are None. ``finish`` writes the trailer, syncs the file, gives it its name and syncs
    the directory. Raises ``OSError``; ``FileExistsError`` where a file of that name is there already.
    """

    def __init__(self, folder: Path, name: str, device: str, snapshot: str) -> None:
        self.path = folder / name
        self._part = folder / f".{name}{PART_SUFFIX}"
        self._common = {"device": device, "snapshot": snapshot}
        self._lines = 0
        self._crc = 0
        self._digest = sha256()
        self._counts: Counter[str] = Counter()
        self._file = open(self._part, "xb")  # noqa: SIM115  # closed by ``finish`` or ``__exit__``
        # Without a name and a time in it: the same lines are the same bytes.
        self._gzip = gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file, mtime=0)

    @property
    def bytes_written(self) -> int:
        """Bytes of the file so far, without those that the compressor holds back (about 100 kB at most)."""
        return self._file.tell()

    def put(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Write a line: the common fields, then ``fields``."""
        line = self._encode(kind, fields)
        self._crc += crc32(line)
        self._lines += 1
        self._counts[kind.value] += 1
        line += b"\n"
        self._digest.update(line)
        self._gzip.write(line)

    def finish(self, first_event: int | None, last_event: int | None) -> Path:
        """End it, durably; its path."""
        trailer = {
            "lines": self._lines,
            "counts": dict(sorted(self._counts.items())),
            "firstEvent": first_event,
            "lastEvent": last_event,
            "lineCrc": self._crc,
            "digest": self._digest.hexdigest(),
        }
        self._gzip.write(self._encode(Kind.TRAILER, trailer) + b"\n")
        self._gzip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self.path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))
        self._part.rename(self.path)
        sync_folder(self.path.parent)
        return self.path

    def _encode(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        said = {name: value for name, value in fields.items() if value is not None}
        return _dumps({**self._common, "kind": kind.value, **said})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


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
