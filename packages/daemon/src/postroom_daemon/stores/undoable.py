"""Memory of a store that takes part in its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

V = TypeVar("V", bound=Any)


class Undoable(Generic[V]):
    """A dictionary that can undo what was done since the last ``commit``. Read ``values``; never change it directly.

    ``changed`` is called after each change of a value, also by a rollback: name, value before, value now. None stands
    for no value.
    """

    def __init__(self, changed: Callable[[str, V | None, V | None], object] | None = None) -> None:
        self.values: dict[str, V] = {}
        #: What the open transaction has changed, as it was before it.
        self.before: dict[str, V | None] = {}
        self._changed = changed

    def set(self, name: str, value: V) -> None:
        """Store a value."""
        before = self.values.get(name)
        self.before.setdefault(name, before)
        self.values[name] = value
        if self._changed:
            self._changed(name, before, value)

    def remove(self, name: str) -> V | None:
        """Remove a value, and return it."""
        before = self.values.pop(name, None)
        if before is not None:
            self.before.setdefault(name, before)
            if self._changed:
                self._changed(name, before, None)
        return before

    def commit(self) -> None:
        """See ``Participant``."""
        self.before.clear()

    def rollback(self) -> None:
        """See ``Participant``."""
        undone, self.before = self.before, {}
        for name, value in undone.items():
            current = self.values.pop(name, None)
            if value is not None:
                self.values[name] = value
            if self._changed:
                self._changed(name, current, value)

    def clear(self) -> None:
        """Forget everything, outside of a transaction."""
        self.values.clear()
        self.before.clear()
