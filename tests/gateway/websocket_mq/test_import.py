"""What was imported from the server's database goes on behind the door as it would have with the server."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.daemon.websocket_mq_database import MINUTE, STATES, MqDatabase, hash_of
from tests.gateway.gateway import Gateway
from tests.gateway.websocket_mq.queue import CONFIG, CONFIGURATION, DOOR, Queue, State

SLOTS = {"one": {"b": 1, "a": [None]}, "two": "2"}


@pytest.fixture
def queue(make_daemon, clients, tmp_path):
    """A queue with a message in each state, named by it, that was imported."""
    old = MqDatabase(tmp_path / "data.db", time.time_ns() // 1_000_000)
    old.queue("jobs", uniq=1, drafting_timeout=10 * MINUTE, ordered_timeout=10 * MINUTE, active_timeout=10 * MINUTE,
              concurrency=3, completed=40)  # fmt: skip
    for state in STATES[1:]:
        slots = SLOTS | {"two": state}
        old.message(state, id=state, slots=slots, hash=hash_of(slots), age=MINUTE, priority=-3)
    old.message("drafting", id="drafting", texts={"one": "1", "two": None})
    old.message("waiting", id="last", slots=SLOTS, hash=hash_of(SLOTS))
    daemon = make_daemon(config=CONFIG)
    daemon.audited = False  # the events of imported messages have the times of then
    words = ["import", "websocket-mq", str(old.close()), "--root", str(daemon.root)]
    done = subprocess.run(
        [sys.executable, "-m", "postroom_daemon", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "[doors.mq-websocket]" in done.stdout, done.stderr
    gateway = Gateway(tmp_path / "gateway", daemon.start().ipc / "lane.sock", DOOR).start()
    client = clients.connect(gateway)
    try:
        yield Queue(client, "jobs")
    finally:
        client.close()
        gateway.kill()


def test_an_imported_queue_goes_on(queue):
    times = {f"{name}Timeout": 10 * MINUTE for name in ("drafting", "ordered", "active")}
    assert queue.call("getQueue") == CONFIGURATION | times | {"unique": True, "concurrency": 3}
    assert queue.stats() == dict.fromkeys(STATES, 1) | {"waiting": 2, "completed": 41}
    for number, state in enumerate(STATES):
        shown = {"one": 1} if state == "drafting" else SLOTS | {"two": state}
        priority = None if state == "drafting" else -3
        assert queue.peek(state) == {"state": number, "priority": priority, "slots": shown}
    assert queue.ids(State.WAITING) == ["waiting", "last"]
    # What was being worked on is completed, and what waits is delivered.
    assert queue.call("getMessage", "ordered")["state"] == State.ACTIVE
    queue.call("completeMessage", "ordered")
    queue.call("failMessage", "active")
    for message in ("waiting", "last"):
        assert queue.call("orderMessage") == message
        assert queue.call("getMessage", message)["slots"]["one"] == SLOTS["one"]
        queue.call("completeMessage", message)
    # Slots and ids are compared with those of then.
    assert queue.error("draftMessage", None, ["one"], "completed").name == "DuplicateMessageId"
    queue.call("setMessageSlot", "drafting", "one", SLOTS["one"])
    assert queue.error("setMessageSlot", "drafting", "two", "completed").name == "DuplicateMessage"
    queue.call("setMessageSlot", "drafting", "two", "new")
    queue.call("renewMessage", "failed")
    assert queue.ids(State.WAITING) == ["failed", "drafting"]
    assert queue.stats() == {"waiting": 2, "failed": 1, "completed": 44, "abandoned": 1}
