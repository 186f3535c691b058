"""Of how many bytes the messages are that each user has published and that are still stored: kept up by the fold while
a root is open, in memory.

What was stored before is counted after the start, some at a time (``chores.stored``): until that is done, a user may
seem to have less. A transaction of the store that is taken back is taken back here as well.
"""

from __future__ import annotations

from collections import Counter

from .principal import Account
from .records import Entry


class Stored:
    """``since`` is the last event that the store had folded at the start."""

    def __init__(self, since: int) -> None:
        self.counted = ""
        """Messages of before the start are counted up to this key."""
        self.is_complete = False
        self._since = since
        self._bytes: Counter[str] = Counter()
        self._undo: list[tuple[str, int]] = []
        self._counted_before = ("", False)

    def of_account(self, account: Account) -> int:
        """Bytes of the messages that an account has published."""
        return self._bytes[str(account)]

    def begin(self) -> None:
        """What was counted before stays."""
        self._undo.clear()
        self._counted_before = (self.counted, self.is_complete)

    def rollback(self) -> None:
        """What was counted since ``begin`` has not happened."""
        for uid, size in reversed(self._undo):
            self._add(uid, -size)
        self.counted, self.is_complete = self._counted_before
        self.begin()

    def comes(self, entry: Entry) -> None:
        """A message is published."""
        self._note(entry, entry.size)

    def goes(self, entry: Entry) -> None:
        """A message is not stored any more."""
        if self.is_complete or entry.seq > self._since or entry.key <= self.counted:
            self._note(entry, -entry.size)

    def count(self, page: list[Entry], is_last: bool) -> None:
        """The next messages in the order of their keys; those of after the start are counted already."""
        for entry in page:
            if entry.seq <= self._since:
                self._note(entry, entry.size)
        self.counted = page[-1].key if page else self.counted
        self.is_complete = is_last

    def _note(self, entry: Entry, size: int) -> None:
        if entry.publisher_uid:
            self._undo.append((entry.publisher_uid, size))
            self._add(entry.publisher_uid, size)

    def _add(self, uid: str, size: int) -> None:
        self._bytes[uid] += size
        if not self._bytes[uid]:
            del self._bytes[uid]
