"""The filesystem store: a file for each message, whose folder shows its state and whose name sorts in delivery order.

Nothing is synced at a commit. Each file's name says up to which event it has come, and all of a name changes at once;
queues and single facts are kept as of the last checkpoint. So after a crash of any kind the journal is folded from that
checkpoint on, and passes over the messages that are already further: see ``reflects``.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ..files import FULL_ERRNOS, LOST_ERRNOS, Files
from ..quarantine import Quarantine
from ..records import HISTORY, Entry, QueueRecord, with_failure
from . import fs_content
from .base import BodyLost, Store, StoreError, StoreFull
from .book import QueueBook
from .fs_checkpoint import Checkpoint, Checkpoints
from .fs_index import Index
from .fs_names import DONE, LETTERS, READY, done_name, id_of, queue_directory, read_entry, read_name, write_name
from .fs_scan import Scan, scan
from .fs_tree import Tree

log = logging.getLogger(__name__)

_Facts = tuple[int, dict[str, Any]]  # the line inside a file, by its event, and what it holds


class FilesystemStore(Store):
    """``folders`` names the folder of each of ``fs_names``' letters, ``meta`` the directory of the checkpoints."""

    name: ClassVar[str] = "filesystem"

    def __init__(
        self, root: Path, files: Files, quarantine: Quarantine, folders: Mapping[str, str], meta: str = "meta"
    ) -> None:
        self._quarantine = quarantine
        self._meta = meta
        self._tree = Tree(files, root, folders)
        self._checkpoints = Checkpoints(files, root / meta)
        self._reset()

    def _reset(self) -> None:
        self._book = QueueBook()
        self._queues: list[str] = []
        self._facts: dict[str, Any] = {}
        self._index = Index()
        self._listed: list[str] = []  # keys, for the pages of ``entries``
        self._directories: dict[str, str] = {}
        self._strays: dict[str, str] = {}  # queues of the messages whose key does not tell it
        self._durable = 0  # the event of the last checkpoint
        self._scan: Scan | None = None  # while the journal is folded after opening
        self._done: list[tuple[str, str]] = []  # files of messages that are done, until the next checkpoint
        self._failed = False
        self._changed: dict[str, Entry | None] = {}
        self._seen: dict[str, Entry] = {}
        self._bodies: dict[str, bytes] = {}  # of new messages, and of those to be written anew
        self._read = ("", b"")  # the file that was read last: its message and content
        self._inside: dict[str, _Facts] = {}
        self._histories: dict[str, list[Any] | None] = {}
        self._facts_before: dict[str, Any] = {}
        self._new_queues: list[str] = []
        self.applied = self._applied_before = 0

    # --- life -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._reset()
        try:
            self._tree.open()
            checkpoint, damaged = self._checkpoints.read()
            for path in damaged:
                log.error("%s is damaged; the journal is folded from an earlier one", path)
                self._quarantine.keep_file(path, "a checkpoint that cannot be read")
            self.applied = self._applied_before = self._durable = checkpoint.applied
            self._facts = checkpoint.facts
            self._scan = scan(self._tree, self._index, self._meta, self._durable, self._quarantine)
        except OSError as error:
            self._tree.close()
            raise _translated(error, self._tree.root) from error
        self._directories |= self._scan.directories
        self._strays |= self._scan.queues
        self._done = [(done.directory, done.place) for done in self._scan.done.values()]
        for record in checkpoint.queues:
            self._know(record)
        self._book.commit()

    def _know(self, record: QueueRecord) -> None:
        """Take a queue's record into the book, its counters as the files are."""
        if self._scan:
            record.counts.update(dict.fromkeys(record.counts, 0) | self._scan.counts.get(record.name, {}))
        self._book.put(record)
        insort(self._queues, record.name)

    def files(self) -> list[Path]:
        return [self._tree.root]

    def close(self) -> None:
        self._tree.close()

    def probe(self) -> None:
        try:
            self._tree.probe()
        except OSError as error:
            raise _translated(error, self._tree.root) from error

    def begin(self) -> None:
        self._applied_before = self.applied

    def commit(self) -> None:
        try:
            for key, entry in self._changed.items():
                self._commit_one(key, entry)
        except OSError as error:
            self._failed = True
            raise _translated(error, self._tree.root) from error
        self._applied_before = self.applied
        self._book.commit()
        self._end()

    def rollback(self) -> None:
        if self._failed:
            raise StoreError(f"{self._tree.root}: a commit has failed half-way; the store must be opened anew")
        for name, value in self._facts_before.items():
            self._set_fact(name, value)
        for name in self._new_queues:
            self._queues.remove(name)
        self._book.rollback()
        self.applied = self._applied_before
        touched = list(self._changed)
        self._end()
        for key in touched:  # what was dropped from the index as no longer fitting, fits again
            entry = self.get(key)
            if entry:
                self._index.add(entry)
        self._end()

    def _end(self) -> None:
        for kept in (self._changed, self._seen, self._bodies, self._inside, self._histories, self._facts_before):
            kept.clear()
        self._read = ("", b"")
        self._new_queues.clear()

    def checkpoint(self) -> int:
        if self.applied == self._durable:
            return self._durable
        queues = [self._book.records[name] for name in self._queues]
        try:
            self._tree.sync()
            self._checkpoints.write(Checkpoint(self.applied, self._facts, queues))
            self._durable = self.applied
            for directory, place in self._done:
                self._tree.remove(directory, place)
            self._done.clear()
            self._tree.tidy()
        except OSError as error:
            raise _translated(error, self._tree.root) from error
        return self._durable

    # --- folding the journal after opening --------------------------------------------------------------------

    def reflects(self, event: Event) -> bool:
        if self._scan is None or event["id"] > self._scan.newest or "key" not in event:
            return False
        key = event["key"]
        if event["id"] <= self._scan.version_of(key, self._index):
            if key in self._index.places:
                self._heal(key, event)
            return True
        return False

    def _heal(self, key: str, event: Event) -> None:
        """A file whose name survived a power cut, but not all of what was written into it, gets that from the events.
        It is written when all of them were seen."""
        found = self._scan
        assert found is not None
        if event["type"] == EventType.PUBLISHED:
            envelope = raw_json(event["message"])
            if fs_content.envelope_of(self._content(key), key) != envelope:
                log.warning("%s: its file is damaged; it is written anew from the journal", key)
                found.bodies[key] = envelope
                found.healed[key] = self._entry(key)
        elif key in found.lacking and event["id"] > found.lacking[key]:
            entry = found.healed[key] = self._entry(key)
            if entry.state is State.INFLIGHT and event["type"] == EventType.LEASED:
                entry.lease_id, entry.consumer_id = event["lease"], event["consumer"]
            if "failure" in event:
                found.histories[key] = with_failure(self._history(key) or [], event)

    def caught_up(self, clean: bool) -> list[str]:
        found = self._scan
        if found is None:
            return []
        self.applied = self._applied_before = max(self.applied, found.newest)
        for name in sorted(found.counts.keys() - self._book.records.keys()):
            log.error("queue %r has messages and no record: it gets a new one", name)
            self._know(QueueRecord(name))
        for entry in list(found.healed.values()):
            self._note(entry)
        self.commit()
        self._scan = None
        try:
            moved = [self._entry(key) for key in found.misplaced if not self._settle_misplaced(key, clean)]
            return [entry.key for entry in sorted(moved, key=lambda entry: (entry.dead_at, entry.seq))]
        except OSError as error:
            raise _translated(error, self._tree.root) from error
        finally:
            self._end()

    def _settle_misplaced(self, key: str, clean: bool) -> bool:
        """A file lies in another folder than its name says. It is put back, unless that is to become true."""
        place = self._index.places.get(key, "")
        name = place.rpartition("/")[2]
        letter = self._tree.letter_of(place)
        if not place or name[0] == letter:
            return True  # what was folded has brought it where it belongs
        if clean and letter == READY and name[0] == LETTERS[State.DEAD]:
            return False
        directory = self._directory_of(key)
        log.error("%s/%s does not belong there, and is put back", directory, place)
        self._index.places[key] = self._tree.rename(directory, place, name[0], name)
        return True

    # --- messages ---------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        known = self._seen.get(key)
        if known is not None or key in self._changed:
            return known
        if key not in self._index.places:
            return None
        return self._entry(key)

    def _entry(self, key: str) -> Entry:
        """The entry of a message that has a file."""
        known = self._seen.get(key)
        if known is None:
            name = read_name(self._index.places[key].rpartition("/")[2])
            assert name is not None  # it was read at the start, or written by us
            if name.inside:
                line, found = fs_content.facts_of(self._content(key), name.inside)
                if line != name.inside:  # an older line: the lease in it is not the one that the name tells of
                    found = {fact: text for fact, text in found.items() if fact in ("history", "phase", "target")}
                self._inside[key] = (line, found)
            facts = self._inside.get(key, (0, {}))[1]
            healed = self._scan.healed.get(key) if self._scan else None
            known = self._seen[key] = healed or read_entry(name, key, self._queue_of(key), facts)
        return known

    def envelope(self, key: str) -> bytes:
        new = self._bodies.get(key) or (self._scan and self._scan.bodies.get(key))
        if new:
            return new
        if self._changed.get(key, ...) is None or key not in self._index.places:
            raise StoreError(f"no body for {key}")
        envelope = fs_content.envelope_of(self._content(key), key)
        if envelope is None:
            path = self._tree.path(self._directory_of(key), self._index.places[key])
            raise BodyLost(key, f"{path} is missing, damaged or another message's")
        return envelope

    def check_body(self, key: str) -> None:
        self.envelope(key)

    def _content(self, key: str) -> bytes:
        """What a message's file holds; nothing when it cannot be read."""
        if self._read[0] != key:
            directory, place = self._directory_of(key), self._index.places[key]
            try:
                self._read = (key, self._tree.read(directory, place))
            except OSError as error:
                if error.errno not in LOST_ERRNOS:
                    raise _translated(error, self._tree.root) from error
                log.error("%s: %s", self._tree.path(directory, place), error.strerror)
                self._read = (key, b"")
        return self._read[1]

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._book.move(entry.queue, None, entry.state)
        if id_of(entry.key, entry.queue)[0] == "+":
            self._strays[entry.key] = entry.queue
        self._bodies[entry.key] = envelope
        self._note(entry)

    def update(self, entry: Entry, before: State) -> None:
        self._book.move(entry.queue, before, entry.state)
        self._take(entry, before)
        self._note(entry)

    def delete(self, entry: Entry, before: State) -> None:
        self._book.move(entry.queue, before, None)
        self._take(entry, before)
        self._changed[entry.key] = None
        self._seen.pop(entry.key, None)
        self._bodies.pop(entry.key, None)

    def _note(self, entry: Entry) -> None:
        if self._scan and self._scan.healed.pop(entry.key, None):
            try:
                self._bodies[entry.key] = self.envelope(entry.key)  # what is torn is written anew, not added to
            except BodyLost as error:
                log.error("%s", error)
            self._scan.bodies.pop(entry.key, None)
            if entry.key in self._scan.histories:
                self._histories.setdefault(entry.key, self._scan.histories.pop(entry.key))
        self._changed[entry.key] = self._seen[entry.key] = entry
        self._index.add(entry)

    def _take(self, entry: Entry, before: State) -> None:
        if before is State.READY:
            self._index.lane(entry.queue, entry.target).take(entry.priority, entry.key)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        return self._index.next_ready(queue, consumer, self.get)

    def promote(self, now: int, limit: int) -> list[str]:
        queues: list[str] = []
        while len(queues) < limit and (entry := self._index.pop_due(now, self.get)):
            entry.state = State.READY
            self.update(entry, State.DELAYED)
            queues.append(entry.queue)
        return queues

    def expired(self, now: int, limit: int) -> list[Entry]:
        return self._index.expired(now, limit, self.get)

    def next_due(self) -> int | None:
        return self._index.next_due()

    def dead(self, queue: str, after: tuple[int, int], limit: int) -> list[Entry]:
        return self._index.dead(queue, after, limit, self.get)

    def entries(self, after: str, limit: int) -> list[Entry]:
        if not after:
            self._listed = sorted(self._index.places)
        found: list[Entry] = []
        at = bisect_right(self._listed, after)
        while at < len(self._listed) and len(found) < limit:
            entry = self.get(self._listed[at])
            if entry:
                found.append(entry)
            at += 1
        return found

    def oldest_ready(self, queue: str) -> Entry | None:
        return self._index.oldest_ready(queue, self.get)

    # --- files of a commit ------------------------------------------------------------------------------------

    def _commit_one(self, key: str, entry: Entry | None) -> None:
        place = self._index.places.get(key)
        if entry is None:
            if place is not None:
                self._remove(key, place)
            return
        directory, letter = self._directory(entry.queue), LETTERS[entry.state]
        old = read_name(place.rpartition("/")[2]) if place else None
        version = max(self.applied, old.version if old else entry.seq)
        line, facts_before = self._inside.get(key, (0, {}))
        history = self._history(key)
        name, facts = write_name(entry, version, line, history)
        if facts and facts != facts_before:
            line = version
            name, facts = write_name(entry, version, line, history)
            added = fs_content.fact_line(line, facts)
        else:
            added = b""
        if key in self._bodies or (added and facts_before and self._is_worn(key)):
            data = fs_content.first_line(entry, self.envelope(key))
            if facts:
                data += fs_content.fact_line(line, facts)
            if place is None:
                place = self._tree.create(directory, letter, name, data)
            else:
                place = self._tree.replace(directory, place, letter, name, data)
        else:
            assert place is not None
            if added:
                self._tree.append(directory, place, added)
            place = self._tree.rename(directory, place, letter, name)
        self._index.places[key] = place

    def _is_worn(self, key: str) -> bool:
        """Whether a file has so many lines of facts that it is better written anew; not without its message."""
        content = self._content(key)
        head = content.find(b"\n") + 1
        return len(content) - head > fs_content.FACT_BYTES_LIMIT and bool(fs_content.envelope_of(content, key))

    def _remove(self, key: str, place: str) -> None:
        """The end of a message. One that the last checkpoint does not know can go: the journal tells its whole life
        again. Any other must be seen to be done, until a checkpoint has its end."""
        name = read_name(place.rpartition("/")[2])
        assert name is not None
        directory = self._directory_of(key)
        if name.seq > self._durable:
            self._tree.remove(directory, place)
        else:
            done = done_name(name, max(self.applied, name.version))
            self._done.append((directory, self._tree.rename(directory, place, DONE, done)))
        del self._index.places[key]
        self._strays.pop(key, None)

    # --- queues and single facts ------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        return self._book.records.get(name)

    def touch_queue(self, name: str) -> QueueRecord:
        return self._book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        self._know(record)
        self._new_queues.append(record.name)

    def queue_names(self, after: str, limit: int) -> list[str]:
        at = bisect_right(self._queues, after)
        return self._queues[at : at + limit]

    def fact(self, name: str) -> Any:
        if name.startswith(HISTORY):
            return deepcopy(self._history(name.removeprefix(HISTORY)))
        return deepcopy(self._facts.get(name))

    def put_fact(self, name: str, value: Any) -> None:
        if name.startswith(HISTORY):  # it belongs into the message's file, so that both change at once
            key = name.removeprefix(HISTORY)
            self._histories[key] = deepcopy(value)
            entry = self.get(key)
            if entry:
                self._note(entry)
            return
        self._facts_before.setdefault(name, self._facts.get(name))
        self._set_fact(name, deepcopy(value))

    def _set_fact(self, name: str, value: Any) -> None:
        if value is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = value

    def _history(self, key: str) -> list[Any] | None:
        if key in self._histories:
            return self._histories[key]
        if self._scan and key in self._scan.histories:
            return self._scan.histories[key]
        if self.get(key) is None:
            return None
        history: list[Any] | None = self._inside.get(key, (0, {}))[1].get("history")
        return history

    def _directory(self, queue: str) -> str:
        directory = self._directories.get(queue)
        if directory is None:
            directory = self._directories[queue] = queue_directory(queue, self._meta)
        return directory

    def _queue_of(self, key: str) -> str:
        return self._strays.get(key) or key.partition(":")[2].rpartition(":")[0]

    def _directory_of(self, key: str) -> str:
        return self._directory(self._queue_of(key))


def _translated(error: OSError, root: Path) -> StoreError:
    return (StoreFull if error.errno in FULL_ERRNOS else StoreError)(f"{root}: {error}")
