"""The broker: takes calls, decides them in groups, makes each group durable once, answers.

    submit ─► decide ─► apply ─► journal.append + sync ─► store.commit ─► answer

Anything that brings requests (the mailbox, the local command) uses ``submit`` and ``run_group``.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import Event, EventType
from postroom_common.protocol import Command, ErrorCode, resolve_command

from .access import Principal, pin_client
from .calls import Answer, Call
from .clock import Clock, Now
from .context import Context, Decision, Draft
from .engine import decide, decide_expiries
from .group import Group
from .journal import Journal, JournalRefused, JournalUnknown
from .policies import Policies
from .repeats import Repeats
from .replies import reply_to
from .stores.base import NotStored, Store, StoreDamaged, StoreError, StoreFull
from .vitals import DaemonVitals
from .waiters import Waiters

log = logging.getLogger(__name__)

#: Delayed messages that one group makes ready; the rest follows in the next.
PROMOTE_LIMIT = 500
#: Engine milliseconds between clock marks.
MARK_EVERY_MS = 3600 * 1000

#: After housekeeping has failed, engine milliseconds before it is tried again.
HOUSEKEEPING_PAUSE_MS = 1000


class MustRecover(PostroomError):
    """What is on disk and what is in memory may differ: nobody is answered, the daemon recovers from the journal."""


#: Refusals that say nothing of the request: a repeat is tried again.
_PASSING: Final = frozenset({ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_FAILED, ErrorCode.INTERNAL_ERROR})
#: After these the broker must not be used again.
_FATAL: Final = (MustRecover, JournalUnknown, StoreDamaged)


class Broker:
    """One per open root. Not thread-safe."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        clock: Clock,
        policies: Policies,
        vitals: DaemonVitals,
        repeats: Repeats,
        epoch: int,
        daemon_uid: int,
        sync_each_group: bool = True,
    ) -> None:
        self.store = store
        self.journal = journal
        self.clock = clock
        self.waiters = Waiters()
        self._policies = policies
        self._vitals = vitals
        self._repeats = repeats
        self._epoch = epoch
        self._daemon_uid = daemon_uid
        self._sync_each_group = sync_each_group
        self._pending: list[Call] = []
        self._marked_at = -MARK_EVERY_MS
        self._housekeeping_from = 0
        self._served: list[Call] = []
        self._parked: list[Call] = []

    def submit(self, call: Call) -> None:
        """Take a call into the next group."""
        call.started_ns = time.monotonic_ns()
        self._pending.append(call)

    def cancel(self, call: Call) -> None:
        """Forget a call that waits; it gets no answer."""
        self.waiters.remove(call)

    def run_group(self) -> None:
        """Decide all submitted calls, end leases that are over, make it durable, answer.

        Raises ``MustRecover``, ``JournalUnknown`` or ``StoreDamaged``: then nobody was answered and the broker must not
        be used again.
        """
        calls, self._pending = self._pending, []
        try:
            self._attempt(calls, housekeeping=self.clock.now().engine >= self._housekeeping_from)
        except _FATAL:
            raise
        except StoreFull as error:
            self._refuse(calls, full=True, why=error)
        except Exception:
            # One of them, or the housekeeping, cannot be done: each by itself, so that only that one fails.
            log.exception("a group of %d requests failed; each is tried by itself", len(calls))
            self._give_up()
            self._housekeeping_from = self.clock.now().engine + HOUSEKEEPING_PAUSE_MS
            for call in calls:
                if not call.answered:
                    self._attempt_alone(call)

    def _attempt_alone(self, call: Call) -> None:
        try:
            self._attempt([call], housekeeping=False)
        except _FATAL:
            raise
        except Exception as error:
            self._give_up()
            log.exception("request %s of %s failed", call.request.request_id, call.who.client_id)
            code = ErrorCode.INTERNAL_ERROR
            if isinstance(error, StoreError) and not isinstance(error, NotStored):
                code = ErrorCode.STORAGE_FULL if isinstance(error, StoreFull) else ErrorCode.STORAGE_FAILED
            self._answer(call, Answer(error=CommandError(code, f"nothing was changed: {error}")))

    def next_due(self) -> int | None:
        """The engine time at which there is something to do without a request."""
        times = [t for t in (self.store.next_due(), self.waiters.next_end()) if t is not None]
        return max(min(times), self._housekeeping_from) if times else None

    def stop(self) -> None:
        """The last group of a run: a clock mark that says that the daemon stopped in order, if the disk takes it.

        Raises as ``run_group``.
        """
        now = self.clock.now()
        group = Group(self.store, now, self._epoch, self.journal.last_id)
        self.store.begin()
        self._mark(group, now, clean=True)
        try:
            self._make_durable(group, now)
        except JournalRefused as error:
            log.error("%s; stopping without a mark", error)
            self._give_up()
        if self.journal.unsynced:
            self.journal.sync()

    # --- a group ----------------------------------------------------------------------------------------------

    def _attempt(self, calls: list[Call], housekeeping: bool) -> None:
        now = self.clock.now()
        group = Group(self.store, now, self._epoch, self.journal.last_id)
        answers: list[tuple[Call, Answer]] = []
        self._served, self._parked = [], []
        self.store.begin()
        if housekeeping:
            self._keep_house(group, now, answers)
        for call in calls:
            answer = self._take(call, group, now, answers)
            if answer:
                answers.append((call, answer))
        try:
            self._make_durable(group, now)
        except JournalRefused as error:
            self._refuse(calls, error.full, error)
            return
        for key, event in group.by_request.items():
            self._repeats.remember(key, event["id"])
        for key, refusal in group.refused.items():
            if refusal.code not in _PASSING:
                self._repeats.remember_refusal(key, refusal)
        self._vitals.count_group(len(calls), group)
        for call, answer in answers:
            self._answer(call, answer)

    def _keep_house(self, group: Group, now: Now, answers: list[tuple[Call, Answer]]) -> None:
        woken = dict.fromkeys(self.store.promote(now.engine, PROMOTE_LIMIT))
        nobody = Principal("", self._daemon_uid)
        for draft in decide_expiries(self._context(nobody, now)):
            group.record([draft])
        for call in self.waiters.over(now.engine):
            self._served.append(call)
            answers.append((call, self._repeated(call, group, now) or Answer({"message": None})))
        for queue in woken:
            self._serve(queue, group, now, answers)
        if now.engine - self._marked_at >= MARK_EVERY_MS:
            self._mark(group, now)

    def _mark(self, group: Group, now: Now, clean: bool = False) -> None:
        draft = {"type": EventType.CLOCK_MARKED, **self.clock.mark_fields(now)}
        group.record([draft | {"clean": True} if clean else draft])
        self._marked_at = now.engine

    def _take(self, call: Call, group: Group, now: Now, answers: list[tuple[Call, Answer]]) -> Answer | None:
        """Decide one call. None when it is parked."""
        request, who = call.request, call.who
        call.engine = now.engine
        queue = request.payload.get("queue")
        call.queue = queue if type(queue) is str else ""
        try:
            first = self._first_answer(call.key, group, now)
            if first:
                return first
            if request.problem:
                raise request.problem
            if 0 < request.deadline_ms < now.wall:
                raise CommandError(ErrorCode.TIMEOUT, "the request's deadline had passed when it was looked at")
            call.command = resolve_command(request.command)
            if call.command is None:
                raise CommandError(ErrorCode.UNKNOWN_COMMAND, f"unknown command {request.command[:80]!r}")
            pins = pin_client(who, self._daemon_uid, self.store)
            context = self._context(who, now)
            decision = decide(call.command, request.payload, context)
        except CommandError as error:
            group.refused[call.key] = error
            return Answer(error=error)
        if decision.wait_until is not None:
            if pins:  # the client id is theirs from now on, not only when they are served
                group.record(pins)
            self._park(call, decision.wait_until, now)
            return None
        if decision.data is not None:
            return Answer(decision.data)
        return self._record(call, pins + decision.drafts, group, now, answers)

    def _record(
        self, call: Call, drafts: list[Draft], group: Group, now: Now, answers: list[tuple[Call, Answer]]
    ) -> Answer:
        by = {
            "uid": call.who.uid,
            "client": call.who.client_id,
            "request": call.request.request_id,
            "digest": call.key.hex(),
        }
        event = group.record(drafts, by, call.key)
        answer = Answer(reply_to(event, self.store, self._policies, now))
        if call.command is not Command.CONSUME_NEXT and self.waiters.count:
            self._serve(event["queue"], group, now, answers)
        return answer

    def _first_answer(self, key: bytes, group: Group, now: Now) -> Answer | None:
        event: Event | None = group.by_request.get(key)
        if event is None:
            refusal = group.refused.get(key) or self._repeats.refusal(key)
            if refusal:
                return Answer(error=refusal)
            event_id = self._repeats.event_id(key)
            if event_id is None:
                return None
            event = self.journal.find(event_id)
            if event is None:
                error = CommandError(ErrorCode.INTERNAL_ERROR, "this request was done; its answer is no longer kept")
                return Answer(error=error)
        return Answer(reply_to(event, self.store, self._policies, now))

    # --- waiting ----------------------------------------------------------------------------------------------

    def _park(self, call: Call, wait_until: int, now: Now) -> None:
        # The wait began when the request was made: a restart does not renew it.
        waited = max(0, now.wall - call.arrived_wall)
        until = max(now.engine, wait_until - waited)
        if call.request.deadline_ms:
            until = min(until, now.engine + call.request.deadline_ms - now.wall)
        call.wait_until = until
        self.waiters.park(call)
        self._parked.append(call)

    def _serve(self, queue: str, group: Group, now: Now, answers: list[tuple[Call, Answer]]) -> None:
        """Give a queue's messages to those who wait for them, oldest first."""
        for call in self.waiters.on(queue):
            record = self.store.queue(queue)
            if record is None or not record.counts["ready"]:
                return
            first = self._repeated(call, group, now)
            decision = Decision() if first else self._decide_waiting(call, now)
            if not first and not decision.drafts:
                continue
            self.waiters.remove(call)
            if not call.alive():
                continue
            self._served.append(call)
            answers.append((call, first or self._record(call, decision.drafts, group, now, answers)))

    def _repeated(self, call: Call, group: Group, now: Now) -> Answer | None:
        """The first answer, when a copy of a waiting call was served while it waited."""
        try:
            return self._first_answer(call.key, group, now)
        except CommandError as error:
            return Answer(error=error)

    def _decide_waiting(self, call: Call, now: Now) -> Decision:
        return decide(Command.CONSUME_NEXT, call.request.payload, self._context(call.who, now))

    # --- the end of a group -----------------------------------------------------------------------------------

    def _make_durable(self, group: Group, now: Now) -> None:
        if group.events:
            if self.journal.wants_roll():
                self._mark(group, now)  # every segment tells how the clocks stood
                self._roll()
            self.journal.append(group.encode(), group.last_id)
            if self._sync_each_group:
                self.journal.sync()
        try:
            self.store.commit()
        except StoreDamaged:
            raise
        except StoreError as error:
            if group.events:
                raise MustRecover(f"{error}; the journal has the group") from error
            raise

    def _roll(self) -> None:
        try:
            self.journal.roll()
        except OSError as error:
            raise JournalRefused(error) from error

    def _give_up(self) -> None:
        try:
            self.store.rollback()
        except StoreDamaged:
            raise
        except StoreError as error:
            raise MustRecover(f"rollback: {error}") from error
        for call in self._parked:
            self.waiters.remove(call)
        for call in self._served:
            self.waiters.park(call)
        self._served, self._parked = [], []

    def _refuse(self, calls: list[Call], full: bool, why: Exception) -> None:
        """The disk took nothing of the group. Where space is lacking, what is no publish may fit into the reserve."""
        log.error("%s", why)
        self._give_up()
        self._housekeeping_from = self.clock.now().engine + HOUSEKEEPING_PAUSE_MS
        code = ErrorCode.STORAGE_FULL if full else ErrorCode.STORAGE_FAILED
        for call in calls:
            if full and len(calls) > 1 and call.command is not Command.PUBLISH:
                self._attempt_alone(call)
            else:
                error = CommandError(code, "the disk refused the write; nothing was changed")
                self._answer(call, Answer(error=error))

    def _answer(self, call: Call, answer: Answer) -> None:
        call.answered = True
        self._vitals.count_answer(call, answer)
        try:
            call.on_answer(answer)
        except Exception:
            # What was done is done, and durable: only its answer cannot be given.
            log.exception("the answer to request %s of %s cannot be given", call.request.request_id, call.who.client_id)
            error = CommandError(ErrorCode.INTERNAL_ERROR, "the request was executed, but its answer cannot be given")
            try:
                call.on_answer(Answer(error=error))
            except Exception:
                log.exception("nor can the error; the others of the group are to be answered all the same")

    def _context(self, who: Principal, now: Now) -> Context:
        return Context(self.store, now, who, self._policies, self._vitals)
