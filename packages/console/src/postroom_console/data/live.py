"""The source of updates that a running daemon is: one thread asks, one acts, one reads the tails.

The threads put updates into a list; the screen takes them out on a timer, so that a burst costs one look.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from postroom_client import Client

from .link import Link
from .records import Record, from_event, from_request
from .tails import Tail
from .updates import Failure, Lines, Outcome, Result, Save, Step, Update

#: How often the tails are looked at, in seconds.
TAIL_EVERY_S: Final = 0.2
#: Updates that may wait for the screen; a screen that takes none is told what was passed over.
_WAITING_RECORDS: Final = 50_000


@dataclass(slots=True)
class _Question:
    name: str
    command: str
    payload: Mapping[str, Any]
    every_ms: int
    due_ms: int = 0


def now_ms() -> int:
    """Monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Live:
    """``make`` gives a client of the daemon; ``journal`` and ``traffic`` are directories to read, where they may be
    read. See ``Source``."""

    is_live = True

    def __init__(self, make: Callable[[], Client], journal: Path | None, traffic: Path | None) -> None:
        self._make = make
        self._tails = [(Tail(root), read) for root, read in ((journal, from_event), (traffic, from_request)) if root]
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._updates: list[tuple[int, Update]] = []
        self._records = 0
        self._questions: dict[str, _Question] = {}
        self._actions: queue.SimpleQueue[tuple[int, tuple[Step | Save, ...], float | None] | None] = queue.SimpleQueue()
        self._tickets = count(1)
        self._threads = [
            threading.Thread(target=run, name=run.__name__, daemon=True)
            for run in (self._ask_on, self._act_on, self._read_on)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._woken.set()
        self._actions.put(None)
        for thread in self._threads:
            thread.join(1.0)

    def drain(self) -> list[tuple[int, Update]]:
        with self._lock:
            taken, self._updates = self._updates, []
            self._records = 0
        return taken

    def want(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        with self._lock:
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

    def act(self, steps: tuple[Step | Save, ...], rate: float | None = None) -> int:
        ticket = next(self._tickets)
        self._actions.put((ticket, steps, rate))
        return ticket

    # --- threads ----------------------------------------------------------------------------------------------

    def _put(self, update: Update) -> None:
        with self._lock:
            self._updates.append((now_ms(), update))

    def _ask_on(self) -> None:
        link = Link(self._make, self._ended.is_set)
        while not self._ended.is_set():
            with self._lock:
                due = [question for question in self._questions.values() if question.due_ms <= now_ms()]
            for question in due:
                answer = link.ask(question.name, question.command, question.payload)
                question.due_ms = now_ms() + question.every_ms
                with self._lock:
                    is_wanted = self._questions.get(question.name) is question
                if is_wanted:
                    self._put(answer)
                if self._ended.is_set() or (isinstance(answer, Failure) and not answer.code):
                    break  # nobody is there: the others would wait in vain, too
            with self._lock:
                dues = [question.due_ms for question in self._questions.values()]
            self._woken.wait(max(0.0, (min(dues, default=now_ms() + 1000) - now_ms()) / 1000))
            self._woken.clear()
        link.close()

    def _act_on(self) -> None:
        link = Link(self._make, self._ended.is_set)
        while (action := self._actions.get()) is not None and not self._ended.is_set():
            ticket, steps, rate = action
            try:
                self._put(link.act(ticket, steps, rate))
            except Exception as error:  # whatever it is, the technician is told how it ended
                self._put(Outcome(ticket, Result.UNKNOWN, text=repr(error)))
            self.refresh()
        link.close()

    def _read_on(self) -> None:
        told = ""
        while not self._ended.is_set():
            records: list[Record] = []
            bad = 0
            for tail, read in self._tails:
                lines = tail.read()
                found = [record for record in map(read, lines) if record]
                bad += len(lines) - len(found)
                records += found
            skipped = sum(tail.skipped_bytes for tail, _ in self._tails)
            for tail, _ in self._tails:
                tail.skipped_bytes = 0
            problem = "; ".join(tail.problem for tail, _ in self._tails if tail.problem)
            if records or skipped or bad or problem != told:
                told = problem
                self._put_lines(Lines(tuple(records), skipped, bad, problem))
            if not records:
                self._ended.wait(TAIL_EVERY_S)
            else:
                self._ended.wait(TAIL_EVERY_S / 4)
        for tail, _ in self._tails:
            tail.close()

    def _put_lines(self, lines: Lines) -> None:
        with self._lock:
            if self._records + len(lines.records) > _WAITING_RECORDS:
                passed = sum(len(record.raw) + 1 for record in lines.records)
                lines = Lines((), lines.skipped_bytes + passed, lines.bad_lines, lines.problem)
            self._records += len(lines.records)
            self._updates.append((now_ms(), lines))
