"""Changes of messages that no file shows yet.

A file is written once for all changes of its message meanwhile. A message that comes and goes before that has none: the
journal has its events.
"""

from __future__ import annotations

from typing import Any, Final

from ...model.records import Entry

#: What a message may take of the disk whose file is written to: a block of it, and one of a directory; and one whose
#: file gets another name only.
_FILE_BYTES: Final = 8192
_NAME_BYTES: Final = 512
#: Characters of an entry's texts that fit into a name, whatever else is in it.
_SHORT_TEXTS: Final = 60


class Changes:
    """New, changed and removed messages.

    ``entries`` has each with the last event that it shows, or None for a message that is gone. ``bodies`` are those of
    new messages, and of those whose file is to be rewritten; ``histories`` the failed attempts, where they have
    changed; ``parts`` those that were appended to bodies, as they are stored, by their numbers. ``new`` are messages
    without a file, ``bytes`` is the length of all bodies and parts.
    """

    __slots__ = ("bodies", "bytes", "entries", "histories", "long", "new", "parts")

    def __init__(self) -> None:
        self.entries: dict[str, tuple[Entry, int] | None] = {}
        self.bodies: dict[str, bytes] = {}
        self.histories: dict[str, list[Any] | None] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.new: set[str] = set()
        self.bytes = 0
        self.long: set[str] = set()  # messages whose facts may need a line inside their files

    def put(self, entry: Entry, event: int) -> None:
        """A message is new, or has changed with this event."""
        self.entries[entry.key] = (entry, event)
        if entry.failures or entry.phase or _texts_are_long(entry):
            self.long.add(entry.key)

    def add_body(self, key: str, body: bytes) -> None:
        """The body of a message that is written with it."""
        self.bytes += len(body) - len(self.bodies.get(key, b""))
        self.bodies[key] = body

    def add_part(self, key: str, number: int, part: bytes) -> None:
        """A part that was appended to the body of a message."""
        parts = self.parts.setdefault(key, {})
        self.bytes += len(part) - len(parts.get(number, b""))
        parts[number] = part

    def remove(self, key: str) -> None:
        """A message is gone; of one without a file nothing stays."""
        has_file = key not in self.new
        self.forget(key)
        if has_file:
            self.entries[key] = None

    def forget(self, key: str) -> None:
        """A message has a file that shows it, or needs none."""
        self.entries.pop(key, None)
        self.bytes -= len(self.bodies.pop(key, b""))
        self.histories.pop(key, None)
        if key in self.parts:
            self.bytes -= sum(map(len, self.parts.pop(key).values()))
        self.long.discard(key)
        self.new.discard(key)

    def absorb(self, later: Changes) -> None:
        """Take over later changes, which are forgotten there."""
        for key, body in later.bodies.items():
            self.add_body(key, body)
        self.histories.update(later.histories)
        for key, parts in later.parts.items():
            for number, part in parts.items():
                self.add_part(key, number, part)
        for key, one in later.entries.items():
            if one is None:
                self.remove(key)
            else:
                self.entries[key] = one
        self.long |= later.long
        self.new |= later.new
        later.clear()

    def clear(self) -> None:
        """Forget all changes."""
        self.entries.clear()
        self.bodies.clear()
        self.histories.clear()
        self.parts.clear()
        self.long.clear()
        self.new.clear()
        self.bytes = 0

    def space(self, later: Changes | None = None) -> int:
        """Bytes that the disk must have free for them: an upper estimate, without those of messages that are gone
        ``later``."""
        files, names = len(self.bodies) + len(self.long) + len(self.parts), len(self.entries)
        size = self.bytes
        for key, one in later.entries.items() if later else ():
            if one is None and key in self.entries:
                names -= 1
                files -= (key in self.bodies) + (key in self.long) + (key in self.parts)
                size -= len(self.bodies.get(key, b"")) + sum(map(len, self.parts.get(key, {}).values()))
        return files * _FILE_BYTES + names * _NAME_BYTES + size


def _texts_are_long(entry: Entry) -> bool:
    return len(entry.consumer_id) + len(entry.target) + len(entry.order_key) + len(entry.claim) > _SHORT_TEXTS
