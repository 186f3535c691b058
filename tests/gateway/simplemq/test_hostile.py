"""Clients that are wrong, do not read, or vanish: what they get, and that nothing acknowledged is lost."""

from __future__ import annotations

import json
import socket
import struct
from base64 import b64decode

import pytest

from tests.gateway.frames import CLOSE, Refused
from tests.gateway.simplemq.client import JSON, Client, Session
from tests.gateway.simplemq.place import CONFIG
from tests.wire.daemon import wait_until

DOORS = """
[limits]
read_seconds = 1
[doors.simplemq]
port = 0
options = {ack_seconds = 0.3, retries = 0, heartbeat_seconds = 0, strategy = "FIRST_AVAILABLE"}
[doors.simplemq-tcp]
port = 0
options = {ack_seconds = 0.3, retries = 0, strategy = "FIRST_AVAILABLE"}
"""
PATIENT = """
[doors.simplemq]
port = 0
options = {retries = 0, strategy = "FIRST_AVAILABLE"}
"""


@pytest.fixture
def daemon(make_daemon):
    """A daemon that serves an empty root, and the principals of the doors."""
    return make_daemon(config=CONFIG).start()


def test_a_payload_that_is_nested_too_deeply_is_refused(client, topic):
    body = b'{"topic": "%s", "payload": %s}' % (topic.encode(), b"[" * 400 + b"]" * 400)
    answer = client.post("/api/message/publish", body, JSON)
    assert answer.status == 400
    assert b"too deeply" in answer.body
    producer = client.produce()
    producer.send(body)
    assert "too deeply" in producer.said()["error"]
    producer.send(json.dumps({"topic": topic, "payload": "x"}))
    assert producer.said()["type"] == "PUBLISHED"


def test_a_subscription_without_a_topic_is_refused(client):
    answer = client.post("/api/message/subscribe/", {"consumerId": "c"})
    assert answer.status == 400
    assert b"Failed to subscribe: the topic is missing" in answer.body


def test_a_stop_of_the_gateway_is_no_failure_of_its_consumers(daemon, make_gateway):
    gateway = make_gateway(daemon, PATIENT).start()
    client = Client(gateway)
    for number in range(3):
        client.publish("t", b"%d" % number)
    consumer = client.settle("t")
    assert [consumer.said()["attempt"] for _ in range(3)] == [1, 1, 1]
    gateway.stop()
    client.close()
    assert daemon.counts("t") == {"ready": 3}

    client = Client(make_gateway(daemon, PATIENT).start())
    consumer = client.settle("t")
    got = [consumer.said() for _ in range(3)]
    assert [(b64decode(one["body"]), one["attempt"]) for one in got] == [(b"0", 1), (b"1", 1), (b"2", 1)]
    client.close()


def test_a_consumer_that_confirms_nothing_is_disconnected(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    client = Client(gateway)
    consumer = client.consume("t")
    for number in range(20):
        client.publish("t", b"%d" % number)
    frames = [consumer.receive() for _ in range(33)]  # 16 messages, each with a ping, and the close
    assert frames[-1].opcode == CLOSE
    assert b"not read in time" in frames[-1].payload
    # What was leased with the first message has had its time, too, or was given back; the rest was never delivered.
    counts = daemon.counts("t")
    assert sum(counts.values()) == 20
    assert counts["ready"] >= 4
    client.close()


def slow_reader(gateway, door: str) -> socket.socket:
    """A connection that takes little until it reads."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", gateway.ports[door]))
    return peer


def test_a_client_that_reads_nothing_is_disconnected_and_its_messages_are_kept(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    client = Client(gateway)
    sender = gateway.connect("simplemq-tcp")
    sender.sendall(b"HATM" + struct.pack(">i", 12) + b"atmh->target")
    size = 300_000
    for _ in range(40):
        sender.sendall(b"BATM" + struct.pack(">i", size) + bytes(size))
    wait_until(lambda: daemon.counts("target") == {"ready": 40}, "all were published")
    peer = slow_reader(gateway, "simplemq-tcp")
    peer.sendall(b"HATM" + struct.pack(">i", 12) + b"target->atmh")
    name = 'postroom_gateway_connections{door="simplemq-tcp"}'
    wait_until(lambda: gateway.metric(name) == 2, "both are connected")
    wait_until(lambda: gateway.metric(name) == 1, "the reader that does not read is not")
    assert sum(daemon.counts("target").values()) >= 36  # four fit into its time, and are its business
    for one in (sender, peer):
        one.close()
    client.close()


def test_a_consumer_that_was_closed_and_does_not_read_that_leaves_nothing_behind(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    client = Client(gateway)
    for _ in range(40):
        client.publish("t", bytes(200_000))
    token = client.subscribe("t")["token"]
    peer = slow_reader(gateway, "simplemq")
    peer.sendall(
        f"GET /ws/message?token={token} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n".encode()
    )
    name = 'postroom_gateway_connections{door="simplemq"}'
    wait_until(lambda: daemon.counts("t").get("inflight", 0) > 0, "it has messages")
    wait_until(lambda: gateway.metric(name) == 0, "it has gone")
    wait_until(lambda: "inflight" not in daemon.counts("t"), "and has no messages")
    assert sum(daemon.counts("t").values()) == 40
    peer.close()
    client.close()


@pytest.mark.parametrize("path", ["/ws/message", "/ws/message?token=", "/ws/message?token=..%2F..%2Fkey"])
def test_a_path_without_a_token_opens_no_connection(client, path):
    with pytest.raises(Refused) as refused:
        Session(client.gateway, client.door, path, {})
    assert refused.value.status == 401
