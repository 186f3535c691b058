"""Writes to a connection that are joined: one system call in each turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

#: So many bytes are written at once; they are not joined with what comes after.
_ENOUGH_BYTES: Final = 64 * 1024


class JoinedWriter:
    """Writes what is given in one turn of the loop as one piece, in order, at the beginning of the next. ``close`` of
    the transport must come after ``flush``."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._bytes = 0

    def write(self, data: bytes) -> None:
        """Write data, soon."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes >= _ENOUGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was given, now. Does nothing if the connection has ended."""
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
