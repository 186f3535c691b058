"""One attempt at a group: its calls decided in turn on the open transaction. It is kept whole, or taken back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import dlq_name
from postroom_common.protocol import Command, ErrorCode, State, resolve_command

from ..engine.context import Decision, Draft, Work, no_message
from ..engine.replies import reply_to
from ..model.records import QueueRecord
from ..model.request import Answer, Call
from ..platform.clock import Now
from ..stores.base import StoreError
from .engine_state import Parts
from .group import Group
from .merge import Decider
from .periodic import CHORES, DUTIES, Duty

log = logging.getLogger(__name__)

#: Delayed messages that one group makes ready; the rest follows in the next.
PROMOTE_LIMIT: Final = 500
#: What brings a dead letter for those who wait by the name of dead letters.
#: A policy may give those that there are another name.
_TO_THE_DEAD: Final = frozenset({EventType.DIED, EventType.RELEASED, EventType.QUARANTINED, EventType.POLICY_SET})
#: Names the duty that failed last, among the rounds.
_FAILED: Final = "failed"
#: Refusals that say nothing of the request: a repeat is tried again.
_PASSING: Final = frozenset(
    {ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_FAILED, ErrorCode.QUOTA_EXCEEDED, ErrorCode.ANSWER_LOST}
)


class Attempt:
    """See the module. ``answers`` are given once the group is durable; those of ``working`` calls follow."""

    def __init__(self, parts: Parts, now: Now) -> None:
        self.now = now
        self.answers: list[tuple[Call, Answer]] = []
        self.working: list[tuple[Call, Work]] = []
        self._parts = parts
        parts.access.refresh(now.engine)
        self._clients_wall = parts.clock.clients_wall_ms(now)
        self._parked: list[Call] = []
        self._served: list[Call] = []
        self._told: dict[bytes, Answer] = {}  # answers to requests that made no event
        lead = parts.clock.mark(now, parts.root_id) if parts.journal.wants_roll() else None
        self._published: list[str] = []  # the queue of each message
        self._rounds: dict[str, Any] | None = None  # how far the chores had come
        self.group = Group(parts.store, now, parts.epoch, parts.journal.last_id, lead)
        self._decider = Decider(parts, now, self.group)
        if parts.store.in_flight:
            parts.store.in_flight.begin()
        if parts.store.stored:
            parts.store.stored.begin()

    def keep_house(self, chores: bool) -> None:
        """What is due without a request: delayed messages, leases that are over, waits that have ended; and the
        ``chores``, which need not be done at once."""
        parts, now = self._parts, self.now
        self._rounds = parts.rounds.copy()
        woken = dict.fromkeys(parts.store.due.promote(now.engine, PROMOTE_LIMIT))
        for duty in (*DUTIES, *CHORES) if chores else DUTIES:
            for drafts in self._steps(duty):
                self.group.record(drafts)
                parts.addresses.note(drafts)
                self._count_published(drafts)
                woken |= dict.fromkeys(self._woken_by(drafts))
        for call in parts.waiters.over(now.engine):
            self._note_consumer(call)  # it has asked until now
            call.started_ns = time.monotonic_ns()
            self._served.append(call)
            self.answers.append((call, self._repeated(call) or Answer(no_message(call.request.payload))))
        for queue in woken if parts.waiters.count else ():
            self._serve(queue)

    def _steps(self, duty: Duty) -> Iterator[list[Draft]]:
        """What a duty or chore gives. One that fails, while it looks for its next step, is said once to have done so:
        it must not keep the others from theirs. Raises ``StoreError``."""
        steps = duty(self._decider.context())
        while True:
            try:
                drafts = next(steps, None)
            except StoreError:
                raise
            except Exception as error:
                told = (duty.__name__, repr(error))
                if self._parts.rounds.get(_FAILED) != told:
                    self._parts.rounds[_FAILED] = told
                    log.exception("%s failed, and is tried again", duty.__name__)
                return
            if drafts is None:
                return
            yield drafts

    def mark(self, clean: bool = False) -> None:
        """Record how the clocks stand; ``clean`` at the stop of a run."""
        draft = self._parts.clock.mark(self.now, self._parts.root_id)
        self.group.record([draft | {"clean": True} if clean else draft])

    def bury(self, keys: Iterable[str]) -> None:
        """Let messages die whose bodies are lost."""
        self._decider.bury(keys)

    def take(self, call: Call) -> None:
        """Decide one call: it is answered, or parked."""
        call.engine = self.now.engine
        queue = call.request.payload.get("queue")
        call.queue = queue if type(queue) is str else ""
        refusals = self._parts.access.refusals
        try:
            answer = self._first_answer(call.key) or self._decide(call)
        except CommandError as error:
            answer = self._told[call.key] = Answer(error=error)
        call.refusals = self._parts.access.refusals - refusals
        if answer:
            self.answers.append((call, answer))

    def _decide(self, call: Call) -> Answer | None:
        request = call.request
        self._parts.quotas.check_rate(call.who.account, self.now.engine)
        if request.problem:
            raise request.problem
        if 0 < request.deadline_ms < self._clients_wall:
            raise CommandError(ErrorCode.TIMEOUT, "the request's deadline had passed when it was looked at")
        call.command = resolve_command(request.command)
        if call.command is None:
            raise CommandError(ErrorCode.UNKNOWN_COMMAND, f"unknown command {request.command[:80]!r}")
        self._parts.access.check_command(call.who, call.command)
        decision = self._decider.decide(call.command, request.payload, call.who)
        if call.command is Command.CONSUME_NEXT:
            self._note_consumer(call)
        if decision.work is not None:
            self.working.append((call, decision.work))
            return None
        if decision.wait_until is not None:
            self._park(call, decision.wait_until)
            return None
        if decision.data is not None:
            if decision.once:
                reply = decision.reply or {"as": "data", "data": decision.data}
                return self._record(call, Decision([{"type": EventType.ANSWERED}], reply=reply))
            answer = Answer(decision.data)
            if decision.refused:
                self._told[call.key] = answer
            return answer
        return self._record(call, decision)

    def _record(self, call: Call, decision: Decision) -> Answer:
        by = {
            **call.who.event_fields(),
            "client": call.who.client_id,
            "request": call.request.request_id,
            "digest": call.key.hex(),
        }
        if call.request.traceparent:
            by["traceparent"] = call.request.traceparent
        events = self.group.record(decision.drafts, by, call.key, decision.reply, decision.more)
        self._parts.addresses.note(events)
        if call.command in (Command.DRAIN, Command.IMPORT_STATE):
            self._decider.draining_changed()
        if call.command is not Command.IMPORT_STATE:  # what was published elsewhere is not published anew
            self._count_published(decision.drafts)
        if call.command is Command.CONSUME_NEXT:
            for event in events:
                self._parts.unread.forget(event["key"])
        answer = Answer(reply_to(events, self._parts.store, self._parts.policies, self.now))
        if call.command is not Command.CONSUME_NEXT and self._parts.waiters.count:
            for queue in dict.fromkeys(self._woken_by(decision.drafts)):
                self._serve(queue)
        return answer

    # --- repeats ----------------------------------------------------------------------------------------------

    def _first_answer(self, key: bytes) -> Answer | None:
        """The answer that the first of a request's repeats got."""
        repeats = self._parts.repeats
        events = self.group.by_request.get(key)
        if events is None:
            answer = self._told.get(key) or repeats.answer(key)
            if answer:
                return answer
            place = repeats.place(key)
            if place is None:
                return None
            events = self._parts.journal.find(place)
            if events is None:
                raise CommandError(ErrorCode.ANSWER_LOST, "this request was executed; its answer is no longer kept")
        return Answer(reply_to(events, self._parts.store, self._parts.policies, self.now))

    def _repeated(self, call: Call) -> Answer | None:
        """The first answer, when a copy of a waiting call was served while it waited."""
        try:
            return self._first_answer(call.key)
        except CommandError as error:
            return Answer(error=error)

    def remember(self, places: list[int]) -> None:
        """The group is durable, its events at ``places`` in the journal: repeats are recognised from now on."""
        repeats, first_id = self._parts.repeats, self.group.last_id - len(places) + 1
        for key, events in self.group.by_request.items():
            repeats.remember(key, places[events[0]["id"] - first_id])
        for key, answer in self._told.items():
            if not answer.error or answer.error.code not in _PASSING:
                repeats.remember_answer(key, answer)

    # --- waiting ----------------------------------------------------------------------------------------------

    def _park(self, call: Call, wait_until: int) -> None:
        self._parts.quotas.check_waits(call.who.account, self._parts.waiters.of_account(call.who.account))
        # The wait began when the request was made: a restart does not renew it.
        waited = max(0, self._clients_wall - call.arrived_wall)
        until = max(self.now.engine, wait_until - waited)
        if call.request.deadline_ms:
            until = min(until, self.now.engine + call.request.deadline_ms - self._clients_wall)
        call.wait_until = until
        self._parts.waiters.park(call)
        self._parked.append(call)

    def _serve(self, queue: str) -> None:
        """Give a queue's messages to those who wait for them, oldest first."""
        for call in self._parts.waiters.on(queue):
            record = self._parts.store.queue(queue)
            if record and (not record.counts[State.READY] or self._is_busy(queue, record)):
                return
            answer = self._repeated(call)
            decision = Decision()
            if answer is None:
                try:
                    self._parts.access.check_command(call.who, Command.CONSUME_NEXT)
                    decision = self._decider.decide(Command.CONSUME_NEXT, call.request.payload, call.who)
                except CommandError as error:  # who waits is told, not whoever has made the queue be looked at
                    answer = Answer(error=error)
            if not answer and not decision.drafts:
                continue
            self._parts.waiters.remove(call)
            if call.alive():
                call.started_ns = time.monotonic_ns()  # its wait was no work
                self._served.append(call)
                self.answers.append((call, answer or self._record(call, decision)))

    def _woken_by(self, drafts: list[Draft]) -> list[str]:
        """The names under which somebody may wait for what drafts bring: queues, and what addresses dead letters."""
        names = _queues_of(drafts)
        if self._parts.waiters.count:
            for draft in drafts:
                if draft["type"] in _TO_THE_DEAD:
                    record = self._parts.store.queue(draft["queue"])
                    names.append(dlq_name(draft["queue"], self._parts.policies.effective(draft["queue"], record)))
        return names

    def _is_busy(self, queue: str, record: QueueRecord) -> bool:
        """Whether nobody gets a message of a queue before one is settled."""
        most = self._parts.policies.effective(queue, record).max_inflight
        return bool(most) and record.counts[State.INFLIGHT] >= most

    def rollback(self) -> None:
        """The group has not happened: those it parked are forgotten, those it served wait on."""
        for call in self._parked:
            self._parts.waiters.remove(call)
        for call in self._served:
            self._parts.waiters.park(call)
        for queue in self._published:
            self._parts.rates.take(queue, -1)
        if self._rounds is not None:  # the chores have not come so far
            self._parts.rounds.clear()
            self._parts.rounds.update(self._rounds)
        self._parts.addresses.forget()
        if self._parts.store.in_flight:
            self._parts.store.in_flight.rollback()
        if self._parts.store.stored:
            self._parts.store.stored.rollback()

    def _count_published(self, drafts: list[Draft]) -> None:
        if not self._parts.rates.limits_any:
            return
        for draft in drafts:
            if draft["type"] is EventType.PUBLISHED:
                self._parts.rates.take(draft["queue"])
                self._published.append(draft["queue"])

    def _note_consumer(self, call: Call) -> None:
        """Somebody asks a queue for messages, or has waited for some."""
        parts, consumer = self._parts, call.request.payload.get("consumerId")
        if parts.store.in_flight and parts.store.queue(call.queue):
            parts.store.in_flight.asks(call.queue, consumer or call.who.client_id, self.now.engine)


def _queues_of(drafts: list[Draft]) -> list[str]:
    """The queues that drafts name: somebody may wait there."""
    return [draft[name] for draft in drafts for name in ("queue", "to") if name in draft]
