"""Recovery at every start: fold into the store what it lacks from the journal, which is the source of truth.

If the store is ahead, because a segment was lost, event ids continue behind the store's last event, and a ``gap`` event
says so.
"""

from __future__ import annotations

import logging
from typing import Any

from postroom_common.errors import DamagedRecord
from postroom_common.events import Event, EventType
from postroom_common.notify import Progress

from ..broker.group import Group
from ..broker.idempotency import REMEMBERED_AFTER_RESTART, Idempotency, key_of_event
from ..engine.context import Draft
from ..engine.fold import apply
from ..journal.end_mark import read_end_mark
from ..journal.journal import Journal
from ..journal.ranges import missing_before
from ..journal.segments import Damage, PlacedRequest
from ..model.facts import DAMAGE_KEYS_LIMIT, FACT_CLOCK, FACT_END_MARK, FACT_EPOCH, FACT_LOSSES, Loss, without_losses
from ..model.lifecycle import IllegalTransition, removes
from ..platform.clock import Clock, Mark, Now
from ..platform.ids import Ids
from ..platform.quarantine import Quarantine
from ..stores.base import Store
from ..stores.errors import NotStored, StoreError
from .log_recovery import begin_with_logs, differing_logs

log = logging.getLogger(__name__)

#: Requests that a replay folds in one store transaction; so many bytes of records of logs count as another one.
REPLAY_BATCH = 1000
_RECORD_BYTES = 2**14
#: Damaged bytes in memory before they are copied to quarantine.
_STRETCH_BYTES = 2**20


class Recovery:
    """One pass over the journal's end: folds what the store lacks, remembers answers, resumes the clock.

    After ``run``: ``root_id`` and ``epoch`` of the root, and ``missing``, the ranges of ids that the journal lacks. A
    member of a cluster (``is_member``) writes no events here: what it would record is in ``found``. It gets from the
    others what its journal lacks, and its root, too, if it has none. ``shown_up_to`` is the event up to which its store
    shows what its journal has lost; 0: nothing.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        quarantine: Quarantine,
        idempotency: Idempotency,
        ids: Ids,
        is_member: bool = False,
    ) -> None:
        self.found: list[Draft] = []
        self.shown_up_to = 0
        self._is_member = is_member
        self.root_id = ""
        self.epoch = 0
        self.missing: list[tuple[int, int]] = []
        self._last = Now(0, 0)
        self._store = store
        self._journal = journal
        self._quarantine = quarantine
        self._idempotency = idempotency
        self._ids = ids
        self._folded = 0
        self._had_store = store.applied > 0  # it has the last id
        self._clean = False  # the daemon stopped in order after the last event
        self._noted: list[list[int]] = []  # missing events that an operator has accepted
        self._moved: list[str] = []
        self._losses: list[Loss] = []
        self._reported: list[Event] = []  # losses that the start before has found, which the store may show again
        self._root_in_journal = ""
        self._stretch: Damage | None = None  # damage that may continue in the next line

    def run(self, clock: Clock) -> None:
        """Recover. Raises ``OSError``, ``StoreError``, and what the journal raises."""
        begin_with_logs(self._store, self._journal)
        self._replay()
        self._quarantine_stretch()
        self._resume(clock)
        self._settle(clock)

    def _replay(self) -> None:
        store, journal = self._store, self._journal
        folded = min(store.applied, store.logs.applied)
        begin = max(1, min(folded + 1, journal.last_id - REMEMBERED_AFTER_RESTART))
        expected = store.applied + 1  # retention may have removed earlier ones
        current = store.applied == journal.last_id
        progress = Progress("replaying the journal: event", journal.last_id)
        store.begin()
        batch = 0
        for request in journal.requests_from(begin, self._note_damage):
            expected = self._note(request, expected)
            progress.at(expected - 1)
            if request.events[-1]["id"] > folded:
                self._fold(request.events)
                batch += 1 + sum(len(event.get("record", "")) for event in request.events) // _RECORD_BYTES
                if batch >= REPLAY_BATCH:
                    store.commit()
                    store.begin()
                    batch = 0
        if expected <= journal.last_id:
            self._miss(expected, journal.last_id)
        store.commit()
        if self._is_member and (shown := max(store.audit.newest_event(), store.logs.newest())) > journal.last_id:
            # The replay goes on at a later start, when the journal has these events again.
            log.error(
                "the journal ends at %d, and the store shows event %d: the others have it", journal.last_id, shown
            )
            self.shown_up_to = shown
            return
        self._moved = store.recovery.finish_replay(clean=self._clean and current)
        if store.recovery.missing:
            self._losses.append(self._missing_messages(store.recovery.missing))
        self._tell_missing()
        if self._folded:
            log.info("folded %d requests from the journal, up to event %d", self._folded, store.applied)

    def _note(self, request: PlacedRequest, expected: int) -> int:
        """Note the facts of a request. Returns the id with which the next one must begin."""
        first, last = request.events[0], request.events[-1]
        missing = missing_before(first, expected)
        if missing and not missing.declared:
            self._miss(missing.first, missing.last)
        self._last = Now(last["engineMs"], last["wallMs"])
        self.epoch = last["epoch"]
        self._clean = last.get("clean", False) and not self._is_member  # else it is the leader that has stopped
        self._root_in_journal = last.get("root") or self._root_in_journal
        if first["type"] == EventType.LOSS_ACCEPTED:
            self._noted += first["ranges"]
        elif first["type"] == EventType.DAMAGE_FOUND and first["id"] > self._store.applied:
            self._reported.append(first)
        key = key_of_event(last)
        if key:
            self._idempotency.remember({key: request.place})
        return int(last["id"]) + 1

    def _miss(self, first: int, last: int) -> None:
        self.missing.append((first, last))

    def _missing_messages(self, count: int) -> Loss:
        """The loss of so many messages of the store, with the keys of those whose publishing the journal still has."""
        published, first = dict[str, int](), 0
        for request in self._journal.requests_from(1, lambda damage: None):
            first = first or request.events[0]["id"]
            for event in request.events:
                if event["type"] == EventType.PUBLISHED:
                    published[event["key"]] = event["id"]
                elif removes(event):
                    published.pop(event["key"], None)
        self._store.begin()
        keys = [key for key in published if self._store.get(key) is None]
        self._store.rollback()
        what = f"{count} messages are missing from the store" if count > 1 else "a message is missing from the store"
        if len(keys) >= count:
            return Loss(what, keys)
        what += f", {count - len(keys)} of them without an event in the journal"
        return Loss(what, keys, [(1, first - 1)] if first > 1 else [])

    def _tell_missing(self) -> None:
        """Log missing events; as an error unless an operator has accepted them and the store has folded them."""
        lost = self._store.facts.get(FACT_LOSSES) or []
        for span in map(list, self.missing):
            noted = span not in lost and not without_losses([span], self._noted)
            text = "events %d to %d are missing from the journal" + (", which was accepted" if noted else "")
            log.log(logging.INFO if noted else logging.ERROR, text, *span)

    def _fold(self, events: list[Event]) -> None:
        for event in events:
            try:
                apply(event, self._store)
            except (NotStored, IllegalTransition) as error:
                # An earlier event was lost: this one stays in the journal, and the others are folded.
                log.error("event %d cannot be folded: %s", event["id"], error)
                self._store.applied = max(self._store.applied, event["id"])
        self._folded += 1

    def _note_damage(self, damage: Damage) -> None:
        """Copy damaged bytes to quarantine, adjacent ones as one file."""
        last = self._stretch
        if not damage.data:
            log.error("%s: %s", damage.segment, damage.reason)
        elif last and last.segment == damage.segment and last.offset + len(last.data) == damage.offset:
            self._stretch = last._replace(data=last.data + damage.data)
        else:
            self._quarantine_stretch()
            self._stretch = damage
        if self._stretch and len(self._stretch.data) >= _STRETCH_BYTES:
            self._quarantine_stretch()

    def _quarantine_stretch(self) -> None:
        """The bytes stay in the journal as well, so a full disk does not prevent the start."""
        stretch, self._stretch = self._stretch, None
        if stretch:
            try:
                self._quarantine.add(f"{stretch.segment.name}.{stretch.offset}", stretch.data, stretch.reason)
            except OSError as error:
                log.error("quarantine: %s at %d: %s", stretch.segment, stretch.offset, error)

    def _resume(self, clock: Clock) -> None:
        """Resume engine time from the last clock mark, and not before the last event."""
        kept = self._store.facts.get(FACT_CLOCK)
        if kept is None:
            clock.resume(None, self._last)
            return
        mark = Mark(kept["bootId"], kept["bootMs"], kept["engineMs"], kept["wallMs"])
        clock.resume(mark, max(self._last, Now(mark.engine, mark.wall)))

    def _settle(self, clock: Clock) -> None:
        """Write the first events of a new root, or of one whose store is ahead."""
        store, journal = self._store, self._journal
        drafts: list[Draft] = []
        known = store.facts.get(FACT_EPOCH)
        folded = max(store.applied, store.logs.newest())
        given = max(folded, 0 if self._had_store else journal.last_given, self._marked(known))
        if self._is_member:
            given = 0
        journal_ended = journal.last_id
        if given > journal_ended:
            log.error(
                "event %d has been assigned, but the journal ends at %d: continuing behind it", given, journal_ended
            )
            drafts.append({"type": EventType.GAP, "after": journal_ended, "next": given + 1})
            journal.last_id = given
            journal.roll()
        if known:
            self.root_id, self.epoch = known["root"], known["epoch"]
        elif not self._is_member:
            # If the journal's beginning is lost too, this may be a copy of another root: make it a new one.
            reason = "rebuilt from a part of the journal" if self.epoch else "new root"
            self.root_id, self.epoch = self._ids.root(), self.epoch + 1
            drafts.append({"type": EventType.EPOCH_STARTED, "root": self.root_id, "reason": reason})
        if not self.shown_up_to:  # else the later start finds it
            drafts += self._found()
        self.found = drafts
        if drafts and not self._is_member:
            self._write(drafts, clock)
        if given > journal_ended:  # a replay would take what the store has of these events for lost
            try:
                store.disk.checkpoint()
            except StoreError as error:
                log.error("checkpoint: %s", error)
        if self.root_id:
            journal.end_mark.open(self.root_id, self.epoch, journal.last_id)
        if self.root_id and not store.facts.get(FACT_END_MARK):
            store.begin()
            store.facts.put(FACT_END_MARK, True)
            store.commit()

    def _found(self) -> list[Draft]:
        """The events that say what this start has found."""
        drafts = [self._reprocessed(key) for key in self._moved]
        for loss in [*self._losses, *self._store.recovery.losses()]:
            draft = _loss_draft(loss)
            if not any(draft.items() <= event.items() for event in self._reported):
                drafts.append(draft)
        return drafts + differing_logs(self._store)

    def _marked(self, known: dict[str, Any] | None) -> int:
        """The last event by the mark of the journal's end; 0 if there is no mark of this root."""
        try:
            mark = read_end_mark(self._journal.root)
            problem = "is missing" if mark is None and self._store.facts.get(FACT_END_MARK) else ""
        except DamagedRecord:
            mark, problem = None, "is damaged"
        if problem and not self._clean:
            text = f"the mark of the journal's end {problem}: if the journal has lost its last events, nobody can know"
            self._losses.append(Loss(text))
        if mark is None:
            return 0
        root, epoch = (known["root"], known["epoch"]) if known else (self._root_in_journal or mark.root, self.epoch)
        return mark.event if mark.root == root and mark.epoch >= epoch else 0

    def _reprocessed(self, key: str) -> Draft:
        """The event for a dead letter whose file was moved to the ready messages by hand."""
        entry = self._store.get(key)
        assert entry is not None
        log.warning("%s was moved to the ready messages by hand: it is reprocessed", key)
        return {"type": EventType.REPROCESSED, "queue": entry.queue, "key": key, "reason": "moved by hand"}

    def _write(self, drafts: list[Draft], clock: Clock) -> None:
        now = clock.now()
        group = Group(self._store, now, self.epoch, self._journal.last_id)
        self._store.begin()
        for draft in drafts:
            group.record([draft])
        group.record([clock.mark(now, self.root_id)])
        if self._journal.wants_roll():
            self._journal.roll()
        self._journal.append(group.encode(), group.last_id)
        self._journal.sync()
        self._store.commit()


def _loss_draft(loss: Loss) -> Draft:
    """The event that reports a loss."""
    keys = sorted(loss.keys)
    log.error("%s%s", loss.what, f": {', '.join(keys)}" if keys else "")
    draft: Draft = {"type": EventType.DAMAGE_FOUND, "what": loss.what, "messages": len(keys)}
    if keys:
        draft["keys"] = keys[:DAMAGE_KEYS_LIMIT]
    if loss.events:
        draft["ranges"] = [list(span) for span in loss.events]
    return draft
