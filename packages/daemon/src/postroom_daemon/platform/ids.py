"""Random ids: the only source of randomness, which a test can replace."""

from __future__ import annotations

import os

#: Number of random bytes that are read from the kernel at once.
_BLOCK = 4096
#: Maps a random hex digit to one that marks the variant of RFC 9562.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class Ids:
    """Creates random ids. Never use one instance on both sides of a fork: parent and child would create the same
    ids."""

    def __init__(self) -> None:
        self._block = ""
        self._used = 0
        self._stamp = (-1, "")  # the last wall time, and its text

    def _hex(self, digits: int) -> str:
        begin, self._used = self._used, self._used + digits
        if self._used > len(self._block):
            self._block, begin, self._used = os.urandom(_BLOCK).hex(), 0, digits
        return self._block[begin : self._used]

    def message(self, wall_ms: int) -> str:
        """A version 7 UUID (RFC 9562) with 74 random bits: it sorts by time, so that indexes grow at one end."""
        if self._stamp[0] != wall_ms:
            stamp = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
            self._stamp = (wall_ms, f"{stamp[:8]}-{stamp[8:]}-7")
        noise = self._hex(20)
        return f"{self._stamp[1]}{noise[:3]}-{_VARIANT[noise[3]]}{noise[4:7]}-{noise[7:19]}"

    def lease(self) -> str:
        """A version 4 UUID as a receipt that nobody can guess."""
        noise = self._hex(32)
        return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{_VARIANT[noise[16]]}{noise[17:20]}-{noise[20:]}"

    def chance(self) -> float:
        """A number from 0 to 1."""
        return int(self._hex(8), 16) / 0xFFFFFFFF

    def root(self) -> str:
        """A version 4 UUID for a new root."""
        return self.lease()
