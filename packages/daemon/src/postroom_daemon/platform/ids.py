"""Where ids come from: the one source of randomness, which a test can replace."""

from __future__ import annotations

import os

#: Random bytes are taken from the kernel in blocks of this size.
_BLOCK = 4096
#: By a hex digit, one that says that the id is of the variant of RFC 9562.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class Ids:
    """Random ids. Not for use after a fork: parent and child would give out the same."""

    def __init__(self) -> None:
        self._block = ""
        self._used = 0
        self._stamp = (-1, "")  # the last time that was written, and how

    def _hex(self, digits: int) -> str:
        begin, self._used = self._used, self._used + digits
        if self._used > len(self._block):
            self._block, begin, self._used = os.urandom(_BLOCK).hex(), 0, digits
        return self._block[begin : self._used]

    def message(self, wall_ms: int) -> str:
        """A version 7 UUID (RFC 9562): sorted by time, so that indexes grow at one end; 74 random bits."""
        if self._stamp[0] != wall_ms:
            stamp = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
            self._stamp = (wall_ms, f"{stamp[:8]}-{stamp[8:]}-7")
        noise = self._hex(20)
        return f"{self._stamp[1]}{noise[:3]}-{_VARIANT[noise[3]]}{noise[4:7]}-{noise[7:19]}"

    def lease(self) -> str:
        """A version 4 UUID: a receipt that nobody can guess."""
        noise = self._hex(32)
        return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{_VARIANT[noise[16]]}{noise[17:20]}-{noise[20:]}"

    def chance(self) -> float:
        """A number from 0 to 1."""
        return int(self._hex(8), 16) / 0xFFFFFFFF

    def root(self) -> str:
        """A version 4 UUID for a new root."""
        return self.lease()
