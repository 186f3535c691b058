"""Topics and publishes, as clients of smss ask for them."""

from __future__ import annotations

import json
import socket
import time

import pytest

from tests.gateway.smss.client import BizError, Connection, PubClient, block, valid_list
from tests.gateway.smss.client import create as create_request
from tests.gateway.smss.client import delay as delay_request
from tests.gateway.smss.client import delete as delete_request
from tests.gateway.smss.client import header as header_request
from tests.gateway.smss.client import info as info_request
from tests.gateway.smss.client import pub as pub_request
from tests.gateway.smss.client import sub as sub_request
from tests.wire.daemon import wait_until


def error(connection: Connection, request: bytes) -> str:
    """The text with which a request is refused; the connection goes on."""
    with pytest.raises(BizError) as caught:
        connection.ask(request)
    connection.ask(header_request(17))
    return str(caught.value)


def bodies(connection: Connection, topic: str, number: int) -> list[bytes]:
    """The bodies of the first messages of a topic."""
    connection.send(sub_request(topic.encode(), f"reader of {topic}".encode(), 0, 255))
    found: list[bytes] = []
    while len(found) < number:
        found += connection.push().bodies
        connection.ack(1 if len(found) >= number else 0)
    return found


def test_what_was_published_is_pushed_in_order(publisher, topic, connect):
    for number in range(5):
        publisher.publish(topic, b"m%d" % number, headers=[(b"k", b"v%d" % number), (b"", b"")])
    publisher.publish(topic, b"a", b"b", b"c")
    connection = connect()
    connection.send(sub_request(topic.encode(), b"w", 0, 255))
    messages = connection.push().messages
    assert [one.body for one in messages] == [b"m0", b"m1", b"m2", b"m3", b"m4", b"a", b"b", b"c"]
    assert messages[3].headers == [(b"k", b"v3"), (b"", b"")]
    ids = [one.event_id for one in messages]
    assert ids == sorted(set(ids))
    assert ids[-1] - ids[-3] == 2, "the ids of a batch are consecutive"
    assert all(abs(one.ts - time.time() * 1000) < 600_000 for one in messages)


def test_requests_that_are_refused_leave_their_connection_usable(publisher, topic, connect):
    connection, name = connect(), topic.encode()
    soon_ms = int(time.time() * 1000) + 9000
    message = block(b"x")
    cases = {
        create_request(b"a b"): "topic name MUST be less than 128 char and NOT contains space/enter/tab",
        create_request(b"x" * 129): "topic name MUST be less than 128 char and NOT contains space/enter/tab",
        create_request(b"new", soon_ms): "expire MUST more than 10s",
        create_request(b"new", -1): "expire MUST more than 10s",
        create_request(name): "topic exist",
        delete_request(b"none"): "topic not exist",
        pub_request(name, b""): "invalid request, payload size must be more than 8",
        pub_request(name, message[:8]): "invalid request, payload size must be more than 8",
        pub_request(name, message + b"\0"): "invalid pub payload: a block is cut off",
        pub_request(b"none", message): "topic not exist",
        pub_request(b"../" + name, message): "topic not exist",
        delay_request(name, message, 999): "delay time must be more than 1 second",
        delay_request(name, message[:7], 5000): "invalid delay request",
        delay_request(b"none", message, 5000): "topic not exist",
        delay_request(name, message, 367 * 86_400_000): "delay time must be at most 366 days",
        sub_request(b"none", b"w"): "topic not exist",
        sub_request(name, b"w" * 1025): "the name of the subscriber has 1,025 bytes; the limit is 1,024",
        info_request(b""): "topic name is required",
        info_request(b"none"): "topic not exist",
        header_request(5, b"topic", b"trace"): "don't support action",
        header_request(101, name): "don't support action",
        header_request(255): "don't support action",
    }
    assert {request: error(connection, request) for request in cases} == cases


def test_topics_are_listed_with_their_lives(publisher, connect):
    connection = connect()
    assert connection.ask(valid_list(1), "json").data == b""  # none is so old: the length is 0
    expire_ms = int(time.time() * 1000) + 3_600_000
    for name, expires in (("zz", 0), ("Aa", expire_ms), ("订单", 0)):
        publisher.create(name, expires)
    rows = {row["name"]: row for row in publisher.topics()}
    assert list(rows) == sorted(rows, key=str.encode)
    row = publisher.info("Aa")
    assert row == rows["Aa"]
    made_ms, made = row["createTimeStamp"], row["createEventId"]
    assert abs(made_ms - time.time() * 1000) < 600_000
    assert row == {
        "name": "Aa",
        "createTimeStamp": made_ms,
        "expireAt": expire_ms,
        "createEventId": made,
        "stateChangeTime": made_ms,
        "stateChangeEventId": made,
        "state": 0,
        "topicRoot": row["topicRoot"],
    }
    assert rows["zz"]["createEventId"] < made < rows["订单"]["createEventId"]
    some = json.loads(connection.ask(valid_list(made), "json").data)
    assert {"zz", "Aa"} <= {one["name"] for one in some}
    assert "订单" not in {one["name"] for one in some}
    assert json.loads(connection.ask(valid_list(0), "json").data) == publisher.topics()
    publisher.delete("zz")
    assert "zz" not in {one["name"] for one in publisher.topics()}


def test_queues_are_no_topics(served, publisher, connect):
    served.daemon.ask("publish", queue="a-queue", message="x")
    assert "a-queue" not in {row["name"] for row in publisher.topics()}
    connection = connect()
    assert error(connection, info_request(b"a-queue")) == "topic not exist"
    assert error(connection, create_request(b"a-queue")) == "topic exist"
    error(connection, delete_request(b"a-queue"))
    assert served.daemon.ask("status", queue="a-queue")["metrics"]["ready"] == 1


def test_without_rules_a_client_may_do_everything_but_delete(topic, connect):
    guest, name = connect("smss-guest"), topic.encode()
    guest.ask(create_request(name + b"-guest"))
    guest.ask(pub_request(name, block(b"x")))
    assert "may not operate" in error(guest, delete_request(name))
    guest.send(sub_request(name, b"w"))
    assert guest.push().bodies == [b"x"]


def test_publishes_of_many_connections_have_outcomes_of_their_own(publisher, topic, connect):
    connections = [connect() for _ in range(40)]
    for number, one in enumerate(connections):
        one.send(pub_request(topic.encode() if number % 4 else b"none", block(b"m%d" % number)))
    answers = [one.receive().code for one in connections]
    assert answers == [200 if number % 4 else 400 for number in range(40)]
    assert sorted(bodies(connect(), topic, 30)) == sorted(b"m%d" % number for number in range(40) if number % 4)


def test_a_client_that_does_not_wait_for_answers_gets_them_in_order(topic, connect):
    connection, name = connect(), topic.encode()
    requests = [pub_request(name, block(b"m%d" % number)) + header_request(17) for number in range(500)]
    connection.send(b"".join(requests))
    assert [connection.receive().code for _ in range(1000)] == [200, 201] * 500
    assert bodies(connection, topic, 500) == [b"m%d" % number for number in range(500)]


def test_a_client_that_sends_nothing_more_gets_the_answers_to_all_its_publishes(topic, connect):
    connection, name = connect(), topic.encode()
    wrong = pub_request(name, b"\0" * 20)
    connection.send(b"".join(wrong if number % 5 == 2 else pub_request(name, block(b"x")) for number in range(300)))
    connection.socket.shutdown(socket.SHUT_WR)
    assert [connection.receive().code for _ in range(300)] == [400 if number % 5 == 2 else 200 for number in range(300)]
    assert connection.socket.recv(1) == b""
    assert len(bodies(connect(), topic, 240)) == 240


def test_a_delayed_message_comes_when_it_is_due(publisher, topic, connect):
    began_s = time.monotonic()
    publisher.publish_delay(topic, b"later", 1000)
    publisher.publish(topic, b"now")
    assert bodies(connect(), topic, 2) == [b"now", b"later"]
    assert time.monotonic() - began_s >= 1.0


def test_delayed_messages_end_with_their_topic(publisher, topic, connect):
    publisher.publish_delay(topic, b"later", 1000)
    publisher.delete(topic)
    publisher.create(topic)
    publisher.publish_delay(topic, b"of the new topic", 1000)
    assert bodies(connect(), topic, 1) == [b"of the new topic"]


def test_an_idle_connection_of_the_pool_is_used_again(served, publisher):
    for _ in range(20):
        publisher.alive()
        with pytest.raises(BizError):
            publisher.delete("none")
    assert len(publisher.idle) == 1
    client = PubClient(served.gateway.ports["smss"])
    client.alive()
    client.close()
    wait_until(lambda: served.gateway.metric('postroom_gateway_connections{door="smss"}') <= 1, "it has gone")
