"""Prepare the new root beside the old one: its store, rolled forward, and the segments of its journal."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...broker.group import Group
from ...config.settings import Settings
from ...engine.fold import apply, apply_without_message
from ...journal.ranges import content, segments_until
from ...journal.segments import read_requests, segment_name
from ...model.facts import FACT_CLOCK, FACT_EPOCH
from ...model.lifecycle import IllegalTransition, removes
from ...model.records import BodyReference, Entry
from ...observe.state import load
from ...observe.state.following import Body
from ...platform.clock import Mark, Now
from ...platform.files import CREATE_FLAGS, Files
from ...platform.quarantine import Quarantine
from ...root.open_root import Sources
from ...stores.backends import beside, folds_journal_of, make_store, places_with_logs
from ...stores.base import Store
from ...stores.errors import NotStored
from ..backup import Backup
from ..backup.format import JOURNAL_NAME
from .target import RestoreError, Target

log = logging.getLogger(__name__)

#: Requests that are folded in one transaction.
_BATCH: Final = 1000


@dataclass(slots=True)
class RollForward:
    """Folds the events behind a backup into its store. ``body`` reads the bodies to which events refer; ``lost`` are
    the messages that are left out, since their bodies are lost."""

    store: Store
    body: Body
    lost: dict[str, None] = field(default_factory=dict)

    def fold(self, journal: Path, last_id: int) -> None:
        """Fold the events up to ``last_id``, which must all exist. Raises ``OSError``, ``StoreError``."""
        requests = read_requests(journal, self.store.applied + 1, lambda damage: None)
        self.store.begin()
        for number, request in enumerate(requests, 1):
            for event in request.events:
                self._fold(event)
            if self.store.applied >= last_id:
                break
            if number % _BATCH == 0:
                self._commit()
                self.store.begin()
        self._commit()

    def _commit(self) -> None:
        self.store.body_files.sync()
        self.store.commit()

    def _fold(self, event: Event) -> None:
        try:
            apply(self._with_body(event) if event["type"] == EventType.PUBLISHED else event, self.store)
        except (NotStored, IllegalTransition) as error:
            # Its message is left out; or the daemon could not fold it either.
            log.info("event %d is not folded: %s", event["id"], error)
            if event.get("key") in self.lost:
                apply_without_message(event, self.store)
            else:
                self.store.applied = event["id"]
        if removes(event):
            self.lost.pop(event["key"], None)

    def _with_body(self, event: Event) -> Event:
        """The event as a daemon with this store would have written it. Raises ``NotStored`` if the body is lost."""
        number, queue, key = event["id"], event["queue"], event["key"]
        if "message" in event:
            body: bytes | None = raw_json(event["message"])
        else:
            place = Entry(key=key, queue=queue, state=State.READY, priority=0, seq=number, created_wall=0, created=0)
            body = self.body(place, BodyReference.from_json(event["body"]))
        if body is None:
            self.lost[key] = None
            raise NotStored(f"the body of {key} is lost")
        reference = self.store.body_files.keep(number, queue, key, body)
        rest = {name: value for name, value in event.items() if name not in ("message", "body")}
        return rest | ({"body": reference.to_json()} if reference else {"message": orjson.Fragment(body)})


#: The suffix of prepared files.
SUFFIX: Final = ".restoring"
#: Names of queues that are read at once.
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """What a root is restored from: a backup, and the journal that continues it, up to ``target``.

    ``body`` reads the bodies that this journal only refers to. ``epoch`` is the highest that the replaced root had.
    ``as_member``: it stays the same root, and begins no epoch.
    """

    backup: Backup
    journal: Path
    body: Body
    target: Target
    epoch: int
    as_member: bool = False

    @property
    def rolls(self) -> bool:
        """Whether there are events behind the backup's."""
        return self.target.event > self.backup.manifest.event


@dataclass(frozen=True, slots=True)
class StagedRoot:
    """A prepared root: the renames that put it into place, and what it contains. ``history_from`` is the first earlier
    event in its journal; 0: none."""

    renames: list[tuple[str, str]]
    root: str
    epoch: int
    queues: int
    messages: int
    history_from: int
    lost: list[str]


def stage(source: RestoreSource, settings: Settings, quarantine: Quarantine, sources: Sources) -> StagedRoot:
    """Prepare a root by ``settings``, durably. Existing files are not touched.

    Raises ``OSError``, ``StateError``, ``StoreError``.
    """
    files, beside_it = sources.files, beside(settings, SUFFIX)
    for parent in dict.fromkeys(path.parent for path in places_with_logs(beside_it)):
        if not parent.is_dir():
            files.close(files.open_directory(parent))
    store = make_store(beside_it, files, quarantine)
    store.open()
    try:
        store.logs.open()
        roll = RollForward(store, source.body)
        with source.backup.state() as state:
            roll.lost.update(dict.fromkeys(load(state, store)))
        if source.rolls:
            roll.fold(source.journal, source.target.event)
        if source.as_member:
            known = store.facts.get(FACT_EPOCH)
            root, epoch, first_group = known["root"], known["epoch"], b""
        else:
            root, epoch, first_group = _begin_epoch(store, source, sources)
        store.disk.checkpoint()
        queues, messages = _count(store)
    finally:
        store.logs.close()
        store.close()
    history = _history(source, settings.backend)
    if source.as_member and not history:
        raise RestoreError("this backup has no journal that a node can go on from: make one with postroomd backup")
    names = _write_journal(settings.journal_root, history, source.target.event, first_group, files)
    renames = [(str(settings.journal_root / (name + SUFFIX)), str(settings.journal_root / name)) for name in names]
    pairs = zip(places_with_logs(beside_it), places_with_logs(settings), strict=True)
    renames += [(str(prepared), str(place)) for prepared, place in pairs if prepared.exists()]
    history_from = int(history[0].name.partition(".")[0]) if history else 0
    return StagedRoot(renames, root, epoch, queues, messages, history_from, list(roll.lost))


def _begin_epoch(store: Store, source: RestoreSource, sources: Sources) -> tuple[str, int, bytes]:
    """Make the store another root with a new epoch. Returns root, epoch, and the first lines of its journal."""
    manifest, target = source.backup.manifest, source.target
    kept = store.facts.get(FACT_CLOCK)
    mark = Mark(kept["bootId"], kept["bootMs"], kept["engineMs"], kept["wallMs"])
    clock = sources.clock()
    clock.resume(mark, Now(target.engine_ms, target.wall_ms))
    now = clock.now()
    root, epoch = sources.ids.root(), max(store.facts.get(FACT_EPOCH)["epoch"], source.epoch) + 1
    behind = f", rolled forward from event {manifest.event}" if source.rolls else ""
    reason = f"restored from backup {source.backup.name} at event {target.event}{behind}"
    group = Group(store, now, epoch, store.applied)
    store.begin()
    group.record([{"type": EventType.EPOCH_STARTED, "root": root, "reason": reason}])
    group.record([clock.mark(now, root)])
    lines = group.encode()
    store.commit()
    return root, epoch, b"".join(lines)


def _count(store: Store) -> tuple[int, int]:
    """The numbers of queues and messages."""
    queues = messages = 0
    after = ""
    while names := store.pages.queue_names(after, _PAGE):
        after = names[-1]
        queues += len(names)
        messages += sum(sum(record.counts.values()) for name in names if (record := store.queue(name)))
    return queues, messages


def _history(source: RestoreSource, backend: str) -> list[Path]:
    """The segments before the new epoch, in order: the backup's, then those of the journal that continues it."""
    backup = source.backup
    if not folds_journal_of(backend, backup.manifest.backend):
        return []
    kept = segments_until(backup.journal, backup.manifest.event) if backup.journal.is_dir() else []
    kept = [path for path in kept if f"{JOURNAL_NAME}/{path.name}" in backup.manifest.files]
    if not source.rolls:
        return kept
    following = segments_until(source.journal, source.target.event)
    return [path for path in kept if path.name < following[0].name] + following


def _write_journal(journal: Path, history: list[Path], event_id: int, first_group: bytes, files: Files) -> list[str]:
    """Write the earlier segments up to an event, and the first new one, if there is any. Returns their names."""
    directory = files.open_directory(journal)
    try:
        for index, segment in enumerate(history):
            _write(directory, segment.name, content(history, index, event_id), files)
        following = [segment_name(event_id + 1)] if first_group else []
        for name in following:
            _write(directory, name, [first_group], files)
    finally:
        files.close(directory)
    return [*(segment.name for segment in history), *following]


def _write(directory: int, name: str, chunks: Iterable[bytes], files: Files) -> None:
    fd = files.open(name + SUFFIX, CREATE_FLAGS, files.shared_mode(directory), dir_fd=directory)
    try:
        for chunk in chunks:
            files.write_all(fd, chunk)
        files.fsync(fd)
    finally:
        files.close(fd)
