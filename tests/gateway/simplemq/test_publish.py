"""Publishing, as clients of SimpleMQ do it: bytes, JSON, and a producer's WebSocket connection."""

from __future__ import annotations

import base64
import json

import pytest

from tests.gateway.frames import BINARY
from tests.gateway.simplemq.client import JSON


def test_bytes_and_json_are_published_and_pushed_as_they_are(client, topic):
    consumer = client.consume(topic)
    client.publish(topic, b"\x00raw\xff")
    assert consumer.bodies(1) == [b"\x00raw\xff"]
    bodies: list[tuple[dict[str, object], bytes]] = [
        ({"payload": "text é"}, "text é".encode()),
        ({"payload": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"payload": None}, b"null"),
        ({"body": base64.b64encode(b"\xfe\xff").decode()}, b"\xfe\xff"),
        ({"body": "", "payload": "not this"}, b""),
    ]
    for message, expected in bodies:
        answer = client.post("/api/message/publish", {"topic": topic, **message})
        assert (answer.status, answer.body) == (200, b""), answer
        assert consumer.bodies(1) == [expected]


def test_what_json_says_of_a_message_reaches_its_consumer(client, topic):
    consumer = client.settle(topic)
    header = {"messageId": "m1", "topic": topic, "priority": 7, "contentType": "text/x-log"}
    producer = {"producerId": "p", "producerName": "press", "producerGroup": "g", "clientVersion": "1"}
    message = {"header": header, "payload": "x", "producerInfo": producer, "timestamp": "2025-06-14T10:00:00Z"}
    answer = client.post("/api/message/publish", message)
    assert answer.header("x-message-id") == "m1"
    got = consumer.said()
    assert got.pop("deliveryId")
    assert got["header"].pop("timestamp").endswith("Z")
    assert got == {
        "messageId": "m1",
        "topic": topic,
        "status": "DELIVERING",
        "attempt": 1,
        "timestamp": "2025-06-14T10:00:00Z",
        "header": header,
        "body": base64.b64encode(b"x").decode(),
        "producerInfo": producer,
    }


def test_a_publish_that_is_repeated_is_one_message(client, topic, served):
    for _ in range(2):
        client.post("/api/message/publish", {"messageId": "m1", "topic": topic, "payload": "x"})
        client.publish(topic, b"y", **{"Idempotency-Key": f"{topic}-key"})
    client.post("/api/message/publish", {"messageId": "m1", "topic": f"{topic}-other", "payload": "x"})
    assert served.daemon.counts(topic) == {"ready": 2}
    assert served.daemon.counts(f"{topic}-other") == {"ready": 1}


def test_a_publish_that_cannot_be_is_refused_with_a_reason(client, topic):
    raw = {"Content-Type": "application/octet-stream"}
    cases = [
        (b"x", raw, 400, "the header X-Topic is missing"),
        (b"x", raw | {"X-Topic": "t" * 257}, 400, "ERR_INVALID_REQUEST"),
        (b"x", raw | {"X-Topic": "closed"}, 403, "ERR_FORBIDDEN"),
        (b"x", {"Content-Type": "text/plain", "X-Topic": topic}, 415, "Content-Type must be"),
        (b"{", JSON, 400, "must be JSON"),
        (b"[]", JSON, 400, "must be an object"),
        ({"payload": "x"}, JSON, 400, "the topic is missing"),
        ({"topic": topic}, JSON, 400, "neither body nor payload"),
        ({"topic": topic, "body": "%"}, JSON, 400, "base64"),
        ({"topic": topic, "body": {}}, JSON, 400, "base64"),
        ({"topic": topic, "header": {"topic": "other"}, "payload": 1}, JSON, 400, "topic and header.topic differ"),
        ({"topic": topic, "header": [], "payload": 1}, JSON, 400, "header must be an object"),
        ({"topic": topic, "header": {"priority": 2**31}, "payload": 1}, JSON, 400, "32 bits"),
        ({"topic": topic, "messageId": "i" * 257, "payload": 1}, JSON, 400, "256 bytes"),
    ]
    for body, headers, status, text in cases:
        answer = client.post("/api/message/publish", body, headers)
        assert answer.status == status, (body, answer)
        assert answer.body.startswith(b"Failed to publish message: ")
        assert text in answer.body.decode(), (body, answer)
    assert client.gateway.ask("GET", "/api/message/publish", door="simplemq").status == 405
    assert client.gateway.ask("GET", "/api/message/nothing", door="simplemq").status == 404
    assert client.gateway.ask("GET", "/ws/messages", door="simplemq").status == 404


def test_a_message_that_the_queue_does_not_take_is_refused(client, topic, served):
    served.daemon.ask("set_policy", queue=topic, policy={"limits": {"messages": 1}})
    client.publish(topic, b"x")
    answer = client.post("/api/message/publish", {"topic": topic, "payload": "y"})
    assert answer.status == 429
    served.daemon.ask("set_policy", queue=topic, policy={"limits": {"overflow": "dead-letter"}})
    answer = client.post("/api/message/publish", {"topic": topic, "payload": "y"})
    assert answer.status == 422
    served.daemon.ask("create_queue", queue=topic + ".log", createWith={"kind": "log"})
    answer = client.post("/api/message/publish", {"topic": topic + ".log", "payload": "y"})
    assert answer.status == 400


def test_a_producer_publishes_over_its_connection(client, topic, served):
    producer = client.produce()
    assert producer.asks("SET_TOPIC", topic=topic) == {"type": "TOPIC", "topic": topic}
    producer.send(b"\x00\xff", BINARY)
    assert producer.said()["type"] == "PUBLISHED"
    producer.send(json.dumps({"messageId": "own", "payload": "of the topic that was set"}))
    assert producer.said() == {"type": "PUBLISHED", "messageId": "own"}
    producer.send(json.dumps({"messageId": "other", "topic": f"{topic}-other", "payload": 1}))
    assert producer.said() == {"type": "PUBLISHED", "messageId": "other"}
    assert served.daemon.counts(topic) == {"ready": 2}
    assert served.daemon.counts(f"{topic}-other") == {"ready": 1}
    for wrong, text in (("[", "JSON"), ('{"messageId":"m"}', "neither body nor payload")):
        producer.send(wrong)
        said = producer.said()
        assert said["type"] == "ERROR"
        assert text in said["error"]
    other = client.produce()
    other.tell("HEARTBEAT")
    other.send(b"x", BINARY)
    assert other.said() == {"type": "ERROR", "error": "the topic is missing"}


@pytest.mark.parametrize("name", ["subscribe/t", "register/producer"])
def test_who_says_not_who_it_is_gets_no_token(client, name):
    cases = [
        (b"{", JSON, 400),
        ({}, JSON, 400),
        ({"consumerId": "a\n", "producerId": "a\n"}, JSON, 400),
        ({"consumerId": "a", "producerId": "p"}, {"Content-Type": "text/plain"}, 415),
    ]
    for body, headers, status in cases:
        answer = client.post(f"/api/message/{name}", body, headers)
        assert answer.status == status, (body, answer)
        assert answer.body.startswith(b"Failed to ")
