"""Bodies outside of the database, to which its rows refer."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson

from ...model.records import BodyReference, Entry
from ..base import BodyFiles
from .changes import MESSAGE, NewBody
from .rows import value_holds


class ReferencedBodies(BodyFiles):
    """Bodies that are not in the database, but referred to by rows of ``kind``. A participant of the store's
    transactions; see ``SqliteStore``."""

    #: The ``value_type`` of the rows that refer to a body.
    kind: ClassVar[str]

    def open(self) -> None:
        """The database is open."""

    def close(self) -> None:
        """The store is closed."""

    def probe(self) -> None:
        """See ``Disk.probe``."""

    def checkpointed(self) -> None:
        """The database is durable; so are the bodies, since ``sync`` was called before."""

    def replayed(self) -> None:
        """The journal's end is folded into the rows that were read. Raises ``StoreError`` to refuse the start."""

    def recovered(self) -> None:
        """``Recovery.finish_replay`` is done, after a crash."""

    def read(self, key: str, row: Any) -> bytes:
        """The body to which a row of ``kv`` refers. Raises ``BodyLost``, ``BodyUnread``."""
        raise NotImplementedError

    def new_row(self, entry: Entry, envelope: bytes) -> NewBody:
        """The row of a new message whose event has its body: with that, or what refers to it. Raises ``StoreError``."""
        return envelope, MESSAGE, entry.created_wall

    def removing(self, entry: Entry) -> None:
        """A message is about to be deleted."""

    def flush(self) -> None:
        """The changes since the last time are about to be committed to the database."""

    def flushed(self) -> None:
        """They are committed."""

    def commit(self) -> None:
        """See ``Participant``."""

    def rollback(self) -> None:
        """See ``Participant``."""


def reference_value(reference: BodyReference) -> bytes:
    """The value of a row that refers to a body."""
    return orjson.dumps(reference.to_json())


def reference_of(key: str, value: str, kind: str, crc: int | None) -> BodyReference | None:
    """What a row of ``kv`` says of the body that it refers to; None if the row has changed on the disk."""
    try:
        return BodyReference.from_json(orjson.loads(value)) if value_holds(key, value, kind, crc) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
