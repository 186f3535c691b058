"""Consuming: bare messages, deliveries that consumers settle, and consumers that go."""

from __future__ import annotations

from base64 import b64decode

import pytest

from tests.gateway.frames import CLOSE, Refused
from tests.wire.daemon import wait_until


def wait_for_counts(served, topic: str, **counts: int) -> None:
    wait_until(lambda: served.daemon.counts(topic) == counts, f"{topic} has {counts}")


def test_a_subscriber_gets_the_address_and_a_token(client, topic):
    got = client.subscribe(topic)
    port = client.gateway.ports["simplemq"]
    assert set(got) == {"websocketUrl", "token", "topic"}
    assert (got["websocketUrl"], got["topic"]) == ("ws://localhost/ws/message", topic)
    answer = client.post(f"/api/message/subscribe/{topic}", {"consumerId": "a", "topic": "another"})
    assert answer.status == 400
    for wrong in ({"ackMode": "NEVER"}, {"capacity": 0}, {"capacity": 17}, {"priority": "high"}):
        assert client.post(f"/api/message/subscribe/{topic}", {"consumerId": "a", **wrong}).status == 400, wrong
    assert port


@pytest.mark.parametrize("token", ["", "x", "x.y", "%C3%A9.%C3%A9", "Y29uc3VtZXI6dDox"])
def test_a_token_of_nobody_opens_no_connection(client, token):
    with pytest.raises(Refused) as refused:
        client.connect(token)
    assert refused.value.status == 401
    assert "subscribe again" in refused.value.body or "none of this door" in refused.value.body


def test_a_token_that_was_changed_opens_no_connection(client, topic):
    token = client.subscribe(topic)["token"]
    with pytest.raises(Refused):
        client.connect(("A" if token[0] != "A" else "B") + token[1:])


def test_a_bare_message_is_done_when_the_client_has_read_it(client, topic, served):
    client.publish(topic, b"x")
    consumer = client.consume(topic)
    assert consumer.receive().payload == b"x"
    assert served.daemon.counts(topic) == {"inflight": 1}
    consumer.confirm()
    wait_for_counts(served, topic)


def test_a_consumer_that_asks_for_it_settles_what_it_gets(client, topic, served):
    consumer = client.settle(topic)
    client.publish(topic, b"x")
    first = consumer.said()
    status = {"type": "STATUS", "messageId": first["messageId"], "deliveryId": first["deliveryId"]}
    extended = consumer.asks("EXTEND", messageId=first["messageId"])
    assert extended == {**status, "status": "DELIVERING", "seconds": 30}
    failed = consumer.asks("NACK", messageId=first["messageId"], reason="no paper")
    assert failed == {**status, "status": "FAILED", "next": "RETRY"}
    again = consumer.said()
    assert (again["messageId"], again["attempt"]) == (first["messageId"], 2)
    done = consumer.asks("ACK", deliveryId=again["deliveryId"])
    assert done == {**status, "deliveryId": again["deliveryId"], "status": "DELIVERED"}
    wait_for_counts(served, topic)
    for wrong in ({"messageId": first["messageId"]}, {"deliveryId": again["deliveryId"]}, {}):
        said = consumer.asks("ACK", **wrong)
        assert said["type"] == "ERROR"
        assert "no such delivery" in said["error"]
    assert "must be ACK" in consumer.asks("SING")["error"]
    consumer.send("[")
    assert "JSON" in consumer.said()["error"]


def test_a_message_that_fails_too_often_is_a_dead_letter_with_its_reason(client, topic, served):
    consumer = client.settle(topic)
    client.publish(topic, b"x")
    for attempt, end in ((1, "RETRY"), (2, "RETRY"), (3, "DEAD")):
        got = consumer.said()
        assert got["attempt"] == attempt
        assert consumer.asks("NACK", messageId=got["messageId"], reason="no paper")["next"] == end
    (letter,) = served.daemon.ask("list_dlq", queue=topic)["messages"]
    assert "no paper" in str(letter)


def test_a_consumer_that_is_too_slow_loses_the_message(hasty, topic, served):
    hasty.publish(topic, b"x")
    consumer = hasty.settle(topic)
    first = consumer.said()
    late = consumer.said()
    assert (late["deliveryId"], late["status"]) == (first["deliveryId"], "TIMEOUT")
    assert consumer.said()["attempt"] == 2
    assert consumer.said()["status"] == "TIMEOUT"
    assert "no such delivery" in consumer.asks("ACK", messageId=first["messageId"])["error"]
    wait_for_counts(served, topic, dlq=1)


def test_what_a_consumer_has_when_it_goes_comes_to_another_one(client, topic, served):
    first, second = client.settle(topic, "a"), client.settle(topic, "b")
    client.publish(topic, b"x")
    assert first.said()["attempt"] == 1
    first.socket.close()
    assert second.said()["attempt"] == 2


def test_only_the_message_on_which_a_consumer_worked_has_failed_when_it_goes(client, topic):
    first = client.settle(topic, "a")
    for number in range(3):
        client.publish(topic, b"%d" % number)
    assert [first.said()["attempt"] for _ in range(3)] == [1, 1, 1]
    first.socket.close()
    second = client.settle(topic, "b")
    attempts = {(one["body"], one["attempt"]) for one in (second.said() for _ in range(3))}
    assert attempts == {("MA==", 2), ("MQ==", 1), ("Mg==", 1)}


def test_a_backlog_is_given_to_all_consumers_of_a_topic_as_they_have_room(client, topic, served):
    for number in range(9):
        client.publish(topic, b"%d" % number)
    first, second = (client.settle(topic, name, capacity=4) for name in "ab")
    bodies = [[b64decode(one.said()["body"]) for _ in range(4)] for one in (first, second)]
    assert sorted(bodies[0] + bodies[1]) == [b"%d" % number for number in range(8)]
    assert served.daemon.counts(topic) == {"inflight": 8, "ready": 1}


def test_a_consumer_that_says_nothing_is_disconnected_and_its_work_goes_to_others(lively, topic):
    silent = lively.settle(topic, "a")
    lively.publish(topic, b"x")
    assert silent.said()["attempt"] == 1
    other = lively.settle(topic, "b")
    assert other.said()["attempt"] == 2


def test_a_consumer_that_connects_again_takes_its_place(client, topic):
    first = client.settle(topic, "a")
    client.publish(topic, b"x")
    assert first.said()["attempt"] == 1
    second = client.settle(topic, "a")
    frame = first.frame()
    assert frame.opcode == CLOSE
    assert b"another connection" in frame.payload
    assert second.said()["attempt"] == 2


def test_a_consumer_gets_no_more_than_it_can_take(client, topic, served):
    consumer = client.settle(topic, capacity=2)
    for number in range(3):
        client.publish(topic, b"%d" % number)
    got = [consumer.said() for _ in range(2)]
    assert served.daemon.counts(topic) == {"inflight": 2, "ready": 1}
    assert consumer.asks("ACK", messageId=got[0]["messageId"])["status"] == "DELIVERED"
    assert consumer.said()["messageId"] not in {one["messageId"] for one in got}


def test_a_consumer_that_may_not_is_told_why(client):
    consumer = client.consume("closed")
    frame = consumer.frame()
    assert frame.opcode == CLOSE
    assert frame.payload[:2] == (1008).to_bytes(2, "big")
    assert b"may not consume" in frame.payload
