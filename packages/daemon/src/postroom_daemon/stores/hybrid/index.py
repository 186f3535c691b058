"""What the database of a hybrid store says of payload files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import orjson

from postroom_common.protocol import message_key

from ...model.records import BodyReference
from ..filesystem.names import id_of, queue_of_directory
from ..sqlite.database import Database, translated
from ..sqlite.references import reference_of
from .payloads import PayloadName, directory_of, payload_path

#: The ``value_type`` of a row that refers to a body.
PAYLOAD: Final = "payload"
#: The key-value that names the files that were about to be removed when the last transaction ended.
LEAVING_KV: Final = "payloads-leaving"


class IndexedBody(NamedTuple):
    """A message whose body is in a file. Without a ``reference`` nobody knows what it was."""

    name: PayloadName
    key: str
    reference: BodyReference | None


class PayloadIndex:
    """What the database says of payload files. ``body_row`` returns a message's row of ``kv``."""

    def __init__(self, db: Database, body_row: Callable[[str], Any]) -> None:
        self.db = db
        self._body_row = body_row
        kv, msg = db.tables["kv"], db.tables["msg"]
        self._any = f"SELECT 1 FROM {kv} WHERE value_type = '{PAYLOAD}' LIMIT 1"
        self._by_seq = (
            f"SELECT queue, key, value FROM {kv} JOIN {msg} ON message_key = key"
            f" WHERE value_type = '{PAYLOAD}' AND seq = ?"
        )

    def has_any(self) -> bool:
        """Whether any message has its body in a file."""
        return self.db.row(self._any) is not None

    def refers_to(self, name: PayloadName) -> bool:
        """Whether the body of a message should be there."""
        queue = queue_of_directory(name.directory)
        if queue is not None and not name.id.startswith("+"):  # else only its number can be looked for
            rows = self.db.rows(f"{self._by_seq} AND key = ?", (name.seq, message_key(queue, name.id)))
        else:
            rows = self.db.rows(self._by_seq, (name.seq,))
        return any(payload_path(name.seq, birth_queue(queue, value), key) == str(name) for queue, key, value in rows)

    def path_of(self, seq: int, queue: str, key: str) -> str:
        """Where a message's body lies. The index is asked only for a message whose key names another queue."""
        if id_of(key, queue)[0] == "+":
            row = self._body_row(key)
            reference = reference_of(key, *row) if row and row[1] == PAYLOAD else None
            queue = reference.queue if reference and reference.queue else queue
        return payload_path(seq, queue, key)

    def messages(self) -> Iterator[IndexedBody]:
        """Every message whose body is in a file, in the order of (directory, publish number). SQLite sorts them, on
        disk if need be. Must be asked outside of a transaction."""
        connection, kv, msg = self.db.connection, self.db.tables["kv"], self.db.tables["msg"]
        connection.create_function("payload_directory", 2, _directory, deterministic=True)
        try:
            connection.execute("PRAGMA temp_store = FILE")
            for _, seq, queue, key, *row in connection.execute(
                "SELECT payload_directory(queue, value) AS directory, seq, queue, key, value, value_type, k.crc"
                f" FROM {kv} k JOIN {msg} ON message_key = key WHERE value_type = '{PAYLOAD}' ORDER BY directory, seq"
            ):
                path = payload_path(seq, birth_queue(queue, row[0]), key)
                yield IndexedBody(PayloadName.read(path), key, reference_of(key, *row))
        except sqlite3.Error as error:
            raise translated(error, self.db.path) from error
        finally:
            connection.execute("PRAGMA temp_store = MEMORY")


def birth_queue(queue: str, value: str) -> str:
    """The queue in whose directory a body lies, from the row that refers to it; ``queue`` is its message's."""
    if '"queue"' not in value:
        return queue
    try:
        return BodyReference.from_json(orjson.loads(value)).queue or queue
    except (AttributeError, KeyError, TypeError, ValueError):
        return queue


def _directory(queue: str, value: str) -> str:
    return directory_of(birth_queue(queue, value))
