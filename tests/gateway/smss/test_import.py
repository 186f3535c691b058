"""Subscribers go on behind the door where they were with the server, after its data directory was imported."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.daemon.smss_store import HOUR, SmssStore, block
from tests.gateway.smss.client import ACK_WITH_END, BizError, Connection, PubClient, replica, sub
from tests.gateway.smss.place import CONFIG, DOORS

CREATE, PUB = 2, 1


def test_a_subscriber_goes_on_behind_its_last_event_id_and_new_ids_are_higher(make_daemon, make_gateway, tmp_path):
    now = time.time_ns() // 1_000_000
    old = SmssStore(tmp_path / "data", now - HOUR)
    created, end = old.create("order"), now + 9 * HOUR
    old.create("other", end)
    ids = []
    for number in range(4):
        ids += old.publish("order", block(b"m%d" % number, {b"k": b"v"}))
        old.publish("other", block(b"x"))
    old.delay("order", now, block(b"due while nothing ran"))
    daemon = make_daemon(config=CONFIG)
    daemon.audited = False  # the events of imported messages have the times of then
    words = ["import", "smss", str(old.path), "--root", str(daemon.root)]
    done = subprocess.run(
        [sys.executable, "-m", "postroom_daemon", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "[doors.smss]" in done.stdout, done.stderr
    gateway = make_gateway(daemon.start(), DOORS).start()
    port = gateway.ports["smss"]
    with PubClient(port) as publisher, Connection(port) as connection:
        topics = {row["name"]: (row["createEventId"], row["expireAt"]) for row in publisher.topics()}
        assert topics == {"order": (created, 0), "other": (created + 1, end)}
        publisher.publish("order", b"new")
        connection.send(sub(b"order", b"who", ids[1], 2))
        first = connection.push().messages
        assert [(one.event_id, one.body, one.headers) for one in first] == [
            (ids[2], b"m2", [(b"k", b"v")]), (ids[3], b"m3", [(b"k", b"v")])
        ]  # fmt: skip
        assert first[0].ts == now - HOUR
        connection.ack()
        later = connection.push().messages
        while len(later) < 2:
            connection.ack()
            later += connection.push().messages
        connection.ack(ACK_WITH_END)
        assert {one.body for one in later} == {b"due while nothing ran", b"new"}
        assert old.event_id < later[0].event_id < later[1].event_id
        connection.send(sub(b"order", b"who", ids[1] + 1))  # one of the other topic
        with pytest.raises(BizError):
            connection.push()
        connection.send(replica(0))
        entries = [connection.entry() for _ in range(6)]
        assert [one.command for one in entries] == [CREATE, CREATE, PUB, PUB, PUB, PUB]
        assert [one.event_id for one in entries] == list(range(1, 7))
