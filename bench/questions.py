"""``scripts/bench questions``: how long a question about much data holds the daemon's loop, and with it all others.

The daemon's own broker works in this process on a real root with SQLite. Each question is asked some times; what is
shown is the longest group of any, with the encoding of its answer: CPU time of the thread, and time by the clock, which
other work on the machine lengthens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from postroom_common.codec import Request as WireRequest
from postroom_daemon.broker.broker import Broker
from postroom_daemon.broker.idempotency import request_key
from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox.codec import encode_answer
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Answer, Request
from postroom_daemon.root.open_root import Sources, open_root

TIMES = 3


class Spill(NamedTuple):
    """A question, and the longest time that it held the loop, in ms."""

    question: str
    cpu_ms: float
    wall_ms: float


class _Asker:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._count = 0

    def ask(self, command: str, **payload: Any) -> tuple[dict[str, Any], float, float]:
        """The data of the answer, and the longest group in CPU and wall milliseconds."""
        self._count += 1
        answers: list[Answer] = []
        wire = WireRequest(f"r{self._count}", "bench", command, 0, payload)
        key = request_key(os.geteuid(), wire.request_id.encode())
        request = Request(wire, Principal("bench", os.geteuid()), key, time.time_ns() // 1_000_000, answers.append)
        self._broker.submit(request)
        cpu = wall = 0.0
        while not answers:
            cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
            self._broker.run_group()
            if answers:
                encode_answer(wire.request_id, answers[0])
            cpu = max(cpu, (time.thread_time_ns() - cpu_ns) / 1e6)
            wall = max(wall, (time.perf_counter_ns() - wall_ns) / 1e6)
        if answers[0].error:
            raise RuntimeError(f"{command}: {answers[0].error}")
        return answers[0].data or {}, cpu, wall

    def hold(self, question: str, command: str, times: int = TIMES, **payload: Any) -> Spill:
        asked = [self.ask(command, **payload)[1:] for _ in range(times)]
        return Spill(question, max(cpu for cpu, _ in asked), max(wall for _, wall in asked))


def measure(directory: Path) -> Iterator[Spill]:
    """Fill a root, and ask."""
    directory.mkdir()
    root = open_root(load(directory, None, {}, {"backend": "sqlite"}), Sources())
    try:
        yield from _ask_all(_Asker(root.broker))
    finally:
        root.close()


def _ask_all(asker: _Asker) -> Iterator[Spill]:
    first = asker.ask("publish", queue="large", message="first")[0]["messageKey"]
    for _ in range(40):
        asker.ask("publish", queue="large", message=os.urandom(450_000).hex())
    for _ in range(12):
        values = [{"b": number, "c": "x"} for number in range(20_000)]
        asker.ask("publish", queue="deep", message={"a": values})
    attributes = {f"k{number}": "v" for number in range(30_000)}
    for _ in range(10):
        asker.ask("publish", queue="headed", message="x", attributes=attributes)
    for _ in range(40):
        asker.ask("publish_batch", queue="small", messages=[{"message": "x" * 100}] * 100)
    text: dict[str, Any] = {"filter": {"text": "nowhere"}, "limit": 1000}
    yield asker.hold("get_message: history, 36 MB of journal", "get_message", messageKey=first, events=10)
    yield asker.hold("browse: text, bodies of 0.9 MB", "browse", queue="large", **text)
    yield asker.hold("browse: whole bodies of 0.9 MB", "browse", queue="large", fullBodies=True)
    one: dict[str, Any] = {"filter": {"jsonPath": "$..zzz"}, "limit": 1000}
    yield asker.hold("browse: jsonPath, the first: loads the library", "browse", 1, queue="deep", **one)
    hard: dict[str, Any] = {"filter": {"jsonPath": "$..[?@.b == 'no']"}, "limit": 1000}
    yield asker.hold("browse: jsonPath, bodies of 60,000 values", "browse", queue="deep", **hard)
    no_such: dict[str, Any] = {"filter": {"attribute": {"no": "v"}}, "limit": 1000}
    yield asker.hold("browse: attribute, 30,000 a message", "browse", queue="headed", **no_such)
    yield asker.hold("browse: text, 4,000 small messages", "browse", queue="small", **text)
    yield asker.hold("browse: 1,000 small messages", "browse", queue="small", limit=1000)
    yield asker.hold("purge: dry run, text, 4,000 messages", "purge", queue="small", dryRun=True, **text)
