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

from postroom_common.protocol import State

from ...model.records import QueueRecord
from ..base import ENDED
from .content import facts_inside, message_of
from .index import Index
from .names import (
    DEAD,
    DELAYED,
    DONE,
    HELD,
    INFLIGHT,
    INSIDE,
    READY,
    TEMPORARY_SUFFIX,
    FileName,
    priority_of,
    queue_directory,
    queue_of_directory,
    queue_of_key,
    read_entry,
    read_name,
)
from .places import Places
from .tree import Tree

_LETTERS: Final = (READY, DELAYED, INFLIGHT, DEAD, HELD, DONE)
#: Messages of a directory that are asked which queue they belong to.
_ASKED: Final = 3


class ScanFinding(NamedTuple):
    """What is not as it should be. ``kind`` is

    - ``second``: another file of a message, which tells less;
    - ``foreign``: not one of ours;
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
    """The file of a message that is gone."""

    directory: str
    place: str
    version: int


@dataclass(slots=True)
class Scan:
    """What was found. ``newest`` is the last event that any file reflects. ``numbers`` are by queue, records of which
    only what is counted of messages matters; ``queues`` has the queues of the messages whose key does not tell it.

    ``lacking`` are messages whose name says that facts stand inside the file, which does not have them: with the event
    up to which it does. ``misplaced`` have a key each, and lie in another folder than their name says.
    """

    newest: int = 0
    directories: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, QueueRecord] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    done: dict[str, Done] = field(default_factory=dict)
    misplaced: list[str] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)
    findings: list[ScanFinding] = field(default_factory=list)

    def version_of(self, key: str, places: Places) -> int:
        """The last event that a message's file shows; 0 if it has none."""
        done = self.done.get(key)
        if done:
            return done.version
        name = self.name_of(key, places)
        return name.version if name else 0

    def name_of(self, key: str, places: Places) -> FileName | None:
        """The name of the file of a message that has one, and is not done."""
        return read_name((places.get(key) or "").rpartition("/")[2])

    def count_of(self, queue: str) -> int:
        """How many messages a queue has."""
        return sum(self.numbers[queue].counts.values()) if queue in self.numbers else 0

    def count(self, queue: str, state: State, size: int, reason: str, by: int) -> None:
        """Count messages of one state: so many of them, of ``size`` bytes together."""
        record = self.numbers.setdefault(queue, QueueRecord(queue))
        record.counts[state] += by
        if state not in ENDED:
            record.bytes += size
        elif reason:
            record.reasons[reason] = record.reasons.get(reason, 0) + by
            if not record.reasons[reason]:
                del record.reasons[reason]

    def queue_of(self, key: str) -> str:
        """The queue of a message."""
        return self.queues.get(key) or queue_of_key(key)


def owners(tree: Tree, meta: str) -> dict[str, str]:
    """For each directory of a queue, the queue to which its first intact messages belong; '' when there are none, or
    of several. Raises ``OSError``."""
    return {name: _owner(tree, name) for name, is_directory in tree.inside() if is_directory and name != meta}


def scan(
    tree: Tree, index: Index, meta: str, durable: int, expected: Mapping[str, int], owner_of: Mapping[str, str]
) -> Scan:
    """Find all messages and put them into ``index``, from scratch. ``durable`` is the event of the last checkpoint,
    ``expected`` how many messages each queue had then, ``owner_of`` what ``owners`` found.

    Raises ``OSError``.
    """
    index.clear()
    found = Scan()
    known = {queue_directory(queue, meta): queue for queue in expected}
    for name, is_directory in tree.inside():
        if is_directory and name != meta:
            _Walk(tree, index, found, meta, durable, name, owner_of[name], known.get(name, "")).run()
        elif not is_directory:
            found.findings.append(ScanFinding("blocking" if name == meta else "foreign", "", name))
    if found.newest <= durable:  # else the journal changes the numbers, and undoes what hands did
        for queue in list(found.numbers):
            if found.count_of(queue) > expected.get(queue, 0):
                _find_foreign(tree, index, found, queue)
    return found


def _owner(tree: Tree, directory: str) -> str:
    named = (message_of(tree, directory, place, name, "")[1] for place, name in _places(tree, directory))
    queues = set(islice(filter(None, named), _ASKED))
    return queues.pop() if len(queues) == 1 else ""


def _places(tree: Tree, directory: str) -> Iterator[tuple[str, FileName]]:
    for letter in _LETTERS:
        for _, before, names in tree.names(directory, letter):
            yield from ((before + name, known) for name in names or () if (known := read_name(name)))


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
                whose, owner = message_of(tree, directory, before + name, known, queue)
                if whose and (whose, owner) != (key, queue):
                    index.places.pop(key)
                    tree.forget(directory, before + name)
                    size, reason = int(known.tags.get("s", "0")), known.tags.get("r", "")
                    found.count(queue, known.state, -size, reason, -1)
                    found.findings.append(ScanFinding("misplaced", directory, before + name, whose, owner))


class _Walk:
    """Through one queue's directory."""

    def __init__(
        self, tree: Tree, index: Index, found: Scan, meta: str, durable: int, directory: str, owner: str, known: str
    ) -> None:
        self._tree = tree
        self._index = index
        self._found = found
        self._durable = durable
        self._directory = directory
        self._queue = queue_of_directory(directory) or owner or known
        if owner and queue_directory(owner, meta) != directory:
            self._queue = ""  # a copy of another queue's directory, or that directory under another name

    def run(self) -> None:
        tree, found = self._tree, self._found
        if not self._queue:
            found.findings.append(ScanFinding("foreign", "", self._directory))
            return
        for name, _ in tree.inside(self._directory):
            if not tree.is_folder(name):
                found.findings.append(ScanFinding("foreign", self._directory, name))
        found.directories.setdefault(self._queue, self._directory)
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
            kind = "temporary" if is_temporary else "foreign"
            self._found.findings.append(ScanFinding(kind, self._directory, before + name))

    def _take_plain(self, shard: int, names: list[str]) -> list[str]:
        """Take the files of ready messages for anyone whose name says all: the bulk of a backlog, so this is the short
        way. Returns the names of all others."""
        taken, others = self._index.places.take_plain(self._queue, shard, names)
        runs: dict[int, tuple[array[int], array[int]]] = {}
        newest, bytes_ = self._found.newest, 0
        for order, seq, version, size, halves in taken:
            run = runs.get(order)
            if run is None:
                run = runs[order] = (array("Q"), array("Q"))
            run[0].append(seq)
            run[1].extend(halves)
            bytes_ += size
            if version > newest:
                newest = version
        lane = self._index.lane(self._queue, "")
        for order, (seqs, ids) in runs.items():
            lane.add_run(priority_of(f"{order:x}"), seqs, ids)
        self._found.newest = newest
        if taken:
            self._count(State.READY, bytes_, "", len(taken))
        return others

    def _count(self, state: State, size: int, reason: str, by: int) -> None:
        self._found.directories[self._queue] = self._directory
        self._found.count(self._queue, state, size, reason, by)

    def _take(self, letter: str, place: str, name: FileName) -> None:
        key = f"msg:{self._queue}:{name.id}"
        if name.key_is_inside or letter != name.letter:
            whose, owner = message_of(self._tree, self._directory, place, name, self._queue)
            if not whose or owner != self._queue or (whose != key and not name.key_is_inside):
                self._tree.forget(self._directory, place)
                kind = "misplaced" if whose else "foreign"
                self._found.findings.append(ScanFinding(kind, self._directory, place, whose, owner))
                return
            key = whose
        if not self._is_newest(key, place, name):
            return
        found = self._found
        found.newest = max(found.newest, name.version)
        if name.is_gone:
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
        found, index, queue = self._found, self._index, self._queue
        facts: dict[str, Any] = {}
        if name.inside and (name.version > self._durable or any(name.is_inside(fact) for fact in INSIDE)):
            line, facts = facts_inside(self._tree, self._directory, place, name)
            if line != name.inside:
                found.lacking[key] = line
        entry = read_entry(name, key, queue, facts)
        self._count(entry.state, entry.size, entry.reason, 1)
        entry.queue = queue  # whatever the file says: it lies where it is
        index.add_at_start(entry)

    def _is_newest(self, key: str, place: str, name: FileName) -> bool:
        """Whether this is the only file of a message, or is further than the one that was found before it, perhaps in
        another queue. The other one does not count."""
        found = self._found
        done, known = found.done.get(key), self._index.places.get(key)
        if done:
            known, directory = done.place, done.directory
        elif known:
            directory = found.directories[found.queue_of(key)]
        if known is None:
            return True
        other = read_name(known.rpartition("/")[2])
        newer = other is None or name.version > other.version
        aside = (directory, known) if newer else (self._directory, place)
        found.findings.append(ScanFinding("second", *aside, key))
        self._tree.forget(*aside)
        if newer:
            self._drop(key, directory, known, other)
        return newer

    def _drop(self, key: str, directory: str, place: str, name: FileName | None) -> None:
        """Forget a file that was found; its hint in the index no longer fits, or fits again."""
        found, queue = self._found, self._found.queue_of(key)
        if name and not name.is_gone:
            facts = facts_inside(self._tree, directory, place, name)[1] if name.is_inside("reason") else {}
            entry = read_entry(name, key, queue, facts)
            found.count(queue, entry.state, -entry.size, entry.reason, -1)
        self._index.places.pop(key)
        found.done.pop(key, None)
        found.queues.pop(key, None)
        found.lacking.pop(key, None)
        if key in found.misplaced:
            found.misplaced.remove(key)
