"""Subscriptions: batches and acks, signs of life, and every way in which they end."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from postroom_gateway.dialects.smss.subscription import Subscription, Terms
from postroom_gateway.dialects.smss.topics import Page
from tests.gateway.smss.client import (
    ACK,
    ACK_WITH_END,
    ALIVE,
    END_WITHOUT_ACK,
    ERROR,
    SUB_END,
    BizError,
    Connection,
    Message,
    PubClient,
    Silence,
    SubClient,
    alive,
    sub,
)
from tests.gateway.smss.place import DOORS
from tests.wire.daemon import wait_until


def ids(served, connect, topic: str) -> list[int]:
    """The event ids of a topic that are there."""
    connection = connect()
    connection.send(sub(topic.encode(), b"looks", 0, 255))
    found = [message.event_id for message in connection.push().messages]
    connection.close()
    return found


def fill(publisher, topic: str, number: int) -> None:
    publisher.publish(topic, *(b"m%d" % one for one in range(number)))


def test_batches_are_as_large_as_they_may_be_and_each_waits_for_the_ack(publisher, topic, connect):
    fill(publisher, topic, 600)
    for batch, sizes in ((1, 10 * [1]), (100, 6 * [100]), (255, [255, 255, 90]), (0, 3 * [1])):
        connection = connect()
        connection.send(sub(topic.encode(), b"w%d" % batch, 0, batch))
        seen: list[bytes] = []
        for place, size in enumerate(sizes):
            push = connection.push()
            assert push.count == size
            seen += push.bodies
            connection.ack(ACK_WITH_END if place == len(sizes) - 1 else ACK)
        assert seen == [b"m%d" % one for one in range(len(seen))]
        assert connection.ask(alive()).code == ALIVE  # nothing was pushed before its ack


def test_a_backlog_of_many_pages_comes_once_and_in_order(publisher, topic, connect):
    expected = [b"m%d" % number for number in range(6000)]
    for start in range(0, 6000, 1000):
        publisher.publish(topic, *expected[start : start + 1000])
    for batch in (255, 7):
        connection = connect()
        connection.send(sub(topic.encode(), b"w%d" % batch, 0, batch))
        seen: list[bytes] = []
        while len(seen) < 6000:
            seen += connection.push().bodies
            connection.ack()
        assert seen == expected


async def reads_ahead(size: int) -> int:
    """How often a topic is read while its first record, of so many bytes, waits for the ack of a client."""
    pushed, reads = asyncio.Event(), []

    async def first(*_: object) -> Page:
        return Page(bytes(size), 1, 1, 1, 9)

    async def read(*_: object, **__: object) -> Page:
        reads.append(True)
        return await asyncio.Future()

    peer: Any = SimpleNamespace(write=lambda data: pushed.set())
    topics: Any = SimpleNamespace(first=first, read=read)
    subscription = Subscription(peer, topics, Terms(b"t", b"w", 0, 1, 0), 30.0)
    await subscription.start()
    running = asyncio.create_task(subscription.run())
    await pushed.wait()
    running.cancel()
    return len(reads)


def test_only_pages_of_small_messages_are_read_ahead():
    assert [asyncio.run(reads_ahead(size)) for size in (1000, 128 * 1024, 128 * 1024 + 1)] == [1, 1, 0]


def test_what_is_published_later_is_pushed_at_once(publisher, topic, connect):
    connection = connect()
    connection.send(sub(topic.encode(), b"w", 0, 10))
    for number in range(3):
        publisher.publish(topic, b"m%d" % number)
        assert connection.push().bodies == [b"m%d" % number]
        connection.ack()


def test_a_subscription_goes_on_behind_an_event_id_that_the_topic_has(served, publisher, topic, connect):
    publisher.create(topic + "-other")
    fill(publisher, topic, 4)
    known = ids(served, connect, topic)
    connection = connect()
    refused = {}
    for event_id in (-1, 1, known[0] - 1, known[-1] + 1, 10**15):
        connection.send(sub(topic.encode(), b"w", event_id))
        with pytest.raises(BizError) as caught:
            connection.push()
        refused[event_id] = str(caught.value)
    assert set(refused.values()) == {"can't find event id"}
    connection.send(sub(topic.encode(), b"w", known[1], 255))
    assert connection.push().bodies == [b"m2", b"m3"]
    connection.ack(ACK_WITH_END)
    connection = connect("smss-lively")
    connection.send(sub((topic + "-other").encode(), b"w", 777))  # a topic without any message takes every id
    assert connection.receive("push").code == ALIVE
    publisher.publish(topic + "-other", b"first")
    assert connection.push().bodies == [b"first"]


def test_a_name_subscribes_once_to_a_topic(publisher, topic, connect):
    publisher.create(topic + "-other")
    first, second = connect(), connect()
    first.send(sub(topic.encode(), b"me"))
    publisher.publish(topic, b"x")
    first.push()
    second.send(sub(topic.encode(), b"me"))
    with pytest.raises(BizError, match="me regiester exist"):
        second.push()
    second.send(sub((topic + "-other").encode(), b"me"))
    publisher.publish(topic + "-other", b"y")
    assert second.push().bodies == [b"y"]
    first.close()
    third = connect()

    def is_free() -> bool:
        third.send(sub(topic.encode(), b"me"))
        return bool(third.receive("push").code != ERROR)

    wait_until(is_free, "the name is free again")


def test_a_client_that_does_not_ack_in_time_is_closed(publisher, topic, connect):
    publisher.publish(topic, b"x")
    for timeout_s, least_s in ((0.3, 0.3), (None, 3.0)):
        connection = connect()
        began_s = time.monotonic()
        connection.send(sub(topic.encode(), b"w", 0, 1, timeout_s))
        connection.push()
        assert connection.is_closed()
        assert least_s <= time.monotonic() - began_s


def test_what_is_no_ack_closes_the_connection(publisher, topic, connect):
    publisher.publish(topic, b"x")
    for data in (b"\2\0", b"\0\1", b"\0\0\0", b"\xff\xff"):
        connection = connect()
        connection.send(sub(topic.encode(), b"w%d" % data[0]))
        connection.push()
        connection.send(data)
        assert connection.is_closed()
    connection = connect()
    connection.send(sub(topic.encode(), b"halves"))
    connection.push()
    connection.send(b"\1")
    connection.send(b"\0" + alive())
    assert connection.receive().code == ALIVE


def test_a_subscriber_for_whom_there_is_nothing_gets_signs_of_life(publisher, topic, connect):
    connection = connect("smss-lively")
    connection.send(sub(topic.encode(), b"w"))
    assert [connection.receive("push").code for _ in range(3)] == [ALIVE] * 3
    publisher.publish(topic, b"x")
    assert connection.push().bodies == [b"x"]
    connection.ack()
    assert connection.receive("push").code == ALIVE


def test_the_official_client_gives_up_only_if_the_door_is_silent(served, publisher, topic):
    client = SubClient(served.gateway.ports["smss-lively"], topic, "w", silence_s=1.0, read_s=0.1)
    seen: list[bytes] = []

    def handle(messages: list[Message]) -> int:
        seen.extend(message.body for message in messages)
        return {b"last": ACK_WITH_END, b"gone": END_WITHOUT_ACK}.get(messages[-1].body, ACK)

    thread = threading.Timer(1.5, publisher.publish, (topic, b"last"))
    thread.start()
    client.sub(0, 5, 10.0, handle)  # it heard signs of life for longer than it waits
    thread.join()
    assert seen == [b"last"]
    quiet = SubClient(served.gateway.ports["smss"], topic + "-quiet", "w", silence_s=0.3, read_s=0.1)
    publisher.create(topic + "-quiet")
    with pytest.raises(Silence):
        quiet.sub(0, 5, 10.0, handle)
    client.close()
    quiet.close()


def test_a_deletion_ends_the_subscriptions_of_the_topic_and_no_other(publisher, topic, connect):
    publisher.create(topic + "-other")
    other, *idle = [connect() for _ in range(6)]
    other.send(sub((topic + "-other").encode(), b"w"))
    for number, connection in enumerate(idle):
        connection.send(sub(topic.encode(), b"w%d" % number))
    publisher.publish(topic, b"x")
    for connection in idle:
        connection.push()
        connection.ack()
    publisher.delete(topic)
    assert [connection.receive("push").code for connection in idle] == [SUB_END] * 5
    assert [connection.ask(alive()).code for connection in idle] == [ALIVE] * 5
    publisher.publish(topic + "-other", b"y")
    assert other.push().bodies == [b"y"]


def test_a_topic_that_expires_ends_its_subscriptions(served, publisher, connect):
    policy = {"kind": "log", "log": {"expireAtMs": int(time.time() * 1000) + 3000}}
    served.daemon.ask("create_queue", queue="short", createWith=policy)
    connection = connect()
    connection.send(sub(b"short", b"w"))
    assert connection.receive("push").code == SUB_END
    with pytest.raises(BizError, match="topic not exist"):
        publisher.publish("short", b"x")


def test_a_topic_that_was_made_again_is_another_one(publisher, topic, connect):
    fill(publisher, topic, 3)
    connection = connect()
    connection.send(sub(topic.encode(), b"w", 0, 3))
    connection.push()
    publisher.delete(topic)
    publisher.create(topic)
    publisher.publish(topic, b"of the new one")
    connection.ack()
    assert connection.receive("push").code == SUB_END
    connection.send(sub(topic.encode(), b"w"))
    assert connection.push().bodies == [b"of the new one"]


def test_a_subscription_lasts_over_a_restart_of_the_daemon(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    publisher = PubClient(gateway.ports["smss"])
    publisher.create("t")
    with Connection(gateway.ports["smss-lively"]) as connection:
        connection.send(sub(b"t", b"w", 0, 5))
        assert connection.receive("push").code == ALIVE
        daemon.kill()
        assert connection.receive("push").code == ALIVE
        daemon.start()
        publisher.publish("t", b"x")
        assert connection.push().bodies == [b"x"]
        connection.ack()
        gateway.process.send_signal(signal.SIGTERM)
        codes = []
        with pytest.raises((ConnectionError, OSError)):
            while True:
                codes.append(connection.receive("push").code)
        assert set(codes) <= {ALIVE}
    publisher.close()
    assert gateway.process.wait(60) == 0
