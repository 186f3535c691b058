"""The payload files compared with the database that refers to them, shard by shard."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from ..base import Store
from ..errors import StoreError, StoreErrors
from ..recovery import Audit, FileFinding, FileProblem
from .index import LEAVING_KV, IndexedBody, PayloadIndex
from .payloads import PayloadName, Payloads, shard_of

#: What may be in the root besides queues' directories: a file system's own, and the file that says that bodies are
#: lost.
_ALLOWED: Final = frozenset({"lost+found", ".lost"})


class PayloadFindingKind(StrEnum):
    """What can be wrong with a payload file."""

    #: A message's file is not there.
    MISSING = "missing"
    #: A message's file is there, and is not what was published.
    WRONG = "wrong"
    #: A payload file that no message refers to.
    ORPHAN = "orphan"
    #: A payload file in the directory of another shard.
    MISPLACED = "misplaced"
    #: Not a payload file.
    STRAY = "stray"
    #: A directory that cannot be read: its content is unknown.
    UNREADABLE = "unreadable"


class PayloadFinding(NamedTuple):
    """Something that is not as it should be. ``path`` is relative to the root of the payloads; ``key`` is the message's
    that refers to it, if one does."""

    kind: PayloadFindingKind
    path: str
    text: str
    key: str = ""


#: The findings that concern files, as the contract of stores names them; the others are reported with their message.
_PROBLEMS: Final = {
    PayloadFindingKind.ORPHAN: FileProblem.ORPHAN,
    PayloadFindingKind.MISPLACED: FileProblem.MISPLACED,
    PayloadFindingKind.STRAY: FileProblem.FOREIGN,
    PayloadFindingKind.UNREADABLE: FileProblem.UNREADABLE,
}


class HybridAudit(Audit):
    """The payload files compared with the database. ``flush`` ends the open transaction of the database."""

    def __init__(self, store: Store, payloads: Payloads, index: PayloadIndex, flush: Callable[[], None]) -> None:
        super().__init__(store)
        self._store = store
        self._flush = flush
        self._payloads = payloads
        self._index = index

    def payload_findings(self, contents: bool = True) -> Iterator[PayloadFinding]:
        """Whatever is wrong with payload files; without ``contents`` only their lengths are compared. Changes nothing.
        Raises ``StoreError``."""
        self._flush()
        with StoreErrors(self._payloads.root):
            yield from audit_payloads(self._payloads, self._index.messages(), contents)

    def file_of(self, key: str) -> Path | None:
        entry = self._store.get(key)
        return self._payloads.root / self._index.path_of(entry.seq, entry.queue, key) if entry else None

    def file_findings(self, last: int, clean: bool) -> Iterator[FileFinding]:
        applied, leaving = self._store.applied, set(self._store.facts.get(LEAVING_KV) or [])
        for one in self.payload_findings(contents=False):
            problem, seq = _PROBLEMS.get(one.kind), PayloadName.read(one.path).seq
            if problem is None:
                continue
            if problem is FileProblem.ORPHAN:
                if applied < seq <= last:
                    continue  # its event will be folded
                if not clean and (one.path in leaving or seq > last):
                    problem = FileProblem.LEFT_OVER
            yield FileFinding(problem, one.path, one.text)

    def restore_misplaced(self) -> Iterator[str]:
        found = list(self.payload_findings(contents=False))
        missing = {one.path for one in found if one.kind is PayloadFindingKind.MISSING}
        for one in found:
            if one.kind is PayloadFindingKind.MISPLACED:
                name = PayloadName.read(one.path)
                right = str(name._replace(shard=shard_of(name.seq)))
                if right in missing:
                    with StoreErrors(self._payloads.root):
                        self._payloads.move(one.path, right)
                    yield f"{one.path}: put back to {right}"

    def set_orphans_aside(self) -> None:
        for one in list(self.payload_findings(contents=False)):
            if one.kind in (PayloadFindingKind.ORPHAN, PayloadFindingKind.STRAY, PayloadFindingKind.MISPLACED):
                self.set_orphan_aside(one.path)

    def set_orphan_aside(self, path: str) -> None:
        """Move a file, whose path is relative to the root of the payloads, into quarantine. Raises ``StoreError`` if a
        message refers to it, or if it cannot be moved."""
        name = PayloadName.read(path)
        if name.seq and self._index.refers_to(name):
            raise StoreError(f"{path}: a message refers to it")
        with StoreErrors(self._payloads.root):
            self._payloads.set_aside(path, "no message refers to it")


def audit_payloads(
    payloads: Payloads, indexed: Iterable[IndexedBody], contents: bool = True
) -> Iterator[PayloadFinding]:
    """What is wrong with the files. ``indexed`` comes in the order of (directory, publish number); of it, and of the
    files, one shard is in memory at a time. Without ``contents`` a file is not read: only its length is compared."""
    expected = groupby(indexed, key=lambda one: (one.name.directory, one.name.shard))
    awaited = next(expected, None)
    for directory, shard, finding in _shards(payloads):
        if finding:
            yield finding
            continue
        while awaited and awaited[0] < (directory, shard):
            yield from _missing(awaited[1])
            awaited = next(expected, None)
        messages: dict[str, IndexedBody] = {}
        if awaited and awaited[0] == (directory, shard):
            messages = {one.name.name: one for one in awaited[1]}
            awaited = next(expected, None)
        yield from _shard(payloads, directory, shard, messages, contents)
    while awaited:
        yield from _missing(awaited[1])
        awaited = next(expected, None)


def _missing(messages: Iterable[IndexedBody]) -> Iterator[PayloadFinding]:
    for one in messages:
        yield PayloadFinding(PayloadFindingKind.MISSING, str(one.name), f"the body of {one.key} is not there", one.key)


def _shards(payloads: Payloads) -> Iterator[tuple[str, str, PayloadFinding | None]]:
    """Every queue's directory and shard in order, or a finding in its place."""
    for directory in payloads.names():
        if directory in _ALLOWED:
            continue
        try:
            shards = payloads.names(directory) if payloads.is_directory(directory) else None
        except OSError as error:
            yield directory, "", PayloadFinding(PayloadFindingKind.UNREADABLE, directory, str(error))
            continue
        if shards is None:
            yield directory, "", PayloadFinding(PayloadFindingKind.STRAY, directory, "not the directory of a queue")
            continue
        for shard in shards:
            path = f"{directory}/{shard}"
            if payloads.is_shard(path):
                yield directory, shard, None
            else:
                yield directory, shard, PayloadFinding(PayloadFindingKind.STRAY, path, "not the directory of a shard")


def _shard(
    payloads: Payloads, directory: str, shard: str, messages: dict[str, IndexedBody], contents: bool
) -> Iterator[PayloadFinding]:
    try:
        names = payloads.names(directory, shard)
    except OSError as error:
        text = f"{error}; {len(messages)} messages have their bodies in it"
        yield PayloadFinding(PayloadFindingKind.UNREADABLE, f"{directory}/{shard}", text)
        return
    for text in names:
        name = PayloadName(directory, shard, text)
        message = messages.pop(text, None)
        if message:
            problem = _problem(payloads, message, contents)
            if problem:
                yield PayloadFinding(
                    PayloadFindingKind.WRONG, str(name), f"the body of {message.key} {problem}", message.key
                )
        elif not name.seq:
            yield PayloadFinding(PayloadFindingKind.STRAY, str(name), "not a payload file")
        elif shard_of(name.seq) != shard:
            place = PayloadName(directory, shard_of(name.seq), text)
            yield PayloadFinding(PayloadFindingKind.MISPLACED, str(name), f"belongs to {place}")
        else:
            yield PayloadFinding(PayloadFindingKind.ORPHAN, str(name), "no message refers to it")
    yield from _missing(messages.values())


def _problem(payloads: Payloads, message: IndexedBody, contents: bool) -> str:
    """What is wrong with a message's file; '' if it is intact."""
    path, reference = str(message.name), message.reference
    if reference is None:
        return "cannot be checked: what the index says of it has changed on the disk"
    try:
        status = payloads.status(path)
        if not stat.S_ISREG(status.st_mode):
            return "is no regular file"
        if status.st_size != reference.length:
            return f"has {status.st_size} bytes; {reference.length} were published"
        if contents and payloads.read(path, reference) is None:
            return "has other bytes than were published, or cannot be read"
    except OSError as error:
        return f"cannot be read: {error}"
    return ""
