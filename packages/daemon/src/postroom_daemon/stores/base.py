"""The contract of a store: the fold of the journal, kept so that every question is cheap.

Whoever calls these primitives has one transaction open (``begin``) and is alone. Nothing is durable before ``commit``;
what survives a power cut is said by ``checkpoint``. A store may raise ``StoreError`` from any primitive: the
transaction must then be rolled back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import nsmallest
from pathlib import Path
from typing import Any, ClassVar, Final

from postroom_common.errors import PostroomError
from postroom_common.events import Event
from postroom_common.protocol import State

from ..model.consumers import InFlight
from ..model.records import BodyReference, Entry, QueueRecord
from ..model.usage import Stored
from ..platform.files import FULL_ERRNOS

#: The states in which a message may be leased.
LEASED: Final = (State.INFLIGHT, State.DEAD)

Cursor = tuple[str | int, ...]
"""Where a page of ``Store.scan`` ended: what it means is the store's business."""


class StoreError(PostroomError):
    """The store could not do what was asked; its own error is the cause."""


class StoreFull(StoreError):
    """There is no space for what was to be kept."""


def store_error(error: OSError, where: Path | str) -> StoreError:
    """An error of the operating system as one of the contract: ``StoreFull`` where only space is lacking."""
    return (StoreFull if error.errno in FULL_ERRNOS else StoreError)(f"{where}: {error}")


@contextmanager
def store_errors(where: Path | str) -> Iterator[None]:
    """Turn errors of the operating system into those of the contract; see ``store_error``."""
    try:
        yield
    except OSError as error:
        raise store_error(error, where) from error


class StoreBusy(StoreError):
    """Another process holds the storage: nothing can be kept until it lets go."""


class NotStored(StoreError):
    """What was to be changed is not there. The storage itself is sound, and nothing was changed."""


class StoreDamaged(StoreError):
    """What is on disk is no store: it can be set aside and folded anew from the journal."""


class BodyLost(StoreError):
    """The body of ``key`` is missing, damaged or another's: it must not be delivered."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


class BodyUnread(StoreError):
    """The disk has not given the body of ``key``: it may be there the next time, or never."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


class Store(ABC):
    """About a dozen primitives. ``applied`` is the id of the last event folded, committed with the data."""

    #: The name that the configuration knows it by.
    name: ClassVar[str]
    #: Whether ``keep_body`` may keep one.
    keeps_bodies_apart: ClassVar[bool] = False
    applied: int = 0
    #: Who holds how many messages, kept up by the fold once the root is open. No part of what is stored.
    in_flight: InFlight | None = None
    #: Of how many bytes each user's messages are, likewise; None where that is not limited.
    stored: Stored | None = None

    # --- life -------------------------------------------------------------------------------------------------

    @abstractmethod
    def open(self) -> None:
        """Make it usable. Raises ``StoreDamaged`` when what is there cannot be read, else ``StoreError``."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The files that hold it, to be set aside when they are damaged."""

    def salvage(self, first_id: int | None) -> None:
        """Before the files of a damaged store are set aside: keep what of them can still be read, for the next ``open``
        to begin with. ``first_id`` is the first event that the journal has. Raises ``StoreError``."""
        return

    @abstractmethod
    def close(self) -> None:
        """Let go of it; an open transaction is rolled back."""

    @abstractmethod
    def begin(self) -> None:
        """Open the transaction."""

    def settle(self) -> None:
        """Do what of the transaction was put off until its end. Called before the journal has it: what cannot be kept
        is then refused."""
        return

    @abstractmethod
    def commit(self) -> None:
        """Keep what was done since ``begin``, ``applied`` with it.

        Over a crash of the process all or nothing; or else ``applied`` stays behind, and folding the journal from there
        comes to the same (``reflects``). After a commit that has failed, only opening the store anew may help.
        """

    def room_needed(self, events: int) -> int:
        """Bytes that the disk must have for a commit of what was done since ``begin``, which is what so many events
        came to; rather too many than too few. Bodies that the events hold are not counted."""
        return events * 32 * 1024

    @abstractmethod
    def rollback(self) -> None:
        """Undo what was done since ``begin``; never raises because of an earlier error in the transaction."""

    @abstractmethod
    def checkpoint(self) -> int:
        """Make all that is committed survive a power cut. The id of the last event that does."""

    def checkpoint_step(self) -> int | None:
        """As ``checkpoint``, outside of a transaction, for a store whose checkpoints take time: begin one, or look how
        it fares. None while it is under way: call it again."""
        return self.checkpoint()

    def tidy(self) -> None:
        """Take one small step, of a few milliseconds, towards giving back the space of messages that are gone. Called
        every second, outside of a transaction. Raises ``StoreDamaged`` only: else it can wait."""
        return

    def reflects(self, event: Event) -> bool:
        """Whether the message of an event behind ``applied`` already shows it: asked of every event that is about to be
        folded. True only while the journal is folded into a store whose messages may be further than ``applied``."""
        return False

    def caught_up(self, clean: bool) -> list[str]:
        """The journal's end is folded. ``applied`` may rise, if the store had seen more than the journal still has.

        The keys of dead letters that somebody has put back among the ready ones by hand; none unless ``clean``: the
        daemon had stopped in order, and the store was up to date. Raises ``StoreError``.
        """
        return []

    @abstractmethod
    def probe(self) -> None:
        """Touch the storage for real. Raises ``StoreError`` when it does not answer."""

    # --- messages ---------------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: str) -> Entry | None:
        """The entry of a message. The caller may change it and give it to ``update``."""

    @abstractmethod
    def envelope(self, key: str) -> bytes:
        """The message's body and headers as JSON bytes. Raises ``StoreError`` when there are none: ``BodyLost`` when
        there should be, ``BodyUnread`` when the disk does not give them now."""

    def check_body(self, key: str) -> None:
        """Raise ``BodyLost`` or ``BodyUnread`` unless ``envelope`` has what was published; for stores that keep bodies
        in files."""
        return

    @abstractmethod
    def insert(self, entry: Entry, envelope: bytes) -> None:
        """Keep a new message. Raises ``NotStored`` unless its queue's record exists."""

    def keep_body(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        """Keep a new message's body apart, for its event to refer to. None: the event must hold it, as ``insert`` will.

        For stores that keep bodies in files. A rollback takes the body back.
        """
        return None

    def sync_bodies(self) -> None:
        """Make the bodies durable that were kept apart since ``begin``: before an event refers to them."""
        return

    def insert_kept(self, entry: Entry, reference: BodyReference) -> None:
        """Keep a new message whose body was kept apart. Its queue's record must exist."""
        raise StoreError(
            f"{entry.key}: its body is in a file of backend hybrid, and no other store can be folded from this journal:"
            " restore a backup; or rename the directory that the migration has kept (payloads.replaced-TIME) to what it"
            " was called before (payloads), then set backend to hybrid, and start"
        )

    @abstractmethod
    def update(self, entry: Entry, before: State) -> None:
        """Keep an entry's changed facts; ``before`` is the state it had."""

    @abstractmethod
    def relocate(self, entry: Entry, source: str, before: State) -> None:
        """As ``update``, for an entry whose queue has changed as well: it was ``source``. Its key and its body stay."""

    @abstractmethod
    def delete(self, entry: Entry, before: State) -> None:
        """Forget a message and its body."""

    @abstractmethod
    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        """The ready message to deliver next: priority high to low, then publish order; of those for anyone and
        those for ``consumer``. One probe, whatever the backlog.

        Of the messages of a queue that have the same ``order_key`` (and are not dead) only the first published may be
        delivered, and none while another of them is in flight.
        """

    @abstractmethod
    def promote(self, now: int, limit: int) -> list[str]:
        """Move at most ``limit`` delayed messages that are due to ready, oldest due first, then in publish order. Their
        queues, in that order."""

    @abstractmethod
    def expired(self, now: int, limit: int) -> list[Entry]:
        """At most ``limit`` messages in flight, and leased dead letters, whose lease is over, oldest first, then in
        publish order."""

    @abstractmethod
    def lapsing(self, now: int, limit: int) -> list[Entry]:
        """At most ``limit`` ready and delayed messages whose ``lapse`` has come, oldest first, then in publish order.
        Looking changes nothing."""

    @abstractmethod
    def next_due(self) -> int | None:
        """A time before which neither ``promote`` nor ``expired`` nor ``lapsing`` has anything to do; None: never."""

    @abstractmethod
    def scan(self, queue: str, state: State, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        """A page of a queue's messages in a state, beginning behind ``after`` (() for the first page), and where the
        next begins (() when there is none). '' means all queues, for messages in flight and delayed only.

        In the order in which they come next: ready ones by target, those for anyone first, as they would be delivered,
        and behind all others those that wait for another of their ordering key; delayed by due time; in flight by the
        end of their lease; held by publish order; dead by death. A page may be short, or empty, and not the last. A
        message that stays as it is while the pages are read is in just one of them.
        """

    @abstractmethod
    def leases(self, queue: str, after: Cursor, limit: int) -> tuple[list[Entry], Cursor]:
        """As ``scan`` of what is in flight, with the dead letters among it that are leased."""

    @abstractmethod
    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        """A page of a queue's dead letters in the order of (dead_at, seq), beginning behind ``after``."""

    @abstractmethod
    def entries(self, after: str, limit: int) -> list[Entry]:
        """A page of all messages in whatever state, in the order of their keys, beginning behind ``after``.

        A message that stays while the pages are read one after the other is in just one of them.
        """

    @abstractmethod
    def oldest_ready(self, queue: str, consumer: str | None = None) -> Entry | None:
        """The ready message that was published first, whoever may have it; of those that ``next_ready`` would give to
        ``consumer``, if one is given."""

    def oldest(self, queue: str, limit: int) -> list[Entry]:
        """At most ``limit`` ready messages, whoever may have them and whether or not it is their turn, in publish order
        from the first. A store that can do better than look at them all does."""
        found: list[Entry] = []
        after: Cursor = ()
        while True:
            page, after = self.scan(queue, State.READY, after, 1000)
            found = nsmallest(limit, found + page, key=lambda entry: entry.seq)
            if not after:
                return found

    # --- queues and single facts ------------------------------------------------------------------------------

    @abstractmethod
    def queue(self, name: str) -> QueueRecord | None:
        """The record of a queue, to be read only."""

    @abstractmethod
    def touch_queue(self, name: str) -> QueueRecord:
        """The record of a queue, to be changed in place: the commit keeps it. Its counters are kept up by the store
        itself. Raises ``NotStored`` when there is none."""

    @abstractmethod
    def add_queue(self, record: QueueRecord) -> None:
        """Keep the record of a new queue."""

    @abstractmethod
    def delete_queue(self, name: str) -> None:
        """Forget the record of a queue that has no messages. Nothing happens if there is none."""

    @abstractmethod
    def queue_names(self, after: str, limit: int) -> list[str]:
        """A page of the queues' names in order, beginning behind ``after``."""

    @abstractmethod
    def fact(self, name: str) -> Any:
        """A single JSON value kept under ``name``, or None."""

    @abstractmethod
    def put_fact(self, name: str, value: Any) -> None:
        """Keep a single JSON value; None forgets it."""

    @abstractmethod
    def facts(self, prefix: str, after: str, limit: int) -> list[str]:
        """A page of the names of facts that begin with ``prefix``, in order, beginning behind ``after``."""
