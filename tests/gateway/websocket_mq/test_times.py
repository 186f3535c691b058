"""What the three times of a queue end, in real time: while everything runs, and while it was down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.websocket_mq.queue import DOOR, Queue
from tests.wire.daemon import wait_until

TIMES = ("draftingTimeout", "orderedTimeout", "activeTimeout")


@pytest.fixture
def own(daemon, make_gateway, clients) -> Iterator[Queue]:
    """A queue of a gateway and a daemon that this test restarts."""
    client = clients.connect(make_gateway(daemon, DOOR).start())
    yield Queue(client, "q")
    client.close()


def test_a_draft_that_is_not_ready_in_time_is_removed(queue):
    queue.configure(draftingTimeout=1500)
    message = queue.draft("a", "b")
    queue.call("setMessageSlot", message, "a", 1)
    wait_until(lambda: queue.peek(message) is None, "the draft is gone")
    assert queue.stats() == {}


def test_a_message_that_is_ordered_and_not_got_in_time_waits_again(queue):
    queue.configure(orderedTimeout=200)
    message = queue.ordered()
    wait_until(lambda: queue.stats() == {"waiting": 1}, "the message waits again")
    assert queue.call("orderMessage") == message


def test_a_message_that_is_active_and_not_settled_in_time_waits_again(queue):
    queue.configure(activeTimeout=200)
    message = queue.active()
    wait_until(lambda: queue.stats() == {"waiting": 1}, "the message waits again")
    assert "BadMessageState" in queue.error("completeMessage", message).classes
    assert queue.call("orderMessage") == message


def test_a_draft_that_was_not_ready_in_time_is_removed_after_a_restart(own, daemon):
    own.configure(draftingTimeout=200)
    message = own.draft()
    daemon.kill()
    daemon.start()
    wait_until(lambda: own.peek(message) is None, "the draft is gone")
    assert own.stats() == {}


def test_a_message_that_was_ordered_waits_again_after_a_restart(own, daemon):
    own.configure(orderedTimeout=200)
    message = own.ordered()
    daemon.kill()
    daemon.start()
    wait_until(lambda: own.stats() == {"waiting": 1}, "the message waits again")
    assert own.call("orderMessage") == message


def test_a_message_that_was_active_waits_again_after_a_restart(own, daemon):
    own.configure(activeTimeout=200)
    message = own.active()
    daemon.kill()
    daemon.start()
    wait_until(lambda: own.stats() == {"waiting": 1}, "the message waits again")
    assert own.call("orderMessage") == message


@pytest.mark.parametrize("time", TIMES)
def test_a_time_must_be_greater_than_zero(queue, time):
    for value in (0, -1, None, "x"):
        error = queue.error("setQueue", {"unique": False, **dict.fromkeys(TIMES, 1), time: value})
        assert (error.name, error.message) == ("AssertionError", f"The {time} must be greater than zero.")
    assert queue.call("getQueue") is None
