"""How far the periodic tasks have come."""

from __future__ import annotations

from typing import Any


class Cursors(dict[str, Any]):
    """Positions by name; each task chooses its names. They last while the root is open, and are not part of its state.
    A participant of transactions."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[str, Any] | None = None

    def about_to_change(self) -> None:
        """Remember the cursors as they are, before tasks move them."""
        self._before = dict(self)

    def commit(self) -> None:
        """See ``Participant``."""
        self._before = None

    def rollback(self) -> None:
        """See ``Participant``."""
        if self._before is not None:
            self.clear()
            self.update(self._before)
            self._before = None
