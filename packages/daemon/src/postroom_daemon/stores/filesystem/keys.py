"""Keys of messages in the order of delivery: 16 bytes for each that is far from both ends."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from .uuids import halves_of, id_of_halves

#: Keys that are packed or unpacked at once.
_PIECE: Final = 256
#: Keys that stay as they are at the end.
_LOOSE: Final = 2048
#: Packed keys that are gone before their space is returned, if they are half of all.
_GONE_LIMIT: Final = 4096


class KeyQueue:
    """First in, first out. All keys that are packed begin with ``prefix``, and end in a UUID; others are kept as they
    are, under a number, and cost more."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}:"
        self._first: deque[str] = deque()
        self._packed = array("Q")  # two numbers each: the halves of an id; or 0 and the number of an odd key
        self._begin = 0
        self._last: deque[str] = deque()
        self._odd: dict[int, str] = {}
        self._odd_count = 0

    def __len__(self) -> int:
        return len(self._first) + (len(self._packed) - self._begin) // 2 + len(self._last)

    def append(self, key: str) -> None:
        """Add a key at the end."""
        last = self._last
        last.append(key)
        if len(last) > _LOOSE + _PIECE:
            for _ in range(_PIECE):
                self._pack(last.popleft())

    def extend_packed(self, halves: array[int]) -> None:
        """Add keys with the prefix at the end, as the halves of their ids."""
        while self._last:
            self._pack(self._last.popleft())
        self._packed.extend(halves)

    def prepend_packed(self, halves: array[int]) -> None:
        """As ``extend_packed``, at the beginning; before ``first`` was asked for."""
        self._packed[self._begin : self._begin] = halves

    def first(self) -> str:
        """The key at the beginning; '' if there is none."""
        if not self._first:
            self._refill()
        return self._first[0] if self._first else ""

    def popleft(self) -> None:
        """Remove the key that ``first`` has returned."""
        self._first.popleft()

    def __getitem__(self, at: int) -> str:
        if at < len(self._first):
            return self._first[at]
        at -= len(self._first)
        packed = (len(self._packed) - self._begin) // 2
        return self._unpacked(self._begin + 2 * at) if at < packed else self._last[at - packed]

    def behind(self, at: int) -> Iterator[str]:
        """The keys from a place on. Nothing may be added or removed meanwhile."""
        first, packed = len(self._first), (len(self._packed) - self._begin) // 2
        yield from islice(self._first, at, None)
        for number in range(max(at - first, 0), packed):
            yield self._unpacked(self._begin + 2 * number)
        yield from islice(self._last, max(at - first - packed, 0), None)

    def _pack(self, key: str) -> None:
        halves = halves_of(key.removeprefix(self._prefix))
        if halves is None or not halves[0] or not key.startswith(self._prefix):
            self._odd_count += 1
            self._odd[self._odd_count] = key
            halves = (0, self._odd_count)
        self._packed.extend(halves)

    def _unpacked(self, at: int) -> str:
        high, low = self._packed[at], self._packed[at + 1]
        return self._prefix + id_of_halves(high, low) if high else self._odd[low]

    def _refill(self) -> None:
        """Bring the next keys to the beginning, once that is empty."""
        packed, end = self._packed, min(self._begin + 2 * _PIECE, len(self._packed))
        if self._begin == end:
            self._first, self._last = self._last, self._first
            return
        for at in range(self._begin, end, 2):
            self._first.append(self._unpacked(at))
            if not packed[at]:
                del self._odd[packed[at + 1]]
        self._begin = end
        if self._begin == len(packed):
            self._packed, self._begin = array("Q"), 0
        elif self._begin > max(2 * _GONE_LIMIT, len(packed) // 2):
            del packed[: self._begin]
            self._begin = 0
