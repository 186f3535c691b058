"""Leases in two phases, through the mailbox and the lane, and as ``postroom`` and the Python client use them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from postroom_client import BadState, Client, LeaseMismatch, QueueNotFound
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon
from tests.wire.lane import LaneClient

#: Seconds within which a test has done all that it has to, on any machine.
LONG_S = 3600


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    return make_daemon().start()


def with_phases(daemon: Daemon, ordered_s: float = LONG_S, queue: str = "q") -> None:
    daemon.ask("set_policy", queue=queue, policy={"orderedSec": ordered_s})


def postroom(daemon: Daemon, *words: str, code: int = 0) -> str:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@on_every_store
def test_a_message_is_ordered_first_and_its_delivery_counts_once_it_is_activated(daemon: Daemon) -> None:
    with_phases(daemon)
    key = daemon.publish("q", "work")
    ordered = daemon.ask("consume_next", queue="q")
    assert (ordered["message"]["attempt"], ordered["lease"]["phase"]) == (0, "ordered")
    assert daemon.counts("q") == {"inflight": 1, "ordered": 1}
    daemon.restart(kill=True)
    assert daemon.counts("q") == {"inflight": 1, "ordered": 1}
    receipt = {"messageKey": key, "leaseId": ordered["lease"]["leaseId"]}
    early = daemon.answer(daemon.send("ack", receipt))
    assert early["error"]["code"] == "ERR_BAD_STATE" and "ordered" in early["error"]["message"]
    active = daemon.ask("activate", **receipt)
    assert (active["message"]["attempt"], active["message"]["payload"]) == (1, "work")
    assert daemon.counts("q") == {"inflight": 1}
    with LaneClient(daemon.ipc) as lane:
        again, body = lane.call("activate", receipt)
        assert again["data"]["lease"]["leaseId"] == receipt["leaseId"] and body == b"work"
    daemon.ask("ack", **receipt)
    assert daemon.counts("q") == {}


@on_every_store
def test_a_lease_that_nobody_activates_returns_the_message_uncounted(daemon: Daemon) -> None:
    with_phases(daemon, 0.2)
    key = daemon.publish("q", "a")
    daemon.ask("consume_next", queue="q", consumerId="one")
    again = daemon.ask("consume_next", queue="q", consumerId="two", waitMs=60_000)
    assert (again["message"]["messageKey"], again["message"]["attempt"]) == (key, 0)
    assert [event["type"] for event in daemon.events() if event.get("key") == key] == [
        "published",
        "leased",
        "released",
        "leased",
    ]


def test_any_consumer_settles_a_lease_that_another_one_has(daemon: Daemon) -> None:
    for transport in ("mailbox", "lane"):
        with Client(str(daemon.ipc), transport=transport) as client:
            key = client.publish("q", "a")["messageKey"]
            assert client.consume_next("q", consumer_id="one", ordered_sec=60)
            with pytest.raises(LeaseMismatch):
                client.activate(key, consumer_id="two")
            assert client.activate(key, any_holder=True).attempt == 1
            with pytest.raises(LeaseMismatch):
                client.ack(key, lease_id="another", any_holder=True)
            client.ack(key, any_holder=True)


def test_the_client_activates_a_delivery_and_its_worker_does_so_by_itself(daemon: Daemon) -> None:
    with_phases(daemon)
    with Client(str(daemon.ipc)) as client:
        for number in range(3):
            client.publish("q", number)
        delivery = client.consume_next("q")
        assert delivery and (delivery.phase, delivery.attempt, delivery.payload) == ("ordered", 0, 0)
        with pytest.raises(BadState):
            client.ack(delivery)
        assert client.activate(delivery) is delivery
        assert (delivery.phase, delivery.attempt, delivery.settled) == (None, 1, False)
        client.ack(delivery)
        with client.consume("q") as message:
            assert message is not None and (message.phase, message.attempt, message.payload) == (None, 1, 1)
        client.publish("q", 3)
        seen: list[tuple[int, int]] = []
        client.worker("q", lambda one: seen.append((one.payload, one.attempt)), until_empty=True, prefetch=2)
        assert seen == [(2, 1), (3, 1)]
        assert daemon.counts("q") == {}


def test_who_waits_for_a_queue_that_must_exist_gets_an_error_when_it_is_deleted(daemon: Daemon) -> None:
    with Client(str(daemon.ipc)) as client:
        with pytest.raises(QueueNotFound):
            client.consume_next("q", wait_ms=60_000, must_exist=True)
        client.set_policy("q", {})
        waits = daemon.send("consume_next", {"queue": "q", "waitMs": 600_000, "mustExist": True})
        client.delete_queue("q")
        assert daemon.answer(waits)["error"]["code"] == "ERR_QUEUE_NOT_FOUND"


def test_the_command_line_orders_activates_and_settles(daemon: Daemon) -> None:
    with_phases(daemon)
    key = daemon.publish("q", "hello")
    assert "phase        ordered" in postroom(daemon, "consume", "--queue", "q", "--payload-as", "none")
    assert "1 ordered" in postroom(daemon, "status", "--queue", "q")
    assert "ordered" in postroom(daemon, "inflight", "--queue", "q")
    assert "ERR_BAD_STATE" in postroom(daemon, "ack", "--message-key", key, "--any-holder", code=1)
    assert "hello" in postroom(daemon, "activate", "--message-key", key, "--any-holder")
    postroom(daemon, "ack", "--message-key", key, "--any-holder")
    daemon.publish("q", "again")
    shown = json.loads(postroom(daemon, "consume", "--queue", "q", "--ack", "--json"))
    assert shown["data"]["lease"]["phase"] == "ordered" and daemon.counts("q") == {}
    assert "ERR_QUEUE_NOT_FOUND" in postroom(daemon, "consume", "--queue", "none", "--must-exist", code=1)
