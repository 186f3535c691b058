"""One transaction: the requests of a group, decided in turn on the open store.

It is committed or rolled back as a whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import Command, ErrorCode, State, resolve_command

from ..engine.context import Context, Decision, Draft, Unfolded, Work, no_message
from ..engine.decide import decide
from ..engine.replies import reply_to
from ..engine.verbs.consume import Expired, QueueMissing
from ..engine.verbs.settle import body_lost, undelivered
from ..model.principal import Account, Principal
from ..model.request import Answer, Request, body_bytes
from ..model.subscriptions import Subscription
from ..platform.clock import Now
from ..platform.logs import about
from ..policy.access_rules import Verb
from ..stores.errors import BodyLost, BodyUnread
from .engine_state import EngineState
from .group import Group
from .periodic import EACH_GROUP, EACH_SECOND, expired, has_more, steps_of
from .periodic_logs import note_due_log
from .repeats import Repeats
from .waiting import is_busy, subscribe, woken_by

log = logging.getLogger(__name__)

#: Delayed messages that one group makes ready; the rest follows in the next.
PROMOTE_LIMIT: Final = 500
#: Messages without a body, or past their time to live, that one request passes over.
PASSED_OVER_LIMIT = 100
#: Bytes of bodies in its answers with which a group is full: the other requests, and those who wait for messages, are
#: for the next one. So many are in memory at once; the last answer may exceed it.
BODIES_OF_A_GROUP = 8 * 1024 * 1024
#: Commands that change only messages, and create queues: what a context says of anything else stays true.
_OF_MESSAGES: Final = frozenset(
    {
        Command.PUBLISH,
        Command.PUBLISH_BATCH,
        Command.DRAFT,
        Command.SET,
        Command.APPEND,
        Command.CONSUME_NEXT,
        Command.ACK,
        Command.ACK_BATCH,
        Command.ACK_AND_PUBLISH,
        Command.NACK,
        Command.NACK_BATCH,
        Command.RELEASE,
        Command.EXTEND_LEASE,
        Command.ACTIVATE,
        Command.ABANDON,
    }
)
#: By their own names, as nearly all requests have them.
_COMMANDS: Final = {command.value: command for command in Command}
#: Used for every request, and slow to look up in their class.
_PUBLISH, _CONSUME_NEXT, _ACK, _READ = Command.PUBLISH, Command.CONSUME_NEXT, Command.ACK, Command.READ


class Transaction:
    """``answers`` are given once the group is durable; those to the ``working`` requests follow. ``unserved`` are the
    queues whose messages the next group delivers to those who wait for them, because this one is full."""

    def __init__(self, state: EngineState, now: Now) -> None:
        self.now = now
        self.answers: list[tuple[Request, Answer]] = []
        self.working: list[tuple[Request, Work]] = []
        self.unserved: dict[str, None] = {}
        self._bodies_bytes = 0
        self._state = state
        state.access.refresh(now.engine)
        self._clients_wall = state.clock.clients_wall_ms(now)
        self._repeats = Repeats(state.idempotency, state.journal)
        self._shared: Context | None = None  # for the requests, one after the other
        self._later = False  # the event of the present request may be folded later
        self._unfolded_keys: set[str] = set()  # of messages about which events are not folded yet
        self._begins_after = state.journal.last_id  # records of logs behind it are not committed: nobody reads them yet
        self.has_mark = state.journal.wants_roll()
        """Whether the events of the group, if there are any, include a clock mark."""
        lead = state.clock.mark(now, state.root_id) if self.has_mark else None
        self.group = Group(state.store, now, state.epoch, state.journal.last_id, lead, state.observers)

    # --- without a request ----------------------------------------------------------------------------------------

    def run_periodic_tasks(self, each_second: bool, unserved: Iterable[str] = ()) -> None:
        """Do what is due without a request: delayed messages, ended leases, ended waits, and the ``unserved`` queues of
        the group before; and with ``each_second``, the tasks that can wait."""
        state, now = self._state, self.now
        due, woken = state.store.due.next_time(), dict.fromkeys(unserved)
        if each_second or (due is not None and due <= now.engine) or has_more(state.cursors):
            state.cursors.about_to_change()
            promoted = state.store.due.promote(now.engine, PROMOTE_LIMIT)
            woken |= dict.fromkeys(promoted)
            for queue in promoted:
                state.patterns.note_ready(queue)
                note_due_log(state.cursors, state.store.queue(queue))
            if each_second:
                state.patterns.forget_idle(now.engine)
            for task in (*EACH_GROUP, *EACH_SECOND) if each_second else EACH_GROUP:
                for drafts in steps_of(task, self._context_of_daemon()):
                    self.group.record(drafts)
                    woken |= dict.fromkeys(woken_by(self._state, drafts))
        for subscription in state.subscriptions.take_ended(now.engine):
            request = subscription.request
            request.started_ns = time.monotonic_ns()
            if request.command is _READ:
                request.wire.payload.pop("waitMs", None)
                self.answers.append((request, self._answer_to_read(request) or Answer({})))
                continue
            self._note_consumer(request)  # it has asked until now
            self.answers.append((request, self._repeated(request) or Answer(no_message(request.wire.payload))))
        if woken and state.subscriptions.count:
            for queue in woken:
                self._serve(queue)

    def mark(self, clean: bool = False) -> None:
        """Record the clocks' readings; ``clean`` at the end of a run."""
        self.has_mark = True
        draft = self._state.clock.mark(self.now, self._state.root_id)
        self.group.record([draft | {"clean": True} if clean else draft])

    def begin_epoch(self, drafts: list[Draft]) -> None:
        """Record what a leader begins with, before the clocks' readings: so that its epoch begins with the event that
        says so."""
        state = self._state
        self.group = Group(state.store, self.now, state.epoch, state.journal.last_id, None, state.observers)
        for draft in drafts:
            self.group.record([draft])
        self.mark()

    def note_lost_bodies(self, keys: Iterable[str]) -> None:
        """Record that the bodies of messages are lost: these die."""
        context = self._context_of_daemon()
        for key in keys:
            self.group.record([body_lost(context, key)])

    def return_undelivered(self, answers: Iterable[Answer]) -> None:
        """End the leases of answers that did not reach their consumer, as if the messages had not been delivered. Those
        that a repeat has got since stay: its client works on the messages, or repeats once more."""
        get, delivered_again = self._state.store.get, self._state.idempotency.was_delivered_again
        leases = [lease for answer in answers if not delivered_again(answer.key) for lease in answer.leases]
        drafts = [draft for key, lease in leases for draft in undelivered(get(key), lease)]
        if drafts:
            self.group.record(drafts)
            for queue in dict.fromkeys(woken_by(self._state, drafts)):
                self._serve(queue)

    # --- a request ------------------------------------------------------------------------------------------------

    def take(self, requests: list[Request]) -> int:
        """Decide requests, one after the other, until the group is full: each is answered, worked on, or waits. Returns
        how many were decided."""
        access, engine, answers = self._state.access, self.now.engine, self.answers
        taken = 0
        for request in requests:
            if self._bodies_bytes >= BODIES_OF_A_GROUP:
                break
            taken += 1
            request.engine = engine
            queue = request.wire.payload.get("queue")
            request.queue = queue if type(queue) is str else ""
            refusals = access.refusals
            try:
                answer = self._first_answer(request.key) or self._execute(request)
            except CommandError as error:
                answer = Answer(error=error.without_traceback())
                self._repeats.remember_answer(request.key, answer)
            request.refusals = access.refusals - refusals
            if answer:
                answers.append((request, answer))
                data = answer.data
                if data and (request.command is _READ or "message" in data or "messages" in data):
                    self._bodies_bytes += body_bytes(data)
        self._fold()
        return taken

    def _execute(self, request: Request) -> Answer | None:
        wire, who, state = request.wire, request.who, self._state
        if state.quotas.limits_rate and who.account not in state.quotas.exempt:
            state.quotas.check_rate(who.account, self.now.engine)
        if wire.problem:
            raise wire.problem
        if 0 < wire.deadline_ms < self._clients_wall:
            raise CommandError(ErrorCode.TIMEOUT, "the request's deadline had passed before it was executed")
        command = request.command = _COMMANDS.get(wire.command) or resolve_command(wire.command)
        if command is None:
            raise CommandError(ErrorCode.UNKNOWN_COMMAND, f"unknown command {wire.command[:80]!r}")
        if command in state.access.checked:
            state.access.check_command(who, command)
        if command is _CONSUME_NEXT:
            request.check_deliverable()
            decision = self._decide(command, request)
            self._note_consumer(request)
        else:
            if command is _READ:
                request.check_deliverable()
            decision = self._decide(command, request)
        if decision.drafts:
            return self._record(request, decision)
        if decision.work is not None:
            self._shared = state.context = None  # the work goes on with it
            self.working.append((request, decision.work))
            return None
        if decision.wait_until is not None:
            subscribe(state, request, decision.wait_until, self.now, self._clients_wall)
            if decision.resume:
                wire.payload |= decision.resume
                self._is_uncommitted(request.queue)
            return None
        if decision.data is not None:
            if decision.once:
                reply = decision.reply or {"as": "data", "data": decision.data}
                return self._record(request, Decision([{"type": EventType.ANSWERED}], reply=reply))
            answer = Answer(decision.data)
            if decision.refused:
                self._repeats.remember_answer(request.key, answer)
            return answer
        return self._record(request, decision)

    def _decide(self, command: Command, request: Request, of: str = "") -> Decision:
        """Decide a request; ``of``: as if it asked for messages of this queue, without creating it. First, messages
        that it would deliver but cannot are removed: one whose body is lost dies, and so does one whose body the disk
        has failed to return too often; one past its time to live expires. A queue that it creates is created. Raises
        ``CommandError``."""
        payload = request.wire.payload
        if of and ("queuePattern" in payload or "createWith" in payload):
            payload = payload | {"queue": of, "queuePattern": None, "createWith": None}
        context = self._shared
        if context is None:
            context = self._shared = self._state.context_of_requests(request.who, self.now)
            context.unfolded_keys = self._unfolded_keys
        self._later = not self._state.subscriptions.count and self._is_apart(command, request, context)
        if not self._later:
            self._fold()
        context.begin(request.who, request.read_body, payload)
        any_expired = False
        for _ in range(PASSED_OVER_LIMIT):
            try:
                return decide(command, payload, context)
            except (BodyLost, BodyUnread) as error:
                log.error("%s", error, extra=about(key=error.key))
                retry = self._state.body_retry
                if isinstance(error, BodyUnread) and not retry.note_failure(error.key, self.now.engine):
                    raise CommandError(ErrorCode.STORAGE_FAILED, f"nothing was changed: {error}") from error
                self.group.record([body_lost(context, error.key)])
            except Expired as passed:
                self.group.record(expired(self._context_of_daemon(), passed.entry))
                any_expired = True
            except Unfolded:
                self._later = False
                self._fold()
            except QueueMissing as missing:  # that is not the request's answer: it may wait after it
                self.group.record([missing.draft], self._by(request))
        if any_expired:  # there are many more, which the next groups see to
            return Decision(data=no_message(payload))
        raise CommandError(ErrorCode.STORAGE_FAILED, "the bodies of many messages are lost: see the daemon's log")

    def _record(self, request: Request, decision: Decision) -> Answer:
        key, wire, by = request.key, request.wire, self._by(request)
        if key:
            by["digest"] = key.hex()
        if request.gateway_door:
            by["door"] = request.gateway_door
        if wire.traceparent:
            by["traceparent"] = wire.traceparent
        command, state = request.command, self._state
        later, context = self._later and len(decision.drafts) == 1, self._shared
        events = self.group.record(decision.drafts, by, key, decision.reply, decision.more, later)
        if later and context:
            self._note_unfolded(events[0], request.who.account, context)
        data = reply_to(events, state.store, state.policies, self.now)
        if command is _CONSUME_NEXT:
            if state.body_retry.failed:
                for event in events:
                    state.body_retry.forget(event["key"])
            if not request.queue:  # by pattern
                request.queue = events[0]["queue"]
                self._note_consumer(request)
            return Answer(data, None, [(event["key"], event["lease"]) for event in events], key)
        if command not in _OF_MESSAGES:
            state.is_draining = self._shared = None
        if state.subscriptions.count:
            for queue in dict.fromkeys(woken_by(state, decision.drafts)):
                self._serve(queue)
        return Answer(data)

    # --- events that are folded together --------------------------------------------------------------------------

    def _is_apart(self, command: Command, request: Request, context: Context) -> bool:
        """Whether a request does not depend on what is not folded yet, nor anything but another one like it on its
        event: a message for a queue that accepts every one, or the end of another lease."""
        if command is _ACK:
            key = request.wire.payload.get("messageKey")
            return type(key) is str and key not in self._unfolded_keys
        return command is _PUBLISH and request.queue in context.open_queues

    def _note_unfolded(self, event: Event, account: Account, context: Context) -> None:
        self._unfolded_keys.add(event["key"])
        if "publisher" in event:
            unfolded = context.unfolded_bytes
            unfolded[account] = unfolded.get(account, 0) + context.pending.stored

    def _fold(self) -> None:
        if self._unfolded_keys:
            self.group.fold()
            self._unfolded_keys.clear()
            if self._shared:
                self._shared.unfolded_bytes.clear()

    @staticmethod
    def _by(request: Request) -> dict[str, Any]:
        """Who made a request, as its events record it."""
        client_id, account = request.who
        field = "uid" if type(account) is int else "principal"
        return {field: account, "client": client_id, "request": request.wire.request_id}

    def _context_of_daemon(self) -> Context:
        """The context of what the daemon does by itself."""
        return self._state.new_context(Principal("", self._state.daemon_uid), self.now)

    # --- repeats --------------------------------------------------------------------------------------------------

    def _first_answer(self, key: bytes | None) -> Answer | None:
        """The answer that the request with this key got, if it was executed before."""
        first = self._repeats.first(key, self.group)
        if first is None or isinstance(first, Answer):
            return first
        self._fold()
        return Answer(reply_to(first, self._state.store, self._state.policies, self.now))

    def _repeated(self, request: Request) -> Answer | None:
        """The first answer, if a copy of a waiting request was served while it waited."""
        try:
            return self._first_answer(request.key)
        except CommandError as error:
            return Answer(error=error.without_traceback())

    def commit(self, places: list[int]) -> None:
        """The group is durable, its events at ``places`` in the journal."""
        self._repeats.commit(self.group, places)
        for commit in self._state.commits:
            commit()

    def rollback(self) -> None:
        """The group has not happened: what it changed in memory is undone. The store is rolled back by the broker."""
        self._state.is_draining = None
        for participant in reversed(self._state.participants):
            participant.rollback()

    # --- waiting --------------------------------------------------------------------------------------------------

    def _serve(self, queue: str) -> None:
        """Deliver a queue's messages to those who wait for them."""
        state = self._state
        if self._is_uncommitted(queue):
            return
        for subscription in state.subscriptions.on(queue):
            if self._bodies_bytes >= BODIES_OF_A_GROUP:
                self.unserved[queue] = None
                return
            record = state.store.queue(queue)
            request = subscription.request
            if request.command is _READ:
                self._serve_reader(subscription)
                continue
            if record and record.log:
                if subscription.matches:
                    continue
            elif record and (not record.counts[State.READY] or is_busy(state, queue, record)):
                return
            if subscription.matches and not state.access.may(request.who.account, Verb.CONSUME, queue):
                continue
            answer = self._repeated(request)
            decision = Decision()
            if answer is None:
                try:
                    state.access.check_command(request.who, Command.CONSUME_NEXT)
                    request.check_deliverable()
                    decision = self._decide(Command.CONSUME_NEXT, request, queue)
                except CommandError as error:  # who waits gets it, not the request that has woken him
                    answer = Answer(error=error.without_traceback())
            if not answer and not decision.drafts:
                continue
            if request.alive():
                state.subscriptions.take(subscription)
                request.started_ns = time.monotonic_ns()  # its wait was no work
                answer = answer or self._record(request, decision)
                self.answers.append((request, answer))
                self._bodies_bytes += body_bytes(answer.data or {})
            else:
                state.subscriptions.remove(request)

    def _is_uncommitted(self, queue: str) -> bool:
        """Whether a log has records that this group has appended: who waits for them is served by the next one."""
        record = self._state.store.queue(queue)
        if record is None or record.log is None or record.log.last <= self._begins_after:
            return False
        self.unserved[queue] = None
        return True

    def _serve_reader(self, subscription: Subscription) -> None:
        """Answer a read that waits, if there is a record, or if it can never have one."""
        request = subscription.request
        answer = self._answer_to_read(request)
        if answer is None:
            return
        if request.alive():
            self._state.subscriptions.take(subscription)
            request.started_ns = time.monotonic_ns()
            self.answers.append((request, answer))
            self._bodies_bytes += body_bytes(answer.data or {})
        else:
            self._state.subscriptions.remove(request)

    def _answer_to_read(self, request: Request) -> Answer | None:
        """The answer to a read that has waited; None if it waits on."""
        try:
            self._state.access.check_command(request.who, _READ)
            request.check_deliverable()
            decision = self._decide(_READ, request)
        except CommandError as error:
            return Answer(error=error.without_traceback())
        return None if decision.data is None else Answer(decision.data)

    def _note_consumer(self, request: Request) -> None:
        """Somebody asks a queue for messages, or has waited for some."""
        if request.queue and self._state.store.queue(request.queue):
            consumer = request.wire.payload.get("consumerId") or request.who.client_id
            self._state.consumers.note_asked(request.queue, consumer, self.now.engine)
