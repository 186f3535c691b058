"""The state as a file: lines of JSON, each with a checksum as in the journal.

``head``, then ``queue``, ``fact``, ``records`` and ``message`` lines, then ``end`` with their numbers and a digest
(BLAKE2b, 32 bytes, hex) of all bytes before it. docs/backup.md describes the fields. Format 1 had no facts. A file with
records has format 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import IO, Any, Final, NamedTuple, Protocol

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_line, encode_line

from ...model.log_record import LOG
from ...model.records import QueueRecord
from .model import Fact, Head, LogRecords, Message, State, StateError, Steps, finish

STATE_FORMAT: Final = 4
_WITHOUT_RECORDS: Final = 3
#: The kinds of lines that are the record of a queue: that of the record.
_OF_QUEUES: Final = ("queue", LOG)
#: The first bytes of every such file.
STATE_BEGINS: Final = b'{"kind":"head",'


class Totals(NamedTuple):
    """Numbers of queues and messages, size in bytes and digest of a file."""

    queues: int
    messages: int
    size: int
    digest: str


def write_state(state: State, file: IO[bytes]) -> Totals:
    """Write a state. Raises ``OSError``, and what reading the state raises."""
    records = state.records if any(record.log for record in state.queues) else None
    return finish(write_in_steps(state.head, state.queues, state.facts, state.messages, file, records))


def write_in_steps(
    head: Head,
    queues: Iterable[QueueRecord],
    facts: Iterable[Fact],
    messages: Iterable[Message | None],
    file: IO[bytes],
    records: Iterable[LogRecords] | None = None,
) -> Steps[Totals]:
    """As ``write_state``, with a step for each line. None among the messages is a step that writes nothing. ``records``
    None: those of logs are left out."""
    writer, queue_count, message_count = _Writer(file), 0, 0
    number = _WITHOUT_RECORDS if records is None else STATE_FORMAT
    writer.add({"kind": "head", "format": number, **head.to_json()})
    for record in queues:
        writer.add({"kind": "queue", **record.to_json()})
        queue_count += 1
        yield
    for fact in facts:
        writer.add({"kind": "fact", "name": fact["name"], "value": fact["value"]})
        yield
    for one in records or ():
        writer.add({"kind": "records", **one})
        yield
    for message in messages:
        if message is not None:
            writer.add({"kind": "message", **message})
            message_count += 1
        yield
    digest = writer.digest.hexdigest()
    writer.add({"kind": "end", "queues": queue_count, "messages": message_count, "digest": digest})
    return Totals(queue_count, message_count, writer.size, digest)


class _Writer:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0
        self.digest = blake2b(digest_size=32)

    def add(self, fields: dict[str, Any]) -> None:
        line = encode_line(fields)
        self._file.write(line)
        self.size += len(line)
        self.digest.update(line)


class Lines(Protocol):
    """Anything with lines to read."""

    def readline(self) -> bytes: ...


def read_state(file: Lines, name: str) -> State:
    """Read a state from the present position of a file; ``name`` is for error texts.

    Head, queues and key-values are read at once, records and messages while they are iterated. Raises ``StateError``
    for a file that is not a state, has a newer format, is damaged or cut short; for messages, when iteration reaches
    that place. To check a file before it is used, iterate over all messages first.
    """
    reader = _Reader(file, name)
    first = reader.next()
    if first["kind"] != "head":
        raise StateError(f"{name} is not an export or a state file: it does not begin with a head")
    try:
        if first["format"] > STATE_FORMAT:
            raise StateError(f"{name} has format {first['format']}, newer than this postroomd knows: upgrade it")
        head, queues, facts = Head.from_json(first), list[QueueRecord](), list[Fact]()
        line = reader.next()
        while line["kind"] in _OF_QUEUES:
            queues.append(QueueRecord.from_json(line))
            line = reader.next()
        while line["kind"] == "fact":
            facts.append({"name": line["name"], "value": line["value"]})
            line = reader.next()
    except (KeyError, TypeError) as error:
        raise StateError(f"{reader.place}: not of the form that it should have: {error!r}") from None
    reader.line = line
    records = _records(reader)
    return State(head, queues, _messages(reader, records, len(queues)), facts, records)


def _records(reader: _Reader) -> Iterator[LogRecords]:
    while reader.line["kind"] == "records":
        yield reader.line
        reader.line = reader.next()


def _messages(reader: _Reader, records: Iterator[LogRecords], queues: int) -> Iterator[Message]:
    for _ in records:  # which nobody wanted
        pass
    line, count = reader.line, 0
    while line["kind"] == "message":
        del line["kind"], line["crc"]
        yield line
        count += 1
        line = reader.next()
    if (line["kind"], line.get("queues"), line.get("messages")) != ("end", queues, count):
        raise StateError(f"{reader.place}: {queues} queues and {count} messages came before, which it does not confirm")
    if line.get("digest") != reader.digest_before:
        raise StateError(f"{reader.place}: the digest of the file does not hold")
    if reader.goes_on():
        raise StateError(f"{reader.place}: the state ends here, the file does not: each needs a file of its own")


class _Reader:
    def __init__(self, file: Lines, name: str) -> None:
        self._file = file
        self._name = name
        self._number = 0
        self._digest = blake2b(digest_size=32)
        self.digest_before = ""
        self.line: dict[str, Any] = {}  # behind the facts

    @property
    def place(self) -> str:
        """The place of the last line read."""
        return f"{self._name}, line {self._number}"

    def goes_on(self) -> bool:
        """Whether anything follows the last line read."""
        return bool(self._file.readline())

    def next(self) -> dict[str, Any]:
        line = self._file.readline()
        self._number += 1
        if not line:
            raise StateError(f"{self.place}: the file is truncated")
        try:
            fields = decode_line(line)
        except DamagedRecord as error:
            hint = "; is this an export or a state file?" if self._number == 1 else ""
            raise StateError(f"{self.place}: {error}{hint}") from None
        if type(fields.get("kind")) is not str:
            raise StateError(f"{self.place}: not a line of an export or a state file")
        if fields["kind"] == "end":
            self.digest_before = self._digest.hexdigest()
        self._digest.update(line)
        return fields
