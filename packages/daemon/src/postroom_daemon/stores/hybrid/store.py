"""The hybrid store: index and states in SQLite, each body in a file (or, below a size, in SQLite as well).

A body is durable before the journal refers to it; the event and the index hold its length and digest, which are checked
whenever it is read. So what is delivered is what was published, or nothing.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson

from postroom_common.protocol import State, message_key

from ...model.records import BodyReference, Entry
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..base import Audit, Bodies, BodyLost, BodyUnread, FileFinding, FileProblem, StoreError, store_error, store_errors
from ..filesystem.names import id_of, queue_of_directory
from ..sqlite.errors import translated
from ..sqlite.rows import value_holds
from ..sqlite.salvage import SALVAGE_FACT
from ..sqlite.store import PAYLOADS_FACT, SqliteStore
from .payload_audit import Kept, PayloadFinding, PayloadFindingKind, audit_payloads
from .payload_names import PayloadName, directory_of, payload_path, shard_of
from .payloads import Payloads, UnreadFile
from .read_ahead import AHEAD

log = logging.getLogger(__name__)

#: The ``value_type`` of a row that refers to a body.
_PAYLOAD: Final = "payload"
#: The fact that names the files that were about to be removed when the last transaction ended.
LEAVING_FACT: Final = "payloads-leaving"
#: Files that a group may leave behind at a crash. Where more are found, they come from elsewhere.
CRASH_FILES_LIMIT: Final = 10_000
#: What the audit of the payloads says, as the contract of stores names it.
_PROBLEMS: Final = {
    PayloadFindingKind.ORPHAN: FileProblem.ORPHAN,
    PayloadFindingKind.MISPLACED: FileProblem.MISPLACED,
    PayloadFindingKind.STRAY: FileProblem.FOREIGN,
    PayloadFindingKind.UNREADABLE: FileProblem.UNREADABLE,
}


class HybridStore(SqliteStore):
    """Bodies smaller than ``inline_below_bytes`` stay in the database. ``options`` are those of ``SqliteStore``."""

    name: ClassVar[str] = "hybrid"

    def __init__(
        self,
        path: Path,
        files: Files,
        payload_root: Path,
        inline_below_bytes: int,
        quarantine: Quarantine,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        self._payloads = Payloads(files, payload_root, quarantine)
        self._inline_below = inline_below_bytes
        self._gone: list[str] = []
        self._made = False  # the directory was made as it was opened
        self.bodies = HybridBodies(self)
        self.audit = HybridAudit(self)
        self._trusted = False  # the database is no new one, and has all its rows

    # --- life -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        super().open()
        try:
            with store_errors(self._payloads.root):
                self._open_payloads()
        except BaseException:
            self.close()
            raise

    def _open_payloads(self) -> None:
        self._check_mounted()
        self._made = not self._payloads.root.exists()
        self._payloads.open()
        known = self.get_kv(PAYLOADS_FACT)
        self._trusted = bool(known) and self.get_kv(SALVAGE_FACT) is None
        if not known:
            super().begin()
            self.put_kv(PAYLOADS_FACT, True)
            super().commit()
            super().flush()

    def _check_mounted(self) -> None:
        """Raise ``StoreError`` if there is no file at all, though messages refer to some: an empty mount point."""
        root = self._payloads.root
        if (root.is_dir() and any(root.iterdir())) or not self._has_payloads():
            return
        raise StoreError(
            f"{root}: the directory of the bodies is not there, or empty: mount it, or set hybrid.payloadRoot. If the"
            " bodies are lost, put an empty file named .lost into it: their messages become dead letters"
        )

    def _has_payloads(self) -> bool:
        return self._row(f"SELECT 1 FROM {self._tables['kv']} WHERE value_type = '{_PAYLOAD}' LIMIT 1") is not None

    def close(self) -> None:
        super().close()
        self._payloads.close()

    def commit(self) -> None:
        if self._gone:
            self.put_kv(LEAVING_FACT, self._gone)
        super().commit()
        self._payloads.keep()
        self._remove(self._gone)
        self._gone.clear()

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._payloads.remove(path)

    def rollback(self) -> None:
        self._payloads.take_back()
        self._gone.clear()
        super().rollback()

    def checkpoint(self) -> int:
        with store_errors(self._payloads.root):
            self._payloads.sync()
        folded = super().checkpoint()
        self._payloads.tidy()
        return folded

    def finish_replay(self, clean: bool) -> list[str]:
        try:
            self._check_mounted()  # again: a database that is folded anew did not know before
        except StoreError:
            if self._made:  # it is in the way of whoever puts the right one back: `mv` would move that into it
                with suppress(OSError):
                    self._payloads.root.rmdir()
            raise
        moved = super().finish_replay(clean)  # first: salvaged rows may be further than the journal
        if not clean:
            # What a crash has left: bodies of messages that had ended, and of a group that was not kept.
            leaving = self.get_kv(LEAVING_FACT) or []
            self._remove([path for path in leaving if not self._refers(PayloadName.read(path))])
            try:
                if self._trusted:  # else what it does not know of may be needed, to restore what it has lost
                    self._set_unborn_aside()
                self._payloads.tidy_all()
            except OSError as error:
                log.error("payloads: %s", error)
        return moved

    def _set_unborn_aside(self) -> None:
        found = list(islice(self._payloads.newer_than(self.applied), CRASH_FILES_LIMIT + 1))
        if len(found) > CRASH_FILES_LIMIT:
            log.error("%s: many files are newer than event %d; they are left", self._payloads.root, self.applied)
            return
        for name in found:
            if not self._refers(name):
                self._payloads.set_aside(str(name), "of a group that was not kept")

    def probe(self) -> None:
        super().probe()
        with store_errors(self._payloads.root):
            self._payloads.check()

    # --- bodies -----------------------------------------------------------------------------------------------

    def _keep_body(self, seq: int, queue: str, key: str, envelope: bytes) -> BodyReference | None:
        if len(envelope) < self._inline_below:
            return None
        born = "" if key.startswith(message_key(queue, "")) else key.partition(":")[2].rpartition(":")[0]
        with store_errors(self._payloads.root):
            self._payloads.write(payload_path(seq, born or queue, key), envelope)
        return BodyReference.of(envelope)._replace(queue=born)

    def _sync_bodies(self) -> None:
        with store_errors(self._payloads.root):
            self._payloads.sync()

    def _insert_kept(self, entry: Entry, reference: BodyReference) -> None:
        self._add(entry, orjson.dumps(reference.to_json()).decode(), _PAYLOAD)

    def move(self, entry: Entry, source: str, before: State) -> None:
        super().move(entry, source, before)
        self._note_birth(entry, source, _PAYLOAD)

    def delete(self, entry: Entry, before: State) -> None:
        # Where no small bodies are kept inline, to find no file costs less than to ask.
        row = self._row_of(self._sql.get_value, entry.key) if self._inline_below else None
        if row is None or row[1] == _PAYLOAD:
            self._gone.append(self._path_of(entry.seq, entry.queue, entry.key))
        super().delete(entry, before)

    def _path_of(self, seq: int, queue: str, key: str) -> str:
        """Where a message's body lies. Only of one whose key tells another queue must the index be asked."""
        if id_of(key, queue)[0] == "+":
            row = self._row_of(self._sql.get_value, key)
            reference = _reference(key, *row) if row and row[1] == _PAYLOAD else None
            queue = reference.queue if reference and reference.queue else queue
        return payload_path(seq, queue, key)

    def file_of(self, key: str) -> Path | None:
        """The file of a message that is there, if its body is to lie in one."""
        entry = self.get(key)
        return self._payloads.root / self._path_of(entry.seq, entry.queue, key) if entry else None

    def envelope(self, key: str) -> bytes:
        known = self._known.body(key)
        if known is not None:
            return known
        row = self._row_of(self._sql.get_value, key)
        if row is None or row[1] != _PAYLOAD:
            return super().envelope(key)
        entry = self.get(key)
        if entry is None:
            raise StoreError(f"no index of {key}")
        reference = _reference(key, *row)
        if reference is None:
            raise BodyLost(key, f"what refers to it has changed in {self._path}")
        path = payload_path(entry.seq, reference.queue or entry.queue, key)
        try:
            body = self._payloads.read(path, reference)
        except UnreadFile as error:
            raise BodyUnread(key, f"{self._payloads.root / path}: {error.strerror}") from error
        except OSError as error:
            raise store_error(error, self._payloads.root) from error
        if body is None:
            raise BodyLost(key, f"{self._payloads.root / path} is missing, damaged or another message's")
        if self._payloads.wants_ahead:
            self._read_ahead(entry)
        self._known.note_body(key, body)
        return body

    def _read_ahead(self, entry: Entry) -> None:
        """Have the bodies brought into memory that will be delivered next, to whom this one is delivered."""
        rows = self._rows(self._sql.next, (entry.queue, entry.target, AHEAD + 1))
        paths = [self._path_of(seq, entry.queue, key) for seq, key in rows if key != entry.key]
        self._payloads.read_ahead(paths[:AHEAD])

    # --- looking after the files ------------------------------------------------------------------------------

    def payload_findings(self, contents: bool = True) -> Iterator[PayloadFinding]:
        """Compare the files with the index; see ``audit_payloads``. Nothing is changed. Raises ``StoreError``."""
        return audit_payloads(self._payloads, self._kept(), contents)

    def _kept(self) -> Iterator[Kept]:
        """Every message whose body lies in a file, in the order of the files. SQLite sorts them, on disk if need be."""
        self._db.create_function("payload_directory", 2, _directory, deterministic=True)
        kv, msg = self._tables["kv"], self._tables["msg"]
        try:
            for _, seq, queue, key, *row in self._db.execute(
                "SELECT payload_directory(queue, value) AS directory, seq, queue, key, value, value_type, k.crc"
                f" FROM {kv} k JOIN {msg} ON message_key = key WHERE value_type = '{_PAYLOAD}' ORDER BY directory, seq"
            ):
                path = payload_path(seq, _born(queue, row[0]), key)
                yield Kept(PayloadName.read(path), key, _reference(key, *row))
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def move_payload(self, path: str, to: str) -> None:
        """Move a payload file, durably. Raises ``StoreError``."""
        with store_errors(self._payloads.root):
            self._payloads.move(path, to)

    def set_orphan_aside(self, path: str) -> None:
        """Move an orphan, or what else the audit has found that is no message's, to quarantine. ``path`` is relative to
        the root of the payloads. Raises ``StoreError`` when a message refers to it, or when it cannot be moved."""
        name = PayloadName.read(path)
        if name.seq and self._refers(name):
            raise StoreError(f"{path}: a message refers to it")
        with store_errors(self._payloads.root):
            self._payloads.set_aside(path, "no message refers to it")

    def _refers(self, name: PayloadName) -> bool:
        """Whether the body of a message lies there."""
        queue = queue_of_directory(name.directory)
        kv, msg = self._tables["kv"], self._tables["msg"]
        select = (
            f"SELECT queue, key, value FROM {kv} JOIN {msg} ON message_key = key"
            f" WHERE value_type = '{_PAYLOAD}' AND seq = ?"
        )
        if queue is not None and not name.id.startswith("+"):  # else only its number can be looked for
            rows = self._rows(f"{select} AND key = ?", (name.seq, message_key(queue, name.id)))
        else:
            rows = self._rows(select, (name.seq,))
        return any(payload_path(name.seq, _born(queue, value), key) == str(name) for queue, key, value in rows)


class HybridAudit(Audit):
    """The files of the bodies compared with the database."""

    def __init__(self, store: HybridStore) -> None:
        self._store: HybridStore = store

    def file_of(self, key: str) -> Path | None:
        return self._store.file_of(key)

    def file_findings(self, last: int, clean: bool) -> Iterator[FileFinding]:
        store = self._store
        leaving = set(store.get_kv(LEAVING_FACT) or [])
        for one in store.payload_findings(contents=False):
            problem, seq = _PROBLEMS.get(one.kind), PayloadName.read(one.path).seq
            if problem is None:  # it is reported with its message
                continue
            if problem is FileProblem.ORPHAN:
                if store.applied < seq <= last:
                    continue  # its event will be folded
                if not clean and (one.path in leaving or seq > last):
                    problem = FileProblem.LEFT_OVER
            yield FileFinding(problem, one.path, one.text)

    def restore_misplaced(self) -> Iterator[str]:
        found = list(self._store.payload_findings(contents=False))
        missing = {one.path for one in found if one.kind is PayloadFindingKind.MISSING}
        for one in found:
            if one.kind is PayloadFindingKind.MISPLACED:
                name = PayloadName.read(one.path)
                right = str(name._replace(shard=shard_of(name.seq)))
                if right in missing:
                    self._store.move_payload(one.path, right)
                    yield f"{one.path}: put back to {right}"

    def set_orphans_aside(self) -> None:
        for one in list(self._store.payload_findings(contents=False)):
            if one.kind in (PayloadFindingKind.ORPHAN, PayloadFindingKind.STRAY, PayloadFindingKind.MISPLACED):
                self._store.set_orphan_aside(one.path)


class HybridBodies(Bodies):
    """The bodies of a hybrid store."""

    separate: ClassVar[bool] = True

    def __init__(self, store: HybridStore) -> None:
        self.keep, self.sync, self.insert = store._keep_body, store._sync_bodies, store._insert_kept  # type: ignore[method-assign]


def _born(queue: str, value: str) -> str:
    """The queue in whose directory a body lies, from what the index says of its message."""
    if '"queue"' not in value:
        return queue
    try:
        return BodyReference.from_json(orjson.loads(value)).queue or queue
    except (AttributeError, KeyError, TypeError, ValueError):
        return queue


def _directory(queue: str, value: str) -> str:
    return directory_of(_born(queue, value))


def _reference(key: str, value: str, kind: str, crc: int | None) -> BodyReference | None:
    """What a row says of the body that it refers to; None when the row has changed on the disk."""
    try:
        return BodyReference.from_json(orjson.loads(value)) if value_holds(key, value, kind, crc) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
