"""Fix differences between store and journal: the journal wins, and what is removed goes to quarantine.

Each call is one transaction of the store, or several of which each leaves less to do.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import HISTORY_LIMIT, State

from ...config.settings import Settings
from ...journal.segments import read_requests
from ...model.facts import FACT_CLOCK, dlq_fact, history_fact, part_fact
from ...model.records import BodyReference, Entry, QueueRecord, no_counts
from ...observe.state.model import Message
from ...platform.files import LOST_ERRNOS, READ_FLAGS
from ...platform.quarantine import Quarantine
from ...stores.base import Store
from ...stores.errors import BodyLost
from .compare import FIXED, QUEUE_FACTS, Difference
from .findings import Finding, Kind
from .rebuilt import Rebuilt, RebuiltMessage

#: Messages whose published events are searched in one pass over the journal.
_BATCH: Final = 500
#: Characters of a key in the name of a file in quarantine.
_NAME_LIMIT: Final = 150

Done = Callable[[Finding, str], None]


class Fixer:
    """Fixes an open store. After ``flush``, ``lost`` are the messages whose bodies are lost. Each fix is reported to
    ``done``. Methods raise ``StoreError`` and ``OSError``."""

    def __init__(self, store: Store, rebuilt: Rebuilt, settings: Settings, quarantine: Quarantine, done: Done) -> None:
        self.lost: dict[str, Finding] = {}
        self.changed = False
        self._store = store
        self._rebuilt = rebuilt
        self._settings = settings
        self._quarantine = quarantine
        self._done = done
        self._waiting: list[Difference] = []  # until their published events are read

    def fix(self, difference: Difference) -> None:
        """Fix a message, or leave it to ``flush``."""
        finding, said, found = difference.finding, difference.said, difference.found
        match finding.kind:
            case Kind.MESSAGE_MISSING | Kind.BODY_LOST | Kind.BODY_WRONG:
                self._waiting.append(difference)
                if len(self._waiting) >= _BATCH:
                    self.flush()
            case Kind.MESSAGE_LEFT if found:
                self._remove(found)
                self._tell(finding, "removed; it is in quarantine")
            case Kind.MESSAGE_WRONG if said and found:
                self._correct(said, found)
                self._tell(finding, "set to what its events say")

    def fix_record(self, difference: Difference) -> None:
        """Fix a queue or key-value. Counts are taken from the difference: no message may have changed since."""
        finding, record = difference.finding, difference.queue
        store = self._store
        store.begin()
        if difference.fact:
            store.facts.put(*difference.fact)
        elif finding.kind is Kind.CLOCK_WRONG:
            store.facts.put(FACT_CLOCK, self._rebuilt.folded.clock)
        elif record is not None and finding.kind is Kind.DLQ_NAME:
            store.facts.put(dlq_fact(finding.where), record.name)
        elif record is not None:
            if store.queue(record.name) is None:
                store.add_queue(copy(record))
            kept = store.queue_for_update(record.name)
            if finding.kind is not Kind.QUEUE_WRONG:
                kept.counts, kept.bytes, kept.reasons = dict(record.counts), record.bytes, dict(record.reasons)
            if finding.kind is not Kind.QUEUE_COUNTS:
                for name in QUEUE_FACTS:
                    setattr(kept, name, getattr(record, name))
        store.commit()
        self._tell(finding, "set right")

    def flush(self) -> None:
        """Put back missing messages and bodies from their published events."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        events = self._published([one.said for one in waiting if one.said])
        for one in waiting:
            event = events.get(one.finding.where)
            if one.said is None or event is None:
                if one.found and one.found["state"] != State.DEAD:
                    self.lost[one.finding.where] = one.finding
            elif one.found is None:
                self._put_back(one.said, event)
                self._tell(one.finding, "put back from its event")
            elif self._replace(one.said, one.found, event):
                self._tell(one.finding, "its body is put back")
            elif one.found["state"] != State.DEAD:
                self.lost[one.finding.where] = one.finding
            else:
                self._tell(one.finding, "what it had in place of its body is in quarantine")

    def _tell(self, finding: Finding, text: str) -> None:
        self.changed = True
        self._done(finding, text)

    def _published(self, messages: list[RebuiltMessage]) -> dict[str, Event]:
        """The published events of messages that the journal has, by key, with the bodies that were set later."""
        wanted = {said.entry.key: said for said in messages if said.entry.seq}
        found: dict[str, Event] = {}
        if not wanted:
            return found
        first = min(said.entry.seq for said in wanted.values())
        last = max(max(said.entry.seq, said.set_by) for said in wanted.values())
        for request in read_requests(self._settings.journal_root, first, lambda damage: None):
            for event in request.events:
                key = event.get("key")
                if event["type"] == EventType.PUBLISHED and key in wanted:
                    found[key] = event
                elif key in found and event["id"] == wanted[key].set_by:
                    found[key] |= {"message": event["message"]}
            if request.events[-1]["id"] >= last:
                break
        return found

    # --- one message ------------------------------------------------------------------------------------------

    def _put_back(self, said: RebuiltMessage, event: Event) -> None:
        self._store.begin()
        self._insert(said, event)
        self._store.commit()

    def _insert(self, said: RebuiltMessage, event: Event) -> None:
        store, entry = self._store, copy(said.entry)
        self._see_to_queue(entry.queue)
        if "message" in event:
            self._insert_body(entry, raw_json(event["message"]))
        else:
            store.body_files.insert(entry, _reference(event, entry))
        self._put_parts(entry, said.appended)
        self._put_history(entry, said.history)

    def _insert_body(self, entry: Entry, body: bytes) -> None:
        store = self._store
        reference = store.body_files.keep(entry.seq, entry.queue, entry.key, body)
        if reference:
            store.body_files.sync()
            store.body_files.insert(entry, reference)
        else:
            store.insert(entry, body)

    def _put_parts(self, entry: Entry, appended: list[Any]) -> None:
        for number, part in enumerate(appended, 1):
            self._store.facts.put(part_fact(entry.key, number), part)

    def _put_history(self, entry: Entry, history: list[Any]) -> None:
        self._store.facts.put(history_fact(entry.key), history or None)
        entry.failures = len(history)

    def _see_to_queue(self, name: str) -> None:
        if self._store.queue(name) is None:
            known = self._rebuilt.folded.queues.get(name) or QueueRecord(name)
            self._store.add_queue(QueueRecord(name, known.kind, known.created_wall, counts=no_counts()))

    def _replace(self, said: RebuiltMessage, found: Message, event: Event) -> bool:
        """Restore a message's body from its event or its file, or at least the reference to it. Its other attributes do
        not change. Returns whether it has its body."""
        self._keep(found)
        store = self._store
        if "message" in event:
            body: bytes | None = raw_json(event["message"])
        else:
            body = self._intact_file(found, BodyReference.from_json(event["body"]))
        store.begin()
        old = store.get(said.entry.key)
        assert old is not None
        entry, history = copy(old), found.get("history", [])
        self._see_to_queue(old.queue)
        store.delete(copy(old), old.state)
        if body is None:
            store.body_files.insert(entry, _reference(event, entry))
        else:
            store.insert(entry, body)  # hybrid: into the database, since its file is deleted with the old row
        self._put_parts(entry, said.appended)
        self._put_history(entry, history)
        store.update(entry, entry.state)
        store.commit()
        return body is not None

    def _remove(self, found: Message) -> None:
        self._keep(found)
        store = self._store
        store.begin()
        entry = store.get(found["key"])
        if entry is not None:
            self._see_to_queue(entry.queue)
            store.delete(entry, entry.state)
            store.facts.put(history_fact(entry.key), None)
            for number in range(1, entry.parts + 1):
                store.facts.put(part_fact(entry.key, number), None)
        store.commit()

    def _correct(self, said: RebuiltMessage, found: Message) -> None:
        store = self._store
        store.begin()
        entry = store.get(said.entry.key)
        assert entry is not None
        old = copy(entry)
        self._see_to_queue(old.queue)
        self._see_to_queue(said.entry.queue)
        right = corrected(said, old)
        history = found.get("history", [])
        if said.known is None:
            history = said.history
        elif history[len(history) - len(said.history) :] != said.history:
            history = [*history, *said.history][-HISTORY_LIMIT:]
        before = old.state
        if any(getattr(right, name) != getattr(old, name) for name in FIXED):
            with suppress(BodyLost):  # has a finding of its own, which is fixed first
                body = store.bodies.envelope(old.key)
                store.delete(old, old.state)
                store.insert(right, body)  # hybrid: into the database, since its file is deleted
                before = right.state
        self._put_parts(right, said.parts_over(found.get("appended", [])))
        self._put_history(right, history)
        store.update(right, before)
        store.commit()

    # --- quarantine -------------------------------------------------------------------------------------------

    def _keep(self, found: Message) -> None:
        """Copy a message to quarantine, and its file if that is damaged."""
        name = quote(found["key"], safe="")[:_NAME_LIMIT]
        self._quarantine.add(f"{name}.message", orjson.dumps(found), "a message, or its body, that was taken out")
        path = self._file_of(found) if "bodyLost" in found else None
        if path:
            try:
                data = _bytes_of(path)
            except OSError:  # an unreadable file must not be deleted with the message either
                self._quarantine.move_in(path, "what is where the body of a message should be", f"{name}.file")
            else:
                self._quarantine.add(f"{name}.file", data, f"what {path} had")

    def _intact_file(self, found: Message, reference: BodyReference) -> bytes | None:
        path = self._file_of(found)
        try:
            body = _bytes_of(path) if path else b""
        except OSError as error:
            if error.errno is not None and error.errno not in LOST_ERRNOS:  # the body may be intact
                raise
            return None
        return body if reference.fits(body) else None

    def _file_of(self, found: Message) -> Path | None:
        return self._store.audit.file_of(found["key"])


def _reference(event: Event, entry: Entry) -> BodyReference:
    """The reference to a message's body by its published event, in its present queue."""
    return BodyReference.from_json(event["body"]).moved(event["queue"], entry.queue)


def _bytes_of(path: Path) -> bytes:
    """The content of a regular file. Raises ``OSError``, also for a pipe or a link."""
    with open(os.open(path, READ_FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        return file.read()


def corrected(said: RebuiltMessage, found: Entry) -> Entry:
    """An entry by its events; attributes that they do not define stay as found."""
    if said.known is None:
        return copy(said.entry)
    right = copy(found)
    for name in (*said.known, *(FIXED if said.entry.seq else ())):
        setattr(right, name, getattr(said.entry, name))
    return right
