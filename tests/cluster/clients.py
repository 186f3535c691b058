"""Clients of a cluster that publish, lease and acknowledge in turns, and a check of all that they were answered."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count, pairwise
from typing import NamedTuple

from postroom_common.events import Event
from tests.cluster.machines import Machine
from tests.wire.audit import Ledger
from tests.wire.daemon import Fields
from tests.wire.lane import LaneClient, as_in_mailbox

QUEUE = "work"
#: How long (s) a client waits for an answer before it asks another machine.
ANSWER_S = 1.5
#: How long (s) a lease is valid.
LEASE_S = 2.0
#: Leases that a client forgets, of all that it gets: they expire.
FORGOTTEN = 0.02
#: Errors after which a client sends the same bytes again: nothing was changed.
AGAIN = {"ERR_NOT_LEADER", "ERR_STORAGE_FULL", "ERR_STORAGE_FAILED"}
#: Errors of a delivery that is over.
LATE = {"ERR_LEASE_EXPIRED", "ERR_LEASE_MISMATCH", "ERR_MESSAGE_NOT_FOUND"}


class GivenUp(Exception):
    """The test has ended before the client was answered."""


class Done(NamedTuple):
    """A request that was answered; ``began_s`` is the time before it was sent first."""

    request_id: str
    command: str
    payload: Fields
    answer: Fields
    began_s: float
    ended_s: float


class Line(LaneClient):
    """A connection that is made at once, or not at all."""

    def _connects(self, path: str) -> bool:
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(path)
        return True


class Client(threading.Thread):
    """Sends each request, with the same bytes, to one machine after the other until it is answered."""

    def __init__(self, name: str, machines: Sequence[Machine], seed: int, batch: int) -> None:
        super().__init__(name=name)
        self.done: list[Done] = []
        #: The only machine that it reaches, if that is so.
        self.only: Machine | None = None
        self.failure: BaseException | None = None
        self.refused: Counter[str] = Counter()
        self._machines = machines
        self._machine = machines[0]
        self._lines: dict[str, Line] = {}
        self._batch = batch
        self._chance = random.Random(seed)
        self._numbers = count(1)
        self._is_ending = threading.Event()
        self._gives_up = threading.Event()

    def run(self) -> None:
        try:
            while not self._is_ending.is_set():
                self._turn()
        except BaseException as error:
            self.failure = error
        finally:
            for line in self._lines.values():
                line.close()

    def end(self, patience_s: float = 60.0) -> None:
        """Let it finish its turn. Raises what has ended it before."""
        self._is_ending.set()
        self.join(patience_s)
        was_alive = self.is_alive()
        self._gives_up.set()
        self.join()
        assert not was_alive, f"{self.name} waits in vain for an answer"
        if self.failure:
            raise self.failure

    def give_up(self) -> None:
        """End it at once."""
        self._is_ending.set()
        self._gives_up.set()
        self.join()

    def _turn(self) -> None:
        number = self._chance.randint(1, self._batch)
        messages = [{"message": f"{self.name} {next(self._numbers)}"} for _ in range(number)]
        self._ask("publish_batch", {"queue": QUEUE, "messages": messages})
        fields = {"queue": QUEUE, "max": number, "visibilityTimeoutSec": LEASE_S}
        found = self._ask("consume_next", fields).get("data", {}).get("messages", [])
        leases = [one["lease"] for one in found if self._chance.random() >= FORGOTTEN]
        items = [{"messageKey": one["messageKey"], "leaseId": one["leaseId"]} for one in leases]
        if items:
            self._ask("ack_batch", {"items": items})

    def _ask(self, command: str, payload: Fields) -> Fields:
        request_id = f"{self.name}-{next(self._numbers)}"
        began_s = time.monotonic()
        while True:
            machine = self.only or self._machine
            answer = self._answer(machine, command, payload, request_id)
            error = answer.get("error", {}) if answer else {}
            code = error.get("code", "") if answer else "no answer"
            if not answer or code in AGAIN:
                if self._gives_up.wait(0.02):
                    raise GivenUp
                self.refused[code] += 1
                self._machine = self._next(machine, error.get("data", {}).get("leader"))
                continue
            assert not code or (command, code) == ("consume_next", "ERR_LEASE_EXPIRED"), answer
            self.done.append(Done(request_id, command, payload, answer, began_s, time.monotonic()))
            return answer

    def _next(self, machine: Machine, leader: str | None) -> Machine:
        """The machine to ask after one that has not done it."""
        others = [one for one in self._machines if one is not machine]
        named = [one for one in others if one.name == leader]
        return named[0] if named and self._chance.random() < 0.8 else self._chance.choice(others)

    def _answer(self, machine: Machine, command: str, payload: Fields, request_id: str) -> Fields | None:
        try:
            if machine.name not in self._lines:
                self._lines[machine.name] = Line(machine.daemon.ipc, self.name)
            return as_in_mailbox(*self._lines[machine.name].call(command, payload, requestId=request_id))
        except (OSError, EOFError):
            if line := self._lines.pop(machine.name, None):
                line.close()
            return None


def check(clients: Sequence[Client], events: list[Event], ledger: Ledger) -> str:
    """Compare the answers with the journal; return a line of figures. Raises ``AssertionError`` for what must not be.

    The audit of the journal, which made ``ledger``, has shown that each lease has one holder at a time, that each
    repeat follows an event that explains it, and that no request was executed twice.
    """
    done = [one for client in clients for one in client.done]
    places = _places(events)
    figures = Counter[str]()
    _check_publishes(done, events, figures)
    _check_leases(done, ledger, places, figures)
    _check_acks(done, events, figures)
    _check_order(done, places)
    leased = Counter(event["key"] for event in events if event["type"] == "leased")
    figures["leased again, explained"] = sum(leased.values()) - len(leased)
    figures["repeats of requests"] = sum(sum(client.refused.values()) for client in clients)
    return ", ".join(f"{number} {name}" for name, number in figures.items())


def _places(events: list[Event]) -> dict[str, tuple[int, int]]:
    """First and last event of each request of a client."""
    of_group = {event["req"]: event["by"]["request"] for event in events if "by" in event}
    found: dict[str, tuple[int, int]] = {}
    for event in events:
        if request_id := of_group.get(event["req"]):
            first, _ = found.get(request_id, (event["id"], 0))
            found[request_id] = first, event["id"]
    return found


def _check_publishes(done: list[Done], events: list[Event], figures: Counter[str]) -> None:
    """What was confirmed is there, and nothing is there twice."""
    published = [event for event in events if event["type"] == "published" and event["queue"] == QUEUE]
    texts = {event["key"]: event["message"]["parts"][0]["text"] for event in published}
    doubled = [text for text, number in Counter(texts.values()).items() if number > 1]
    assert not doubled, f"doubled: {doubled[:5]}"
    for one in done:
        if one.command == "publish_batch":
            for sent, result in zip(one.payload["messages"], one.answer["data"]["results"], strict=True):
                assert texts.get(result["messageKey"]) == sent["message"], f"lost: {sent}, {result}"
                figures["published"] += 1


def _check_leases(done: list[Done], ledger: Ledger, places: dict[str, tuple[int, int]], figures: Counter[str]) -> None:
    """Each lease that a client has got is in the journal, for that request. By the clients' clock alone, too, no
    message has two leases at once."""
    times = defaultdict(list)
    for one in done:
        for found in one.answer.get("data", {}).get("messages", []) if one.command == "consume_next" else []:
            lease = found["lease"]
            event, message = ledger.leases.get(lease["leaseId"]), ledger.messages[lease["messageKey"]]
            assert event and event["key"] == lease["messageKey"], f"a lease that only one node knows: {lease}"
            first, last = places[one.request_id]
            assert first <= event["id"] <= last, f"a lease of another request: {lease}"
            assert found["message"]["payload"] == message.body["parts"][0]["text"], f"another body: {found}"
            times[lease["messageKey"]].append((one.began_s, one.ended_s))
            figures["leased"] += 1
    for key, leases in times.items():
        for (began_s, ended_s), (next_began_s, next_ended_s) in pairwise(sorted(leases)):
            is_over = next_ended_s - began_s >= LEASE_S or ended_s - next_began_s >= LEASE_S
            assert is_over, f"{key} was leased twice within {LEASE_S} s"


def _check_acks(done: list[Done], events: list[Event], figures: Counter[str]) -> None:
    """What was confirmed has happened, what was refused has not."""
    acked = {event["lease"] for event in events if event["type"] == "acked"}
    for one in done:
        if one.command == "ack_batch":
            for item, result in zip(one.payload["items"], one.answer["data"]["results"], strict=True):
                code = result.get("error", {}).get("code")
                assert code in {None, *LATE}, result
                assert (item["leaseId"] in acked) == (code is None), f"{item} was answered with {result}"
                figures["acknowledged too late" if code else "acknowledged"] += 1


def _check_order(done: list[Done], places: dict[str, tuple[int, int]]) -> None:
    """What began when something else had been answered comes behind it in the journal, whichever nodes answered."""
    changes = [one for one in done if one.request_id in places]
    ended = sorted(changes, key=lambda one: one.ended_s)
    number, latest = 0, (0, "")
    for one in sorted(changes, key=lambda one: one.began_s):
        while ended[number].ended_s < one.began_s:
            latest = max(latest, (places[ended[number].request_id][1], ended[number].request_id))
            number += 1
        assert places[one.request_id][0] > latest[0], f"{one.request_id} is before {latest[1]}, which was answered"


def waiting(counts: dict[str, int]) -> dict[str, int]:
    """What a daemon counts, as ``Ledger.counts``: those that wait for their time are among the ready ones."""
    number = counts.pop("ready", 0) + counts.pop("delayed", 0)
    return counts | ({"waiting": number} if number else {})
