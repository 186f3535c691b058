"""How many bytes of messages each account has published that are still stored: an observer of the fold, in memory.

Messages that were stored before the start are counted after it, some at a time: until all are counted, the usage of an
account may be too low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .observer import Observer
from .principal import Account
from .records import Entry


class Usage(Observer):
    """Stored bytes by account. ``since`` is the last event that the store had folded at the start. A participant of
    transactions."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.counted = ""
        """Messages from before the start are counted up to this key."""
        self.is_complete = False
        self._bytes: dict[str, int] = {}
        self._undo: list[tuple[str, int]] = []
        self._counted_before = ("", False)

    def of_account(self, account: Account) -> int:
        """Bytes of the messages that an account has published."""
        return self._bytes.get(str(account), 0)

    def commit(self) -> None:
        """See ``Participant``."""
        self._undo.clear()
        self._counted_before = (self.counted, self.is_complete)

    def rollback(self) -> None:
        """See ``Participant``."""
        for account, size in reversed(self._undo):
            self._add(account, -size)
        self.counted, self.is_complete = self._counted_before
        self.commit()

    def published(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        for entry in entries:
            if entry.publisher_uid:
                self._note(entry.publisher_uid, entry.size)

    def grown(self, entry: Entry, size: int) -> None:
        """See ``Observer``."""
        if entry.publisher_uid and self._is_counted(entry):
            self._note(entry.publisher_uid, size)

    def removed(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        for entry in entries:
            if entry.publisher_uid and self._is_counted(entry):
                self._note(entry.publisher_uid, -entry.size)

    def _is_counted(self, entry: Entry) -> bool:
        return self.is_complete or entry.seq > self.since or entry.key <= self.counted

    def count(self, stored: Mapping[str, int], until: str) -> None:
        """Count the next messages in the order of their keys, up to the key ``until`` ('': these are the last): what
        each account has ``stored`` by those from before the start. The others are counted already."""
        for account, size in stored.items():
            self._note(account, size)
        self.counted = until or self.counted
        self.is_complete = not until

    def _note(self, account: str, size: int) -> None:
        self._undo.append((account, size))
        self._add(account, size)

    def _add(self, account: str, size: int) -> None:
        size += self._bytes.get(account, 0)
        if size:
            self._bytes[account] = size
        else:
            self._bytes.pop(account, None)
