"""How many bytes of messages each account has published that are still stored: an observer of the fold, in memory.

Messages that were stored before the start are counted after it, some at a time: until all are counted, the usage of an
account may be too low.
"""

from __future__ import annotations

from collections.abc import Sequence

from .observer import Observer
from .principal import Account
from .records import Entry


class Usage(Observer):
    """Stored bytes by account. ``since`` is the last event that the store had folded at the start. A participant of
    transactions."""

    def __init__(self, since: int) -> None:
        self.counted = ""
        """Messages from before the start are counted up to this key."""
        self.is_complete = False
        self._since = since
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
                self._note(entry, entry.size)

    def grown(self, entry: Entry, size: int) -> None:
        """See ``Observer``."""
        if entry.publisher_uid and self._is_counted(entry):
            self._note(entry, size)

    def removed(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        for entry in entries:
            if entry.publisher_uid and self._is_counted(entry):
                self._note(entry, -entry.size)

    def _is_counted(self, entry: Entry) -> bool:
        return self.is_complete or entry.seq > self._since or entry.key <= self.counted

    def count(self, page: list[Entry], is_last: bool) -> None:
        """Count the next stored messages in the order of their keys; those from after the start are counted already."""
        for entry in page:
            if entry.publisher_uid and entry.seq <= self._since:
                self._note(entry, entry.size)
        self.counted = page[-1].key if page else self.counted
        self.is_complete = is_last

    def _note(self, entry: Entry, size: int) -> None:
        self._undo.append((entry.publisher_uid, size))
        self._add(entry.publisher_uid, size)

    def _add(self, account: str, size: int) -> None:
        size += self._bytes.get(account, 0)
        if size:
            self._bytes[account] = size
        else:
            self._bytes.pop(account, None)
