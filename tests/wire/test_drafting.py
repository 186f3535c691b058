"""Drafts, through the mailbox and the lane, and as ``postroom`` and the Python client show them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from postroom_client import BadState, Binary, Client, DuplicateMessage, PartNotFound
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon
from tests.wire.lane import LaneClient


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    return make_daemon().start()


def set_part(daemon: Daemon, key: str, part: str, message: Any, **options: Any) -> str:
    """The state of a message after a part was set."""
    state: str = daemon.ask("set", messageKey=key, part=part, message=message, **options)["state"]
    return state


def bodies(message: Any) -> dict[str, Any]:
    return {part["name"]: part["payload"] for part in message["parts"]}


@on_every_store
def test_a_draft_is_ready_when_its_last_part_is_set_and_delivered_over_both_doors(daemon: Daemon) -> None:
    for queue in ("one", "two"):
        drafted = daemon.ask("draft", queue=queue, parts=["head", "image"], name="order:7", attributes={"n": 1})
        assert drafted["name"] == "order:7"
        assert set_part(daemon, f"msg:{queue}:order%3A7", "image", "AP8=", encoding="base64") == "drafting"
        assert daemon.counts(queue) == {"drafting": 1}
        assert set_part(daemon, drafted["messageKey"], "head", {"shift": 7}) == "ready"
    message = daemon.ask("consume_next", queue="one", payloadAs="value")["message"]
    assert (message["name"], message["attributes"]) == ("order:7", {"n": 1})
    assert message["parts"] == [
        {"payload": {"shift": 7}, "name": "head"},
        {"payload": "AP8=", "encoding": "base64", "contentType": "application/octet-stream", "name": "image"},
    ]
    with LaneClient(daemon.ipc) as lane:
        answer, body = lane.call("consume_next", {"queue": "two", "payloadAs": "value"})
    message = answer["data"]["message"]
    assert body == b'{"shift":7}\0\xff' and message["bodyBytes"] == 11
    assert message["parts"] == [
        {"bodyBytes": 11, "encoding": "json", "name": "head"},
        {"bodyBytes": 2, "encoding": "binary", "name": "image"},
    ]


@on_every_store
def test_a_killed_daemon_loses_no_part_and_no_name(daemon: Daemon) -> None:
    key = daemon.ask("draft", queue="q", parts=["a", "b"], name="n")["messageKey"]
    sent = daemon.send("set", {"messageKey": key, "part": "a", "message": "one"})
    daemon.answer(sent)
    daemon.restart(kill=True)
    assert daemon.again(sent)["data"] == {"messageKey": key, "state": "drafting"}
    assert bodies(daemon.ask("get_message", messageKey="msg:q:n")["message"]) == {"a": "one"}
    assert set_part(daemon, "msg:q:n", "b", "two") == "ready"
    assert set_part(daemon, "msg:q:n", "a", "three") == "ready"
    daemon.restart(kill=True)
    lease = daemon.ask("consume_next", queue="q", consumerId="c")
    assert bodies(lease["message"]) == {"a": "three", "b": "two"}
    daemon.restart(kill=True)
    daemon.ask("ack", messageKey="msg:q:n", leaseId=lease["lease"]["leaseId"])
    daemon.restart(kill=True)
    assert daemon.counts("q") == {}
    assert daemon.ask("draft", queue="q", parts=["a"], name="n")["messageKey"] != key


@on_every_store
def test_a_body_that_is_set_under_a_lease_survives_a_kill(daemon: Daemon) -> None:
    key = daemon.publish("q", "old", attributes={"n": 1})
    delivery = daemon.consume("q")
    daemon.ask("set", leaseId=delivery["lease"]["leaseId"], message={"new": "x" * 10_000})
    daemon.restart(kill=True)
    shown = daemon.ask("get_message", messageKey=key, payloadAs="value")["message"]
    assert (shown["payload"], shown["attributes"]) == ({"new": "x" * 10_000}, {"n": 1})
    daemon.settle("nack", delivery, requeue=True, delayMs=0)
    assert daemon.consume("q")["message"]["payload"] == json.dumps({"new": "x" * 10_000}, separators=(",", ":"))


def test_parts_are_set_with_bodies_in_frames(daemon: Daemon) -> None:
    key = daemon.ask("draft", queue="q", parts=["a", "b"])["messageKey"]
    with LaneClient(daemon.ipc) as lane:
        for part, body in (("a", b"\0\xff"), ("b", b"text")):
            encoding = "binary" if part == "a" else "text"
            payload = {"messageKey": key, "part": part, "bodyBytes": len(body), "encoding": encoding}
            assert lane.call("set", payload, body)[0]["ok"]
    assert bodies(daemon.ask("consume_next", queue="q")["message"]) == {"a": "AP8=", "b": "text"}


def test_a_message_is_delivered_to_a_consumer_that_waits_when_its_last_part_is_set(daemon: Daemon) -> None:
    key = daemon.ask("draft", queue="q", parts=["a"])["messageKey"]
    waiting = daemon.send("consume_next", {"queue": "q", "waitMs": 60_000})
    daemon.ask("set", messageKey=key, part="a", message="x")
    delivery = daemon.answer(waiting)["data"]
    assert delivery["message"]["messageKey"] == key


def test_a_draft_is_dropped_when_its_time_is_over(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"draftingSec": 0.2})
    key = daemon.ask("draft", queue="q", parts=["a"])["messageKey"]
    daemon.wait(lambda: daemon.counts("q") == {}, "the end of the draft")
    assert daemon.refusal("set", messageKey=key, part="a") == "ERR_MESSAGE_NOT_FOUND"


def test_the_client_drafts_messages_and_sets_their_parts(daemon: Daemon) -> None:
    for transport in ("mailbox", "lane"):
        with Client(str(daemon.ipc), transport=transport) as client:
            key = client.draft("q", ["a", "b"], name="n", attributes={"n": 1}, no_priority=True)["messageKey"]
            with pytest.raises(DuplicateMessage):
                client.draft("q", ["a"], name="n")
            with pytest.raises(PartNotFound):
                client.set(key, "x", part="c")
            assert client.set("msg:q:n", {"one": 1}, part="a")["state"] == "drafting"
            assert client.set(key, Binary(b"\xff", "image/x"), part="b")["state"] == "ready"
            delivery = client.consume_next("q")
            assert delivery and (delivery.name, delivery.priority) == ("n", None)
            assert [(part.name, part.content_type) for part in delivery.parts] == [("a", None), ("b", "image/x")]
            assert delivery.parts[0].payload == delivery.payload == {"one": 1}
            assert delivery.parts[1].payload.data == b"\xff"
            with pytest.raises(BadState):
                client.set(key, "x", part="a")
            client.ack(delivery)
            client.publish("q", "old")
            delivery = client.consume_next("q")
            assert delivery and client.set(delivery, "new", attributes={"m": 2})["state"] == "inflight"
            client.release(delivery)
            again = client.consume_next("q")
            assert again and (again.payload, again.attributes) == ("new", {"m": 2})
            client.ack(again)


def postroom(daemon: Daemon, *words: str) -> str:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_the_command_line_drafts_and_shows_drafts(daemon: Daemon) -> None:
    draft = ("draft", "--queue", "q", "--parts", '["head", "image"]', "--name", "n", "--attributes", '{"n": 1}')
    key = postroom(daemon, *draft).strip()
    assert "drafting" in postroom(daemon, "status", "--queue", "q")
    header, row = (line.split() for line in postroom(daemon, "queues").splitlines()[:2])
    assert row[header.index("draft")] == "1"
    assert postroom(daemon, "set", "--message-key", key, "--part", "head", "--message", "text") == "drafting\n"
    image = ("set", "--message-key", "msg:q:n", "--part", "image", "--binary", "--message", "text")
    assert postroom(daemon, *image) == "ready\n"
    shown = postroom(daemon, "consume", "--queue", "q", "--consumer-id", "c")
    assert "part head" in shown and "part image" in shown and key in shown
    daemon.publish("r", "old")
    lease = daemon.consume("r")["lease"]["leaseId"]
    assert postroom(daemon, "set", "--lease-id", lease, "--json-body", "--message", '{"n": 1}') == "inflight\n"
    daemon.stop()
    local = [sys.executable, "-m", "postroom_daemon", "local", "--root", str(daemon.root)]
    words = [*local, "draft", "--queue", "q", "--parts", '["a"]', "--name", "other"]
    made = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    words = [*local, "set", "--message-key", "msg:q:other", "--part", "a", "--message", "x"]
    done = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert done["data"] == {"messageKey": made["data"]["messageKey"], "state": "ready"}
