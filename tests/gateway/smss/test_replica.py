"""The stream that slaves follow, of a gateway of one test alone: all topics of the daemon are in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from postroom_gateway.dialects.smss.replica import pause_s
from tests.gateway.conftest import MakeGateway
from tests.gateway.gateway import Gateway
from tests.gateway.smss.client import BizError, Connection, Entry, PubClient, alive, block, replica, sub
from tests.gateway.smss.place import CONFIG, DOORS
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon
from tests.wire.test_full_disk import MIN_FREE_BYTES, Disk, disk

__all__ = ["disk"]  # a fixture

PUB, CREATE, DELETE = 1, 2, 3


@pytest.fixture
def gateway(daemon: Daemon, make_gateway: MakeGateway) -> Gateway:
    return make_gateway(daemon, DOORS).start()


@pytest.fixture
def publisher(gateway: Gateway) -> Iterator[PubClient]:
    client = PubClient(gateway.ports["smss"])
    yield client
    client.close()


def entries(gateway: Gateway, after: int, number: int) -> list[Entry]:
    """The first entries behind an event id."""
    with Connection(gateway.ports["smss"]) as connection:
        connection.send(replica(after))
        return [connection.entry() for _ in range(number)]


def test_all_that_happens_to_topics_comes_in_the_order_of_its_ids(gateway, publisher):
    publisher.create("a", 4_102_444_800_000)
    publisher.create("b")
    publisher.publish("a", b"a1")
    publisher.publish("b", b"b1", b"b2", headers=[(b"k", b"v")])
    publisher.publish("a", b"a2")
    with Connection(gateway.ports["smss-lively"]) as slave:
        slave.send(replica(0))
        seen = [slave.entry() for _ in range(6)]
        slave.send(b"\0\0" * 3)  # acks of the official client, which nobody reads
        publisher.delete("a")
        publisher.create("a")
        publisher.publish("a", b"of the new topic")
        seen += [slave.entry() for _ in range(3)]
    ids = [one.event_id for one in seen]
    assert ids == sorted(set(ids))
    headers = [(b"k", b"v")]
    assert [(one.command, one.topic, one.payload) for one in seen] == [
        (CREATE, "a", struct.pack("<q", 4_102_444_800_000)),
        (CREATE, "b", bytes(8)),
        (PUB, "a", block(b"a1")),
        (PUB, "b", block(b"b1", headers)),
        (PUB, "b", block(b"b2", headers)),
        (PUB, "a", block(b"a2")),
        (DELETE, "a", b""),
        (CREATE, "a", bytes(8)),
        (PUB, "a", block(b"of the new topic")),
    ]
    created = {row["name"]: row["createEventId"] for row in publisher.topics()}
    assert created == {"b": ids[1], "a": ids[7]}


def test_d12_a_slave_goes_on_behind_any_record_of_a_batch(gateway, publisher):
    publisher.create("t")
    publisher.publish("t", *(b"m%d" % number for number in range(300)))
    seen = entries(gateway, 0, 301)
    assert [one.payload for one in seen[1:]] == [block(b"m%d" % number) for number in range(300)]
    for place in (0, 1, 150, 299):
        assert entries(gateway, seen[place].event_id, 1) == [seen[place + 1]]


def test_large_messages_of_several_topics_come_in_the_order_of_their_ids(gateway, publisher):
    topics = ("c", "a", "b")
    for topic in topics:
        publisher.create(topic)
    sent = [(topic, b"%d" % number * size) for number, size in enumerate((70_000, 1, 90_000)) for topic in topics]
    for topic, body in sent:
        publisher.publish(topic, body)
    seen = entries(gateway, 0, len(topics) + len(sent))[len(topics) :]
    assert [(one.topic, one.payload) for one in seen] == [(topic, block(body)) for topic, body in sent]


def test_a_slave_cannot_go_on_where_nothing_is(gateway, publisher):
    with Connection(gateway.ports["smss"]) as slave:
        for after, text in ((-1, "invalid replica eventId"), (10**12, "can't find event id")):
            with pytest.raises(BizError, match=text):
                slave.ask(replica(after))
        slave.ask(alive())


def test_d7_a_full_disk_stops_no_stream_and_no_start(disk: Disk, make_daemon: MakeDaemon, make_gateway):
    daemon = make_daemon(config=CONFIG)
    daemon.environment.setdefault("POSTROOM_STORAGE_MIN_FREE_BYTES", str(MIN_FREE_BYTES))
    daemon.start()
    gateway = make_gateway(daemon, DOORS).start()
    publisher = PubClient(gateway.ports["smss"])
    publisher.create("t")
    publisher.publish("t", b"before")
    disk.fill(daemon)
    daemon.wait(disk.free_bytes, "the daemon has made room for requests")
    for _ in range(2):  # the connection stays
        with pytest.raises(BizError, match="full"):
            publisher.publish("t", bytes(10_000))
    subscriber = Connection(gateway.ports["smss"])
    subscriber.send(sub(b"t", b"w"))
    assert subscriber.push().bodies == [b"before"]
    subscriber.ack()
    daemon.restart(kill=True)
    disk.empty(daemon)

    def is_taken() -> bool:
        try:
            publisher.publish("t", b"after")
        except BizError:
            return False
        return True

    daemon.wait(is_taken, "a publish is taken again")
    assert subscriber.push().bodies == [b"after"]
    assert [one.payload for one in entries(gateway, 0, 3)[1:]] == [block(b"before"), block(b"after")]
    subscriber.close()
    publisher.close()


def test_between_rounds_with_news_a_slave_of_many_topics_pauses():
    assert [round(pause_s(topics), 6) for topics in (0, 200, 2000, 50_000)] == [0, 0.01, 0.1, 0.1]
