"""Times of single requests on an otherwise idle daemon, by the real client."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from postroom_client import Client

from .daemon import Daemon, die_with_parent

_FORK = multiprocessing.get_context("fork")
_PATIENCE_S = 30.0
#: Between two messages: long enough for the consumer to acknowledge and to wait again, and in step with nothing.
_PAUSE_S = (0.008, 0.016)


def publish_to_consumer(daemon: Daemon, samples: int) -> list[float]:
    """Milliseconds from the call of publish to the message in the hands of a consumer that waits for it by a long
    poll in another process."""
    mine, its = _FORK.Pipe()
    process = _FORK.Process(target=_consumer, args=(its, str(daemon.ipc), samples), daemon=True)
    process.start()
    its.close()
    try:
        if not mine.poll(_PATIENCE_S):
            raise RuntimeError("the consumer did not start")
        mine.recv()
        with Client(str(daemon.ipc), client_id="publisher", timeout=_PATIENCE_S, transport="mailbox") as client:
            for _ in range(samples):
                time.sleep(random.uniform(*_PAUSE_S))
                client.publish("latency", {"sentNs": time.monotonic_ns()})
        if not mine.poll(_PATIENCE_S):
            raise RuntimeError("the consumer did not get all messages")
        took: list[float] = mine.recv()
        return took
    finally:
        process.kill()
        process.join()


def _consumer(pipe: Connection, ipc: str, samples: int) -> None:
    die_with_parent()
    took: list[float] = []
    with Client(ipc, client_id="consumer", timeout=_PATIENCE_S, transport="mailbox") as client:
        pipe.send(None)
        while len(took) < samples:
            delivery = client.consume_next("latency", wait_ms=20_000)
            if delivery is None:
                break
            took.append((time.monotonic_ns() - delivery.payload["sentNs"]) / 1e6)
            client.ack(delivery)
    pipe.send(took)


def consume_by_turns(daemons: Sequence[Daemon], queue: str, samples: int) -> list[list[float]]:
    """Milliseconds of ``samples`` consumes from ``queue`` of each daemon, taken in turns, so that all meet the same
    conditions. Before each, one message is published; after it, the delivery is acknowledged."""
    took: list[list[float]] = [[] for _ in daemons]
    for _ in range(samples):
        for daemon, times in zip(daemons, took, strict=True):
            daemon.client.publish(queue, "{}")
            started = time.monotonic_ns()
            delivery = daemon.client.consume_next(queue)
            times.append((time.monotonic_ns() - started) / 1e6)
            if delivery is None:
                raise RuntimeError("no message, although one was published")
            daemon.client.ack(delivery)
    return took
