"""Random ids: the only source of randomness, which a test can replace."""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

#: Number of UUIDs that are created at once, which takes half as long as one by one.
_COUNT: Final = 128
#: The bits of UUIDs that are random, and those that mark the version and the variant (RFC 9562).
_RANDOM: Final = int("ffffffffffff0fff3fffffffffffffff" * _COUNT, 16)
_MARKS: Final = int("00000000000040008000000000000000" * _COUNT, 16)
#: The groups of hex digits of a UUID.
_GROUPS: Final = Struct("8s4s4s4s12s")


def _random_uuids() -> list[str]:
    """Version 4 UUIDs."""
    noise = int.from_bytes(os.urandom(16 * _COUNT), "big") & _RANDOM | _MARKS
    digits = noise.to_bytes(16 * _COUNT, "big").hex().encode()
    return b" ".join(map(b"-".join, _GROUPS.iter_unpack(digits))).decode().split()


class Ids:
    """Creates random ids. Never use one instance on both sides of a fork: parent and child would create the same
    ids."""

    def __init__(self) -> None:
        self._uuids: list[str] = []
        self._stamp = (-1, "")  # the last wall time, and its text

    def message(self, wall_ms: int) -> str:
        """A version 7 UUID (RFC 9562) with 74 random bits: it sorts by time, so that indexes grow at one end."""
        last, stamp = self._stamp
        if last != wall_ms:
            digits = (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "big").hex()
            stamp = f"{digits[:8]}-{digits[8:]}-7"
            self._stamp = (wall_ms, stamp)
        if not self._uuids:
            self._uuids = _random_uuids()
        return stamp + self._uuids.pop()[15:]

    def lease(self) -> str:
        """A version 4 UUID as a receipt that nobody can guess."""
        if not self._uuids:
            self._uuids = _random_uuids()
        return self._uuids.pop()

    def chance(self) -> float:
        """A number from 0 to 1."""
        return int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF

    def root(self) -> str:
        """A version 4 UUID for a new root."""
        return self.lease()
