"""Message ids that are UUIDs, as two numbers of 64 bits each."""

from __future__ import annotations

import re
from typing import Final

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Halves = tuple[int, int]
"""The high and the low half of a UUID."""


def halves_of(id_: str) -> Halves | None:
    """The halves of a message id; None if it is no UUID."""
    if len(id_) != 36 or not _UUID.fullmatch(id_):
        return None
    return int(id_[:8] + id_[9:13] + id_[14:18], 16), int(id_[19:23] + id_[24:], 16)


def id_of_halves(high: int, low: int) -> str:
    """The message id with these halves."""
    one, two = f"{high:016x}", f"{low:016x}"
    return f"{one[:8]}-{one[8:12]}-{one[12:]}-{two[:4]}-{two[4:]}"
