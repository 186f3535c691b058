"""Clients of WebSocket MQ on several queues, while the daemon and the gateway are killed in turn: what must hold at the
end.

Producers draft messages and set their slots; workers order, get and complete them, let some fail, and leave with some.
They write down what they were answered, the journal says what happened, and the two are compared.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.gateway.chaos import PAUSE_S, SETTINGS, kill_in_turn
from tests.gateway.frames import Refused, WebSocketPeer
from tests.gateway.gateway import Gateway
from tests.gateway.websocket_mq.queue import CONFIGURATION, DOOR, KEEP, REMOVE_MESSAGE, REMOVE_SLOTS
from tests.wire.audit import audit
from tests.wire.daemon import Daemon, wait_until

#: Leases of which nobody knows end soon.
ORDERED_S, ACTIVE_S = 1.0, 2.0
#: What is special about each queue.
QUEUES: dict[str, dict[str, Any]] = {
    "kept": {"behaviorWhenCompleted": KEEP},
    "removed": {"behaviorWhenCompleted": REMOVE_MESSAGE},
    "narrow": {"behaviorWhenCompleted": REMOVE_MESSAGE, "concurrency": 2},
    "unique": {"behaviorWhenCompleted": REMOVE_SLOTS, "unique": True},
}
#: Threads of each kind; workers for each queue.
PRODUCERS, WORKERS = 3, 3
#: A message that is not the worker's any more.
LATE = {"BadMessageState", "StaleLease", "MessageNotFound"}


@dataclass
class Work:
    """An order, and what came of it: ``completed``, ``failed``, ``late`` (the message was no longer the worker's),
    ``left`` on purpose, or ``broken`` with the connection."""

    queue: str
    message: str = ""
    lease: str = ""
    outcome: str = "broken"


@dataclass
class Outcome:
    """What a run came to."""

    drafted: int = 0
    works: Counter[str] = field(default_factory=Counter)
    activated: int = 0
    again: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s, killed: {dict(self.kills)}\n{self.drafted} messages, each completed once;"
            f" orders: {dict(self.works)}; {self.activated} activations, {self.again} of them of a message again"
        )


class Clients:
    """The clients of one gateway, and what they wrote down."""

    def __init__(self, gateway: Gateway, messages: int, seed: int) -> None:
        self._gateway = gateway
        self._stopped = threading.Event()
        self._peers: set[WebSocketPeer] = set()
        self.messages = messages // PRODUCERS * PRODUCERS
        #: Ids of messages with all slots.
        self.waiting: list[str] = []
        self.works: list[Work] = []
        self.faults: list[BaseException] = []
        runs: list[Callable[[], None]] = [
            partial(self._produce, producer, messages // PRODUCERS) for producer in range(PRODUCERS)
        ]
        runs += [
            partial(self._work, queue, random.Random(f"{seed} {queue} {number}"))
            for queue in QUEUES
            for number in range(WORKERS)
        ]
        self._threads = [threading.Thread(target=self._run, args=(run,)) for run in runs]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients, whatever they wait for."""
        self._stopped.set()
        for peer in list(self._peers):
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # the campaign fails with it
            self.faults.append(error)

    def _connected(self, step: Callable[[WebSocketPeer], bool]) -> None:
        """Take steps until one says that it is the last, over as many connections as that takes."""
        while not self._stopped.is_set():
            try:
                with WebSocketPeer(self._gateway) as peer:
                    self._peers.add(peer)
                    try:
                        while not self._stopped.is_set():
                            if step(peer):
                                return
                    finally:
                        self._peers.discard(peer)
            except (OSError, Refused):  # the gateway is away
                self._stopped.wait(PAUSE_S)

    def _produce(self, producer: int, share: int) -> None:
        """Draft and set ``share`` messages. A step that was not answered is repeated, and no step before it: a message
        that was completed and removed could be drafted again."""
        names = [*QUEUES]
        steps = [
            (*call, message)
            for queue, message in ((names[number % len(names)], f"{producer}-{number}") for number in range(share))
            for call in (
                ("draftMessage", {"DuplicateMessageId"}, queue, None, ["a", "b"], message),
                ("setMessageSlot", set[str](), queue, message, "a", message),
                ("setMessageSlot", LATE, queue, message, "b", {"of": producer}),
            )
        ]
        steps.reverse()

        def step(peer: WebSocketPeer) -> bool:
            method, allowed, *params, message = steps[-1]
            _call(peer, method, *params, allowed=allowed)
            if params[2:3] == ["b"]:
                self.waiting.append(message)
            steps.pop()
            return not steps

        self._connected(step)

    def _work(self, queue: str, chance: random.Random) -> None:
        def step(peer: WebSocketPeer) -> bool:
            work = Work(queue)
            self.works.append(work)
            ordered = _call(peer, "orderMessage", queue, {"lease": True})
            work.message, work.lease = ordered["messageId"], ordered["leaseId"]
            got = _call(peer, "getMessage", queue, work.message, {"leaseId": work.lease}, allowed={"StaleLease"})
            if not isinstance(got, dict):
                work.outcome = "late"
                return False
            assert got["state"] == 3
            assert got["slots"] == {"a": work.message, "b": {"of": int(work.message[0])}}
            if chance.random() < 0.02:
                work.outcome = "left"
                raise ConnectionError("the worker leaves")
            method, outcome = ("failMessage", "failed") if chance.random() < 0.05 else ("completeMessage", "completed")
            late = _call(peer, method, queue, work.message, work.lease, allowed=LATE)
            work.outcome = "late" if late else outcome
            return False

        self._connected(step)


def _call(peer: WebSocketPeer, method: str, *params: Any, allowed: Set[str] = frozenset()) -> Any:
    """The result of a call, or the name of an error that is allowed. Raises ``OSError``."""
    answer = peer.ask(method, *params)
    if "error" in answer:
        assert answer["error"]["name"] in allowed, (method, params, answer)
        return answer["error"]["name"]
    return answer["result"]


def run_chaos(daemon: Daemon, messages: int, kills: int, seed: int, patience_s: float) -> Outcome:
    """Let the clients work while daemon and gateway are killed ``kills`` times in turn; then judge. Raises
    ``AssertionError``."""
    chance, began_s, outcome = random.Random(seed), time.monotonic(), Outcome()
    daemon.start()
    lane = daemon.ipc / "lane.sock"
    gateway = Gateway(daemon.root.parent / "gateway", lane, SETTINGS.format(lane) + DOOR).start()
    times = {"draftingTimeout": 86_400_000, "orderedTimeout": ORDERED_S * 1000, "activeTimeout": ACTIVE_S * 1000}
    with WebSocketPeer(gateway) as peer:
        for queue, special in QUEUES.items():
            _call(peer, "setQueue", queue, CONFIGURATION | times | special)
    clients = Clients(gateway, messages, seed)

    def wait(condition: Callable[[], bool], what: str) -> None:
        """As ``wait_until``; meanwhile, what fails waits again. Fails at once with a client."""

        def renewed() -> bool:
            assert not clients.faults, clients.faults
            with WebSocketPeer(gateway) as peer:
                for queue in QUEUES:
                    _call(peer, "renewAllFailedMessages", queue)
            return condition()

        wait_until(renewed, what, patience_s)

    try:
        clients.start()
        for number in range(kills):
            share = int((number + chance.random()) / kills * 0.95 * clients.messages)
            wait(partial(_has, clients.waiting, share), f"{share} messages have all slots")
            outcome.kills[kill_in_turn(number, daemon, gateway, chance)] += 1
        wait(partial(_has, clients.waiting, clients.messages), "all messages have all slots")
        wait(lambda: not _left(daemon), "every message is completed")
    finally:
        clients.stop()
        gateway.kill()
    assert not clients.faults, clients.faults
    assert "Traceback" not in gateway.log(), gateway.log()
    outcome.seconds = time.monotonic() - began_s
    judge(daemon, clients, outcome)
    return outcome


def _has(found: list[str], number: int) -> bool:
    return len(found) >= number


def _left(daemon: Daemon) -> int:
    """The number of messages that are not completed."""
    counts = [daemon.ask("status", queue=queue)["metrics"] for queue in QUEUES]
    return sum(one[state] for one in counts for state in ("drafting", "ready", "delayed", "inflight", "dlq"))


def judge(daemon: Daemon, clients: Clients, outcome: Outcome) -> None:
    """Compare what the clients wrote down with the journal."""
    events = daemon.events()
    audit(events)  # no message has two leases, none is leased after its ack, no request is executed twice
    names = {event["key"]: event["name"] for event in events if event["type"] == "published"}
    acked = {event["lease"]: event["key"] for event in events if event["type"] == "acked"}
    assert len(set(names.values())) == len(names) == len(clients.waiting) == clients.messages, "one was drafted twice"
    assert set(names.values()) == set(clients.waiting)
    assert Counter(acked.values()) == Counter(list(names)), "a message was lost, or completed twice"
    queues = {event["lease"]: event["queue"] for event in events if event["type"] == "leased"}
    until: dict[str, int] = {}
    ended: dict[str, str] = {}
    for event in events:
        lease, kind = event.get("lease", ""), event["type"]
        if kind in ("leased", "activated"):
            until[lease] = event["untilEngineMs"]
        elif kind in ("released", "retried"):
            is_over = event["engineMs"] >= until[lease]
            assert is_over or event.get("undelivered"), f"{lease} ended early: {event}"
            ended[lease] = "over" if is_over else "undelivered"
        elif kind in ("acked", "died"):
            ended[lease] = "completed" if kind == "acked" else "failed"
    assert set(ended) == set(queues)
    known = {work.lease: work for work in clients.works if work.lease}
    for lease, work in known.items():
        if work.outcome in ("completed", "failed"):
            assert ended[lease] == work.outcome, f"{work}, but its lease is {ended[lease]}"
        elif work.outcome in ("left", "late"):
            assert ended[lease] == "over", f"{work}, but its lease is {ended[lease]}"
    asked = Counter(work.queue for work in clients.works if not work.lease)
    unknown = Counter(queue for lease, queue in queues.items() if lease not in known)
    assert unknown <= asked, "somebody got messages for whom nobody has asked"
    outcome.drafted, outcome.works = len(names), Counter(work.outcome for work in clients.works)
    outcome.activated = sum(event["type"] == "activated" for event in events)
    outcome.again = outcome.activated - len(names)
