"""Export the messages of a root as lines of JSON, with queues, schedules and claims, and import them into another.

The file is that of ``state/file.py``. An import consists of requests to the engine, message by message in
the order of publishing. What exists already stays as it is.
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import decode_line, encode_line

from ..config.config import Config
from ..engine.verbs.exported import exported_fact, exported_message, exported_queue
from ..model.facts import CLAIM, CLAIM_END, FACT_DRAINING, SCHEDULE
from ..observe.state import Ask, Fact, Head, State, StateError, Totals, read_state, write_state
from .connect import NotReached, nothing_done, reach

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Messages, and bytes of messages, that one request imports at most; a larger message has its own request.
_BATCH: Final = 500
_BATCH_BYTES: Final = 1024 * 1024
#: Queues that one request imports.
_QUEUES: Final = 1000


def export_state(config: Config, file: IO[bytes], queues: frozenset[str], workspace: Path) -> Totals:
    """Write the state of a root, or of some queues, to a file.

    Raises ``StateError`` for a queue that does not exist, or without a journal; ``StartError``, ``NotReached``,
    ``OSError``.
    """
    if why := nothing_done(config):
        raise StateError(f"{config.root}: nothing to export: {why}")
    with reach(config) as reached, reached.state(config, workspace) as state:
        missing = queues - {record.name for record in state.queues}
        if missing:
            raise StateError(f"{config.root}: there is no queue {min(missing)!r}")
        return write_state(_of_queues(state, queues) if queues else state, file)


def _of_queues(state: State, queues: frozenset[str]) -> State:
    return replace(
        state,
        queues=[record for record in state.queues if record.name in queues],
        messages=(message for message in state.messages if message["queue"] in queues),
        facts=[fact for fact in state.facts if _queue_of(fact) in queues],
        records=(records for records in state.records if records["queue"] in queues),
    )


def _queue_of(fact: Fact) -> str:
    """The queue of a key-value; '' for one of the whole root."""
    name, value = fact["name"], fact["value"]
    if name.startswith(CLAIM_END):
        return str(name.removeprefix(CLAIM_END).partition(":")[2].rpartition("\0")[0])
    if name.startswith(CLAIM):
        return str(name.removeprefix(CLAIM).rpartition("\0")[0])
    if name.startswith(SCHEDULE):
        return str(value["queue"])
    return value if type(value) is str else ""  # a dead-letter address


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import. ``facts`` counts claims, schedules and the drain; ``skipped`` what existed already;
    ``lost`` messages without a body. ``drains``: the file's root takes no new messages."""

    head: Head
    queues: int
    messages: int
    facts: int
    skipped: int
    lost: int
    drains: bool


class ImportStopped(PostroomError):
    """An import stopped half-way; the text says why, what was imported, and how to continue."""


def import_state(config: Config, file: IO[bytes], name: str) -> Imported:
    """Import the content of a seekable file; ``name`` is for error texts.

    The whole file is checked before anything is changed: each line, each value, and whether a running daemon accepts
    the largest message. Raises ``StateError``, ``StartError``, ``NotReached``, ``OSError``; ``ImportStopped`` if it is
    refused or interrupted half-way.
    """
    whole = _CheckedFile(file, name)
    with reach(config) as reached:
        limit = config.settings.limits_request_bytes if reached.running else None
        whole.check_sizes(limit)
        done: Counter[str] = Counter()
        for part in whole.parts(limit):
            try:
                done.update(_send(reached.ask, whole.head, part))
            except PostroomError as error:
                raise ImportStopped(_stopped(error, done)) from error
    numbers = {name: done[name] for name in ("queues", "messages", "facts", "skipped")}
    return Imported(whole.head, **numbers, lost=whole.lost, drains=whole.drains)


def _send(ask: Ask, head: Head, part: dict[str, Any]) -> dict[str, int]:
    answer: dict[str, int] = ask("import_state", {"engineMs": head.engine_ms, "wallMs": head.wall_ms, **part})
    return answer


def _stopped(error: PostroomError, done: Counter[str]) -> str:
    unsure = ", those of the request without an answer perhaps too" if isinstance(error, NotReached) else ""
    return (
        f"{error}. Before that {done['queues']} queues and {done['messages']} messages were imported{unsure}. Import"
        " the same file again to go on: what is there is passed over, and only what was acknowledged meanwhile would"
        " come again"
    )


class _CheckedFile:
    """A file that was read and checked completely, with the offset of each message in the order of publishing."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._lines = _Lines(file, name)
        state = read_state(self._lines, name)
        self.head = state.head
        self.lost = 0
        self._file = file
        self._largest = (0, "", "")  # bytes, key and line of the largest message
        self._queues = [record.to_json() for record in state.queues if not record.log]
        logs = {record.name for record in state.queues if record.log}
        if logs:
            log.warning("%s: its logs are not imported (restore takes them over): %s", name, ", ".join(sorted(logs)))
        for queue in self._queues:
            _check(exported_queue, queue, name)
        #: Without those that follow from others: ends of claims, dead-letter addresses.
        self._facts = [fact for fact in state.facts if _check(exported_fact, fact, name)]
        self.drains = any(fact["name"] == FACT_DRAINING for fact in self._facts)
        published, self._places = array("q"), array("q")
        for message in state.messages:
            if message["queue"] in logs:
                continue
            if "bodyLost" in message:
                self.lost += 1
                continue
            _check(exported_message, message, self._lines.label)
            if self._lines.size > self._largest[0]:
                self._largest = (self._lines.size, message["key"], self._lines.label)
            published.append(message.get("published", 0))
            self._places.append(self._lines.place)
        self._order = sorted(range(len(published)), key=published.__getitem__)

    def check_sizes(self, limit: int | None) -> None:
        """Raise ``StateError`` if a message is larger than ``limit``, the size of a request; None: no limit."""
        size, key, line = self._largest
        if limit and size > limit:
            raise StateError(
                f"{line}: message {key!r} takes {size} bytes, and a request to the running daemon at most {limit}"
                " (limits.requestBytes): stop the daemon and import again, or raise the limit; nothing was imported"
            )

    def parts(self, limit: int | None) -> Iterator[dict[str, Any]]:
        """The requests of an import: queues, claims, messages, and at last schedules and the drain, which would publish
        messages or refuse them."""
        most_bytes = min(_BATCH_BYTES, limit // 2) if limit else _BATCH_BYTES
        queues = ((queue, len(encode_line(queue))) for queue in self._queues)
        yield from ({"queues": batch} for batch in _batches(queues, _QUEUES, most_bytes))
        for early in (True, False):
            if not early:
                yield from ({"messages": batch} for batch in _batches(self._in_order(), _BATCH, most_bytes))
            facts = ((one, len(encode_line(one))) for one in self._facts if one["name"].startswith(CLAIM) == early)
            yield from ({"facts": batch} for batch in _batches(facts, _BATCH, most_bytes))

    def _in_order(self) -> Iterator[tuple[dict[str, Any], int]]:
        for index in self._order:
            self._file.seek(self._places[index])
            line = self._file.readline()
            message = decode_line(line)
            del message["kind"], message["crc"]
            yield message, len(line)


def _check(read: Callable[[dict[str, Any]], T], data: dict[str, Any], where: str) -> T:
    try:
        return read(data)
    except CommandError as error:
        raise StateError(f"{where}: {error.message}; nothing was imported") from None


def _batches(items: Iterable[tuple[T, int]], most: int, most_bytes: int) -> Iterator[list[T]]:
    """Lists of at most ``most`` items and ``most_bytes`` bytes; a larger item is alone. Items come with their sizes."""
    batch: list[T] = []
    size = 0
    for item, length in items:
        if batch and (len(batch) == most or size + length > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


class _Lines:
    """Reads lines: ``place`` is the offset of the last one, ``size`` its length, ``label`` its name in errors."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.place = self.size = 0
        self._file = file
        self._name = name
        self._next = file.tell()
        self._number = 0

    @property
    def label(self) -> str:
        return f"{self._name}, line {self._number}"

    def readline(self) -> bytes:
        line = self._file.readline()
        self.place, self._next, self.size = self._next, self._next + len(line), len(line)
        self._number += 1
        return line
