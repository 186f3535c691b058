"""Batches of 100 by one client in a closed loop, beside what the disk and a bare table of SQLite do with as many.

The floor is ``floor.c`` with requests, events and responses as large as those of a batch: the system calls alone. The
table is the least that a queue on SQLite could be, in one process and without a daemon: a message is a row, a batch is
a transaction that is synced; consumed messages are leased by an update and removed by a second transaction.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .daemon import Daemon
from .floor import EVENT_BYTES, Floor
from .load import MESSAGE

BATCH = 100
#: Bytes of a batch's request and response for each message.
_REQUEST_BYTES = 110
_RESPONSE_BYTES = 135
_QUEUE = "batches"


@dataclass(slots=True)
class Rates:
    """Messages a second through publish, and through consume and settle together."""

    publish: float
    consume: float
    publish_cpu_us: float = 0.0
    consume_cpu_us: float = 0.0


def floor_rate(floor: Floor, batches: int) -> float:
    """Messages a second that the system calls of ``batches`` requests allow, each in a group of its own."""
    sizes = (BATCH * EVENT_BYTES, BATCH * _RESPONSE_BYTES, BATCH * _REQUEST_BYTES)
    _, per_second = floor.requests(batches, 1, *sizes)
    return per_second * BATCH


def through_the_mailbox(daemon: Daemon, batches: int) -> Rates:
    """The real client: ``publish_batch``, then ``consume_next`` with ``max`` and ``ack_batch``; the queue is empty at
    the end. CPU is the daemon's for each message."""
    client = daemon.client
    messages = [{"message": MESSAGE}] * BATCH

    def publish() -> None:
        results: list[dict[str, Any]] = client.publish_batch(messages, queue=_QUEUE)["results"]
        if any("error" in result for result in results):
            raise RuntimeError(f"refused: {results}")

    def consume() -> None:
        taken = client.consume_next(_QUEUE, max=BATCH)
        results = client.ack_batch(taken)["results"]
        if len(taken) != BATCH or any("error" in result for result in results):
            raise RuntimeError(f"{len(taken)} messages came, with {results}")

    publish()
    consume()  # the queue, the client's box
    publish_rate, publish_cpu = _timed(daemon, publish, batches)
    consume_rate, consume_cpu = _timed(daemon, consume, batches)
    return Rates(publish_rate, consume_rate, publish_cpu, consume_cpu)


def _timed(daemon: Daemon, step: Callable[[], None], batches: int) -> tuple[float, float]:
    cpu_s, started = daemon.cpu_s(), time.monotonic()
    for _ in range(batches):
        step()
    seconds = time.monotonic() - started
    return batches * BATCH / seconds, (daemon.cpu_s() - cpu_s) / batches / BATCH * 1e6


def bare_table(path: Path, batches: int) -> Rates:
    """The same with ``sqlite3`` and nothing around it."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body TEXT NOT NULL)")
        db.execute("CREATE INDEX ready ON queue (id) WHERE state = 0")
        started = time.monotonic()
        for _ in range(batches):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO queue (state, body) VALUES (0, ?)", [(MESSAGE,)] * BATCH)
            db.execute("COMMIT")
        published = time.monotonic()
        for _ in range(batches):
            db.execute("BEGIN IMMEDIATE")
            rows = db.execute("SELECT id, body FROM queue WHERE state = 0 ORDER BY id LIMIT ?", (BATCH,)).fetchall()
            db.executemany("UPDATE queue SET state = 1 WHERE id = ?", [(row[0],) for row in rows])
            db.execute("COMMIT")
            for _, body in rows:
                json.loads(body)
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM queue WHERE id = ?", [(row[0],) for row in rows])
            db.execute("COMMIT")
        ended = time.monotonic()
    finally:
        db.close()
    count = batches * BATCH
    return Rates(count / (published - started), count / (ended - published))
