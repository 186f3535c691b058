"""Lines that wait on the disk for the snapshot's header: there may be more of them than memory."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from postroom_common.snapshot import Kind
from postroom_common.snapshot_writer import LineEncoder

#: Bytes kept in memory: most snapshots need no more.
_MEMORY_BYTES: Final = 1024 * 1024
_LEVEL: Final = 1
_LENGTH_BYTES: Final = 8
#: Lines that are passed on at a time.
_BLOCK_LINES: Final = 200


class Spool:
    """Lines in blocks. The last block is in memory; the others are in a temporary file without a name in a folder,
    compressed faster than in the snapshot. The context manager closes the file. Raises ``OSError``."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by ``__exit__``
        self._lines: list[bytes] = []
        self._raw = 0
        self._written = 0

    def put(self, line: bytes) -> None:
        """Add a line, without its newline."""
        self.count += 1
        self._lines.append(line)
        self._raw += len(line) + 1
        if self._raw >= _MEMORY_BYTES:
            self._flush()

    def fits(self, limit: int) -> bool:
        """Whether the lines so far take no more than so many bytes of a snapshot."""
        if self._written + self._raw <= limit:
            return True
        self._flush()
        return self._written <= limit

    @property
    def bytes_taken(self) -> int:
        """Bytes that the lines take of a snapshot, at most."""
        self._flush()
        return self._written

    def blocks(self) -> Iterator[list[bytes]]:
        """All lines, block by block. Call it after the last ``put``."""
        self._file.seek(0)
        while length := self._file.read(_LENGTH_BYTES):
            yield zlib.decompress(self._file.read(int.from_bytes(length))).split(b"\n")
        if self._lines:
            yield self._lines

    def lines(self) -> Iterator[bytes]:
        """All lines, one by one."""
        return chain.from_iterable(self.blocks())

    def _flush(self) -> None:
        if self._lines:
            data = zlib.compress(b"\n".join(self._lines), _LEVEL)
            self._file.write(len(data).to_bytes(_LENGTH_BYTES))
            self._file.write(data)
            self._written += _LENGTH_BYTES + len(data)
            self._lines, self._raw = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # its buffer may not fit on the disk, and is not needed
            self._file.close()


class Drafts:
    """Encoded lines of a snapshot in a spool, each with its kind."""

    def __init__(self, spool: Spool, encoder: LineEncoder) -> None:
        self.spool = spool
        self.encoder = encoder
        self._kind: Kind | None = None
        self._runs: list[tuple[Kind, int]] = []  # runs of lines of one kind: the kind, and the number of the first line

    def put(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Encode and add a line."""
        self.put_encoded(kind, self.encoder.encode(kind, fields))

    def put_encoded(self, kind: Kind, line: bytes) -> None:
        """Add an encoded line."""
        self.of(kind)(line)

    def of(self, kind: Kind) -> Callable[[bytes], None]:
        """A function that adds encoded lines of a kind. It is valid until lines of another kind are added."""
        if kind is not self._kind:
            self._kind = kind
            self._runs.append((kind, self.spool.count))
        return self.spool.put

    def blocks(self, count: int | None = None) -> Iterator[tuple[Kind, list[bytes]]]:
        """The first ``count`` lines, or all, some of one kind at a time. Call it after the last ``put``."""
        last = self.spool.count if count is None else count
        ends = [begin for _, begin in self._runs[1:]] + [self.spool.count]
        runs = iter(zip((kind for kind, _ in self._runs), ends, strict=True))
        kind, end, number = Kind.HEADER, 0, 0
        for block in self.spool.blocks():
            begin = 0
            while begin < len(block) and number < last:
                while number == end:
                    kind, end = next(runs)
                part = block[begin : begin + min(_BLOCK_LINES, end - number, last - number)]
                yield kind, part
                begin, number = begin + len(part), number + len(part)
