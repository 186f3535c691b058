"""Memory of a store that takes part in its transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView
from typing import Any, Generic, Protocol, TypeVar

V = TypeVar("V", bound=Any)


class Participant(Protocol):
    """Memory that takes part in transactions: what was done since ``begin`` is kept by ``commit`` and undone by
    ``rollback``."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Undoable(Generic[V]):
    """A dictionary that can undo what was done since the last ``commit``. Read ``values``; never change it directly.

    ``restored`` is called for each name whose value a rollback puts back (None: the name is gone).
    """

    def __init__(self, restored: Callable[[str, V | None], object] | None = None) -> None:
        self.values: dict[str, V] = {}
        self._before: dict[str, V | None] = {}
        self._restored = restored

    def note(self, name: str, before: V | None) -> None:
        """The value of a name is about to be changed in place; ``before`` is a copy of it. Only the first one in a
        transaction counts."""
        self._before.setdefault(name, before)

    def is_changed(self, name: str) -> bool:
        """Whether the open transaction has noted, set or removed it."""
        return name in self._before

    def set(self, name: str, value: V) -> None:
        """Store a value."""
        if name not in self._before:
            self._before[name] = self.values.get(name)
        self.values[name] = value

    def remove(self, name: str) -> V | None:
        """Remove a value, and return it."""
        value = self.values.pop(name, None)
        if value is not None:
            self._before.setdefault(name, value)
        return value

    def changed(self) -> KeysView[str]:
        """The names that the open transaction has changed."""
        return self._before.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def begin(self) -> None:
        """A transaction begins."""

    def commit(self) -> None:
        """Keep the changes."""
        self._before.clear()

    def rollback(self) -> None:
        """Undo the changes."""
        before, self._before = self._before, {}
        for name, value in before.items():
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value
            if self._restored:
                self._restored(name, value)

    def clear(self) -> None:
        """Forget everything, outside of a transaction."""
        self.values.clear()
        self._before.clear()
