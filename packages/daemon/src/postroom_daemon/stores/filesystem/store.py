"""The filesystem store: a file for each message, whose folder shows its state and whose name sorts in delivery order.

Nothing is synced at a commit. Each file's name says up to which event it has come, and all of a name changes at once;
queues and single facts are kept as of the last checkpoint. So after a crash of any kind the journal is folded from that
checkpoint on, and passes over the messages that are already further: see ``reflects``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from postroom_common.events import Event
from postroom_common.protocol import State

from ...model.records import QueueRecord
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ..base import DAMAGED_CHECKPOINT, Audit, FileFinding, FileProblem, StoreError
from .checkpoint import Checkpoint, Checkpoints, CheckpointTask
from .facts import Facts
from .files import MessageFiles
from .found import Scan
from .hands import Hands
from .index import Index
from .names import LETTERS, READY
from .replay import Replay, claims_by_message
from .transactions import Transactions

log = logging.getLogger(__name__)


class FilesystemStore(Transactions):
    """``folders`` names the folder of each of ``fs_names``' letters, ``meta`` the directory of the checkpoints."""

    name: ClassVar[str] = "filesystem"

    def __init__(
        self, root: Path, files: Files, quarantine: Quarantine, folders: Mapping[str, str], meta: str = "meta"
    ) -> None:
        super().__init__(root, files, quarantine, folders, meta)
        self._checkpoints = Checkpoints(files, root / meta)
        self.audit = FilesystemAudit(self)

    def _reset(self) -> None:
        super()._reset()
        self._durable = 0  # the event of the last checkpoint
        self._task: CheckpointTask | None = None

    # --- life ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._reset()
        try:
            with self._translated():
                self._tree.open()
                checkpoint = self._read_checkpoint()
                hands = Hands(self._tree, self._quarantine, self._meta)
                self._index, found = hands.settle(
                    lambda: Index(self._ready_folder), checkpoint.applied, checkpoint.messages()
                )
        except StoreError:
            self._tree.close()
            raise
        self._start_from(checkpoint, found)

    def _read_checkpoint(self) -> Checkpoint:
        checkpoint, damaged = self._checkpoints.read()
        for path in damaged:
            log.error("%s is damaged; the journal is folded from an earlier one", path)
            self._quarantine.keep_file(path, DAMAGED_CHECKPOINT)
        return checkpoint

    def _start_from(self, checkpoint: Checkpoint, found: Scan) -> None:
        self._files = files = MessageFiles(self._tree, self._index, self._quarantine, self._meta)
        self.applied = self._applied_before = self._durable = files.durable = checkpoint.applied
        self._facts = Facts(checkpoint.facts)
        self._replay = Replay(found, files, self._index, self._quarantine)
        self.replaying = True
        self._replay.claims = claims_by_message(checkpoint.facts)
        files.directories |= found.directories
        files.strays |= found.queues
        files.done = [(done.directory, done.place) for done in found.done.values()]
        for record in checkpoint.queues:
            self._know(record)
        self._book.commit()

    def files(self) -> list[Path]:
        return [self._tree.root]

    @property
    def root(self) -> Path:
        """The directory of the store."""
        return self._tree.root

    @property
    def found(self) -> Scan | None:
        """What the look at all files found; None once the journal's end is folded."""
        return self._replay.found if self._replay else None

    def path_of(self, key: str) -> Path:
        """The file of a message that exists."""
        return Path(self._files.path(key))

    def letter_of(self, place: str) -> str | None:
        """The letter of the folder that a place lies in."""
        return self._tree.letter_of(place)

    def close(self) -> None:
        if self._task:
            self._task.wait()
            self._task = None
        self._tree.close()

    def probe(self) -> None:
        with self._translated():
            self._tree.probe()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint(self) -> int:
        while self._durable < self.applied:
            self._begin_checkpoint().run()
            self._settle_checkpoint()
        return self._durable

    def checkpoint_step(self) -> int | None:
        if self._task is None and self._durable < self.applied:
            self._begin_checkpoint().start()
        if self._task and self._task.is_over:
            self._settle_checkpoint()
        return None if self._task else self._durable

    def _begin_checkpoint(self) -> CheckpointTask:
        if self._task:
            self._task.wait()
            return self._task
        queues = [self._book.values[name].copy() for name in self._queues]
        checkpoint = Checkpoint(self.applied, self._facts.all(), queues)
        done, self._files.done = self._files.done, []
        self._task = CheckpointTask(self._tree, self._checkpoints, checkpoint, done)
        # From here on the end of a message that this checkpoint knows must be seen.
        self._files.durable = self.applied
        return self._task

    def _settle_checkpoint(self) -> None:
        task, self._task = self._task, None
        assert task is not None
        self._files.done += task.left
        for directory, place in task.removed:
            self._tree.forget(directory, place)
        with self._translated():
            if task.error:
                raise task.error
            self._durable = task.applied
            self._tree.tidy()
            self._remove_deleted()

    def _remove_deleted(self) -> None:
        """Remove the directories of queues that are no more, once their last messages' files are gone."""
        left = {self._files.directory(queue) for queue in self._deleted if queue not in self._book.values}
        left -= {directory for directory, _ in self._files.done}
        for queue in list(self._deleted):
            directory = self._files.directory(queue)
            if directory in left:
                self._tree.remove_directory(directory)
                self._files.directories.pop(queue, None)
            if directory in left or queue in self._book.values:
                self._deleted.discard(queue)

    # --- folding the journal after opening -----------------------------------------------------------------------

    def already_applied(self, event: Event) -> bool:
        if self._replay is None:
            return False
        with self._translated():
            reflected = self._replay.already_applied(event)
        if reflected and event.get("to", event["queue"]) != event["queue"]:
            self._has_moved(event, self._replay)
        return reflected

    def _has_moved(self, event: Event, replay: Replay) -> None:
        """What else follows from a move that a message's file shows already; see ``fold_messages``."""
        if self.queue(event["to"]) is None:
            self.add_queue(QueueRecord(event["to"], created_wall=event["wallMs"]))
        self.queue_for_update(event["to"]).used = event["engineMs"]
        name = replay.claims.pop(event["key"], "")
        if name and (self.get_kv(name) or {}).get("key") == event["key"]:
            self.put_kv(name, None)

    def finish_replay(self, clean: bool) -> list[str]:
        replay = self._replay
        if replay is None:
            return []
        found = replay.found
        self.applied = self._applied_before = max(self.applied, found.newest)
        for name in sorted(filter(found.count_of, found.numbers.keys() - self._book.values.keys())):
            log.error("queue %r has messages and no record: it gets a new one", name)
            self._know(QueueRecord(name))
        for entry in list(replay.healed.values()):
            self._note(entry)
        if any(finding.kind == "second" for finding in found.findings):  # hints may have been those of the other file
            self._index.lines.see_all(self.get)
        self.commit()
        self._deleted.update(found.directories.keys() - self._book.values.keys())
        self._replay, self.replaying = None, False
        hands = Hands(self._tree, self._quarantine, self._meta)
        with self._translated():
            moved = [key for key in found.misplaced if not hands.put_back(key, self._index, self._files, clean)]
            entries = sorted((self._files.entry(key) for key in moved), key=lambda entry: (entry.dead_at, entry.seq))
        self._end()
        return [entry.key for entry in entries]


class FilesystemAudit(Audit):
    """What stands in the files of a filesystem store, between ``open`` and ``Recovery.finish_replay``."""

    def __init__(self, store: FilesystemStore) -> None:
        self._store: FilesystemStore = store

    def newest_event(self) -> int:
        found = self._store.found
        return max(self._store.applied, found.newest) if found else self._store.applied

    def file_of(self, key: str) -> Path | None:
        return self._store.path_of(key)

    def file_findings(self, last: int, clean: bool) -> Iterator[FileFinding]:
        found = self._store.found
        for path in self.foreign_files():
            yield FileFinding(FileProblem.FOREIGN, str(path), "no message's file")
        for finding in found.findings if found else []:
            if finding.kind != "misplaced":
                continue
            place = str(self._store.root / finding.path)
            if clean and not finding.queue and self._is_dead_among_ready(finding.place):
                yield FileFinding(FileProblem.MOVED_BY_HAND, place, f"{finding.key} is a dead letter")
            else:
                text = f"{finding.key} belongs into another directory, as its name says"
                yield FileFinding(FileProblem.MISPLACED, place, text)

    def _is_dead_among_ready(self, place: str) -> bool:
        return (place.rpartition("/")[2][0], self._store.letter_of(place)) == (LETTERS[State.DEAD], READY)

    def foreign_files(self) -> list[Path]:
        found = self._store.found
        return [self._store.root / one.path for one in found.findings if one.kind == "stranger"] if found else []
