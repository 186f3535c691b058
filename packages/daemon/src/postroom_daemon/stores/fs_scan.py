"""The look at all files of the filesystem store: its index, built from their names. Nothing on disk is changed by it.

A file is read only where its name does not say enough: a key or a target that cannot stand there, or, after a crash,
facts that may not have reached the disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from ..files import LOST_ERRNOS
from . import fs_content
from .fs_index import Index
from .fs_names import (
    DEAD,
    DELAYED,
    DONE,
    INFLIGHT,
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
from .fs_places import Short
from .fs_tree import Tree

_LETTERS: Final = (READY, DELAYED, INFLIGHT, DEAD, DONE)
#: Messages of a directory that are asked which queue they belong to.
_ASKED: Final = 3


class ScanFinding(NamedTuple):
    """What is not as it should be. ``kind`` is

    - ``second``: another file of a message, which tells less;
    - ``stranger``: none of ours;
    - ``blocking``: none of ours, or not to be listed, where a directory of ours belongs;
    - ``temporary``: left unfinished by a crash, its message is in the journal;
    - ``misplaced``: in another folder than its name says; or, with a ``queue``, in another queue's directory.

    ``directory`` and ``place`` are its path below the root, ``key`` is its message, if that is known.
    """

    kind: str
    directory: str
    place: str
    key: str = ""
    queue: str = ""

    @property
    def path(self) -> str:
        """Its path below the store's root."""
        return f"{self.directory}/{self.place}" if self.directory else self.place


class Done(NamedTuple):
    """The file of a message that is done."""

    directory: str
    place: str
    version: int


@dataclass(slots=True)
class Scan:
    """What was found. ``newest`` is the last event that any file reflects.

    ``lacking`` are messages whose name says that facts stand inside the file, which does not have them: with the event
    up to which it does. ``misplaced`` have a key each, and lie in another folder than their name says.
    """

    newest: int = 0
    directories: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    done: dict[str, Done] = field(default_factory=dict)
    misplaced: list[str] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)
    findings: list[ScanFinding] = field(default_factory=list)

    def version_of(self, key: str, index: Index) -> int:
        """The last event that a message's file reflects; 0 when there is none."""
        done = self.done.get(key)
        if done:
            return done.version
        name = read_name((index.places.get(key) or "").rpartition("/")[2])
        return name.version if name else 0


def owners(tree: Tree, meta: str) -> dict[str, str]:
    """For each directory of a queue, the queue to which its first intact messages belong; '' when there are none, or
    of several. Raises ``OSError``."""
    return {name: _owner(tree, name) for name, is_directory in tree.inside() if is_directory and name != meta}


def scan(
    tree: Tree, index: Index, meta: str, durable: int, expected: Mapping[str, int], owner_of: Mapping[str, str]
) -> Scan:
    """Find all messages and put them into ``index``. ``durable`` is the event of the last checkpoint, ``expected`` how
    many messages each queue had then, ``owner_of`` what ``owners`` found.

    Raises ``OSError``.
    """
    found = Scan()
    for name, is_directory in tree.inside():
        if is_directory and name != meta:
            _Walk(tree, index, found, meta, durable, name, owner_of[name]).run()
        elif not is_directory:
            found.findings.append(ScanFinding("blocking" if name == meta else "stranger", "", name))
    index.sort()
    if found.newest <= durable:  # else the journal changes the numbers, and undoes what hands did
        for queue, counts in list(found.counts.items()):
            if sum(counts.values()) > expected.get(queue, 0):
                _find_foreign(tree, index, found, queue)
    return found


def _owner(tree: Tree, directory: str) -> str:
    heads = (fs_content.head_of(read_or_nothing(tree, directory, place)) for place in _places(tree, directory))
    queues = {head.get("queue") for head in islice(filter(None, heads), _ASKED)}
    queue = queues.pop() if len(queues) == 1 else ""
    return queue if type(queue) is str else ""


def _places(tree: Tree, directory: str) -> Iterator[str]:
    for letter in _LETTERS:
        for _, before, names in tree.names(directory, letter):
            yield from (before + name for name in names or () if read_name(name))


def read_or_nothing(tree: Tree, directory: str, place: str) -> bytes:
    """What a file holds; nothing when it cannot be read."""
    try:
        return tree.read(directory, place)
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        return b""


def _message_of(tree: Tree, directory: str, place: str) -> tuple[str, str]:
    """The key and the queue that a file tells; '' when it is not intact."""
    head = fs_content.head_of(read_or_nothing(tree, directory, place)) or {}
    key, queue = head.get("key"), head.get("queue")
    return (key, queue) if type(key) is type(queue) is str and key and queue else ("", "")


def _find_foreign(tree: Tree, index: Index, found: Scan, queue: str) -> None:
    """A queue has more messages than it can have: those that belong to others are found by reading them all."""
    directory = found.directories[queue]
    for letter in _LETTERS:
        for _, before, names in tree.names(directory, letter):
            for name in names or ():
                known = read_name(name)
                key = f"msg:{queue}:{known.id}" if known else ""
                if not known or known.key_is_inside or index.places.get(key) != before + name:
                    continue
                whose, owner = _message_of(tree, directory, before + name)
                if whose and (whose, owner) != (key, queue):
                    index.places.pop(key)
                    tree.forget(directory, before + name)
                    found.counts[queue][STATES[known.letter]] -= 1
                    found.findings.append(ScanFinding("misplaced", directory, before + name, whose, owner))


class _Walk:
    """Through one queue's directory."""

    def __init__(
        self, tree: Tree, index: Index, found: Scan, meta: str, durable: int, directory: str, owner: str
    ) -> None:
        self._tree = tree
        self._index = index
        self._found = found
        self._durable = durable
        self._directory = directory
        self._queue = queue_of_directory(directory) or owner
        if owner and queue_directory(owner, meta) != directory:
            self._queue = ""  # a copy of another queue's directory, or that directory under another name

    def run(self) -> None:
        tree, found = self._tree, self._found
        if not self._queue:
            found.findings.append(ScanFinding("stranger", "", self._directory))
            return
        for name, _ in tree.inside(self._directory):
            if not tree.is_folder(name):
                found.findings.append(ScanFinding("stranger", self._directory, name))
        for letter in _LETTERS:
            for shard, before, names in tree.names(self._directory, letter):
                if names is None:
                    found.findings.append(ScanFinding("blocking", self._directory, before.rstrip("/")))
                else:
                    self._take_names(letter, shard, before, names)

    def _take_names(self, letter: str, shard: int, before: str, names: list[str]) -> None:
        odd = self._take_plain(shard, names) if letter == READY else names
        for name in odd:
            known = read_name(name)
            if known:
                self._take(letter, before + name, known)
                continue
            is_temporary = name.endswith(TEMPORARY_SUFFIX) and read_name(name.removesuffix(TEMPORARY_SUFFIX))
            self._tree.forget(self._directory, before + name)
            kind = "temporary" if is_temporary else "stranger"
            self._found.findings.append(ScanFinding(kind, self._directory, before + name))

    def _take_plain(self, shard: int, names: list[str]) -> list[str]:
        """Take what is ready, for anyone, and told by its name alone: the bulk of a backlog, so this is the short way.
        The names of all others."""
        taken, others = self._index.places.take_plain(self._queue, shard, names)
        runs: dict[int, tuple[array[int], list[Short]]] = {}
        newest = self._found.newest
        for order, seq, version, short in taken:
            run = runs.get(order)
            if run is None:
                run = runs[order] = (array("Q"), [])
            run[0].append(seq)
            run[1].append(short)
            if version > newest:
                newest = version
        lane = self._index.lane(self._queue, "")
        for order, (seqs, shorts) in runs.items():
            lane.add_run(priority_of(f"{order:x}"), seqs, shorts)
        self._found.newest = newest
        if taken:
            self._count(STATES[READY], len(taken))
        return others

    def _count(self, state: str, change: int) -> None:
        found = self._found
        counts = found.counts.setdefault(self._queue, {})
        counts[state] = counts.get(state, 0) + change
        found.directories[self._queue] = self._directory

    def _take(self, letter: str, place: str, name: FileName) -> None:
        key = f"msg:{self._queue}:{name.id}"
        if name.key_is_inside or letter != name.letter:
            whose, owner = _message_of(self._tree, self._directory, place)
            if not whose or owner != self._queue or (whose != key and not name.key_is_inside):
                self._tree.forget(self._directory, place)
                kind = "misplaced" if whose else "stranger"
                self._found.findings.append(ScanFinding(kind, self._directory, place, whose, owner))
                return
            key = whose
        if not self._is_newest(key, place, name):
            return
        found = self._found
        found.newest = max(found.newest, name.version)
        if name.letter == DONE:
            found.done[key] = Done(self._directory, place, name.version)
            return
        if letter != name.letter:
            found.misplaced.append(key)
            found.findings.append(ScanFinding("misplaced", self._directory, place, key))
        if name.key_is_inside:
            found.queues[key] = self._queue
        self._index.places[key] = place
        self._hint(key, place, name)

    def _hint(self, key: str, place: str, name: FileName) -> None:
        found, index, queue, letter = self._found, self._index, self._queue, name.letter
        self._count(STATES[letter], 1)
        facts: dict[str, Any] = {}
        if name.inside and (name.version > self._durable or name.target_is_inside):
            content = read_or_nothing(self._tree, self._directory, place)
            line, facts = fs_content.facts_of(content, name.inside)
            if line != name.inside:
                found.lacking[key] = line
            if name.target_is_inside:
                facts = {**facts, "target": fs_content.target_of(content, facts)}
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
        one does not count."""
        known = self._index.places.get(key) or (self._found.done[key].place if key in self._found.done else None)
        if known is None:
            return True
        other = read_name(known.rpartition("/")[2])
        newer = other is None or name.version > other.version
        aside = known if newer else place
        self._found.findings.append(ScanFinding("second", self._directory, aside, key))
        self._tree.forget(self._directory, aside)
        if newer:
            self._drop(key, other)
        return newer

    def _drop(self, key: str, name: FileName | None) -> None:
        """Take back what was noted of a file; its hint in the index fits no longer, or fits again."""
        self._index.places.pop(key)
        self._found.done.pop(key, None)
        self._found.lacking.pop(key, None)
        if key in self._found.misplaced:
            self._found.misplaced.remove(key)
        if name and name.letter != DONE:
            self._count(STATES[name.letter], -1)
