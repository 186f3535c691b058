"""Where ids come from: the one source of randomness, which a test can replace."""

from __future__ import annotations

import os


class Ids:
    """Random ids."""

    def message(self, wall_ms: int) -> str:
        """A version 7 UUID (RFC 9562): sorted by time, so that indexes grow at one end; 74 random bits."""
        stamp = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
        noise = os.urandom(10).hex()
        variant = "89ab"[int(noise[3], 16) & 3]
        return f"{stamp[:8]}-{stamp[8:]}-7{noise[:3]}-{variant}{noise[4:7]}-{noise[7:19]}"

    def lease(self) -> str:
        """A version 4 UUID: a receipt that nobody can guess."""
        noise = os.urandom(16).hex()
        variant = "89ab"[int(noise[16], 16) & 3]
        return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{variant}{noise[17:20]}-{noise[20:]}"

    def root(self) -> str:
        """A version 4 UUID for a new root."""
        return self.lease()
