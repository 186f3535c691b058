"""A sorted set of up to a million small values: adding, finding and removing one moves a few hundred others at most."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T", bound=Any)

_BUCKET: Final = 512


class Sorted(Generic[T]):
    """Values that can be compared with each other, each of them once."""

    def __init__(self) -> None:
        self._buckets: list[list[T]] = []  # none of them empty
        self._loose: list[T] = []  # what was added unsorted

    def add_unsorted(self, value: T) -> None:
        """Add a value that is not seen before ``sort``."""
        self._loose.append(value)

    def sort(self) -> None:
        """Put in order what was added unsorted; nothing else may have been added before."""
        loose, self._loose = self._loose, []
        loose.sort()
        once = [value for at, value in enumerate(loose) if not at or value != loose[at - 1]]
        self._buckets = [once[at : at + _BUCKET] for at in range(0, len(once), _BUCKET)]

    def add(self, value: T) -> None:
        """Add a value, unless it is there."""
        buckets = self._buckets
        if not buckets:
            buckets.append([value])
            return
        number = min(bisect_left(buckets, value, key=_last), len(buckets) - 1)
        bucket = buckets[number]
        at = bisect_left(bucket, value)
        if at < len(bucket) and bucket[at] == value:
            return
        bucket.insert(at, value)
        if len(bucket) > 2 * _BUCKET:
            buckets[number : number + 1] = [bucket[:_BUCKET], bucket[_BUCKET:]]

    def discard(self, value: T) -> None:
        """Remove a value, if it is there."""
        buckets = self._buckets
        number = bisect_left(buckets, value, key=_last)
        if number == len(buckets):
            return
        bucket = buckets[number]
        at = bisect_left(bucket, value)
        if bucket[at] == value:
            del bucket[at]
            if not bucket:
                del buckets[number]

    def first(self) -> T | None:
        """The lowest value."""
        return self._buckets[0][0] if self._buckets else None

    def behind(self, after: Any) -> Iterator[T]:
        """The values above one, in order. Nothing may be added or removed meanwhile."""
        buckets = self._buckets
        number = bisect_right(buckets, after, key=_last)
        if number < len(buckets):
            yield from buckets[number][bisect_right(buckets[number], after) :]
        for bucket in buckets[number + 1 :]:
            yield from bucket

    def behind_or_at(self, after: Any) -> Iterator[T]:
        """As ``behind``, with that value itself."""
        buckets = self._buckets
        number = bisect_left(buckets, after, key=_last)
        if number < len(buckets):
            yield from buckets[number][bisect_left(buckets[number], after) :]
        for bucket in buckets[number + 1 :]:
            yield from bucket

    def __iter__(self) -> Iterator[T]:
        for bucket in self._buckets:
            yield from bucket

    def __bool__(self) -> bool:
        return bool(self._buckets)


class SortedNames(Sorted[str]):
    """The names of an ``Undoable``, in order."""

    def fill(self, names: Iterable[str]) -> None:
        """Begin with these names."""
        for name in names:
            self.add_unsorted(name)
        self.sort()

    def track(self, name: str, before: object, value: object) -> None:
        """See ``Undoable``."""
        if value is None:
            self.discard(name)
        else:
            self.add(name)

    def page(self, prefix: str, after: str, limit: int) -> list[str]:
        """The first names behind ``after`` that begin with ``prefix``."""
        names = self.behind(after) if after >= prefix else self.behind_or_at(prefix)
        return list(islice(takewhile(lambda name: name.startswith(prefix), names), max(limit, 0)))


def _last(bucket: list[T]) -> T:
    return bucket[-1]
