"""Lines that wait for the snapshot's header: on the disk, as there may be more of them than memory."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from postroom_common.snapshot import Kind
from postroom_common.snapshot_writer import LineEncoder

_READ_BYTES: Final = 65_536
_PART_BYTES: Final = 1024 * 1024
_LEVEL: Final = 1


class Spool:
    """A file without a name in a folder: it goes with the process. Lines are compressed, with less care than in the
    snapshot. As a context manager it lets go of it. Raises ``OSError``."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by ``__exit__``
        self._compressor = zlib.compressobj(_LEVEL)
        self._written = 0
        self._raw = 0  # bytes that may not have been compressed yet

    def put(self, line: bytes) -> None:
        """Take a line, without its newline."""
        self.count += 1
        self._raw += len(line) + 1
        self._write(self._compressor.compress(line + b"\n"))

    def fits(self, limit: int) -> bool:
        """Whether what was put takes no more than so many bytes."""
        if self._written + self._raw <= limit:
            return True
        self._write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._raw = 0
        return self._written <= limit

    @property
    def bytes_taken(self) -> int:
        """What it takes, at most."""
        self._write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._raw = 0
        return self._written

    def lines(self, count: int | None = None) -> Iterator[bytes]:
        """The first ``count`` lines, or all, once everything was put."""
        left = self.count if count is None else count
        self._write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._file.seek(0)
        decompressor = zlib.decompressobj()
        begun = b""
        while left and (data := decompressor.unconsumed_tail or self._file.read(_READ_BYTES)):
            *lines, begun = (begun + decompressor.decompress(data, _PART_BYTES)).split(b"\n")
            yield from lines[:left]
            left -= min(left, len(lines))

    def _write(self, data: bytes) -> None:
        if data:
            self._file.write(data)
            self._written += len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what is in its buffer may not fit on the disk: it is not wanted
            self._file.close()


class Drafts:
    """Encoded lines of a snapshot in a spool, each with its kind."""

    def __init__(self, spool: Spool, encoder: LineEncoder) -> None:
        self.spool = spool
        self._encoder = encoder

    def put(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Take a line."""
        self.spool.put(kind.value.encode() + b" " + self._encoder.encode(kind, fields))

    def lines(self, count: int | None = None) -> Iterator[tuple[Kind, bytes]]:
        """As ``Spool.lines``."""
        for line in self.spool.lines(count):
            kind, _, encoded = line.partition(b" ")
            yield Kind(kind.decode()), encoded
