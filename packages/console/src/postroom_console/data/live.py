"""The source of updates that a running daemon is: one thread asks, one acts, one reads the tails; an action that is
slow on purpose has a thread of its own.

The threads put updates into a list; the screen takes them out on a timer, so that a burst costs one look.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from postroom_client import Client

from .execution import carry_out
from .link import Link
from .reader import Reader
from .tails import READ_BYTES
from .updates import Answer, Failure, Lines, Outcome, Result, Steps, Update, Work

#: How often the tails are looked at, in seconds, when nothing happens and when something does.
TAIL_EVERY_S: Final = 0.4
TAIL_BUSY_S: Final = 0.05
#: The same while more stands there than what one look reads.
TAIL_BEHIND_S: Final = 0.01
#: Bytes of records that may wait for the screen; of more than that it is only told how much was passed over.
_WAITING_BYTES: Final = 16 * 1024 * 1024
#: A question whose answer takes long is asked seldomer: it rests for so many times as long, but not so long that what
#: is known would be taken for old.
_REST: Final = 10
_REST_MS: Final = 3000
#: Seconds that ``stop`` waits for the threads.
_STOP_S: Final = 0.9


@dataclass(slots=True)
class _Question:
    name: str
    command: str
    payload: Mapping[str, Any]
    every_ms: int
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    ticket: int
    steps: Steps
    rate: float | None
    is_cancelled: threading.Event


def now_ms() -> int:
    """Monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Live:
    """``make`` gives a client of the daemon; ``journal`` and ``traffic`` are directories to read, where they may be
    read. See ``Source``."""

    is_live = True

    def __init__(self, make: Callable[[], Client], journal: Path | None, traffic: Path | None) -> None:
        self._make = make
        self._reader = Reader(journal, traffic)
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._updates: list[tuple[int, Update]] = []
        self._bytes = 0
        self._questions: dict[str, _Question] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: dict[int, _Job] = {}
        self._tickets = count(1)
        self._threads = [_thread(run) for run in (self._ask_on, self._act_on, self._read_on)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._woken.set()
        with self._lock:
            for job in self._running.values():
                job.is_cancelled.set()
        self._jobs.put(None)
        ends = time.monotonic() + _STOP_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, ends - time.monotonic()))

    def drain(self) -> list[tuple[int, Update]]:
        with self._lock:
            taken, self._updates = self._updates, []
            self._bytes = 0
        return taken

    def want(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        with self._lock:  # an answer to the question that had this name is none to this one
            self._updates = [one for one in self._updates if not _is_answer(one[1], name)]
            self._questions[name] = _Question(name, command, payload, every_ms)
        self._woken.set()

    def forget(self, name: str) -> None:
        with self._lock:
            self._questions.pop(name, None)

    def refresh(self) -> None:
        with self._lock:
            for question in self._questions.values():
                question.due_ms = 0
        self._woken.set()

    def act(self, steps: Steps, rate: float | None = None) -> int:
        job = _Job(next(self._tickets), steps, rate, threading.Event())
        with self._lock:
            self._running[job.ticket] = job
        if rate or any(isinstance(step, Work) for step in steps):
            _thread(lambda: self._carry_out(job)).start()
        else:
            self._jobs.put(job)
        return job.ticket

    def cancel(self, ticket: int) -> None:
        with self._lock:
            job = self._running.get(ticket)
        if job:
            job.is_cancelled.set()

    def note(self) -> str:
        return ""

    # --- threads ----------------------------------------------------------------------------------------------

    def _put(self, update: Update) -> None:
        with self._lock:
            if isinstance(update, Answer):  # a screen that takes none gets the last one
                self._updates = [one for one in self._updates if not _is_answer(one[1], update.name)]
            self._updates.append((now_ms(), update))

    def _ask_on(self) -> None:
        link = Link(self._make, self._ended.is_set)
        while not self._ended.is_set():
            for question in self._due():
                begun_ms = now_ms()
                question.due_ms = begun_ms + question.every_ms  # before it is asked: a refresh meanwhile asks again
                try:
                    answer = link.ask(question.name, question.command, question.payload)
                except Exception as error:  # an answer of another shape than this version knows
                    answer = Failure(question.name, "", repr(error))
                with self._lock:
                    is_wanted = self._questions.get(question.name) is question
                if self._ended.is_set():
                    break
                if is_wanted:
                    self._put(answer)
                if question.due_ms and isinstance(answer, Answer):
                    rest_ms = min((now_ms() - begun_ms) * _REST, _REST_MS)
                    question.due_ms = max(question.due_ms, now_ms() + rest_ms)
                if isinstance(answer, Failure) and not answer.code:
                    break  # nobody is there: the others would wait in vain, too
            with self._lock:
                dues = [question.due_ms for question in self._questions.values()]
            self._woken.wait(max(0.0, (min(dues, default=now_ms() + 1000) - now_ms()) / 1000))
            self._woken.clear()
        link.close()

    def _due(self) -> list[_Question]:
        now = now_ms()
        with self._lock:
            return [question for question in self._questions.values() if question.due_ms <= now]

    def _act_on(self) -> None:
        while (job := self._jobs.get()) is not None and not self._ended.is_set():
            self._carry_out(job)

    def _carry_out(self, job: _Job) -> None:
        link = Link(self._make, job.is_cancelled.is_set, job.is_cancelled.wait)
        try:
            outcome = carry_out(link, job.ticket, job.steps, job.rate, self._put)
        except Exception as error:  # whatever it is, the technician is told how it ended
            outcome = Outcome(job.ticket, Result.UNKNOWN, text=repr(error))
        with self._lock:
            del self._running[job.ticket]
        self._put(outcome)
        link.close()
        self.refresh()

    def _read_on(self) -> None:
        told = ""
        while not self._ended.is_set():
            lines = self._reader.read()
            if lines != Lines((), problem=told):
                told = lines.problem
                self._put_lines(lines)
            is_behind = sum(len(record.raw) for record in lines.records) > READ_BYTES // 2
            self._ended.wait(TAIL_BEHIND_S if is_behind else TAIL_BUSY_S if lines.records else TAIL_EVERY_S)
        self._reader.close()

    def _put_lines(self, lines: Lines) -> None:
        size = sum(len(record.raw) + 1 for record in lines.records)
        with self._lock:
            if self._bytes + size > _WAITING_BYTES and self._bytes:
                lines = replace(lines, records=(), skipped_bytes=lines.skipped_bytes + size)
            else:
                self._bytes += size
            before = self._updates[-1][1] if self._updates else None
            if isinstance(before, Lines):
                lines = _joined(before, lines)
                self._updates.pop()
            self._updates.append((now_ms(), lines))


def _thread(run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, name="console", daemon=True)


def _is_answer(update: Update, name: str) -> bool:
    return isinstance(update, Answer) and update.name == name


def _joined(before: Lines, after: Lines) -> Lines:
    return Lines(
        before.records + after.records,
        before.skipped_bytes + after.skipped_bytes,
        before.bad_lines + after.bad_lines,
        after.problem,
        before.missing_events + after.missing_events,
    )
