"""Queues, as the real client uses them."""

from __future__ import annotations

import pytest

from tests.gateway.websocket_mq.queue import CONFIGURATION, DOOR, State


def test_no_queue_is_listed_if_there_is_none(daemon, make_gateway, clients):
    client = clients.connect(make_gateway(daemon, DOOR).start())
    assert client.call("getAllQueueIds") == []
    client.close()


def test_all_queues_are_listed(client, queue):
    queue.configure()
    assert queue.name in client.call("getAllQueueIds")


def test_a_missing_queue_has_no_configuration(queue):
    assert queue.call("getQueue") is None


def test_a_queue_has_the_configuration_that_was_set(queue):
    queue.configure(unique=True, draftingTimeout=1000, orderedTimeout=2, activeTimeout=3_000_000, concurrency=7)
    assert queue.call("getQueue") == CONFIGURATION | {
        "unique": True,
        "draftingTimeout": 1000,
        "orderedTimeout": 2,
        "activeTimeout": 3_000_000,
        "concurrency": 7,
    }


def test_setting_a_missing_queue_creates_it(queue):
    assert queue.call("setQueue", CONFIGURATION) is None
    assert queue.call("getQueue") == CONFIGURATION
    assert queue.stats() == {}


def test_setting_a_queue_changes_its_configuration_and_keeps_its_messages(queue):
    queue.configure()
    message = queue.waiting()
    changed = CONFIGURATION | {"concurrency": 1, "behaviorWhenCompleted": 1, "behaviorWhenAbandoned": 2}
    assert queue.call("setQueue", changed) is None
    assert queue.call("getQueue") == changed
    assert queue.stats() == {"waiting": 1}
    assert queue.state(message) is State.WAITING


def test_removing_a_missing_queue_changes_nothing(queue):
    assert queue.call("removeQueue") is None


def test_removing_a_queue_removes_its_messages_and_counts(queue):
    queue.configure()
    for state in reversed(State):
        queue.in_state(state)
    assert queue.call("removeQueue") is None
    assert queue.call("getQueue") is None
    queue.configure()
    assert queue.stats() == {}
    assert [queue.ids(state) for state in State] == [[]] * 7


def test_resetting_a_missing_queue_changes_nothing(queue):
    assert queue.call("resetQueue") is None
    assert queue.call("getQueue") is None


@pytest.mark.parametrize("behavior", [0, 1, 2])
def test_resetting_a_queue_removes_its_messages_and_counts_and_keeps_its_configuration(queue, behavior):
    queue.configure(behaviorWhenCompleted=behavior, behaviorWhenAbandoned=behavior, concurrency=7)
    for state in reversed(State):
        queue.in_state(state)
    assert queue.call("resetQueue") is None
    assert queue.stats() == {}
    assert [queue.ids(state) for state in State] == [[]] * 7
    assert queue.call("getQueue")["concurrency"] == 7


def test_a_missing_queue_has_no_stats(queue):
    assert queue.call("getQueueStats") is None


def test_stats_count_the_messages_in_each_state(queue):
    queue.configure()
    for state in reversed(State):
        for _ in range(state + 1):
            queue.in_state(state)
    expected = {"drafting": 1, "waiting": 2, "ordered": 3, "active": 4, "failed": 5, "completed": 6, "abandoned": 7}
    assert queue.call("getQueueStats") == expected
