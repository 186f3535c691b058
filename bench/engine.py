"""The engine without the mailbox: requests go to the broker in groups, with one sync of the journal per group."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom_common.codec import Request as WireRequest
from postroom_daemon.broker.idempotency import request_key
from postroom_daemon.config.config import load
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Answer, Request
from postroom_daemon.root.open_root import OpenRoot, Sources, open_root

from .load import MESSAGE

_FILL_GROUP = 1000
_numbers = itertools.count()
Payload = dict[str, Any]


@contextmanager
def opened(root: Path, **flags: str) -> Iterator[OpenRoot]:
    """An open root without a daemon; ``flags`` are settings by their attribute's name with ``__`` for the dot."""
    found = open_root(load(root, None, {}, {key.replace("__", "."): text for key, text in flags.items()}), Sources())
    try:
        yield found
        found.broker.stop()
        found.store.disk.checkpoint()
    finally:
        found.close()


def make_request(command: str, payload: Payload, on_answer: Callable[[Answer], None]) -> Request:
    """A call as the mailbox would make it."""
    uid = os.geteuid()
    wire = WireRequest(f"bench-{next(_numbers)}", "bench", command, 0, payload)
    key = request_key(uid, wire.request_id.encode())
    return Request(wire, Principal("bench", uid), key, 0, on_answer)


def run_requests(root: OpenRoot, command: str, payloads: list[Payload]) -> list[dict[str, Any]]:
    """One group of ``payloads``; its answers' data. Raises the first error that is answered."""
    answers: list[Answer] = []
    for payload in payloads:
        root.broker.submit(make_request(command, payload, answers.append))
    while root.broker.has_work:
        root.broker.run_group()
    if root.traffic:
        root.traffic.flush()
    for answer in answers:
        if answer.error:
            raise answer.error
    return [answer.data or {} for answer in answers]


def publish_rate(root: OpenRoot, count: int, group: int) -> float:
    """Durable publishes per second in groups of ``group``."""
    payloads = [{"queue": "engine", "message": MESSAGE}] * group
    started = time.monotonic()
    for _ in range(count // group):
        run_requests(root, "publish", payloads)
    return count // group * group / (time.monotonic() - started)


def cycle_rate(root: OpenRoot, count: int, group: int) -> float:
    """Messages per second through publish, consume and ack, each in groups of ``group``."""
    started = time.monotonic()
    for _ in range(count // group):
        run_requests(root, "publish", [{"queue": "cycle", "message": MESSAGE}] * group)
        taken = run_requests(root, "consume_next", [{"queue": "cycle"}] * group)
        leases = [answer["lease"] for answer in taken]
        run_requests(root, "ack", [{"messageKey": one["messageKey"], "leaseId": one["leaseId"]} for one in leases])
    return count // group * group / (time.monotonic() - started)


def fill(root: Path, queue: str, count: int, **fields: Any) -> None:
    """Put ``count`` messages into a queue of a stopped root."""
    fill_queues(root, itertools.repeat(queue, count), **fields)


def fill_queues(root: Path, queues: Iterable[str], **fields: Any) -> None:
    """Put a message into each of the queues of a stopped root."""
    names = iter(queues)
    with opened(root, traffic__enabled="false") as found:
        while group := list(itertools.islice(names, _FILL_GROUP)):
            run_requests(found, "publish", [{"queue": queue, "message": MESSAGE, **fields} for queue in group])
