"""How much room on the disk a transaction of the SQLite store may need: the pages that it writes anew.

Messages that were published one after the other stand side by side in both tables and in most of their indexes, and so
share pages. A batch that settles messages in their order touches few, one that settles them at random touches several
for each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

_PAGE_BYTES: Final = 4096 + 24  # with its head in the log
#: Trees in which a message has a row or an index entry of its own: two tables, their keys, the lease or the state, and
#: the fact that keeps its failures.
_TREES: Final = 6
#: Messages published in a row that share a page, on the mean of these trees: fewer than was measured.
_SHARING: Final = 12
#: For a new message: its rows, and indexes that are not in the order of publishing.
_NEW_BYTES: Final = 32 * 1024
#: Bodies longer than this have pages of their own, which are overwritten when they go.
_SHORT_BYTES: Final = 1024


class Room:
    """What the transaction has changed, with the groups before it that are kept but not committed."""

    def __init__(self) -> None:
        self._touched: set[int] = set()
        self._new = 0
        self._added = 0
        self._freed = 0

    def add(self, size: int) -> None:
        """A message with a body of ``size`` bytes is new."""
        self._new += 1
        self._added += size

    def touch(self, seq: int) -> None:
        """The message of a number has changed."""
        self._touched.add(seq)

    def free(self, seq: int, size: int) -> None:
        """The message of a number, with a body of ``size`` bytes, is gone."""
        self._touched.add(seq)
        if size > _SHORT_BYTES:
            self._freed += size + _PAGE_BYTES

    def keep(self) -> None:
        """A group has ended, and is not committed yet. Its new messages stand side by side."""
        self._new = 0

    def clear(self) -> None:
        """The transaction is committed."""
        self._touched.clear()
        self._new = self._added = self._freed = 0

    def needed(self) -> int:
        """Bytes that its commit may need."""
        apart = sum(min(1.0, (after - seq) / _SHARING) for seq, after in pairwise(sorted(self._touched)))
        pages = _TREES * (apart + bool(self._touched))
        return int(pages * _PAGE_BYTES) + self._added + self._freed + self._new * _NEW_BYTES
