"""Where ids come from: the one source of randomness, which a test can replace."""

from __future__ import annotations

import os

#: Random bytes are taken from the kernel in blocks of this size.
_BLOCK = 4096


class Ids:
    """Random ids. Not for use after a fork: parent and child would give out the same."""

    def __init__(self) -> None:
        self._block = ""
        self._used = 0

    def _hex(self, digits: int) -> str:
        begin, self._used = self._used, self._used + digits
        if self._used > len(self._block):
            self._block, begin, self._used = os.urandom(_BLOCK).hex(), 0, digits
        return self._block[begin : self._used]

    def message(self, wall_ms: int) -> str:
        """A version 7 UUID (RFC 9562): sorted by time, so that indexes grow at one end; 74 random bits."""
        stamp = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
        noise = self._hex(20)
        variant = "89ab"[int(noise[3], 16) & 3]
        return f"{stamp[:8]}-{stamp[8:]}-7{noise[:3]}-{variant}{noise[4:7]}-{noise[7:19]}"

    def lease(self) -> str:
        """A version 4 UUID: a receipt that nobody can guess."""
        noise = self._hex(32)
        variant = "89ab"[int(noise[16], 16) & 3]
        return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{variant}{noise[17:20]}-{noise[20:]}"

    def chance(self) -> float:
        """A number from 0 to 1."""
        return int(self._hex(8), 16) / 0xFFFFFFFF

    def root(self) -> str:
        """A version 4 UUID for a new root."""
        return self.lease()
