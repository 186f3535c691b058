"""Clients of smss, while the daemon and the gateway are killed in turn: what must hold at the end. The long form is
``scripts/campaign smss``.

Publishers write down what they were answered, a subscriber what it was pushed, and both are compared with the topic.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.gateway.chaos import PAUSE_S, SETTINGS, kill_in_turn
from tests.gateway.gateway import Gateway
from tests.gateway.smss.client import Connection, PubClient, block, delay, pub, sub
from tests.gateway.smss.place import DOORS
from tests.wire.daemon import Daemon, wait_until

#: Bytes of a message in each part of a long run.
SIZES = (200, 4 << 10, 64 << 10, (1 << 20) - 1024)
PUBLISHERS = 4
#: Bytes that are published between two kills, at least and at most, but no more messages than that.
_LEAST, _MOST, _MESSAGES = 20_000, 4 << 20, 300


@dataclass
class Outcome:
    """What a run came to."""

    answered: Counter[int] = field(default_factory=Counter)
    unknown: Counter[int] = field(default_factory=Counter)
    stored: Counter[int] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = (
            f"{size:8} bytes: {self.answered[size]} answered, {self.unknown[size]} unknown, {number} stored, each once"
            for size, number in self.stored.items()
        )
        return "\n".join((f"{self.seconds:.1f} s, killed: {dict(self.kills)}", *parts))


class Clients:
    """Publishers, one of which delays its messages, and a subscriber of one topic; what they wrote down."""

    def __init__(self, gateway: Gateway, topic: bytes, size: int) -> None:
        self._gateway = gateway
        self._topic, self._size = topic, size
        self._stopped, self._published = threading.Event(), threading.Event()
        self.answered: list[bytes] = []
        self.unknown: list[bytes] = []
        self.pushed: list[tuple[int, bytes]] = []
        self.faults: list[BaseException] = []
        self._publishers = [threading.Thread(target=self._run, args=(self._publish, n)) for n in range(PUBLISHERS)]
        self._subscriber = threading.Thread(target=self._run, args=(self._subscribe, 0))
        for thread in (*self._publishers, self._subscriber):
            thread.start()

    def end_publishing(self) -> None:
        """Wait until each publisher has its last answer."""
        self._published.set()
        for thread in self._publishers:
            thread.join()

    def stop(self) -> None:
        """End all clients."""
        self._stopped.set()
        self.end_publishing()
        self._subscriber.join()

    def _run(self, run: Callable[[int], None], number: int) -> None:
        try:
            run(number)
        except BaseException as error:  # the run fails with it
            self.faults.append(error)

    def _publish(self, publisher: int) -> None:
        number = 0
        while not self._published.is_set():
            with suppress(OSError), Connection(self._gateway.ports["smss"]) as connection:  # the gateway is away
                while not self._published.is_set():
                    number += 1
                    bodies = [body_of(b"%d-%d-%d" % (publisher, number, n), self._size) for n in range(1 + number % 2)]
                    try:
                        if publisher:
                            connection.ask(pub(self._topic, b"".join(map(block, bodies))))
                        else:
                            connection.ask(delay(self._topic, block(bodies[0]), 1001 + number % 50))
                            del bodies[1:]
                    except OSError:
                        self.unknown += bodies
                        raise
                    self.answered += bodies
            self._published.wait(PAUSE_S)

    def _subscribe(self, _: int) -> None:
        while not self._stopped.is_set():
            after = self.pushed[-1][0] if self.pushed else 0
            with suppress(OSError), Connection(self._gateway.ports["smss-lively"], 5.0) as connection:
                connection.send(sub(self._topic, b"subscriber", after, 1 + len(self.pushed) % 255))
                while not self._stopped.is_set():
                    response = connection.receive("push")
                    if response.count:
                        self.pushed += [(one.event_id, one.body) for one in response.messages]
                        connection.ack()
            self._stopped.wait(PAUSE_S)


def body_of(name: bytes, size: int) -> bytes:
    """The body of a message, by its name."""
    return (name + b" ") * (size // len(name)) + bytes(size % len(name))


def run_chaos(daemon: Daemon, sizes: Sequence[int], kills: int, seed: int, patience_s: float) -> Outcome:
    """Publish messages of each size while daemon and gateway are killed ``kills`` times in turn; then judge. Raises
    ``AssertionError``."""
    chance, began_s, outcome = random.Random(seed), time.monotonic(), Outcome()
    daemon.start()
    lane = daemon.ipc / "lane.sock"
    gateway = Gateway(daemon.root.parent / "gateway", lane, SETTINGS.format(lane) + DOORS).start()

    try:
        for size in sizes:
            with PubClient(gateway.ports["smss"]) as publisher:
                publisher.create(f"t{size}")
            clients = Clients(gateway, b"t%d" % size, size)
            try:
                for number in range(kills + 1):
                    share = min(_MESSAGES, max(4, chance.randint(_LEAST, _MOST) // size))
                    _wait(clients, clients.answered, len(clients.answered) + share, patience_s)
                    if number < kills:
                        turn = outcome.kills.total()
                        outcome.kills[kill_in_turn(turn, daemon, gateway, chance)] += 1
                clients.end_publishing()
                wait_until(partial(_is_done, daemon, size), "no message is delayed any more", patience_s)
                _wait(clients, clients.pushed, daemon.ask("status", queue=f"t{size}")["log"]["records"], patience_s)
            finally:
                clients.stop()
            assert not clients.faults, clients.faults
            judge(daemon, clients, size, outcome)
    finally:
        gateway.kill()
    assert "Traceback" not in gateway.log(), gateway.log()
    outcome.seconds = time.monotonic() - began_s
    return outcome


def judge(daemon: Daemon, clients: Clients, size: int, outcome: Outcome) -> None:
    """Compare what the clients wrote down with the topic."""
    ids = [event_id for event_id, _ in clients.pushed]
    appended = [
        event["id"] for event in daemon.events() if event["type"] == "appended" and event["queue"] == f"t{size}"
    ]
    assert ids == appended == sorted(set(ids)), "the subscriber got all in order, each once"
    stored = Counter(body for _, body in clients.pushed)
    assert max(stored.values()) == 1, "a message is stored twice"
    assert not set(clients.answered) - set(stored), "a message is lost"
    assert not set(stored) - {*clients.answered, *clients.unknown}, "there is a message that nobody has published"
    outcome.stored[size], outcome.answered[size] = len(stored), len(clients.answered)
    outcome.unknown[size] = len(clients.unknown)


def _wait(clients: Clients, found: list[Any], number: int, patience_s: float) -> None:
    def has() -> bool:
        assert not clients.faults, clients.faults
        return len(found) >= number

    wait_until(has, f"{number} messages are answered or pushed", patience_s)


def _is_done(daemon: Daemon, size: int) -> bool:
    return not daemon.ask("status", queue=f"t{size}")["metrics"]["delayed"]
