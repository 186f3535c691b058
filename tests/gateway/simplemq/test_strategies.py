"""Which consumer of a topic gets its next message."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from postroom_gateway.dialects.simplemq.strategies import Strategy, choose, priority_of


class Candidate(NamedTuple):
    """A consumer, as strategies see it."""

    load: int = 0
    served: int = 0
    priority: tuple[int, int] = (0, 0)
    capacity: int = 4

    @property
    def has_room(self) -> bool:
        return self.load < self.capacity


FULL = Candidate(load=4)
SOME, NONE = Candidate(load=1), Candidate()


@pytest.mark.parametrize(
    ("strategy", "consumers", "chosen"),
    [
        (Strategy.FIRST_AVAILABLE, [], None),
        (Strategy.FIRST_AVAILABLE, [FULL, FULL], None),
        (Strategy.FIRST_AVAILABLE, [FULL, SOME, NONE], 1),
        (Strategy.ORDERED, [NONE, Candidate(served=9)], 0),
        (Strategy.ORDERED, [NONE, SOME], None),
        (Strategy.ROUND_ROBIN, [Candidate(served=3), Candidate(served=1), Candidate(served=2)], 1),
        (Strategy.ROUND_ROBIN, [Candidate(served=3), Candidate(served=1, load=4), NONE], 2),
        (Strategy.PRIORITY, [Candidate(), Candidate(priority=(1, 0)), Candidate(priority=(0, 9))], 1),
        (Strategy.PRIORITY, [Candidate(priority=(1, 0)), Candidate(priority=(1, 2))], 1),
        (Strategy.PRIORITY, [Candidate(priority=(1, 0), load=4), Candidate()], 1),
        (Strategy.PRIORITY, [Candidate(load=1, priority=(1, 0)), Candidate(priority=(1, 0))], 1),
        (Strategy.LOAD_BALANCE, [SOME, Candidate(load=2, capacity=16), Candidate(load=2)], 1),
        (Strategy.LOAD_BALANCE, [Candidate(load=1, served=2), Candidate(load=1, served=1)], 1),
    ],
)
def test_the_next_message_goes_where_the_strategy_says(strategy, consumers, chosen):
    assert choose(strategy, consumers) is (None if chosen is None else consumers[chosen])


def test_the_priority_of_a_consumer_is_that_of_its_host():
    hosts = ("1a", "2a")
    cases = {"consumer-1a": 2, "consumer-2a-7": 1, "consumer-3a": 0, "consumer": 0, "-1a": 2}
    assert {name: priority_of(name, 5, hosts) for name in cases} == {name: (rank, 5) for name, rank in cases.items()}


def test_an_ordered_topic_waits_for_a_message_that_failed(client, served):
    consumers = [client.settle("ordered", name) for name in "ab"]
    for number in range(3):
        client.publish("ordered", b"%d" % number)
    got = []
    for verdict in ("NACK", "ACK", "ACK", "NACK", "NACK", "NACK"):
        one = consumers[0].said()
        got.append((one["body"], one["attempt"]))
        consumers[0].asks(verdict, deliveryId=one["deliveryId"])
    assert got == [("MA==", 1), ("MA==", 2), ("MQ==", 1), ("Mg==", 1), ("Mg==", 2), ("Mg==", 3)]
    assert served.daemon.counts("ordered") == {"dlq": 1}


def test_round_robin_gives_each_its_turn(client):
    consumers = [client.settle("turns", name) for name in "abc"]
    for _ in range(2):
        for _ in consumers:
            client.publish("turns", b"x")
        for consumer in consumers:
            consumer.said()


def test_the_host_with_the_highest_priority_is_served_first(client):
    second = client.settle("hosts", "c-second")
    first = client.settle("hosts", "c-first", capacity=1)
    other = client.settle("hosts", "c-other", priority=9)
    client.publish("hosts", b"x")
    assert first.said()
    client.publish("hosts", b"y")
    assert second.said()
    second.socket.close()
    assert other.said()["attempt"] == 2


def test_the_least_loaded_is_served_next(client):
    busy, idle = client.settle("loads", "busy", capacity=16), client.settle("loads", "idle", capacity=4)
    got: list[object] = []
    for _ in range(2):
        client.publish("loads", b"x")
        got.append(busy.said() if not got else idle.said())
    client.publish("loads", b"x")
    assert busy.said(), "2 of 16 are less than 2 of 4"
