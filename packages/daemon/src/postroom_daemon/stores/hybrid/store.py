"""The hybrid store: index and states in SQLite, each body in a file (or, below a size, in SQLite as well).

A body is durable before the journal refers to it; event and index hold its length and digest, which are compared
whenever it is read. So what is delivered is what was published, or nothing. In a member of a cluster the events hold
the bodies themselves, and a file is durable before the database refers to it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from postroom_common.protocol import message_key

from ...model.records import BodyReference, Entry
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..errors import BodyLost, BodyUnread, StoreError, StoreErrors, store_error
from ..sqlite.changes import NewBody
from ..sqlite.references import ReferencedBodies, reference_of, reference_value
from ..sqlite.salvage import SALVAGE_KV
from ..sqlite.store import PAYLOADS_KV, SqliteStore
from .audit import HybridAudit
from .index import LEAVING_KV, PAYLOAD, PayloadIndex
from .payloads import PayloadName, Payloads, UnreadFile, payload_path
from .threads import AHEAD

log = logging.getLogger(__name__)

#: Bytes of bodies that are in memory although their files are written: they are likely to be consumed soon.
_RECENT_BYTES: Final = 2 * 1024 * 1024
#: Files that a group may leave behind at a crash. If there are more, they come from elsewhere.
CRASH_FILES_LIMIT = 10_000


class HybridStore(SqliteStore):
    """A SQLite store whose bodies are files below ``payload_root``, apart from those smaller than
    ``inline_below_bytes``. ``in_events``: see ``PayloadBodies``. The other options are those of ``SqliteStore``."""

    name: ClassVar[str] = "hybrid"

    def __init__(
        self,
        path: Path,
        files: Files,
        payload_root: Path,
        inline_below_bytes: int,
        quarantine: Quarantine,
        kv: str = "kv",
        msg: str = "msg_index",
        synchronous: str = "NORMAL",
        busy_ms: int = 5000,
        in_events: bool = False,
    ) -> None:
        payloads = Payloads(files, payload_root, quarantine)
        bodies = PayloadBodies(payloads, inline_below_bytes, in_events)
        super().__init__(path, kv, msg, synchronous, busy_ms, bodies)
        bodies.attach(self)
        self.audit = HybridAudit(self, payloads, bodies.index, self.flush)


class PayloadBodies(ReferencedBodies):
    """The bodies of a hybrid store. With ``in_events`` the events hold them, too, as in a member of a cluster: ``keep``
    then leaves them to ``new_row``, which writes the files when the events are folded."""

    kind: ClassVar[str] = PAYLOAD
    separate: ClassVar[bool] = True

    def __init__(self, payloads: Payloads, inline_below: int, in_events: bool) -> None:
        self.payloads = payloads
        self._inline_below = inline_below
        self._in_events = in_events
        self._recent: dict[str, bytes] = {}  # bodies of messages that the database does not have yet
        self._recent_bytes = 0
        self._removed: dict[str, None] = {}  # by the open group
        self._ended: list[str] = []  # by the last group that had events; only with ``in_events``
        self._applied = 0  # as of the last commit
        self._leaving: list[str] = []  # by groups that are not committed to the database yet
        #: The directory was created when it was opened.
        self.is_new = False
        #: The database is not a new one, and has all its rows.
        self.is_index_complete = False

    def attach(self, store: SqliteStore) -> None:
        """Belong to a store."""
        self._store = store
        self.index = PayloadIndex(store.db, store.bodies.row)

    def open(self) -> None:
        with StoreErrors(self.payloads.root):
            self.check_mounted()
            self.is_new = not self.payloads.root.exists()
            self.payloads.open()
        store = self._store
        self._applied = store.applied
        known = store.facts.get(PAYLOADS_KV)
        self.is_index_complete = bool(known) and store.facts.get(SALVAGE_KV) is None
        if not known:
            store.begin()
            store.facts.put(PAYLOADS_KV, True)
            store.commit()
            store.flush()

    def check_mounted(self) -> None:
        """Raise ``StoreError`` if there is no file at all, though messages refer to some: an empty mount point."""
        root = self.payloads.root
        if (root.is_dir() and any(root.iterdir())) or not self.index.has_any():
            return
        raise StoreError(
            f"{root}: the directory of the bodies is not there, or empty: mount it, or set hybrid.payloadRoot. If the"
            " bodies are lost, put an empty file named .lost into it: their messages become dead letters"
        )

    def close(self) -> None:
        self.payloads.close()

    def probe(self) -> None:
        with StoreErrors(self.payloads.root):
            self.payloads.check()

    def checkpointed(self) -> None:
        self.payloads.tidy()

    def replayed(self) -> None:
        try:
            self.check_mounted()  # once more: a database that was folded from scratch did not know before
        except StoreError:
            if self.is_new:  # an operator who restores the right one would move it into this one with `mv`
                with suppress(OSError):
                    self.payloads.root.rmdir()
            raise

    def recovered(self) -> None:
        leaving = self._store.facts.get(LEAVING_KV) or []
        self.remove([path for path in leaving if not self.index.refers_to(PayloadName.read(path))])
        try:
            if self.is_index_complete:  # else what it does not know may be needed to restore what it has lost
                self._set_unborn_aside()
            self.payloads.tidy_all()
        except OSError as error:
            log.error("payloads: %s", error)

    def _set_unborn_aside(self) -> None:
        """Move the files of a group that a crash has prevented into quarantine. In a member of a cluster, whose journal
        has ended before that group, or has lost it since, they are removed: its events have the bodies."""
        applied = self._store.applied
        newer = list(islice(self.payloads.newer_than(applied), CRASH_FILES_LIMIT + 1))
        are_many = len(newer) > CRASH_FILES_LIMIT
        if are_many and not self._in_events:
            log.error("%s: many files are newer than event %d; they are left", self.payloads.root, applied)
            return
        for name in list(self.payloads.newer_than(applied)) if are_many else newer:
            if self.index.refers_to(name):
                continue
            if self._in_events and not are_many:
                self.payloads.remove(str(name))
            else:
                self.payloads.set_aside(str(name), "of a group that was not committed")

    # --- writing --------------------------------------------------------------------------------------------------

    def keep(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        return None if self._in_events else self._write(seq, queue, key, envelope)

    def new_row(self, entry: Entry, envelope: bytes) -> NewBody:
        reference = None
        if self._in_events and entry.seq:  # without a number it was salvaged, and has no place of its own
            reference = self._write(entry.seq, entry.queue, entry.key, envelope)
        if reference is None:
            return super().new_row(entry, envelope)
        return reference_value(reference), PAYLOAD, entry.created_wall

    def _write(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        if len(envelope) < self._inline_below:
            return None
        born = "" if key.startswith(message_key(queue, "")) else key.partition(":")[2].rpartition(":")[0]
        path = payload_path(seq, born or queue, key)
        if path in self._removed:  # a file that is written now would go with the old one
            return None
        with StoreErrors(self.payloads.root):
            self.payloads.write(path, envelope)
        self._recent_bytes += len(envelope)
        if self._recent_bytes > _RECENT_BYTES:
            self._forget_recent()
        else:
            self._recent[key] = envelope
        return BodyReference.of(envelope)._replace(queue=born)

    def sync(self) -> None:
        if not self._in_events:  # else it is early enough when the database is about to refer to them
            self._sync_files()

    def _sync_files(self) -> None:
        with StoreErrors(self.payloads.root):
            self.payloads.sync()

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        self._store.several.insert([entry], [reference_value(reference)], PAYLOAD)

    def removing(self, entry: Entry) -> None:
        self._recent.pop(entry.key, None)
        # For a body that is not small, not finding a file costs less than asking.
        row = self._store.bodies.row(entry.key) if entry.size < self._inline_below else None
        if row is None or row[1] == PAYLOAD:
            self._removed[self.index.path_of(entry.seq, entry.queue, entry.key)] = None

    def flush(self) -> None:
        if self._in_events:
            self._sync_files()
        if self._leaving:
            self._store.facts.put(LEAVING_KV, self._leaving)

    def flushed(self) -> None:
        self._leaving.clear()
        self._forget_recent()

    def _forget_recent(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    def commit(self) -> None:
        self.payloads.commit()
        self._leaving += self._removed
        removed, self._removed = list(self._removed), {}
        if self._in_events and self._store.applied > self._applied:
            # A start may take the last group off the journal: its messages are then back, until the group is.
            removed, self._ended = self._ended, removed
        self._applied = self._store.applied
        self.remove(removed)

    def rollback(self) -> None:
        self.payloads.rollback()
        self._removed.clear()
        self._forget_recent()

    def remove(self, paths: list[str]) -> None:
        """Remove files that no message refers to."""
        for path in paths:
            self.payloads.remove(path)

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, key: str, row: Any) -> bytes:
        recent = self._recent.get(key)
        if recent is not None:
            return recent
        entry = self._store.get(key)
        if entry is None:
            raise StoreError(f"no index of {key}")
        reference = reference_of(key, *row)
        if reference is None:
            raise BodyLost(key, f"what refers to it has changed in {self._store.db.path}")
        path = payload_path(entry.seq, reference.queue or entry.queue, key)
        try:
            body = self.payloads.read(path, reference)
        except UnreadFile as unread:
            raise BodyUnread(key, f"{self.payloads.root / path}: {unread.strerror}") from unread
        except OSError as error:
            raise store_error(error, self.payloads.root) from error
        if body is None:
            raise BodyLost(key, f"{self.payloads.root / path} is missing, damaged or another message's")
        if self.payloads.wants_ahead:
            self._read_ahead(entry)
        return body

    def _read_ahead(self, entry: Entry) -> None:
        """Have the bodies brought into memory that the consumers of this one will get next."""
        following = self._store.several.next_of(entry.queue, entry.target, AHEAD + 1)
        paths = [self.index.path_of(one.seq, one.queue, one.key) for one in following if one.key != entry.key]
        self.payloads.read_ahead(paths[:AHEAD])
