"""The payload files compared with the index that refers to them, shard by shard. Nothing is changed."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple

from ...model.records import BodyReference
from .payload_names import PayloadName, shard_of
from .payloads import Payloads

#: What may lie in the root, named as no queue's directory is: a file system's own, and what says that bodies are lost.
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
    #: Something that is no payload file.
    STRAY = "stray"
    #: A directory that cannot be read: nothing is said of what lies in it.
    UNREADABLE = "unreadable"


class PayloadFinding(NamedTuple):
    """Something that is not as it should be. ``path`` is relative to the root of the payloads; ``key`` is the message's
    that refers to it, if one does."""

    kind: PayloadFindingKind
    path: str
    text: str
    key: str = ""


class Kept(NamedTuple):
    """A message of the index whose body lies in a file. Without a ``reference`` nobody knows what it was."""

    name: PayloadName
    key: str
    reference: BodyReference | None


def audit_payloads(payloads: Payloads, kept: Iterable[Kept], contents: bool = True) -> Iterator[PayloadFinding]:
    """What is wrong with the files. ``kept`` comes in the order of (directory, publish number); of it, and of the
    files, one shard is held at a time. Without ``contents`` a file is not read: only its length is compared."""
    expected = groupby(kept, key=lambda one: (one.name.directory, one.name.shard))
    awaited = next(expected, None)
    for directory, shard, finding in _shards(payloads):
        if finding:
            yield finding
            continue
        while awaited and awaited[0] < (directory, shard):
            yield from _missing(awaited[1])
            awaited = next(expected, None)
        messages: dict[str, Kept] = {}
        if awaited and awaited[0] == (directory, shard):
            messages = {one.name.name: one for one in awaited[1]}
            awaited = next(expected, None)
        yield from _shard(payloads, directory, shard, messages, contents)
    while awaited:
        yield from _missing(awaited[1])
        awaited = next(expected, None)


def _missing(kept: Iterable[Kept]) -> Iterator[PayloadFinding]:
    for one in kept:
        yield PayloadFinding(PayloadFindingKind.MISSING, str(one.name), f"the body of {one.key} is not there", one.key)


def _shards(payloads: Payloads) -> Iterator[tuple[str, str, PayloadFinding | None]]:
    """Every queue's directory and shard in order; or what is none."""
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
    payloads: Payloads, directory: str, shard: str, messages: dict[str, Kept], contents: bool
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


def _problem(payloads: Payloads, message: Kept, contents: bool) -> str:
    """What is wrong with a message's file; nothing if it is sound."""
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
