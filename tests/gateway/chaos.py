"""LMQ's clients on both doors, while the daemon and the gateway are killed in turn: what must hold at the end.

The clients write down what they were answered, the journal says what happened, and the two are compared.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import msgpack

from tests.gateway.gateway import DOORS, Gateway, receive_answer, request
from tests.gateway.lmq.peers import RpcClient
from tests.wire.audit import audit
from tests.wire.daemon import Daemon, wait_until

QUEUE = "chaos"
#: Leases that nobody knows of end soon; no message dies of them.
POLICY = {"visibilityTimeoutSec": 2, "retry": {"limit": 1000, "initialDelaySec": 0.01}}
#: The daemon is away for less than requests wait for it.
SETTINGS = '[daemon]\nsocket = "{}"\npatience_seconds = 60\n[observe]\nport = 0\n'
#: Clients of each kind.
CLIENTS = 2
#: Who is killed, turn by turn.
VICTIMS = (("daemon",), ("gateway",), ("daemon", "gateway"))
#: Seconds that a pull waits, and pause of a client whose gateway is away.
WAIT_S = 0.5
PAUSE_S = 0.02


@dataclass
class Outcome:
    """What a run came to."""

    pushed: int = 0
    unanswered_pushes: int = 0
    acked: int = 0
    unanswered_acks: int = 0
    redelivered: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s, killed: {dict(self.kills)}\n{self.pushed} pushes answered,"
            f" {self.unanswered_pushes} not; {self.acked} acks answered, {self.unanswered_acks} not;"
            f" {self.redelivered} redeliveries"
        )


class Clients:
    """The clients of one gateway, and what they wrote down."""

    def __init__(self, gateway: Gateway, messages: int) -> None:
        self._gateway = gateway
        self._stopped = threading.Event()
        #: What was pushed, whether it was answered or not; and what was answered.
        self.sent: set[str] = set()
        self.pushed: list[str] = []
        #: Content and id of each delivery; ids whose acks were asked for, and were answered.
        self.delivered: list[tuple[str, str]] = []
        self.asked_acks: list[str] = []
        self.acked: list[str] = []
        self.faults: list[BaseException] = []
        share = messages // (2 * CLIENTS)
        self.messages = share * 2 * CLIENTS
        works: list[Callable[[], None]] = [
            partial(push, name, share) for push in (self._push_http, self._push_rpc) for name in range(CLIENTS)
        ]
        works += CLIENTS * [self._pull_http, self._pull_rpc]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self, condition: Callable[[], bool], what: str, patience_s: float) -> None:
        """As ``wait_until``; fails at once with a client."""

        def holds() -> bool:
            assert not self.faults, self.faults
            return condition()

        wait_until(holds, what, patience_s)

    def stop(self) -> None:
        """End all clients, whatever they do."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # the run fails with it
            self.faults.append(error)

    def _connected(self, work: Callable[[], None]) -> None:
        """Do the work, each time from where it stands, until its connection lasts to its end."""
        while not self._stopped.is_set():
            try:
                work()
                break
            except OSError:  # the gateway is away
                self._stopped.wait(PAUSE_S)

    def _push_http(self, name: int, share: int) -> None:
        """Push, and repeat what was not answered: by its idempotency key it is one push."""
        left = [f"http-{name}-{number}" for number in range(share)]
        self.sent.update(left)

        def push() -> None:
            with self._gateway.connect() as peer:
                while left and not self._stopped.is_set():
                    key = {"Idempotency-Key": f"key-{left[-1]}"}
                    peer.sendall(request("POST", f"/messages/{QUEUE}", left[-1].encode(), key))
                    assert receive_answer(peer).status == 200
                    self.pushed.append(left.pop())

        self._connected(push)

    def _push_rpc(self, name: int, share: int) -> None:
        """Push; what was not answered may be there or not, and another one follows it."""
        numbers = count()
        left = [share]

        def push() -> None:
            with RpcClient(self._gateway) as client:
                while left[0] and not self._stopped.is_set():
                    content = f"rpc-{name}-{next(numbers)}"
                    self.sent.add(content)
                    assert _result(client, "push", QUEUE, content) == "ok"
                    self.pushed.append(content)
                    left[0] -= 1

        self._connected(push)

    def _pull_http(self) -> None:
        def pull() -> None:
            with self._gateway.connect() as peer:
                while not self._stopped.is_set():
                    peer.sendall(request("GET", f"/messages/{QUEUE}?t={WAIT_S}"))
                    pulled = receive_answer(peer)
                    identity = pulled.header("x-lmq-message-id")
                    if identity is None:
                        assert pulled.status in (204, 503), pulled  # 503: the wait was over before the daemon was back
                        continue
                    is_packed = pulled.header("content-type") == "application/x-msgpack"
                    content = msgpack.unpackb(pulled.body) if is_packed else pulled.body.decode()
                    self.delivered.append((content, identity))
                    self.asked_acks.append(identity)
                    peer.sendall(request("POST", f"/messages/{QUEUE}/{identity}?reply=ack"))
                    replied = receive_answer(peer).status
                    assert replied in (204, 404), replied  # 404: the lease has ended
                    if replied == 204:
                        self.acked.append(identity)

        self._connected(pull)

    def _pull_rpc(self) -> None:
        def pull() -> None:
            with RpcClient(self._gateway) as client:
                while not self._stopped.is_set():
                    pulled = _result(client, "pull", QUEUE, WAIT_S)
                    if isinstance(pulled, dict):
                        self.delivered.append((pulled["content"], pulled["id"]))
                        self.asked_acks.append(pulled["id"])
                        if _result(client, "done", QUEUE, pulled["id"]) == "ok":
                            self.acked.append(pulled["id"])

        self._connected(pull)


def _result(client: RpcClient, method: str, *arguments: object) -> object:
    """The result of a call; None if the lease has ended, or a wait before the daemon was back. Raises ``OSError``."""
    client.send([0, 1, method, list(arguments)])
    answer = client.receive()
    if answer is None:
        raise ConnectionError("the gateway closed the connection")
    _, _, error, result = answer
    assert error is None or bytes(error) in (b"throw:not_found", b"throw:unavailable"), error
    return result


def run_chaos(daemon: Daemon, messages: int, kills: int, seed: int, patience_s: float) -> Outcome:
    """Let the clients work while daemon and gateway are killed ``kills`` times in turn; then judge. Raises
    ``AssertionError``."""
    chance, began_s, outcome = random.Random(seed), time.monotonic(), Outcome()
    daemon.start()
    daemon.ask("set_policy", queue=QUEUE, policy=POLICY)
    lane = daemon.ipc / "lane.sock"
    gateway = Gateway(daemon.root.parent / "gateway", lane, SETTINGS.format(lane) + DOORS)
    clients = Clients(gateway.start(), messages)
    try:
        clients.start()
        for number in range(kills):
            # Anywhere in the work, and at a moment that nobody has chosen.
            share = int((number + chance.random()) / kills * 0.95 * clients.messages)
            clients.wait(partial(_has, clients.pushed, share), f"{share} pushes are answered", patience_s)
            outcome.kills[kill_in_turn(number, daemon, gateway, chance)] += 1
        clients.wait(partial(_has, clients.pushed, clients.messages), "all pushes are answered", patience_s)
        clients.wait(lambda: not _left(daemon), "every message is acknowledged", patience_s)
    finally:
        clients.stop()
        gateway.kill()
    assert not clients.faults, clients.faults
    assert "Traceback" not in gateway.log(), gateway.log()
    outcome.seconds = time.monotonic() - began_s
    judge(daemon, clients, outcome)
    return outcome


def kill_in_turn(number: int, daemon: Daemon, gateway: Gateway, chance: random.Random) -> str:
    """Kill whose turn it is, and start it again. Returns who that was."""
    victims = VICTIMS[number % len(VICTIMS)]
    if "gateway" in victims:
        gateway.process.kill()
        gateway.process.wait()
    if "daemon" in victims:
        daemon.kill()
        daemon.start(ready=chance.random() < 0.5)
    if "gateway" in victims:
        gateway.start()
    return " and ".join(victims)


def _has(found: list[str], number: int) -> bool:
    return len(found) >= number


def _left(daemon: Daemon) -> int:
    counts = daemon.ask("status", queue=QUEUE)["metrics"]
    return int(counts["ready"] + counts["inflight"] + counts["delayed"])


def judge(daemon: Daemon, clients: Clients, outcome: Outcome) -> None:
    """Compare what the clients wrote down with the journal."""
    events = daemon.events()
    audit(events)  # nothing is leased after its ack, no request is executed twice
    leases = {event["lease"]: event["key"] for event in events if event["type"] == "leased"}
    acked = {event["lease"]: event["key"] for event in events if event["type"] == "acked"}
    published = [event["key"] for event in events if event["type"] == "published"]
    contents: dict[str, str] = {}
    for content, lease in clients.delivered:
        assert contents.setdefault(leases[lease], content) == content, (
            f"{leases[lease]} was delivered with two contents"
        )
    assert len(set(contents.values())) == len(contents), "something was published twice"
    assert set(contents) == set(published) == set(acked.values()), "a message was never delivered, or not acknowledged"
    assert set(clients.pushed) <= set(contents.values()) <= clients.sent, "a push that was answered is lost"
    assert set(clients.acked) <= set(acked), "an ack that was answered did not happen"
    assert len(clients.pushed) == len(set(clients.pushed)) == clients.messages
    outcome.pushed, outcome.unanswered_pushes = len(clients.pushed), len(clients.sent) - len(clients.pushed)
    outcome.acked, outcome.unanswered_acks = len(clients.acked), len(clients.asked_acks) - len(clients.acked)
    outcome.redelivered = len(leases) - len(published)
