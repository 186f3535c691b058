"""The contract of a store: the state that the journal's events fold to, arranged so that every question is cheap.

``Store`` changes and reads single messages and the records of queues. What else there is is reached through its
attributes, each a contract of its own: ``several`` (messages of one queue together), ``facts`` (key-values), ``bodies``
(what is in the messages), ``body_files`` (bodies in files of their own), ``due`` (what is to happen at a time),
``pages`` (many messages or queues in order), ``disk`` (durability and space), ``logs`` (the records of logs, see
``log/contract.py``); and from ``recovery.py``, ``recovery`` (what a start does) and ``audit`` (what ``verify`` and
``repair`` ask).

Everything runs in one thread, in one transaction at a time (``Store.begin``). Times are engine milliseconds unless a
name says otherwise, sizes are bytes. Every method may raise an error of ``errors.py``: the transaction must then be
rolled back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from heapq import nsmallest
from pathlib import Path
from typing import Any, ClassVar, Final

from postroom_common.body import with_parts
from postroom_common.protocol import State

from ..model.facts import history_fact, part_fact
from ..model.records import BodyReference, Entry, QueueRecord
from .errors import BodyLost, StoreError
from .log.contract import NO_LOGS, Logs
from .recovery import Audit, Recovery

#: The states in which a message may be leased, those that end at a time, and those in which it may expire.
LEASED: Final = (State.INFLIGHT, State.DEAD)
TIMED: Final = (State.DELAYED, State.GATHERING)
EXPIRING: Final = (State.READY, *TIMED, State.DRAFTING)
#: The states of messages that are stored although their work has ended: they count for no limit of their queue, and no
#: other message of their ordering key waits for them.
ENDED: Final = (State.DEAD, State.DONE)

Cursor = tuple[str | int, ...]
"""Where a page of ``Pages.scan`` ended. Its content is the store's business."""


# --- parts of a store -----------------------------------------------------------------------------------------------


class Due(ABC):
    """What is to happen to messages at a time. All of it belongs to periodic tasks."""

    @abstractmethod
    def promote(self, now: int, limit: int) -> list[str]:
        """Make at most ``limit`` delayed or gathering messages ready whose time has come, oldest due time first, then
        in publish order. Returns their queues in that order."""

    @abstractmethod
    def ended_leases(self, now: int, limit: int) -> list[Entry]:
        """At most ``limit`` leased messages (in flight, or dead letters) whose lease has ended, oldest end first, then
        in publish order. Changes nothing."""

    @abstractmethod
    def expiring(self, now: int, limit: int) -> list[Entry]:
        """At most ``limit`` messages in a state of ``EXPIRING`` whose ``next_expiry`` has come, oldest first, then in
        publish order. Changes nothing."""

    @abstractmethod
    def next_time(self) -> int | None:
        """A time before which no other method of this contract has anything to do; None: never."""


class Pages(ABC):
    """Many messages or names in order, a page at a time. Changes nothing."""

    @abstractmethod
    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        """A page of a queue's messages in a state, beginning behind ``after`` (() for the first page), and where the
        next page begins (() if there is none). '' means all queues, for messages in flight, delayed and
        gathering only.

        In the order in which they come next: ready messages by target, those for anyone first, as they would be
        delivered, and behind all others those that wait for another of their ordering key; delayed and gathering
        by due time; in flight by the end of their lease; drafts and those on hold by publish order; dead by time of
        death, done by when they were. A page may be short, or empty, without being the last. A message that does not
        change while the pages are read is in exactly one.
        """

    @abstractmethod
    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        """As ``scan`` of messages in flight, with the dead letters that are leased."""

    @abstractmethod
    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        """A page of a queue's dead letters in the order of (dead_at, seq), beginning behind ``after``."""

    @abstractmethod
    def entries(self, after: str, limit: int) -> list[Entry]:
        """A page of all messages in whatever state, in the order of their keys, beginning behind ``after``.

        A message that stays while the pages are read one after the other is in exactly one of them.
        """

    def stored_bytes(self, after: str, until: int, limit: int) -> tuple[Counter[str], str]:
        """The bytes of the next ``limit`` messages in the order of their keys, beginning behind ``after``, by the
        account that has published them, without those that were published after event ``until``; and the last of these
        keys, '' if no more messages follow. Messages of which no account is recorded may be passed over. A store that
        need not read whole entries overrides this."""
        stored = Counter[str]()
        page = self.entries(after, limit)
        for entry in page:
            if entry.publisher_uid and entry.seq <= until:
                stored[entry.publisher_uid] += entry.size
        return stored, page[-1].key if len(page) == limit else ""

    @abstractmethod
    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        """The ready message with the first ``position`` (published first, unless one returned to the end), whoever may
        have it; with ``consumer``, the first of those that ``next_ready`` would return for it."""

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        """At most ``limit`` ready messages by ``position``, whoever may have them and whether or not they can be
        delivered now. A store that can do better than look at all of them overrides this."""
        oldest: list[Entry] = []
        after: Cursor = ()
        while True:
            page, after = self.scan(queue, State.READY, after, 1000)
            oldest = nsmallest(limit, oldest + page, key=lambda entry: entry.position)
            if not after:
                return oldest

    @abstractmethod
    def queue_names(self, after: str, limit: int) -> list[str]:
        """A page of the queues' names in order, beginning behind ``after``."""

    @abstractmethod
    def queues(self, after: str, limit: int) -> list[QueueRecord]:
        """A page of the queues' records in the order of their names, beginning behind ``after``, for reading only. A
        store that does not have all of them in memory remembers none of these."""


class Several:
    """Messages of one queue together. This class takes one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, entries: list[Entry], envelopes: list[bytes]) -> None:
        """As ``Store.insert``. The first message shows the event ``folding``, each of the others the next one, which is
        then ``folding``."""
        store = self._store
        for number, (entry, envelope) in enumerate(zip(entries, envelopes, strict=True)):
            store.folding += number > 0
            store.insert(entry, envelope)

    def update(self, entries: list[Entry], before: State) -> None:
        """As ``Store.update``, for different messages that all had one state, and have another one now. They show
        events as those of ``insert`` do."""
        store = self._store
        for number, entry in enumerate(entries):
            store.folding += number > 0
            store.update(entry, before)

    def delete(self, entries: list[Entry], before: State) -> None:
        """As ``Store.delete``, for different messages of one state."""
        for entry in entries:
            self._store.delete(entry, before)

    def next_ready(self, queue: str, consumer: str, limit: int) -> list[Entry]:
        """The messages that ``Store.next_ready`` would return one after the other if each was leased, at most
        ``limit``: those that can be listed cheaply, at least one unless there is none. Whoever asks is about to read
        their bodies."""
        entry = self._store.next_ready(queue, consumer)
        return [entry] if entry else []


class Facts(ABC):
    """Key-values."""

    @abstractmethod
    def get(self, name: str) -> Any:
        """The JSON value stored under ``name``, or None; a copy, if it can be changed."""

    @abstractmethod
    def put(self, name: str, value: Any) -> None:
        """Store a JSON value under ``name``; None removes it."""

    @abstractmethod
    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        """A page of the names that begin with ``prefix``, in order, beginning behind ``after``."""

    def history(self, entry: Entry) -> list[dict[str, Any]]:
        """The failed attempts of a message that are remembered, newest last."""
        return self.get(history_fact(entry.key)) or [] if entry.failures else []


class Bodies(ABC):
    """What is in the messages. Those that have parts beside their body have them among the ``facts``."""

    facts: Facts

    @abstractmethod
    def envelope(self, key: str) -> bytes:
        """The message's body and headers as JSON bytes, exactly as published, without parts that were appended (see
        ``message``). Raises ``StoreError`` if there is no such message; ``BodyLost`` if its body is lost;
        ``BodyUnread`` if the disk does not return it now."""

    def appended(self, entry: Entry) -> list[dict[str, Any] | None]:
        """The parts that were appended to a message, or the named parts of a draft, in order; None for one without a
        value. Raises ``BodyLost`` if one of them is lost."""
        parts = [self.facts.get(part_fact(entry.key, number)) for number in range(1, entry.parts + 1)]
        if parts.count(None) > entry.unset:
            raise BodyLost(entry.key, f"part {parts.index(None) + 1} of those beside its body is missing")
        return parts

    def message(self, entry: Entry) -> bytes:
        """As ``envelope``, with all parts beside it that have a value."""
        envelope = self.envelope(entry.key)
        return with_parts(envelope, self.appended(entry)) if entry.parts else envelope


class BodyFiles:
    """Bodies in files of their own, to which events refer. This class is for stores that do not have any: events hold
    the bodies, and ``Store.insert`` stores them."""

    #: Whether there are such files.
    separate: ClassVar[bool] = False

    def keep(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        """Write a new message's body to a file and return what its event is to say of it. None: the event must hold the
        body, and ``Store.insert`` will store it. A rollback removes the file."""
        return None

    def sync(self) -> None:
        """Make durable every file that ``keep`` wrote since ``begin``. Call it before an event refers to them."""

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        """Store a new message whose body is in a file. Raises ``NotStored`` unless its queue's record exists."""
        raise StoreError(
            f"{entry.key}: its body is in a file of backend hybrid, and no other store can be folded from this journal:"
            " restore a backup; or rename the directory that the migration left (payloads.replaced-TIME) to its old"
            " name (payloads), then set backend to hybrid, and start"
        )


class Disk:
    """Durability and space. This class is for stores that keep nothing on disk."""

    def files(self) -> list[Path]:
        """The files and directories of the store, to be set aside if they are damaged."""
        return []

    def probe(self) -> None:
        """Read from the disk for real. Raises ``StoreError`` if it does not answer."""

    def space_needed(self, events: int) -> int:
        """Bytes that the disk must have free for a commit of what was done since ``begin``, which is the fold of
        ``events`` events: an upper estimate. Bodies that the events hold are not included."""
        return 0

    def checkpoint(self) -> int:
        """Make everything committed survive a power cut. Returns the id of the last event that does."""
        return 0

    def checkpoint_step(self) -> int | None:
        """As ``checkpoint``, outside of a transaction, for a store whose checkpoints take long: start one, or see how
        it is doing. None while it is running: call it again."""
        return self.checkpoint()

    def tidy(self) -> None:
        """Take one small step, of a few milliseconds, towards returning the space of messages that are gone. Called
        every second, outside of a transaction. Raises only ``StoreDamaged``: anything else can wait."""


# --- the store ------------------------------------------------------------------------------------------------------


class Store(ABC):
    """Messages and the records of queues. ``applied`` is the id of the last event folded, committed with the data;
    ``folding`` is the id of the one being folded, which the messages that it changes show.

    Nothing is stored before ``commit``; nothing is certain to survive a power cut before ``disk.checkpoint``.
    """

    #: The name by which the configuration selects it.
    name: ClassVar[str]
    applied: int = 0
    folding: int = 0

    several: Several
    facts: Facts
    bodies: Bodies
    body_files: BodyFiles
    due: Due
    pages: Pages
    disk: Disk
    recovery: Recovery
    audit: Audit
    logs: Logs = NO_LOGS

    @abstractmethod
    def open(self) -> None:
        """Make it usable. Raises ``StoreDamaged`` if what is on disk cannot be read."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; an open transaction is rolled back."""

    # --- transactions ---------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Begin the transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Keep what was done since ``begin``, and ``applied`` with it.

        After a crash of the process either all of it is there; or ``applied`` is behind, and folding the journal from
        there leads to the same (``Recovery.already_applied``). After a commit that failed the store must be reopened.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Undo what was done since ``begin``. Never raises because of an earlier error in the transaction."""

    # --- messages -------------------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: str) -> Entry | None:
        """The entry of a message, for reading only: change a copy, and pass that to ``update``."""

    @abstractmethod
    def insert(self, entry: Entry, envelope: bytes) -> None:
        """Store a new message. Raises ``NotStored`` unless its queue's record exists."""

    @abstractmethod
    def update(self, entry: Entry, before: State, source: str | None = None) -> None:
        """Store an entry's changes; ``before`` is the state it had, ``source`` the queue that it has left, if it has.
        Key and body stay. Its size counts as it was when it was stored: who changes it, changes the ``bytes`` of its
        queue."""

    @abstractmethod
    def replace(self, entry: Entry, envelope: bytes) -> None:
        """Store another body and other headers of a message in place of those that it has, and its entry as ``update``
        does, without a change of the state."""

    @abstractmethod
    def delete(self, entry: Entry, before: State) -> None:
        """Remove a message and its body."""

    @abstractmethod
    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        """The ready message to deliver next: highest priority first, then by ``position``; among those for anyone and
        those for ``consumer``. One probe, whatever the backlog.

        Among messages of a queue with the same ``order_key`` that are not ``ENDED``, only the first published may be
        delivered, and none while another of them is in flight.
        """

    # --- queues ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def queue(self, name: str) -> QueueRecord | None:
        """The record of a queue, for reading only."""

    @abstractmethod
    def queue_for_update(self, name: str) -> QueueRecord:
        """The record of a queue, to be changed in place: the commit stores it. The store maintains its counters.
        Raises ``NotStored`` if there is none."""

    @abstractmethod
    def add_queue(self, record: QueueRecord) -> None:
        """Store the record of a new queue."""

    @abstractmethod
    def delete_queue(self, name: str) -> None:
        """Remove the record of a queue that has no messages. Does nothing if there is none."""
