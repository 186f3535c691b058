"""The start of the filesystem store: its index, built from the files' names alone.

A file is read only where its name does not say enough: a key or a target that cannot stand there, or, after a crash,
facts that may not have reached the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..quarantine import Quarantine
from ..records import Entry
from . import fs_content
from .fs_index import Index
from .fs_names import (
    DEAD,
    DELAYED,
    DONE,
    INFLIGHT,
    NAME,
    READY,
    STATES,
    TEMPORARY_SUFFIX,
    FileName,
    priority_of,
    queue_directory,
    queue_of_directory,
    read_entry,
    read_name,
)
from .fs_tree import Tree

log = logging.getLogger(__name__)

#: Files that are none of ours are named in the log up to so many.
NAMED_LIMIT: Final = 20


class Done(NamedTuple):
    """The file of a message that is done."""

    directory: str
    place: str
    version: int


@dataclass(slots=True)
class Scan:
    """What was found. ``newest`` is the last event that any file reflects.

    ``lacking`` are messages whose name says that facts stand inside the file, which does not have them: with the event
    up to which it does. What the journal tells of them waits in ``healed``, ``bodies`` and ``histories``, so that all
    of it is written at once.
    """

    newest: int = 0
    directories: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    done: dict[str, Done] = field(default_factory=dict)
    misplaced: list[str] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)
    strangers: list[str] = field(default_factory=list)
    healed: dict[str, Entry] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    histories: dict[str, list[Any]] = field(default_factory=dict)

    def version_of(self, key: str, index: Index) -> int:
        """The last event that a message's file reflects; 0 when there is none."""
        done = self.done.get(key)
        if done:
            return done.version
        name = read_name(index.places.get(key, "").rpartition("/")[2])
        return name.version if name else 0


def scan(tree: Tree, index: Index, meta: str, durable: int, quarantine: Quarantine) -> Scan:
    """Find all messages and put them into ``index``. ``durable`` is the event of the last checkpoint.

    Raises ``OSError``.
    """
    found = Scan()
    for directory in tree.queue_directories():
        if directory != meta:
            _Walk(tree, index, found, meta, durable, quarantine, directory).run()
    index.sort()
    if found.strangers:
        shown = ", ".join(found.strangers[:NAMED_LIMIT])
        log.warning("%s: %d files are no messages, and left alone: %s", tree.root, len(found.strangers), shown)
    return found


class _Walk:
    """Through one queue's directory."""

    def __init__(
        self, tree: Tree, index: Index, found: Scan, meta: str, durable: int, quarantine: Quarantine, directory: str
    ) -> None:
        self._tree = tree
        self._index = index
        self._found = found
        self._durable = durable
        self._quarantine = quarantine
        self._directory = directory
        self._queue = queue_of_directory(directory) or self._queue_inside(meta) or ""

    def run(self) -> None:
        tree, found = self._tree, self._found
        if not self._queue:
            found.strangers.append(self._directory)
            return
        for letter in (READY, DELAYED, INFLIGHT, DEAD, DONE):
            for before, names in tree.names(self._directory, letter):
                odd = self._take_plain(before, names) if letter == READY else names
                for name in odd:
                    known = read_name(name)
                    if known:
                        self._take(letter, before + name, known)
                    elif name.endswith(TEMPORARY_SUFFIX):
                        tree.remove_temporary(self._directory, before + name)
                    else:
                        tree.forget(self._directory, before + name)
                        found.strangers.append(f"{self._directory}/{before}{name}")

    def _take_plain(self, before: str, names: list[str]) -> list[str]:
        """Take what is ready, for anyone, and told by its name alone: the bulk of a backlog, so this is the short way.
        The names of all others."""
        places, newest, count = self._index.places, self._found.newest, 0
        add, prefix, match = self._index.lane(self._queue, "").add_unsorted, f"msg:{self._queue}:", NAME.fullmatch
        odd = []
        for name in names:
            groups = match(name)
            if groups:
                letter, order, seq, id_, version, tags = groups.groups()
                key = prefix + id_
                if letter == READY and id_[0] != "+" and "~t" not in tags and "~f" not in tags and key not in places:
                    places[key] = before + name
                    newest = max(newest, int(version))
                    add(priority_of(order), int(seq), key)
                    count += 1
                    continue
            odd.append(name)
        self._found.newest = newest
        if count:
            self._count(STATES[READY], count)
        return odd

    def _count(self, state: str, change: int) -> None:
        found = self._found
        counts = found.counts.setdefault(self._queue, {})
        counts[state] = counts.get(state, 0) + change
        found.directories[self._queue] = self._directory

    def _queue_inside(self, meta: str) -> str | None:
        """The queue of a directory whose name does not tell it: what the first message that is intact says."""
        for place in self._places():
            head = fs_content.head_of(self._tree.read(self._directory, place))
            queue = head.get("queue") if head else None
            if type(queue) is str and queue_directory(queue, meta) == self._directory:
                return queue
        return None

    def _places(self) -> Iterator[str]:
        for letter in (READY, DELAYED, INFLIGHT, DEAD, DONE):
            for before, names in self._tree.names(self._directory, letter):
                yield from (before + name for name in names if NAME.fullmatch(name))

    def _take(self, letter: str, place: str, name: FileName) -> None:
        key = f"msg:{self._queue}:{name.id}"
        if name.key_is_inside or letter != name.letter:
            head = fs_content.head_of(self._tree.read(self._directory, place))
            inside = head.get("key") if head else None
            if type(inside) is not str or (inside != key and not name.key_is_inside):
                self._tree.forget(self._directory, place)
                self._found.strangers.append(f"{self._directory}/{place}")
                return
            key = inside
        if not self._is_newest(key, place, name):
            return
        found = self._found
        found.newest = max(found.newest, name.version)
        if name.letter == DONE:
            found.done[key] = Done(self._directory, place, name.version)
            return
        if letter != name.letter:
            found.misplaced.append(key)
        if name.key_is_inside:
            found.queues[key] = self._queue
        self._index.places[key] = place
        self._hint(key, place, name)

    def _hint(self, key: str, place: str, name: FileName) -> None:
        found, index, queue, letter = self._found, self._index, self._queue, name.letter
        self._count(STATES[letter], 1)
        facts: dict[str, Any] = {}
        if name.inside and (name.version > self._durable or name.target_is_inside):
            line, facts = fs_content.facts_of(self._tree.read(self._directory, place), name.inside)
            if line != name.inside:
                found.lacking[key] = line
        if letter == READY:
            entry = read_entry(name, key, queue, facts)
            index.lane(queue, entry.target).add_unsorted(entry.priority, name.seq, key)
        elif letter == DELAYED:
            index.due.append((int(name.order), name.seq, key))
        elif letter == INFLIGHT:
            index.leases.append((int(name.order), name.seq, key))
        else:
            index.add_dead_unsorted(queue, int(name.order), name.seq, key)

    def _is_newest(self, key: str, place: str, name: FileName) -> bool:
        """Whether this is the only file of a message, or tells more than the one that was found before it. The other
        one is set aside."""
        known = self._index.places.get(key) or (self._found.done[key].place if key in self._found.done else None)
        if known is None:
            return True
        other = read_name(known.rpartition("/")[2])
        newer = other is None or name.version > other.version
        aside = known if newer else place
        log.error("%s has two files: %s/%s tells less, and is set aside", key, self._directory, aside)
        self._quarantine.keep_file(self._tree.path(self._directory, aside), "a second file of a message")
        self._tree.forget(self._directory, aside)
        if newer:
            self._drop(key, other)
        return newer

    def _drop(self, key: str, name: FileName | None) -> None:
        """Take back what was noted of a file; its hint in the index fits no longer, or fits again."""
        self._index.places.pop(key, None)
        self._found.done.pop(key, None)
        if key in self._found.misplaced:
            self._found.misplaced.remove(key)
        if name and name.letter != DONE:
            self._count(STATES[name.letter], -1)
