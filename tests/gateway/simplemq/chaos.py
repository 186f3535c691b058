"""SimpleMQ's clients on both doors, while the daemon and the gateway are killed in turn: nothing acknowledged is lost,
and nothing that was acknowledged comes again."""

from __future__ import annotations

import random
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from struct import pack

from tests.gateway.chaos import PAUSE_S, kill_in_turn
from tests.gateway.gateway import Gateway
from tests.gateway.simplemq.client import JSON, Client
from tests.wire.audit import audit
from tests.wire.daemon import Daemon, wait_until

TOPIC = "chaos"
#: The daemon is away for less than requests wait for it. What nobody settles comes again soon, and does not die.
CONFIG = """
[daemon]
socket = "{}"
patience_seconds = 60
[observe]
port = 0
[doors.simplemq]
port = 0
options = {{strategy = "ROUND_ROBIN", ack_seconds = 2, retries = 1000, retry_seconds = 0.01, heartbeat_seconds = 1}}
[doors.simplemq-tcp]
port = 0
options = {{strategy = "ROUND_ROBIN", ack_seconds = 2, retries = 1000, retry_seconds = 0.01}}
"""
#: Clients of each kind.
CLIENTS = 2


@dataclass
class Outcome:
    """What a run came to."""

    published: int = 0
    unanswered: int = 0
    acked: int = 0
    redelivered: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s, killed: {dict(self.kills)}\n{self.published} publishes answered, {self.unanswered}"
            f" not; {self.acked} acks answered; {self.redelivered} redeliveries"
        )


class Clients:
    """The clients of one gateway, and what they wrote down."""

    def __init__(self, gateway: Gateway, messages: int) -> None:
        self._gateway = gateway
        self._stopped = threading.Event()
        self.messages = messages // (2 * CLIENTS) * 2 * CLIENTS
        #: Bodies that were sent, whether it was answered or not; and those that were.
        self.sent: set[str] = set()
        self.published: list[str] = []
        #: Bodies as they were delivered, by delivery; and deliveries whose ack was answered with DELIVERED.
        self.delivered: dict[str, str] = {}
        self.acked: list[str] = []
        self.faults: list[BaseException] = []
        share = messages // (2 * CLIENTS)
        works: list[Callable[[], None]] = [
            partial(publish, name, share) for publish in (self._rest, self._tcp) for name in range(CLIENTS)
        ]
        works += [partial(self._consume, name) for name in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients, whatever they do."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def wait(self, condition: Callable[[], bool], what: str, patience_s: float) -> None:
        """As ``wait_until``; fails at once with a client."""

        def holds() -> bool:
            assert not self.faults, self.faults
            return condition()

        wait_until(holds, what, patience_s)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    work()
                    break
                except OSError:  # the gateway is away
                    self._stopped.wait(PAUSE_S)
        except BaseException as error:  # the run fails with it
            self.faults.append(error)

    def _rest(self, name: int, share: int) -> None:
        """Publish as JSON, and repeat what was not answered: by its id it is one message."""
        client = Client(self._gateway)
        for number in range(share):
            body = f"rest-{name}-{number}"
            if body in self.published or self._stopped.is_set():
                continue
            self.sent.add(body)
            answer = client.post("/api/message/publish", {"topic": TOPIC, "messageId": body, "payload": body}, JSON)
            assert answer.status == 200, answer
            self.published.append(body)

    def _tcp(self, name: int, share: int) -> None:
        """Publish with the older protocol; what was not answered may be there or not, and another one follows it."""
        done = sum(body.startswith(f"tcp-{name}-") for body in self.published)
        begun = sum(body.startswith(f"tcp-{name}-") for body in self.sent)
        with self._gateway.connect("simplemq-tcp") as peer:
            for number in count(begun):
                if done == share or self._stopped.is_set():
                    return
                body = f"tcp-{name}-{number}"
                self.sent.add(body)
                peer.sendall(pack(">BH", 1, len(TOPIC)) + TOPIC.encode() + pack(">i", len(body)) + body.encode())
                answer = peer.recv(1)
                if not answer:
                    raise ConnectionError("the gateway closed the connection")
                assert answer == b"\1"
                self.published.append(body)
                done += 1

    def _consume(self, name: int) -> None:
        """Settle whatever comes."""
        client = Client(self._gateway)
        session = client.settle(TOPIC, f"consumer-{name}", capacity=4)
        try:
            while not self._stopped.is_set():
                said = session.said()
                if said.get("status") == "DELIVERED":
                    self.acked.append(said["deliveryId"])
                elif "body" in said:
                    self.delivered[said["deliveryId"]] = b64decode(said["body"]).decode()
                    session.tell("ACK", deliveryId=said["deliveryId"])
        except AssertionError as error:  # a close frame, or nothing but pings
            raise ConnectionError(str(error)) from None
        finally:
            client.close()


def run_chaos(daemon: Daemon, messages: int, kills: int, seed: int, patience_s: float) -> Outcome:
    """Let the clients work while daemon and gateway are killed ``kills`` times in turn; then judge. Raises
    ``AssertionError``."""
    chance, began_s, outcome = random.Random(seed), time.monotonic(), Outcome()
    daemon.start()
    lane = daemon.ipc / "lane.sock"
    gateway = Gateway(daemon.root.parent / "gateway", lane, CONFIG.format(lane))
    clients = Clients(gateway.start(), messages)
    try:
        clients.start()
        for number in range(kills):
            # Anywhere in the work, and at a moment that nobody has chosen.
            share = int((number + chance.random()) / kills * 0.95 * clients.messages)
            clients.wait(partial(_has, clients.published, share), f"{share} publishes are answered", patience_s)
            outcome.kills[kill_in_turn(number, daemon, gateway, chance)] += 1
        clients.wait(partial(_has, clients.published, clients.messages), "all are answered", patience_s)
        clients.wait(lambda: not daemon.counts(TOPIC), "every message is acknowledged", patience_s)
    finally:
        clients.stop()
        gateway.kill()
    assert not clients.faults, clients.faults
    assert "Traceback" not in gateway.log(), gateway.log()
    outcome.seconds = time.monotonic() - began_s
    _judge(daemon, clients, outcome)
    return outcome


def _has(found: list[str], number: int) -> bool:
    return len(found) >= number


def _judge(daemon: Daemon, clients: Clients, outcome: Outcome) -> None:
    """Compare what the clients wrote down with the journal."""
    events = daemon.events()
    audit(events)  # nothing is leased after its ack, no request is executed twice
    leases = {event["lease"]: event["key"] for event in events if event["type"] == "leased"}
    acked = {event["lease"]: event["key"] for event in events if event["type"] == "acked"}
    stored = {event["key"] for event in events if event["type"] == "published"}
    assert stored == set(acked.values()), "a message was not acknowledged"
    assert set(clients.acked) <= set(acked), "an ack that was answered did not happen"
    bodies: dict[str, str] = {}
    for lease, body in clients.delivered.items():
        assert bodies.setdefault(leases[lease], body) == body, f"{leases[lease]} was delivered with two bodies"
    assert set(bodies) == stored, "a message was never delivered"
    assert len(set(bodies.values())) == len(bodies), "something was published twice"
    assert set(clients.published) <= set(bodies.values()) <= clients.sent, "a publish that was answered is lost"
    assert len(clients.published) == len(set(clients.published)) == clients.messages
    outcome.published, outcome.unanswered = len(clients.published), len(clients.sent) - len(clients.published)
    outcome.acked, outcome.redelivered = len(clients.acked), len(leases) - len(stored)
