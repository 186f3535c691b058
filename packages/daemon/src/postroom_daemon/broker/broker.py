"""The broker: takes requests, decides them in groups, makes each group durable once, answers.

    submit ─► decide ─► fold ─► journal.append + sync ─► store.commit ─► answer

Doors and the local command use ``submit`` and ``run_group``. This file says what happens to a group when something
fails; ``transaction`` says what a group does.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import ErrorCode

from ..engine.context import Draft, Work
from ..engine.decide import ADDING, QUERIES
from ..engine.queue_patterns import AGAIN
from ..journal.journal import JournalRefused
from ..model.facts import FACT_DAMAGE, FACT_LOSSES
from ..model.request import Answer, Request
from ..platform.clock import Now
from ..platform.logs import about
from ..policy.policies import Policies
from ..stores.errors import NotStored, StoreBusy, StoreDamaged, StoreError, StoreFull
from ..stores.log.contract import LogDamaged
from .answering import give, name_of
from .engine_state import EngineState
from .failures import FATAL, MustRecover, NoSpace, NotConfirmed
from .fair_scheduler import FairScheduler
from .periodic import SLOW_TASKS_EVERY_MS
from .periodic_queues import depths
from .role import Others, Role
from .transaction import Transaction

log = logging.getLogger(__name__)

#: Types of events that add to what is stored.
_ADDING: Final = frozenset(
    {EventType.PUBLISHED, EventType.PART_APPENDED, EventType.PART_SET, EventType.BODY_SET, EventType.APPENDED}
)
#: Engine milliseconds between clock marks.
MARK_EVERY_MS: Final = 3600 * 1000
#: Engine milliseconds before the periodic tasks run again after a group with them has failed; and before those run
#: again that can wait: their failure, as for want of space, must not keep the others waiting.
TASKS_PAUSE_MS: Final = 1000
SLOW_TASKS_PAUSE_MS: Final = 5000
#: Bytes that must be free for a group, beside its journal lines and what the store needs for it.
GROUP_BYTES: Final = 128 * 1024


class GroupLimits(NamedTuple):
    """The most that one group takes: requests, and their bytes; and requests of one account in a turn."""

    requests: int
    bytes: int
    turn_requests: int


class Broker:
    """One per open root. Not thread-safe."""

    def __init__(self, state: EngineState, limits: GroupLimits, sync_each_group: bool = True) -> None:
        self.store = state.store
        self.journal = state.journal
        self.clock = state.clock
        self.subscriptions = state.subscriptions
        self.limits = limits
        self.state = state
        self._vitals = state.vitals
        self._reserve = state.reserve
        self._sync_each_group = sync_each_group
        self._scheduler = FairScheduler(limits.turn_requests)
        self._undelivered: list[Answer] = []
        self._unserved: dict[str, None] = {}
        self._working: deque[tuple[Request, Work]] = deque()
        self._marked_at = -MARK_EVERY_MS
        self._tasks_from = 0
        self._slow_tasks_from = 0
        self.role = Role(state.idempotency)
        for participant in state.participants:  # what was noted while the root was opened is final
            participant.commit()

    # --- what doors use -------------------------------------------------------------------------------------------

    def submit(self, *requests: Request) -> None:
        """Take requests. Their answers come from the next calls of ``run_group``."""
        for now_ns, request in enumerate(requests, time.monotonic_ns()):  # no two alike: the order is that of arrival
            request.started_ns = now_ns
        self._scheduler.add(requests)

    def space_for(self, door: str) -> int:
        """How many more requests a door may submit before the next group. At 0 the door must stop reading."""
        return max(0, self.limits.requests - self._scheduler.of_door(door))

    def cancel(self, request: Request) -> None:
        """Forget a request that is pending, waits or is being worked on; it gets no answer."""
        if not self.subscriptions.remove(request):
            self._scheduler.remove(request)
            self._working = deque(one for one in self._working if one[0] is not request)
            self.role.forget(request)

    def end_session(self, session: object) -> None:
        """A connection has ended: the waits that came by it end with it."""
        for request in self.subscriptions.of_session(session):
            self.cancel(request)

    def end_wait(self, request: Request) -> None:
        """If a request waits for a message, or would, it is answered as if its wait had ended."""
        if not self.subscriptions.end(request):
            request.wire.payload.pop("waitMs", None)

    def return_undelivered(self, answer: Answer) -> None:
        """An answer did not reach its client: the messages that it delivers go back in the next group, and the
        delivery does not count; unless a repeat of the request gets them first."""
        if answer.leases:
            self._undelivered.append(answer)

    def run_group(self) -> int:
        """Decide the next submitted requests, run the periodic tasks, make it all durable, answer. Returns how many
        requests the group had.

        Raises one of ``FATAL``: then nobody was answered and the broker must not be used again.
        """
        requests = self._scheduler.take(self.limits.requests, self.limits.bytes)
        now = self.clock.now()
        leader = self.role.leader
        if leader is not None:
            questions, refusals = self.role.sort(requests, leader)
            if refusals:
                self._answer_all(refusals)
            self._run(questions, False, now)
        else:
            self._run(requests, now.engine >= self._tasks_from, now)
        if self._working:
            self._step()
        return len(requests)

    def next_due(self) -> int | None:
        """The engine time at which there is something to do without a request."""
        if self.has_work:
            return 0
        if self.role.leader is not None:
            return None
        due, wait_ends = self.store.due.next_time(), self.subscriptions.next_end()
        if wait_ends is not None and (due is None or wait_ends < due):
            due = wait_ends
        if self._undelivered or self._unserved:
            due = 0
        return None if due is None else max(due, self._tasks_from)

    @property
    def pending(self) -> int:
        """How many requests are for the next groups."""
        return self._scheduler.count

    @property
    def has_work(self) -> bool:
        """Whether ``run_group`` has something to do at once: more requests, or a step of a question that takes long."""
        return bool(self._working or self._scheduler.count)

    # --- without a request ----------------------------------------------------------------------------------------

    def reload(self, policies: Policies, limits: GroupLimits) -> None:
        """Apply other policies and limits from the next group on."""
        self.state.use_policies(policies)
        self.limits = limits

    def depths(self) -> dict[str, int]:
        """How many messages all queues have, by state, as counted a few seconds ago."""
        return depths(self.state.cursors)

    def stop(self) -> None:
        """Record a clock mark that says that the daemon stopped in order, if the disk takes it, and the others do.

        Raises as ``run_group``.
        """
        while self.role.leader is None:
            try:
                self._do_alone(lambda transaction: transaction.mark(clean=True))
                break
            except NotConfirmed as unconfirmed:
                log.warning("stopping without a mark: %s", unconfirmed)
                break
            except (JournalRefused, StoreFull) as error:
                log.error("%s", error)
                if not self._reserve.release():
                    log.error("stopping without a mark")
                    break
        self.journal.sync_segment()

    def begin_epoch(self, node: str, others: Others, found: list[Draft]) -> None:
        """Lead from now on as ``node``: ``others`` must have each group. The first one says so, and records what the
        start has found. Raises as ``accept_losses``."""
        self.role.others = others
        root = self.state.root_id
        began: Draft = {"type": EventType.EPOCH_STARTED, "root": root, "reason": "leads the cluster", "node": node}
        self._do_alone(lambda transaction: transaction.begin_epoch([began, *found]))
        self.journal.end_mark.close()
        self.journal.end_mark.open(self.state.root_id, self.state.epoch, self.journal.last_id)

    def end_uncertainty(self) -> None:
        """The group that decides which requests the cluster has is there."""
        decided = self.role.end_uncertainty()
        if decided:
            self._scheduler.add(decided)

    def accept_losses(self) -> list[list[int]]:
        """Record that an operator has taken note of the events that the store has never seen, and of ``damage``.
        Returns the ranges of the events.

        Raises as ``run_group``, and ``JournalRefused`` or ``StoreFull`` when the disk takes nothing.
        """
        losses: list[list[int]] = self.store.facts.get(FACT_LOSSES) or []
        damage = self.damage()
        if losses or damage:
            note: Draft = {"type": EventType.LOSS_ACCEPTED, "ranges": losses}
            if damage:
                note["damage"] = damage
            self._do_alone(lambda transaction: transaction.group.record([note]))
        return losses

    def damage(self) -> list[dict[str, Any]]:
        """What is lost without its events being known; see ``stores.recovery.Recovery.losses``."""
        damage: list[dict[str, Any]] = self.store.facts.get(FACT_DAMAGE) or []
        return damage

    def note_missing(self, ranges: list[list[int]]) -> None:
        """Record that an operator has taken note of events that the store has folded and the journal lacks. Call
        ``accept_losses`` first for those that the store has never seen. Raises as ``accept_losses``."""
        note = {"type": EventType.LOSS_ACCEPTED, "ranges": ranges, "folded": True}
        self._do_alone(lambda transaction: transaction.group.record([note]))

    def note_lost_bodies(self, keys: Iterable[str]) -> None:
        """Record that the bodies of messages are lost: these die now, and not when they are to be delivered. Raises as
        ``accept_losses``."""
        self._do_alone(lambda transaction: transaction.note_lost_bodies(keys))

    def _do_alone(self, work: Callable[[Transaction], object]) -> None:
        """A group that no client asked for."""
        transaction = Transaction(self.state, self.clock.now())
        self.store.begin()
        try:
            work(transaction)
            places = self._make_durable(transaction)
        except (JournalRefused, StoreFull):
            self._roll_back(transaction)
            raise
        transaction.commit(places)

    # --- a group, and what happens when it fails ------------------------------------------------------------------

    def _run(self, requests: list[Request], with_tasks: bool, now: Now | None = None) -> None:
        transaction = Transaction(self.state, now or self.clock.now())
        try:
            self._process(transaction, requests, with_tasks)
            places = self._make_durable(transaction)
        except FATAL:
            raise
        except JournalRefused as refused:
            self._roll_back(transaction)
            self._refuse(requests, with_tasks, refused, refused.full)
        except LogDamaged as damaged:
            raise MustRecover(f"{damaged}; the next start puts it back from the journal, or reports it") from damaged
        except (StoreFull, StoreBusy) as busy:
            self._roll_back(transaction)
            self._refuse(requests, with_tasks, busy, isinstance(busy, StoreFull))
        except Exception as error:
            self._roll_back(transaction)
            self._isolate(requests, with_tasks, error)
        else:
            transaction.commit(places)
            if with_tasks:
                self._undelivered.clear()
                self._unserved.clear()
            self._unserved |= transaction.unserved
            self._finish(len(requests), transaction)

    def _process(self, transaction: Transaction, requests: list[Request], with_tasks: bool) -> None:
        self.store.begin()
        now = transaction.now.engine
        if with_tasks:
            slow_tasks = now >= self._slow_tasks_from
            transaction.run_periodic_tasks(slow_tasks, self._unserved)
            if slow_tasks:
                self._slow_tasks_from = now + SLOW_TASKS_EVERY_MS
            if now - self._marked_at >= MARK_EVERY_MS:
                transaction.mark()
            if self._undelivered:
                transaction.return_undelivered(self._undelivered)
        taken = transaction.take(requests)
        if taken < len(requests):
            self._scheduler.put_back(requests[taken:])
            del requests[taken:]

    def _make_durable(self, transaction: Transaction) -> list[int]:
        """Journal, sync, commit. Returns the offsets of the events in the journal."""
        group = transaction.group
        places: list[int] = []
        if group.events:
            leader, others = self.role.leader, self.role.others
            if leader is not None:
                raise JournalRefused(OSError(errno.EROFS, f"this node follows {leader.node}"))
            if self.journal.wants_roll():
                self.journal.roll()
            if self._sync_each_group:
                self.store.body_files.sync()
            lines = group.encode()
            self.make_space(group.events, sum(map(len, lines)))
            places = self.journal.append(lines, group.last_id)
            if others is not None:
                others.send(lines, group.last_id, self.state.epoch)
            if self._sync_each_group:
                self.journal.sync()
            if others is not None:  # the store never has what they have not
                others.wait(group.last_id)
        try:
            self.store.commit()
        except StoreDamaged:
            raise
        except StoreError as error:
            if group.events:
                if isinstance(error, StoreFull):
                    self._reserve.release()
                raise MustRecover(f"{error}; the journal has the group") from error
            raise
        if group.events and transaction.has_mark:
            self._marked_at = transaction.now.engine
        return places

    def make_space(self, events: list[Event], journal_bytes: int) -> None:
        """Ensure that the store will have space for the events that go to the journal. Raises ``JournalRefused``."""
        needed = GROUP_BYTES + self.store.disk.space_needed(len(events)) + 2 * journal_bytes
        if self._reserve.has_plenty(needed):
            return
        adds = any(event["type"] in _ADDING for event in events)
        if not self._reserve.free_space(needed, release=not adds):
            fewer = "; fewer messages in one request need less" if len(events) > 1 else ""
            text = f"{os.strerror(errno.ENOSPC)}: {needed} bytes must be free for this{fewer}"
            raise NoSpace(OSError(errno.ENOSPC, text))

    def _finish(self, requests: int, transaction: Transaction) -> None:
        """A group is durable: answer it."""
        group = transaction.group
        self._vitals.count_group(requests, group.events, transaction.now)
        if transaction.working:
            self._working.extend(transaction.working)
        if transaction.answers:
            self._answer_all(transaction.answers)

    def _roll_back(self, transaction: Transaction) -> None:
        try:
            self.store.rollback()
        except StoreDamaged:
            raise
        except StoreError as error:
            raise MustRecover(f"rollback: {error}") from error
        transaction.rollback()
        self._tasks_from = transaction.now.engine + TASKS_PAUSE_MS
        self._slow_tasks_from = transaction.now.engine + SLOW_TASKS_PAUSE_MS

    def _refuse(self, requests: list[Request], with_tasks: bool, why: Exception, full: bool) -> None:
        """The disk took nothing of the group. Questions need no disk; if only space is lacking, the requests that
        publish nothing may fit without the rest, or into the reserve, or else each by itself."""
        log.error("%s", why)
        self._vitals.note_refused(str(why))
        code = ErrorCode.STORAGE_FULL if full else ErrorCode.STORAGE_FAILED
        rest = [one for one in requests if one.command in QUERIES or (full and one.command not in ADDING)]
        nothing_left_out = len(rest) == len(requests) and not with_tasks
        helps = full and not isinstance(why, NoSpace)
        if nothing_left_out and not (helps and self._reserve.release()):
            if full and len(requests) > 1:
                for request in requests:
                    self._run([request], with_tasks=False)
                    self.store.disk.tidy()  # the next one needs space for itself alone
                return
            rest = []
        for request in requests:
            if request not in rest:
                self._answer(request, Answer(error=CommandError(code, f"nothing was changed: {why}")))
        if rest:
            self._run(rest, with_tasks=False)

    def _isolate(self, requests: list[Request], with_tasks: bool, error: Exception) -> None:
        """One of the requests, or a periodic task, cannot be done: each is tried by itself, so that only that one
        fails."""
        if len(requests) == 1 and not with_tasks:
            request = requests[0]
            log.error("%s failed", name_of(request), exc_info=error, extra=about(**request.log_fields()))
            stored = isinstance(error, StoreError | OSError) and not isinstance(error, NotStored)
            code = ErrorCode.STORAGE_FAILED if stored else ErrorCode.INTERNAL_ERROR
            self._answer(request, Answer(error=CommandError(code, f"nothing was changed: {error}")))
            return
        log.error("a group of %d requests failed; each is tried by itself", len(requests), exc_info=error)
        for request in requests:
            self._run([request], with_tasks=False)

    def _step(self) -> None:
        """Do a step of one of the questions that take long; they take turns."""
        request, work = self._working.popleft()
        try:
            next(work)
        except LogDamaged as damaged:
            raise MustRecover(str(damaged)) from damaged
        except StopIteration as ended:
            if ended.value is AGAIN:
                self._scheduler.add([request])
            else:
                self._answer(request, Answer(ended.value))
        except CommandError as error:
            self._answer(request, Answer(error=error))
        except OSError as failure:
            self._answer(request, Answer(error=CommandError(ErrorCode.STORAGE_FAILED, f"the journal: {failure}")))
        else:
            self._working.append((request, work))

    def _answer(self, request: Request, answer: Answer) -> None:
        self._answer_all([(request, answer)])

    def _answer_all(self, answers: list[tuple[Request, Answer]]) -> None:
        if self.role.leader is not None:
            self.role.mark_stale(answers, self.store.applied)
        now_ns = time.monotonic_ns()
        give(answers)
        self._vitals.count_answers(answers, now_ns)
