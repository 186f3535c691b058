"""A running daemon as a source of updates: one thread polls, one executes actions, one reads the tails. A rate-limited
action has a thread of its own.

The threads put updates into a list, and the screen takes all of them on a timer.
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

from .execution import execute_action
from .link import Link
from .tails import READ_BYTES, Reader
from .updates import Answer, Failure, Lines, Outcome, Result, Steps, Update, Work

#: Seconds between two reads of the tails, when idle and when busy.
TAIL_EVERY_S: Final = 0.4
TAIL_BUSY_S: Final = 0.05
#: The same while there is more than one read takes.
TAIL_BEHIND_S: Final = 0.01
#: Bytes of records that may wait for the screen. Further records are skipped and counted.
_WAITING_BYTES: Final = 16 * 1024 * 1024
#: A query whose answer takes long is repeated less often: it rests for so many times that long, but less than the time
#: after which data counts as stale.
_REST: Final = 10
_REST_MS: Final = 3000
#: Seconds that ``stop`` waits for the threads.
_STOP_S: Final = 0.9


@dataclass(slots=True)
class _Query:
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
    """A source that polls a daemon and reads its journal and traffic log, where it may. See ``Source``."""

    is_live = True

    def __init__(self, make_client: Callable[[], Client], journal: Path | None, traffic: Path | None) -> None:
        self._make_client = make_client
        self._reader = Reader(journal, traffic)
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._updates: list[tuple[int, Update]] = []
        self._bytes = 0
        self._queries: dict[str, _Query] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: dict[int, _Job] = {}
        self._tickets = count(1)
        self._threads = [_thread(run) for run in (self._poll_loop, self._action_loop, self._tail_loop)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
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

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        with self._lock:  # it belongs to the query that had this name before
            self._updates = [one for one in self._updates if not _is_answer(one[1], name)]
            self._queries[name] = _Query(name, command, payload, every_ms)
        self._wake.set()

    def unsubscribe(self, name: str) -> None:
        with self._lock:
            self._queries.pop(name, None)

    def refresh(self) -> None:
        with self._lock:
            for query in self._queries.values():
                query.due_ms = 0
        self._wake.set()

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        job = _Job(next(self._tickets), steps, rate, threading.Event())
        with self._lock:
            self._running[job.ticket] = job
        if rate or any(isinstance(step, Work) for step in steps):
            _thread(lambda: self._run_job(job)).start()
        else:
            self._jobs.put(job)
        return job.ticket

    def cancel(self, ticket: int) -> None:
        with self._lock:
            job = self._running.get(ticket)
        if job:
            job.is_cancelled.set()

    def status_text(self) -> str:
        return ""

    # --- threads ----------------------------------------------------------------------------------------------

    def _put(self, update: Update) -> None:
        with self._lock:
            if isinstance(update, Answer):  # a screen that takes none gets the last one
                self._updates = [one for one in self._updates if not _is_answer(one[1], update.name)]
            self._updates.append((now_ms(), update))

    def _poll_loop(self) -> None:
        link = Link(self._make_client, self._stopped.is_set)
        while not self._stopped.is_set():
            for query in self._due():
                begun_ms = now_ms()
                query.due_ms = begun_ms + query.every_ms  # set before the query: a refresh meanwhile repeats it
                try:
                    answer = link.ask(query.name, query.command, query.payload)
                except Exception as error:  # a malformed answer
                    answer = Failure(query.name, "", repr(error))
                with self._lock:
                    is_wanted = self._queries.get(query.name) is query
                if self._stopped.is_set():
                    break
                if is_wanted:
                    self._put(answer)
                if query.due_ms and isinstance(answer, Answer):
                    rest_ms = min((now_ms() - begun_ms) * _REST, _REST_MS)
                    query.due_ms = max(query.due_ms, now_ms() + rest_ms)
                if isinstance(answer, Failure) and not answer.code:
                    break  # no daemon: the other queries would time out, too
            with self._lock:
                dues = [query.due_ms for query in self._queries.values()]
            self._wake.wait(max(0.0, (min(dues, default=now_ms() + 1000) - now_ms()) / 1000))
            self._wake.clear()
        link.close()

    def _due(self) -> list[_Query]:
        now = now_ms()
        with self._lock:
            return [query for query in self._queries.values() if query.due_ms <= now]

    def _action_loop(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopped.is_set():
            self._run_job(job)

    def _run_job(self, job: _Job) -> None:
        link = Link(self._make_client, job.is_cancelled.is_set, job.is_cancelled.wait)
        try:
            outcome = execute_action(link, job.ticket, job.steps, job.rate, self._put)
        except Exception as error:  # whatever it is, the technician sees the result
            outcome = Outcome(job.ticket, Result.UNKNOWN, text=repr(error))
        with self._lock:
            del self._running[job.ticket]
        self._put(outcome)
        link.close()
        self.refresh()

    def _tail_loop(self) -> None:
        problem = ""
        while not self._stopped.is_set():
            lines = self._reader.read()
            if lines != Lines((), problem=problem):
                problem = lines.problem
                self._put_lines(lines)
            is_behind = sum(len(record.raw) for record in lines.records) > READ_BYTES // 2
            self._stopped.wait(TAIL_BEHIND_S if is_behind else TAIL_BUSY_S if lines.records else TAIL_EVERY_S)
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
