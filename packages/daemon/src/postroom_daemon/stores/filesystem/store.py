"""The filesystem store: a file for each message, whose folder shows its state and whose name sorts in delivery order.

A group only changes memory. Files are written for many groups at once: each second, or when enough has changed. Nothing
is synced then. Each file's name records its last event, and all of a name changes at once; queues and key-values are
stored as of the last checkpoint. So after a crash of any kind the journal is folded from that checkpoint on, and
messages that are already further are skipped: see ``Recovery.already_applied``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final

from postroom_common.protocol import State

from ...model.observer import Participant
from ...model.records import Entry, QueueRecord
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..base import BodyFiles, Several, Store
from ..book import QueueBook
from ..errors import BodyLost, BodyUnread, StoreError, StoreErrors, store_error
from ..recovery import DAMAGED_CHECKPOINT
from .bodies import FilesystemBodies
from .changes import Changes
from .checkpoint import Checkpoint, Checkpoints, FilesystemDisk
from .facts import FilesystemFacts
from .files import MessageFiles
from .index import Index
from .names import READY, stored_by
from .pages import FilesystemDue, FilesystemPages
from .recovery import Cleanup, FilesystemAudit, FilesystemRecovery, Replay, claims_by_message
from .scan import Scan
from .sorted_keys import SortedNames
from .tree import Tree

log = logging.getLogger(__name__)

#: Groups, messages and bytes of bodies whose changes wait at most to be written.
GROUPS_LIMIT: Final = 256
_MESSAGES_LIMIT: Final = 4000
_BYTES_LIMIT: Final = 2 * 1024 * 1024
#: Entries that are cached as their files show them.
_ENTRIES_LIMIT: Final = 4096


class FilesystemStore(Store):
    """``folders`` names the folder of each of ``names``' letters, ``meta`` the directory of the checkpoints.

    What groups have changed is in memory until ``flush`` brings each message's file to its entry.
    """

    name: ClassVar[str] = "filesystem"

    def __init__(
        self, root: Path, files: Files, quarantine: Quarantine, folders: Mapping[str, str], meta: str = "meta"
    ) -> None:
        self.tree = Tree(files, root, folders)
        self._cleanup = Cleanup(self.tree, quarantine, meta)
        self._quarantine = quarantine
        self._meta = meta
        self._checkpoints = Checkpoints(files, root / meta)
        self._index = index = Index(folders[READY], self.get)
        self._names_of_queues = SortedNames()
        self.due = FilesystemDue(index, self.update)
        self.pages = FilesystemPages(index, self._peek, self._stored_by, self.flush, self.queue, self._names_of_queues)
        self.several, self.body_files = Several(self), BodyFiles()
        self.commits = 0
        self.disk = self._disk = FilesystemDisk(self, self._checkpoints)
        self.recovery = self._recovery = FilesystemRecovery(self, self.tree, index, self._cleanup, self.flush)
        self.audit = FilesystemAudit(self, self._recovery, self.tree, self.path_of)
        self._reset()

    def _reset(self) -> None:
        self._index.clear()
        self.message_files = MessageFiles(self.tree, self._index.places, self._quarantine, self._meta)
        self._names_of_queues.clear()
        self._book = QueueBook(self._names_of_queues.track)
        self.applied = self._applied_before = self.commits = 0
        self._group = Changes()  # of the open group
        self._earlier = Changes()  # of groups before it
        self._groups = 0  # whose changes are not written yet
        self._entries: dict[str, Entry] = {}  # as the files show them, oldest first
        self._order_keys: set[tuple[str, str]] = set()  # queues and ordering keys that the open group has changed
        self._deleted: set[str] = set()  # queues whose directories are to go
        layers, files, recovery = (self._group, self._earlier), self.message_files, self._recovery
        self.facts = self._facts = FilesystemFacts(layers, files, recovery, self.get, self._note, self._rewrite)
        self.bodies = self._bodies = FilesystemBodies(layers, files, recovery, self.get, self.facts, self.tree.root)
        self._participants: list[Participant] = [self._book, self._facts.others]

    def errors(self) -> AbstractContextManager[None]:
        """Errors of the operating system become those of the contract."""
        return StoreErrors(self.tree.root)

    # --- life -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._reset()
        try:
            with self.errors():
                self.tree.open()
                checkpoint = self._read_checkpoint()
                found = self._cleanup.run(self._index, checkpoint.applied, checkpoint.messages())
        except StoreError:
            self.tree.close()
            raise
        self._start_from(checkpoint, found)

    def _read_checkpoint(self) -> Checkpoint:
        checkpoint, damaged = self._checkpoints.read()
        for path in damaged:
            log.error("%s is damaged; the journal is folded from an earlier one", path)
            self._quarantine.move_in(path, DAMAGED_CHECKPOINT)
        return checkpoint

    def _start_from(self, checkpoint: Checkpoint, found: Scan) -> None:
        files = self.message_files
        self.applied = self._applied_before = files.durable = checkpoint.applied
        self._disk.start_from(checkpoint.applied)
        replay = Replay(found, checkpoint.messages(), files, self._index.places, self._quarantine)
        replay.claims = claims_by_message(checkpoint.facts)
        self._recovery.begin(replay)
        files.directories |= found.directories
        files.queues_by_key |= found.queues
        files.done = [(done.directory, done.place) for done in found.done.values()]
        self._deleted.update(found.directories)  # of queues that no longer exist
        self._facts.load(checkpoint.facts)
        for record in checkpoint.queues:
            self.add_queue(record)
        self._book.commit()
        with self.errors():
            self._index.complete()
        self.message_files.end()

    def close(self) -> None:
        self._disk.close()  # what no file shows yet is in the journal
        self.tree.close()

    def path_of(self, key: str) -> Path:
        """The file of a message that exists."""
        self.flush()
        return Path(self.message_files.path(key))

    # --- transactions ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._applied_before = self.applied

    def commit(self) -> None:
        self._applied_before = self.applied
        self.commits += 1
        for one in self._participants:
            one.commit()
        self.logs.commit()
        self._order_keys.clear()
        self._bodies.forget_all()
        if self._group.entries:
            self._groups += 1
            self._earlier.absorb(self._group)
            earlier = self._earlier
            if self._groups >= GROUPS_LIMIT or len(earlier.entries) > _MESSAGES_LIMIT or earlier.bytes > _BYTES_LIMIT:
                self.flush()
        self.message_files.end()

    def flush(self) -> None:
        """Bring the file of each message that committed groups have changed to its entry. After an error, what is not
        written yet stays in memory, and can be written by the next call."""
        earlier, files, entries = self._earlier, self.message_files, self._entries
        with self.errors():
            for key, one in list(earlier.entries.items()):
                if one is None:
                    entries.pop(key, None)
                    files.finish(key, self._applied_before)
                else:
                    files.write(*one, self._earlier_history(key), earlier.bodies.get(key), earlier.parts.get(key, {}))
                    self._remember(key, one[0])
                earlier.forget(key)
        self._groups = 0
        files.end()

    def _earlier_history(self, key: str) -> list[Any] | None:
        histories = self._earlier.histories
        return histories[key] if key in histories else self.message_files.history(key)

    def _remember(self, key: str, entry: Entry) -> None:
        entries = self._entries
        if len(entries) >= _ENTRIES_LIMIT and key not in entries:
            del entries[next(iter(entries))]
        entries[key] = entry

    def rollback(self) -> None:
        for one in self._participants:
            one.rollback()
        self.logs.rollback()
        self.applied = self.folding = self._applied_before
        touched, order_keys = list(self._group.entries), list(self._order_keys)
        self._group.clear()
        self._order_keys.clear()
        self._bodies.forget_all()
        for key in touched:  # what was dropped from the index as no longer fitting, fits again
            entry = self.get(key)
            if entry:
                self._index.add(entry)
        for queue, order_key in order_keys:
            self._index.turns.update(queue, order_key)
        self.message_files.end()

    def space_needed(self) -> int:
        """See ``Disk.space_needed``."""
        return self._group.space() - self._group.bytes + self._earlier.space(later=self._group)

    def snapshot(self) -> Checkpoint:
        """What a checkpoint contains besides the message files, for another thread to write."""
        queues = [self._book.values[name].copy() for name in self._names_of_queues]
        return Checkpoint(self.applied, self._facts.others.values.copy(), queues)

    # --- messages -------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        for changes in (self._group.entries, self._earlier.entries):
            if key in changes:
                one = changes[key]
                return one[0] if one else None
        entry = self._entries.get(key)
        if entry is None and not self._recovery.replay:
            for neighbour in self.message_files.neighbours(key):
                self._remember(neighbour.key, neighbour)
            entry = self._entries.get(key)
        if entry is None and key in self._index.places:
            entry = self._read(key)
            if not self._recovery.replay:  # which puts back what a file has lost
                self._remember(key, entry)
        return entry

    def _peek(self, key: str) -> Entry | None:
        """As ``get``, without caching: there may be very many."""
        for changes in (self._group.entries, self._earlier.entries):
            if key in changes:
                return self.get(key)
        entry = self._entries.get(key)
        if entry is None and key in self._index.places:
            entry = self._read(key)
        return entry

    def _stored_by(self, key: str) -> tuple[str, int, int] | None:
        """Who has published a message, its seq and its size, without reading its entry if the name of its file says
        so."""
        if not (key in self._group.entries or key in self._earlier.entries):
            place = self._index.places.get(key)
            message = stored_by(place) if place else None
            if message:
                return message
        entry = self._peek(key)
        return (entry.publisher_uid, entry.seq, entry.size) if entry else None

    def _read(self, key: str) -> Entry:
        replay = self._recovery.replay
        try:
            return replay.entry(key) if replay else self.message_files.entry(key)
        except OSError as error:
            raise store_error(error, self.tree.root) from error

    def insert(self, entry: Entry, envelope: bytes) -> None:
        self._book.count(entry.queue, None, entry.state, entry.size)
        key, group = entry.key, self._group
        if self._earlier.entries.get(key, ...) is None:
            self.flush()  # the file of the message that had this key
        if key not in group.entries and not (self._recovery.replay and key in self._index.places):
            group.new.add(key)
        group.add_body(key, envelope)
        self._note(entry)

    def update(self, entry: Entry, before: State, source: str | None = None) -> None:
        self._book.count_change(entry, before, source)
        if before is State.READY:
            self._index.take(entry, entry.queue if source is None else source)
        self._note(entry)
        if source is not None:
            self._update_turns(source, entry.order_key)

    def replace(self, entry: Entry, envelope: bytes) -> None:
        self._group.add_body(entry.key, envelope)
        if self._recovery.replay:
            self._recovery.replay.bodies.pop(entry.key, None)
        self.update(entry, entry.state)

    def delete(self, entry: Entry, before: State) -> None:
        self._book.count(entry.queue, before, None, entry.size)
        if before is State.READY:
            self._index.take(entry, entry.queue)
        self._group.remove(entry.key)
        self._bodies.forget(entry.key)
        if self._recovery.replay:
            self._recovery.replay.healed.pop(entry.key, None)
        self._update_turns(entry.queue, entry.order_key)

    def _note(self, entry: Entry) -> None:
        """A message is new, or has changed."""
        if self._recovery.replay:
            self._note_healed(entry, self._recovery.replay)
        self._group.put(entry, self.folding)
        if entry.order_key:
            self._order_keys.add((entry.queue, entry.order_key))
        self._index.add(entry)

    def _note_healed(self, entry: Entry, replay: Replay) -> None:
        """What was put back of a message's file is written together with its change."""
        if not replay.healed.pop(entry.key, None):
            return
        try:
            self._group.add_body(entry.key, self.bodies.envelope(entry.key))  # what is torn is rewritten, not added to
        except (BodyLost, BodyUnread) as error:
            log.error("%s", error)
        replay.bodies.pop(entry.key, None)
        if entry.key in replay.histories:
            self._group.histories.setdefault(entry.key, replay.histories.pop(entry.key))
        for number, part in replay.parts.pop(entry.key, {}).items():
            if number not in self._group.parts.get(entry.key, {}):
                self._group.add_part(entry.key, number, part)

    def _rewrite(self, entry: Entry) -> None:
        """Write the file of a message anew, without the parts that it has lost."""
        try:
            self._group.add_body(entry.key, self.bodies.envelope(entry.key))
        except (BodyLost, BodyUnread) as error:
            log.error("%s", error)
        self._note(entry)

    def _update_turns(self, queue: str, order_key: str) -> None:
        """A message with an ordering key has left a queue."""
        if order_key:
            self._order_keys.add((queue, order_key))
            self._index.turns.update(queue, order_key)

    def next_ready(self, queue: str, consumer: str) -> Entry | None:
        return self._index.next_ready(queue, consumer)

    # --- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord | None:
        return self._book.values.get(name)

    def queue_for_update(self, name: str) -> QueueRecord:
        return self._book.touch(name)

    def add_queue(self, record: QueueRecord) -> None:
        if self._recovery.replay:  # its counters are as the files are
            numbers = self._recovery.replay.found.numbers.get(record.name) or QueueRecord(record.name)
            record.counts, record.bytes, record.reasons = numbers.counts.copy(), numbers.bytes, numbers.reasons.copy()
        self._book.set(record.name, record)

    def delete_queue(self, name: str) -> None:
        record = self._book.remove(name)
        if record is None:
            return
        if self._recovery.replay:  # what is counted is of a later queue of this name, and of files that are further
            self._recovery.replay.found.numbers[name] = record.copy()
        self._deleted.add(name)

    def remove_deleted_queues(self) -> None:
        """Remove the directories of queues that were deleted, once their last messages' files are gone."""
        files = self.message_files
        if self._deleted:
            self.flush()
        gone = {files.directory(queue) for queue in self._deleted if queue not in self._book.values}
        gone -= {directory for directory, _ in files.done}
        for queue in list(self._deleted):
            directory = files.directory(queue)
            if directory in gone:
                self.tree.remove_directory(directory)
                files.directories.pop(queue, None)
            if directory in gone or queue in self._book.values:
                self._deleted.discard(queue)
