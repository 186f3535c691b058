"""The key-values of the filesystem store: those that belong to a message are in its file, all others in the
checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson

from ...model.facts import HISTORY, PART
from ...model.records import Entry
from ..base import Facts
from ..undoable import Undoable
from .changes import Changes
from .files import MessageFiles
from .recovery import FilesystemRecovery
from .sorted_keys import SortedNames


class FilesystemFacts(Facts):
    """``others`` are those that belong to no message. ``layers`` are the changes that no file shows yet; ``get``
    returns the entry of a message, ``changed`` is called for one that is to be written again, and ``rewritten`` for
    one whose file is to be written anew."""

    def __init__(
        self,
        layers: tuple[Changes, Changes],
        files: MessageFiles,
        recovery: FilesystemRecovery,
        get: Callable[[str], Entry | None],
        changed: Callable[[Entry], None],
        rewritten: Callable[[Entry], None],
    ) -> None:
        self._names = SortedNames()
        self.others: Undoable[Any] = Undoable(self._names.track)
        self._group, self._earlier = layers
        self._files = files
        self._recovery = recovery
        self._get = get
        self._changed = changed
        self._rewritten = rewritten

    def load(self, facts: dict[str, Any]) -> None:
        """Begin with those of a checkpoint."""
        self.others.values.update(facts)
        for name in facts:
            self._names.add(name)

    def get(self, name: str) -> Any:
        if name.startswith(HISTORY):
            return deepcopy(self._history(name.removeprefix(HISTORY)))
        if name.startswith(PART):
            part = self._part(*_number_and_key(name))
            return None if part is None else orjson.loads(part)
        return deepcopy(self.others.values.get(name))

    def put(self, name: str, value: Any) -> None:
        if name.startswith(HISTORY):  # it belongs into the message's file, as parts do, so that both change at once
            key = name.removeprefix(HISTORY)
            self._group.histories[key] = deepcopy(value)
            entry = self._get(key)
            if entry:
                self._changed(entry)
        elif name.startswith(PART):
            number, key = _number_and_key(name)
            entry = self._get(key)
            if entry and value is not None:
                self._group.add_part(key, number, orjson.dumps(value))
                self._changed(entry)
            elif entry:
                self._rewritten(entry)
        elif value is None:
            self.others.remove(name)
        else:
            self.others.set(name, deepcopy(value))

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        return self._names.page(prefix, after, limit)

    def _history(self, key: str) -> list[Any] | None:
        """The failed attempts of a message."""
        for changes in (self._group, self._earlier):
            if key in changes.histories:
                return changes.histories[key]
        replay = self._recovery.replay
        if replay and key in replay.histories:
            return replay.histories[key]
        return self._files.history(key) if self._get(key) else None

    def _part(self, number: int, key: str) -> bytes | None:
        """A part that was appended to a message, as it is stored."""
        replay = self._recovery.replay
        for parts in (self._group.parts, self._earlier.parts, replay.parts if replay else {}):
            if number in parts.get(key, {}):
                return parts[key][number]
        return self._files.parts(key).get(number) if self._get(key) else None


def _number_and_key(name: str) -> tuple[int, str]:
    """The number and the message of a part, from its fact's name."""
    number, _, key = name.removeprefix(PART).partition(":")
    return int(number), key
