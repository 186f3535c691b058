"""Ordering, getting and peeking at messages, as the real client does."""

from __future__ import annotations

import pytest

from tests.gateway.websocket_mq.client import RpcError
from tests.gateway.websocket_mq.queue import State
from tests.wire.daemon import wait_until


def waiting_orders(gateway) -> int:
    return int(gateway.metric("postroom_gateway_waiting_requests"))


def test_a_missing_queue_has_no_orders(queue):
    assert "QueueNotFound" in queue.error("orderMessage").classes


def test_an_order_of_an_empty_queue_waits_for_a_message(queue, gateway):
    queue.configure()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    assert not order.is_done
    message = queue.waiting()
    assert order.get() == message
    assert queue.state(message) is State.ORDERED
    assert queue.stats() == {"ordered": 1}


def test_an_order_that_is_aborted_takes_no_message(queue, gateway):
    queue.configure()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    order.abort()
    with pytest.raises(RpcError) as error:
        order.get()
    assert error.value.name == "AbortError"
    wait_until(lambda: waiting_orders(gateway) == 0, "its wait has ended")
    assert queue.state(queue.waiting()) is State.WAITING


def test_an_order_waits_while_as_many_messages_are_ordered_and_active_as_the_concurrency(queue, gateway):
    queue.configure(concurrency=2)
    ordered, active = queue.active(), queue.ordered()
    message = queue.waiting()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    assert queue.stats() == {"ordered": 1, "active": 1, "waiting": 1}
    queue.call("completeMessage", ordered)
    assert order.get() == message
    assert queue.stats() == {"ordered": 2, "completed": 1}
    assert queue.state(active) is State.ORDERED


def test_an_order_gets_a_message_if_fewer_are_ordered_and_active(queue):
    queue.configure(concurrency=3)
    queue.active()
    queue.ordered()
    assert queue.state(queue.ordered()) is State.ORDERED


def test_an_order_that_waits_gets_a_message_when_the_concurrency_is_raised(queue, gateway):
    queue.configure(concurrency=1)
    queue.ordered()
    message = queue.waiting()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    queue.configure(concurrency=2)
    assert order.get() == message


def test_messages_are_ordered_by_priority_then_as_they_began_to_wait(queue):
    queue.configure()
    drafts = {name: queue.draft(priority=priority) for name, priority in
              {"none": None, "low": -5, "zero": 0, "zero too": 0, "high": 9, "none too": None}.items()}  # fmt: skip
    for name in ("none too", "zero too", "low", "none", "high", "zero"):
        queue.call("setMessageSlot", drafts[name], "slot", name)
    got = [queue.call("getMessage", queue.call("orderMessage"))["slots"]["slot"] for _ in drafts]
    assert got == ["high", "zero too", "zero", "low", "none too", "none"]


def test_an_order_ends_when_its_queue_is_removed(queue, gateway):
    queue.configure()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    queue.call("removeQueue")
    with pytest.raises(RpcError) as error:
        order.get()
    assert "QueueNotFound" in error.value.classes


def test_an_order_waits_on_when_its_queue_is_reset(queue, gateway):
    queue.configure(concurrency=1)
    queue.ordered()
    order = queue.start("orderMessage")
    wait_until(lambda: waiting_orders(gateway) == 1, "the order waits")
    queue.call("resetQueue")
    message = queue.waiting()
    assert order.get() == message


@pytest.mark.parametrize("method", ["getMessage", "peekMessage"])
def test_a_missing_queue_has_no_message(queue, method):
    assert "QueueNotFound" in queue.error(method, "id").classes


@pytest.mark.parametrize("method", ["getMessage", "peekMessage"])
def test_a_missing_message_is_null(queue, method):
    queue.configure()
    assert queue.call(method, "id") is None


def test_getting_an_ordered_message_makes_it_active(queue):
    queue.configure()
    message = queue.ordered({"b": [1.5, None], "a": "€"})
    found = {"state": State.ACTIVE, "priority": None, "slots": {"slot": {"b": [1.5, None], "a": "€"}}}
    assert queue.call("getMessage", message) == found
    assert queue.peek(message) == found
    assert queue.stats() == {"active": 1}


@pytest.mark.parametrize("state", [state for state in State if state is not State.ORDERED])
def test_getting_a_message_in_another_state_changes_nothing(queue, state):
    queue.configure()
    message = queue.in_state(state)
    found = {"state": state, "priority": None, "slots": {} if state is State.DRAFTING else {"slot": "value"}}
    assert queue.call("getMessage", message) == found
    assert queue.call("getMessage", message) == found
    assert queue.state(message) is state


@pytest.mark.parametrize("state", State)
def test_peeking_at_a_message_changes_nothing(queue, state):
    queue.configure()
    message = queue.in_state(state)
    for _ in range(2):
        assert queue.peek(message) == {
            "state": state,
            "priority": None,
            "slots": {} if state is State.DRAFTING else {"slot": "value"},
        }
