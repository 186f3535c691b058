"""Single facts of the filesystem store: in memory, as the open transaction sees them, until a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from itertools import islice, takewhile
from typing import Any

from .sorted_keys import Sorted


class Facts:
    """``known`` are those of a checkpoint."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._values = dict(known)
        self._names: Sorted[str] = Sorted()
        for name in self._values:
            self._names.add_unsorted(name)
        self._names.sort()
        self._before: dict[str, Any] = {}  # what the open transaction has changed

    def get(self, name: str) -> Any:
        """A fact's value, for the caller to keep; None where there is none."""
        return deepcopy(self._values.get(name))

    def put(self, name: str, value: Any) -> None:
        """Keep a fact; None forgets it."""
        self._before.setdefault(name, self._values.get(name))
        self._set(name, deepcopy(value))

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        """A page of names; see ``Store.facts``."""
        names = self._names.behind(after) if after >= prefix else self._names.behind_or_at(prefix)
        return list(islice(takewhile(lambda name: name.startswith(prefix), names), max(limit, 0)))

    def all(self) -> dict[str, Any]:
        """All of them, to be read only: no value is ever changed."""
        return self._values.copy()

    def end(self) -> None:
        """The transaction is over, and what it changed stays."""
        self._before.clear()

    def rollback(self) -> None:
        """Undo what the transaction has changed."""
        for name, value in self._before.items():
            self._set(name, value)
        self._before.clear()

    def _set(self, name: str, value: Any) -> None:
        if value is None:
            self._values.pop(name, None)
            self._names.discard(name)
        else:
            self._values[name] = value
            self._names.add(name)
