"""The process of one queue: ``python -m bench.stores.worker KIND DIRECTORY``. Orders come as lines of JSON, and each is
answered by one. Its own process, so that what it writes and what environment it needs are its own."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .queue import FLOORS, STORES, Ledger, Queue

#: Messages that are published, then consumed, then acknowledged, before the next are; a multiple of every group.
CHUNK = 32


def open_queue(kind: str, directory: Path) -> Queue:
    """The queue of a kind. Raises ``ImportError`` when its package is not there."""
    if kind in (*STORES, *FLOORS):
        from . import ours

        return ours.Floor(directory, kind == "overwrite") if kind in FLOORS else ours.OurQueue(directory, kind)
    from . import peers

    if kind == "persist-queue":
        return peers.PersistQueue(directory)
    return peers.LiteQueue(directory) if kind == "litequeue" else peers.DirQueue(directory)


class Worker:
    """A queue and the ledger of what it was given."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._ledger = Ledger()

    def fill(self, to: int) -> dict[str, Any]:
        """Bring the queue to ``to`` messages."""
        started = time.monotonic()
        self._queue.fill(self._ledger.make(to - self._ledger.left))
        self._ledger.check(self._queue.left())
        return {"seconds": time.monotonic() - started}

    def round(self, group: int, durable: bool, count: int, limit_s: float) -> dict[str, Any]:
        """Publish, consume and acknowledge ``count`` messages, fewer if it takes longer than ``limit_s``. Seconds and
        bytes of one message."""
        self._queue.prepare(durable)
        spent = {"publish": 0.0, "consume": 0.0, "ack": 0.0}
        done, before, until = 0, _disk_bytes(), time.monotonic() + limit_s
        while done < count and (done == 0 or time.monotonic() < until):
            self._chunk(group, spent)
            done += CHUNK
        started = time.monotonic()
        self._queue.tidy()
        tidy_s = time.monotonic() - started
        moved = {
            name: (late - early) / done
            for (name, late), early in zip(_disk_bytes().items(), before.values(), strict=True)
        }
        return {name: seconds / done for name, seconds in spent.items()} | {
            "count": done,
            "tidy": tidy_s,
            **moved,
        }

    def _chunk(self, group: int, spent: dict[str, float]) -> None:
        queue, begins = self._queue, range(0, CHUNK, group)
        bodies = list(self._ledger.make(CHUNK))
        before = time.perf_counter()
        for begin in begins:
            queue.publish(bodies[begin : begin + group])
        published = time.perf_counter()
        taken = [one for _ in begins for one in queue.consume(group)]
        consumed = time.perf_counter()
        for begin in begins:
            queue.ack([handle for _, handle in taken[begin : begin + group]])
        acked = time.perf_counter()
        self._ledger.settle([body for body, _ in taken])
        spent["publish"] += published - before
        spent["consume"] += consumed - published
        spent["ack"] += acked - consumed

    def check(self) -> dict[str, Any]:
        """Raises ``WrongMessages`` unless the queue has exactly what was published and not acknowledged."""
        self._ledger.check(self._queue.left())
        return {"left": self._ledger.left}

    def versions(self) -> dict[str, str]:
        """Of the queue and of what runs it."""
        return self._queue.versions() | {"python": platform.python_version()}


def _disk_bytes() -> dict[str, int]:
    """Bytes that this process has made the kernel fetch from disks and send to them: the latter are pages that it has
    soiled, each time they were clean."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {"read": int(counts["read_bytes"]), "written": int(counts["write_bytes"])}


def main() -> int:
    """Serve orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a package prints is no answer
    try:
        queue = open_queue(sys.argv[1], Path(sys.argv[2]))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)
        return 0
    worker = Worker(queue)
    print(json.dumps(worker.versions()), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    queue.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
