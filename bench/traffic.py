"""Journal and traffic lines as a daemon writes them, at a rate or as fast as somebody reads them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.events import encode_line

from .daemon import die_with_parent

#: Stands in the body of each message that is published, with the time of its writing in monotonic milliseconds.
STAMP: Final = re.compile(rb"T(\d{12})E")
STAMP_BYTES: Final = 14
#: Bytes of a file at which the next one is begun, and files that are kept of each kind.
_FILE_BYTES: Final = 32 * 1024 * 1024
_KEPT: Final = 2
_BATCH_S: Final = 0.02
_FORK = multiprocessing.get_context("fork")


class Writer:
    """Writes events into ``place/journal``, and for each the request that made it into ``place/traffic``: a message is
    published, leased and acknowledged, then the next one, in one of eight queues. Engine time is the event's number."""

    def __init__(self, place: Path) -> None:
        self.journal = _Files(place / "journal")
        self.traffic = _Files(place / "traffic")
        self._event = 0

    def write(self, events: int) -> int:
        """Add so many events; the stamp of the last message."""
        now = time.monotonic_ns() // 1_000_000
        wall = time.time_ns() // 1_000_000
        lines, requests = [], []
        for _ in range(events):
            self._event += 1
            message, step = divmod(self._event, 3)
            event, request = _lines(self._event, message, step, now, wall)
            lines.append(event)
            requests.append(request)
        self.traffic.add(requests, self._event)
        self.journal.add(lines, self._event)
        return now

    def close(self) -> None:
        """Let go of the files."""
        self.journal.close()
        self.traffic.close()


def _lines(number: int, message: int, step: int, now: int, wall: int) -> tuple[bytes, bytes]:
    queue = f"queue-{message % 8}"
    key = f"msg:{queue}:01a2218d-88d6-7f92-9749-{message:012x}"
    request = f"{number:032x}"
    numbers = dict.fromkeys(("id", "epoch", "req", "grp", "engineMs"), number) | {"epoch": 1}
    fields: dict[str, Any] = {**numbers, "wallMs": wall}
    if step == 0:
        body = {"stamp": f"T{now:012d}E", "sensor": "A1", "temp": 25.5, "ok": True}
        fields |= {"type": "published", "queue": queue, "key": key, "message": {"parts": [{"json": body}]}}
    elif step == 1:
        lease = {"lease": "11a7963c-3a72-456c-87b5-df886ffac922", "consumer": f"worker-{message % 5}", "uid": 1000}
        until = {"untilEngineMs": number + 30_000, "attempt": 1}
        fields |= {"type": "leased", "queue": queue, "key": key, **lease, **until}
    else:
        fields |= {"type": "acked", "queue": queue, "key": key, "heldMs": 12}
    by = {"uid": 1000, "client": f"app-{message % 5}", "request": request, "digest": "865877a6dc8e619f3d474e3b6c0744e2"}
    told = {
        "wallMs": wall,
        "engineMs": number,
        "client": by["client"],
        "uid": 1000,
        "command": ("publish", "consume_next", "ack")[step],
        "queue": queue,
        "code": "OK",
        "ms": 0.4,
        "bytes": 254,
        "request": request,
    }
    return encode_line(fields | {"by": by}), orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


class _Files:
    """Numbered files of a directory, of which only the last are kept."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        self._root = root
        self._names: list[Path] = []
        self._fd = -1
        self._size = 0

    def add(self, lines: list[bytes], number: int) -> None:
        if self._fd < 0 or self._size > _FILE_BYTES:
            self.close()
            self._names.append(self._root / f"{number:020}.jsonl")
            self._fd = os.open(
                self._names[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            self._size = 0
            while len(self._names) > _KEPT:
                self._names.pop(0).unlink()
        self._size += os.write(self._fd, b"".join(lines))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def flowing(place: Path, events_per_s: int) -> Iterator[None]:
    """In another process, so many events a second into ``place`` for the length of a block."""
    process = _FORK.Process(target=_flow, args=(place, events_per_s), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _flow(place: Path, events_per_s: int) -> None:
    die_with_parent()
    writer = Writer(place)
    begun = time.monotonic()
    written = 0
    while True:
        due = int((time.monotonic() - begun) * events_per_s)
        if due > written:
            writer.write(due - written)
            written = due
        time.sleep(_BATCH_S)
