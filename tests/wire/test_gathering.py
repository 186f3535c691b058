"""Queues that gather, through the mailbox and the lane, and as ``postroom`` and the Python client show them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from postroom_client import Binary, Client
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon
from tests.wire.lane import LaneClient

#: Seconds within which a test has published all that it has to, on any machine.
LONG_S = 3600


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    return make_daemon().start()


def gathers(daemon: Daemon, window_s: float, queue: str = "q") -> None:
    daemon.ask("set_policy", queue=queue, policy={"gatherWindowSec": window_s})


def parts_of(daemon: Daemon, key: str) -> list[Any]:
    return [part["payload"] for part in daemon.ask("get_message", messageKey=key)["message"]["parts"]]


@on_every_store
def test_publishes_within_the_window_are_delivered_as_parts_of_one_message_over_both_doors(daemon: Daemon) -> None:
    for queue in ("one", "two"):
        gathers(daemon, 0.5, queue)
        messages = [
            {"message": "scan 1", "contentType": "text/plain", "attributes": {"scanner": 7}},
            {"message": {"scan": 2}, "traceId": "t"},
            {"message": "AP8=", "encoding": "base64"},
        ]
        results = daemon.ask("publish_batch", queue=queue, messages=messages)["results"]
        assert [one["gathering"] for one in results] == ["new", "appended", "appended"]
        assert len({one["messageKey"] for one in results}) == 1
    expected = [
        {"payload": "scan 1", "contentType": "text/plain", "name": "", "attributes": {"scanner": 7}},
        {"payload": {"scan": 2}, "name": "", "traceId": "t"},
        {"payload": "AP8=", "encoding": "base64", "contentType": "application/octet-stream", "name": ""},
    ]
    message = daemon.ask("consume_next", queue="one", waitMs=60_000, payloadAs="value")["message"]
    assert message["gathered"] is True and message["parts"] == expected
    with LaneClient(daemon.ipc) as lane:
        answer, bodies = lane.call("consume_next", {"queue": "two", "waitMs": 60_000, "payloadAs": "value"})
    message = answer["data"]["message"]
    assert bodies == b'scan 1{"scan":2}\0\xff' and message["bodyBytes"] == len("scan 1")
    assert message["parts"] == [
        {"bodyBytes": 6, "encoding": "text", "contentType": "text/plain", "name": "", "attributes": {"scanner": 7}},
        {"bodyBytes": 10, "encoding": "json", "name": "", "traceId": "t"},
        {"bodyBytes": 2, "encoding": "binary", "name": ""},
    ]


@on_every_store
def test_a_killed_daemon_goes_on_gathering_and_loses_no_part(daemon: Daemon) -> None:
    gathers(daemon, LONG_S)
    sent = [daemon.send("publish", {"queue": "q", "message": f"part {n}"}) for n in range(3)]
    (key,) = {daemon.answer(one)["data"]["messageKey"] for one in sent}
    daemon.restart(kill=True)
    assert parts_of(daemon, key) == ["part 0", "part 1", "part 2"]
    assert daemon.ask("publish", queue="q", message="part 3")["messageKey"] == key
    assert daemon.again(sent[2])["data"] == {
        "messageId": key.rpartition(":")[2],
        "messageKey": key,
        "gathering": "appended",
    }
    daemon.restart()
    assert parts_of(daemon, key) == ["part 0", "part 1", "part 2", "part 3"]
    daemon.stop()
    daemon.forget_store()
    if daemon.backend != "hybrid":  # whose journal only refers to the first part
        daemon.start()
        assert parts_of(daemon, key) == ["part 0", "part 1", "part 2", "part 3"]


def test_a_message_is_delivered_to_a_consumer_that_waits_when_its_window_ends(daemon: Daemon) -> None:
    gathers(daemon, 0.3)
    waiting = daemon.send("consume_next", {"queue": "q", "waitMs": 60_000})
    key = daemon.publish("q", "a")
    delivery = daemon.answer(waiting)["data"]
    assert delivery["message"]["messageKey"] == key
    daemon.settle("ack", delivery)
    assert daemon.counts("q") == {}


def test_the_client_has_the_parts_of_a_message_with_their_headers(daemon: Daemon) -> None:
    for transport in ("mailbox", "lane"):
        with Client(str(daemon.ipc), transport=transport) as client:
            client.set_policy("q", {"gatherWindowSec": 0.3})
            scans: list[dict[str, Any]] = [
                {"message": {"n": 1}, "attributes": {"site": "roof"}},
                {"message": Binary(b"\xff", "image/x")},
            ]
            client.publish_batch(scans, queue="q")
            delivery = client.consume_next("q", wait_ms=60_000)
            assert delivery
            assert [part.attributes for part in delivery.parts] == [{"site": "roof"}, None]
            assert delivery.parts[0].payload == delivery.payload == {"n": 1}
            assert (delivery.parts[1].payload.data, delivery.parts[1].content_type) == (b"\xff", "image/x")
            client.ack(delivery)
            client.publish("plain", "x")
            plain = client.consume_next("plain")
            assert plain and [part.payload for part in plain.parts] == ["x"]
            client.ack(plain)


def postroom(daemon: Daemon, *words: str) -> str:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_the_command_line_shows_what_gathers(daemon: Daemon) -> None:
    gathers(daemon, LONG_S)
    assert "gathers others" in postroom(daemon, "publish", "--queue", "q", "--message", "a")
    assert "appended" in postroom(daemon, "publish", "--queue", "q", "--message", "b")
    assert "gathering     1" in postroom(daemon, "status", "--queue", "q")
    header, row = (line.split() for line in postroom(daemon, "queues").splitlines()[:2])
    assert row[header.index("gather")] == "1"
    shown = json.loads(postroom(daemon, "browse", "--queue", "q", "--state", "gathering", "--json"))
    assert shown["data"]["messages"][0]["bytes"] == 2
