"""Messages of the filesystem store that share an ordering key, and whose turn it is: that of the first published one
that is not dead, while none of them is in flight. All of it is derived from the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from postroom_common.protocol import State

from ...model.records import Entry
from .sorted_keys import Sorted

Look = Callable[[str], Entry | None]
_Name = tuple[str, str]  # queue, ordering key


class _Line:
    """Hints, in publish order: one that no longer fits its message is passed over, and dropped."""

    def __init__(self) -> None:
        self.hints: Sorted[tuple[int, str]] = Sorted()
        self.leased: set[str] = set()
        self.called = ""  # the message whose turn it is, once it was told so


class Lines:
    """``call`` is told of each ready message whose turn has come."""

    def __init__(self, call: Callable[[Entry], None]) -> None:
        self._call = call
        self._lines: dict[_Name, _Line] = {}

    def add_unsorted(self, queue: str, order_key: str, seq: int, key: str, leased: bool) -> None:
        """Add a message that is not dead, before ``sort``."""
        line = self._lines.setdefault((queue, order_key), _Line())
        line.hints.add_unsorted((seq, key))
        if leased:
            line.leased.add(key)

    def sort(self) -> None:
        """Put in order what was added unsorted."""
        for line in self._lines.values():
            line.hints.sort()

    def firsts(self) -> Iterator[str]:
        """The key of the first message of each line that has none in flight; after ``sort``."""
        for line in self._lines.values():
            first = line.hints.first()
            if first and not line.leased:
                yield first[1]

    def note(self, entry: Entry, look: Look) -> None:
        """A message with an ordering key has come, or has changed."""
        name = (entry.queue, entry.order_key)
        if entry.state is not State.DEAD:
            line = self._lines.setdefault(name, _Line())
            line.hints.add((entry.seq, entry.key))
            if entry.state is State.INFLIGHT:
                line.leased.add(entry.key)
        self.see(name, look, entry.key)

    def see(self, name: _Name, look: Look, changed: str = "") -> None:
        """See whose turn it is in a line, of which a message has changed."""
        line = self._lines.get(name)
        if line is None:
            return
        first = self._first(name, line, look)
        if first is None:
            del self._lines[name]
        elif first.state is not State.READY or self._is_leased(name, line, look):
            line.called = ""
        elif line.called != first.key or changed in ("", first.key):
            line.called = first.key
            self._call(first)

    def see_all(self, look: Look) -> None:
        """See whose turn it is in each line."""
        for name in list(self._lines):
            self.see(name, look)

    def may_go(self, entry: Entry, look: Look) -> bool:
        """Whether it is the turn of a message."""
        name = (entry.queue, entry.order_key)
        line = self._lines.get(name)
        if line is None:
            return True
        first = self._first(name, line, look)
        return (first is None or first.key == entry.key) and not self._is_leased(name, line, look)

    def _first(self, name: _Name, line: _Line, look: Look) -> Entry | None:
        while hint := line.hints.first():
            entry = look(hint[1])
            if entry and entry.state is not State.DEAD and (entry.queue, entry.order_key) == name:
                return entry
            line.hints.discard(hint)
        return None

    def _is_leased(self, name: _Name, line: _Line, look: Look) -> bool:
        for key in list(line.leased):
            entry = look(key)
            if entry and entry.state is State.INFLIGHT and (entry.queue, entry.order_key) == name:
                return True
            line.leased.discard(key)
        return False
