"""The hybrid store: index and states in SQLite, each body in a file (or, below a size, in SQLite as well).

A body is durable before the journal refers to it; the event and the index hold its length and digest, which are checked
whenever it is read. So what is delivered is what was published, or nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import orjson

from postroom_common.protocol import State

from ..files import FULL_ERRNOS, Files
from ..records import BodyReference, Entry
from .base import BodyLost, StoreError, StoreFull
from .payloads import Payloads, payload_path
from .sqlite import PAYLOADS_FACT, SqliteStore


class HybridStore(SqliteStore):
    """Bodies smaller than ``inline_below_bytes`` stay in the database. ``options`` are those of ``SqliteStore``."""

    name: ClassVar[str] = "hybrid"

    def __init__(
        self, path: Path, files: Files, payload_root: Path, inline_below_bytes: int = 0, **options: Any
    ) -> None:
        super().__init__(path, **options)
        self._payloads = Payloads(files, payload_root)
        self._inline_below = inline_below_bytes
        self._gone: list[str] = []
        self._read: tuple[str, bytes] = ("", b"")  # the body that was read last

    # --- life -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        super().open()
        try:
            self._open_payloads()
        except OSError as error:
            self._db.close()
            raise StoreError(f"{self._payloads.root}: {error}") from error
        except StoreError:
            self.close()
            raise

    def _open_payloads(self) -> None:
        self._get_body = f"SELECT value, value_type FROM {self._tables['kv']} WHERE key = ?"
        root = self._payloads.root
        if not root.exists() and self.fact(PAYLOADS_FACT) and self._has_payloads():
            raise StoreError(f"{root}: the directory of the bodies is not there; mount it, or set hybrid.payloadRoot")
        self._payloads.open()
        if not self.fact(PAYLOADS_FACT):
            super().begin()
            self.put_fact(PAYLOADS_FACT, True)
            super().commit()

    def _has_payloads(self) -> bool:
        return self._row(f"SELECT 1 FROM {self._tables['kv']} WHERE value_type = 'payload' LIMIT 1") is not None

    def close(self) -> None:
        super().close()
        self._payloads.close()

    def commit(self) -> None:
        super().commit()
        self._payloads.keep()
        for path in self._gone:
            self._payloads.remove(path)
        self._forget()

    def rollback(self) -> None:
        self._payloads.take_back()
        self._forget()
        super().rollback()

    def _forget(self) -> None:
        self._gone.clear()
        self._read = ("", b"")

    def checkpoint(self) -> int:
        folded = super().checkpoint()
        self._payloads.tidy()
        return folded

    def probe(self) -> None:
        super().probe()
        if not self._payloads.root.is_dir():
            raise StoreError(f"{self._payloads.root}: the directory of the bodies is not there")

    # --- bodies -----------------------------------------------------------------------------------------------

    def keep_body(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        if len(envelope) < self._inline_below:
            return None
        try:
            self._payloads.write(payload_path(seq, queue, key), envelope)
        except OSError as error:
            raise _translated(error) from error
        return BodyReference.of(envelope)

    def sync_bodies(self) -> None:
        try:
            self._payloads.sync()
        except OSError as error:
            raise _translated(error) from error

    def insert_kept(self, entry: Entry, reference: BodyReference) -> None:
        self._add(entry, orjson.dumps(reference.to_json()).decode(), "payload")

    def delete(self, entry: Entry, before: State) -> None:
        row = self._row(self._get_body, (entry.key,))
        super().delete(entry, before)
        if row and row[1] == "payload":
            self._gone.append(payload_path(entry.seq, entry.queue, entry.key))

    def envelope(self, key: str) -> bytes:
        if self._read[0] == key:
            return self._read[1]
        row = self._row(self._get_body, (key,))
        if row is None or row[1] != "payload":
            return super().envelope(key)
        entry = self.get(key)
        if entry is None:
            raise StoreError(f"no index of {key}")
        path = payload_path(entry.seq, entry.queue, key)
        try:
            body = self._payloads.read(path, BodyReference.from_json(orjson.loads(row[0])))
        except OSError as error:
            raise _translated(error) from error
        if body is None:
            raise BodyLost(key, f"{self._payloads.root / path} is missing, damaged or another message's")
        self._read = (key, body)
        return body

    def check_body(self, key: str) -> None:
        self.envelope(key)


def _translated(error: OSError) -> StoreError:
    return (StoreFull if error.errno in FULL_ERRNOS else StoreError)(f"payloads: {error}")
