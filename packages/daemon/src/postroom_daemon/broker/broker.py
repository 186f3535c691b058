"""The broker: takes calls, decides them in groups, makes each group durable once, answers.

    submit ─► decide ─► apply ─► journal.append + sync ─► store.commit ─► answer

Anything that brings requests (the mailbox, the local command) uses ``submit`` and ``run_group``. This file says what
becomes of a group when something fails; ``attempt`` says what a group does.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from postroom_common.errors import CommandError, PostroomError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from ..engine.context import Work
from ..engine.decide import BRINGING, QUESTIONS
from ..journal.journal import JournalRefused, JournalUnknown
from ..model.records import FACT_LOSSES
from ..model.request import Answer, Call, about_call
from ..policy.policies import Policies
from ..stores.base import NotStored, StoreBusy, StoreDamaged, StoreError, StoreFull
from .engine_state import Parts
from .group import Group
from .periodic import CHORES_EVERY_MS
from .periodic_tasks import depths
from .transaction import Attempt

log = logging.getLogger(__name__)

#: Engine milliseconds between clock marks.
MARK_EVERY_MS: Final = 3600 * 1000
#: After housekeeping has failed, engine milliseconds before it is tried again.
HOUSEKEEPING_PAUSE_MS: Final = 1000
#: The same before chores are done again: what failed for them, as for want of space, is not to keep the duties waiting.
CHORES_PAUSE_MS: Final = 5000
#: Bytes that must be free for a group, beside its lines and what the store needs for it.
GROUP_BYTES: Final = 128 * 1024


class MustRecover(PostroomError):
    """What is on disk and what is in memory may differ: nobody is answered, the daemon recovers from the journal."""


class NoRoom(JournalRefused):
    """The disk lacks room for a group, and the whole reserve would not be enough."""


#: After these the broker must not be used again.
FATAL: Final = (MustRecover, JournalUnknown, StoreDamaged)


class Broker:
    """One per open root. Not thread-safe."""

    def __init__(self, parts: Parts, sync_each_group: bool = True) -> None:
        self.store = parts.store
        self.journal = parts.journal
        self.clock = parts.clock
        self.waiters = parts.waiters
        self._parts = parts
        self._vitals = parts.vitals
        self._reserve = parts.reserve
        self._sync_each_group = sync_each_group
        self._pending: list[Call] = []
        self._working: deque[tuple[Call, Work]] = deque()
        self._marked_at = -MARK_EVERY_MS
        self._housekeeping_from = 0
        self._chores_from = 0

    def submit(self, call: Call) -> None:
        """Take a call into the next group."""
        call.started_ns = time.monotonic_ns()
        self._pending.append(call)

    def cancel(self, call: Call) -> None:
        """Forget a call that waits; it gets no answer."""
        self.waiters.remove(call)
        self._working = deque(one for one in self._working if one[0] is not call)

    def run_group(self) -> None:
        """Decide all submitted calls, end leases that are over, make it durable, answer.

        Raises one of ``FATAL``: then nobody was answered and the broker must not be used again.
        """
        calls, self._pending = self._pending, []
        self._run(calls, housekeeping=self.clock.now().engine >= self._housekeeping_from)
        self._step()

    def next_due(self) -> int | None:
        """The engine time at which there is something to do without a request."""
        if self._working:
            return 0
        times = [t for t in (self.store.due.next_time(), self.waiters.next_end()) if t is not None]
        return max(min(times), self._housekeeping_from) if times else None

    @property
    def is_working(self) -> bool:
        """Whether questions are being worked on: ``run_group`` does a step of one."""
        return bool(self._working)

    def reload(self, policies: Policies) -> None:
        """Work by other policies from the next group on."""
        self._parts.policies = policies
        self._parts.addresses.forget()

    def depths(self) -> dict[str, int]:
        """How many messages there are in all queues, by state, as of a few seconds ago."""
        return depths.found(self._parts.rounds)

    def stop(self) -> None:
        """The last group of a run: a clock mark that says that the daemon stopped in order, if the disk takes it.

        Raises as ``run_group``.
        """
        while not self._mark_the_end():
            if not self._reserve.give():
                log.error("stopping without a mark")
                break
        if self.journal.unsynced:
            self.journal.sync()

    def _mark_the_end(self) -> bool:
        attempt = Attempt(self._parts, self.clock.now())
        self.store.begin()
        try:
            attempt.mark(clean=True)
            self._make_durable(attempt)
        except (JournalRefused, StoreFull) as error:
            log.error("%s", error)
            self._give_up(attempt)
            return False
        return True

    def accept_losses(self) -> list[list[int]]:
        """Record that an operator has taken note of the events that the store has never seen. Their ranges.

        Raises as ``run_group``, and ``JournalRefused`` or ``StoreFull`` when the disk takes nothing.
        """
        losses: list[list[int]] = self.store.get_kv(FACT_LOSSES) or []
        if losses:
            note = {"type": EventType.LOSS_ACCEPTED, "ranges": losses}
            self._do_alone(lambda attempt: attempt.group.record([note]))
        return losses

    def note_missing(self, ranges: list[list[int]]) -> None:
        """Record that an operator has taken note of events that the journal lacks and the store has folded. What the
        store has never seen must be accepted first. Raises as ``accept_losses``."""
        note = {"type": EventType.LOSS_ACCEPTED, "ranges": ranges, "folded": True}
        self._do_alone(lambda attempt: attempt.group.record([note]))

    def bury(self, keys: list[str]) -> None:
        """Let messages die whose bodies are lost, without waiting until they are to be delivered. Raises as
        ``accept_losses``."""
        self._do_alone(lambda attempt: attempt.bury(keys))

    def _do_alone(self, work: Callable[[Attempt], object]) -> None:
        """A group that no client asked for."""
        attempt = Attempt(self._parts, self.clock.now())
        self.store.begin()
        work(attempt)
        try:
            self._make_durable(attempt)
        except (JournalRefused, StoreFull):
            self._give_up(attempt)
            raise

    # --- a group, and what becomes of it ----------------------------------------------------------------------

    def _run(self, calls: list[Call], housekeeping: bool) -> None:
        attempt = Attempt(self._parts, self.clock.now())
        try:
            self._decide(attempt, calls, housekeeping)
            places = self._make_durable(attempt)
        except FATAL:
            raise
        except JournalRefused as error:
            self._give_up(attempt)
            self._refuse(calls, housekeeping, error, error.full)
        except (StoreFull, StoreBusy) as error:
            self._give_up(attempt)
            self._refuse(calls, housekeeping, error, isinstance(error, StoreFull))
        except Exception as error:
            self._give_up(attempt)
            self._isolate(calls, housekeeping, error)
        else:
            attempt.remember(places)
            self._vitals.count_group(len(calls), attempt.group.events, attempt.now)
            for call, answer in attempt.answers:
                self._answer(call, answer)
            self._working.extend(attempt.working)

    def _step(self) -> None:
        """Do a step of one of the questions that take long; they have their turns one after the other."""
        if not self._working:
            return
        call, work = self._working.popleft()
        try:
            next(work)
        except StopIteration as ended:
            self._answer(call, Answer(ended.value))
        except CommandError as error:
            self._answer(call, Answer(error=error))
        except OSError as error:
            self._answer(call, Answer(error=CommandError(ErrorCode.STORAGE_FAILED, f"the journal: {error}")))
        else:
            self._working.append((call, work))

    def _decide(self, attempt: Attempt, calls: list[Call], housekeeping: bool) -> None:
        self.store.begin()
        if housekeeping:
            chores = attempt.now.engine >= self._chores_from
            attempt.keep_house(chores)
            if chores:
                self._chores_from = attempt.now.engine + CHORES_EVERY_MS
            if attempt.now.engine - self._marked_at >= MARK_EVERY_MS:
                attempt.mark()
        for call in calls:
            attempt.take(call)

    def _make_durable(self, attempt: Attempt) -> list[int]:
        """Journal, sync, commit. Where the events stand in the journal."""
        group = attempt.group
        places: list[int] = []
        if group.events:
            self.store.flush_pending()
            if self.journal.wants_roll():
                self.journal.roll()
            if self._sync_each_group:
                self.store.bodies.sync()
            lines = group.encode()
            self._make_room(group, sum(map(len, lines)))
            places = self.journal.append(lines, group.last_id)
            if self._sync_each_group:
                self.journal.sync()
        try:
            self.store.commit()
        except StoreDamaged:
            raise
        except StoreError as error:
            if group.events:
                if isinstance(error, StoreFull):
                    self._reserve.give()
                raise MustRecover(f"{error}; the journal has the group") from error
            raise
        if group.count("clock_marked"):
            self._marked_at = attempt.now.engine
        return places

    def _make_room(self, group: Group, journal_bytes: int) -> None:
        """See that the store will have room for what the journal is about to say. Raises ``JournalRefused``."""
        needed = GROUP_BYTES + self.store.disk.space_needed(len(group.events)) + 2 * journal_bytes
        if not self._reserve.make_room(needed, give=not group.count(EventType.PUBLISHED)):
            fewer = "; fewer messages in one request need less" if len(group.events) > 1 else ""
            text = f"{os.strerror(errno.ENOSPC)}: {needed} bytes must be free for this{fewer}"
            raise NoRoom(OSError(errno.ENOSPC, text))

    def _give_up(self, attempt: Attempt) -> None:
        try:
            self.store.rollback()
        except StoreDamaged:
            raise
        except StoreError as error:
            raise MustRecover(f"rollback: {error}") from error
        attempt.rollback()
        self._housekeeping_from = attempt.now.engine + HOUSEKEEPING_PAUSE_MS
        self._chores_from = attempt.now.engine + CHORES_PAUSE_MS

    def _refuse(self, calls: list[Call], housekeeping: bool, why: Exception, full: bool) -> None:
        """The disk took nothing of the group. Questions need no disk; where only space is lacking, what is no publish
        may fit without the rest, or into the reserve, or else by itself."""
        log.error("%s", why)
        code = ErrorCode.STORAGE_FULL if full else ErrorCode.STORAGE_FAILED
        rest = [call for call in calls if call.command in QUESTIONS or (full and call.command not in BRINGING)]
        nothing_left_out = len(rest) == len(calls) and not housekeeping
        helps = full and not isinstance(why, NoRoom)
        if nothing_left_out and not (helps and self._reserve.give()):
            if full and len(calls) > 1:
                for call in calls:
                    self._run([call], housekeeping=False)
                return
            rest = []
        for call in calls:
            if call not in rest:
                self._answer(call, Answer(error=CommandError(code, f"nothing was changed: {why}")))
        if rest:
            self._run(rest, housekeeping=False)

    def _isolate(self, calls: list[Call], housekeeping: bool, error: Exception) -> None:
        """One of the calls, or the housekeeping, cannot be done: each by itself, so that only that one fails."""
        if len(calls) == 1 and not housekeeping:
            call = calls[0]
            request, client = call.request.request_id, call.who.client_id
            log.error("request %s of %s failed", request, client, exc_info=error, extra=about_call(call))
            stored = isinstance(error, StoreError | OSError) and not isinstance(error, NotStored)
            code = ErrorCode.STORAGE_FAILED if stored else ErrorCode.INTERNAL_ERROR
            self._answer(call, Answer(error=CommandError(code, f"nothing was changed: {error}")))
            return
        log.error("a group of %d requests failed; each is tried by itself", len(calls), exc_info=error)
        for call in calls:
            self._run([call], housekeeping=False)

    def _answer(self, call: Call, answer: Answer) -> None:
        self._vitals.count_answer(call, answer)
        try:
            call.on_answer(answer)
        except Exception:
            # What was done is done, and durable: only its answer cannot be given.
            request, client = call.request.request_id, call.who.client_id
            log.exception("the answer to request %s of %s cannot be given", request, client, extra=about_call(call))
            error = CommandError(ErrorCode.ANSWER_LOST, "this request was executed; its answer cannot be given")
            try:
                call.on_answer(Answer(error=error))
            except Exception:
                log.exception("nor can the error; the others of the group are to be answered all the same")
