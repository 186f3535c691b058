"""How much disk space the open transaction of the database may take."""

from __future__ import annotations

from typing import Final

from ...model.records import Entry

_PAGE_BYTES: Final = 4096 + 24  # with its header in the write-ahead log
#: Trees in which a message has a row or an index entry of its own: two tables, their keys, the lease or the state, and
#: the key-value with its failures.
_TREES: Final = 6
#: Messages published in a row in one queue that share a page, on the mean of these trees: fewer than was measured.
_SHARING: Final = 12
#: Bytes for a new message: its rows, and indexes that are not in the order of publishing.
_NEW_BYTES: Final = 32 * 1024
#: Bodies longer than this have pages of their own, which are overwritten when they go.
_SHORT_BYTES: Final = 1024


class SpaceEstimate:
    """How many bytes the open database transaction may write: the pages that it changes.

    Messages of a queue that were published one after the other stand side by side in both tables and in most indexes,
    and share pages. A batch that settles messages in their order touches few pages; one in random order several per
    message.
    """

    def __init__(self) -> None:
        #: The places of changed messages: their queue, and their publish number in units of ``_SHARING``.
        self._touched: set[tuple[str, int]] = set()
        self._written = 0
        self._freed = 0

    def touch(self, queue: str, seq: int) -> None:
        """The message of a queue with this publish number has changed."""
        self._touched.add((queue, seq // _SHARING))

    def touch_several(self, entries: list[Entry]) -> None:
        """As ``touch``, for messages of one queue."""
        queue, last = entries[0].queue, -1
        for entry in entries:
            place = entry.seq // _SHARING
            if place != last:
                last = place
                self._touched.add((queue, place))

    def free(self, size: int) -> None:
        """A message that the database has, with a body of ``size`` bytes, is gone."""
        if size > _SHORT_BYTES:
            self._freed += size + _PAGE_BYTES

    def write(self, size: int) -> None:
        """``size`` bytes of bodies are written."""
        self._written += size

    def needed(self, new: int, unwritten: int) -> int:
        """Bytes that a commit may need, with ``new`` messages in the open group, and ``unwritten`` bytes of bodies."""
        pages = _TREES * (len(self._touched) + bool(self._touched))
        return pages * _PAGE_BYTES + self._written + unwritten + self._freed + new * _NEW_BYTES

    def clear(self) -> None:
        """The database transaction is committed."""
        self._touched.clear()
        self._written = self._freed = 0
