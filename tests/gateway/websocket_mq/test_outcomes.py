"""What becomes of messages, as the real client decides it."""

from __future__ import annotations

import pytest

from tests.gateway.websocket_mq.queue import KEEP, REMOVE_MESSAGE, REMOVE_SLOTS, State

SETTLING = ("completeMessage", "failMessage", "renewMessage", "abandonMessage")


@pytest.mark.parametrize("method", [*SETTLING, "removeMessage"])
def test_nothing_becomes_of_messages_of_a_missing_queue(queue, method):
    assert "QueueNotFound" in queue.error(method, "id").classes


@pytest.mark.parametrize("method", SETTLING)
def test_nothing_becomes_of_a_missing_message(queue, method):
    queue.configure()
    assert "MessageNotFound" in queue.error(method, "id").classes


@pytest.mark.parametrize("method", ["completeMessage", "failMessage"])
@pytest.mark.parametrize("state", [state for state in State if state is not State.ACTIVE])
def test_only_an_active_message_is_completed_or_fails(queue, method, state):
    queue.configure()
    message = queue.in_state(state)
    error = queue.error(method, message)
    assert "BadMessageState" in error.classes
    assert error.message == 'The state of message must be "Active"'
    assert queue.state(message) is state


def test_a_completed_message_is_kept(queue):
    queue.configure(behaviorWhenCompleted=KEEP)
    message = queue.active()
    assert queue.call("completeMessage", message) is None
    assert queue.peek(message) == {"state": State.COMPLETED, "priority": None, "slots": {"slot": "value"}}
    assert queue.stats() == {"completed": 1}


def test_a_completed_message_is_kept_without_its_slots(queue):
    queue.configure(behaviorWhenCompleted=REMOVE_SLOTS)
    message = queue.active()
    assert queue.call("completeMessage", message) is None
    assert queue.peek(message) == {"state": State.COMPLETED, "priority": None, "slots": {}}
    assert queue.stats() == {"completed": 1}


def test_a_completed_message_is_removed_and_counted(queue):
    queue.configure(behaviorWhenCompleted=REMOVE_MESSAGE)
    message = queue.active()
    assert queue.call("completeMessage", message) is None
    assert queue.peek(message) is None
    assert queue.stats() == {"completed": 1}


def test_an_active_message_fails(queue):
    queue.configure()
    message = queue.active()
    assert queue.call("failMessage", message) is None
    assert queue.peek(message) == {"state": State.FAILED, "priority": None, "slots": {"slot": "value"}}
    assert queue.stats() == {"failed": 1}


def test_a_failed_message_that_is_renewed_waits_behind_the_others(queue):
    queue.configure()
    message = queue.failed()
    other = queue.waiting()
    assert queue.call("renewMessage", message) is None
    assert queue.stats() == {"waiting": 2}
    assert [queue.call("orderMessage"), queue.call("orderMessage")] == [other, message]


@pytest.mark.parametrize("state", [state for state in State if state is not State.FAILED])
def test_only_a_failed_message_is_renewed(queue, state):
    queue.configure()
    message = queue.in_state(state)
    error = queue.error("renewMessage", message)
    assert "BadMessageState" in error.classes
    assert error.message == 'The state of message must be "Failed"'
    assert queue.state(message) is state


@pytest.mark.parametrize("state", State)
def test_an_abandoned_message_is_kept(queue, state):
    queue.configure(behaviorWhenAbandoned=KEEP)
    message = queue.in_state(state)
    slots = queue.peek(message)["slots"]
    assert queue.call("abandonMessage", message) is None
    assert queue.peek(message) == {"state": State.ABANDONED, "priority": None, "slots": slots}
    assert queue.stats() == {"abandoned": 1}


def test_an_abandoned_message_is_kept_without_its_slots(queue):
    queue.configure(behaviorWhenAbandoned=REMOVE_SLOTS)
    message = queue.failed()
    assert queue.call("abandonMessage", message) is None
    assert queue.peek(message) == {"state": State.ABANDONED, "priority": None, "slots": {}}
    assert queue.stats() == {"abandoned": 1}


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABANDONED])
def test_an_abandoned_message_is_removed_and_counted(queue, state):
    queue.configure(behaviorWhenAbandoned=REMOVE_MESSAGE)
    message = queue.in_state(state)
    assert queue.call("abandonMessage", message) is None
    assert queue.peek(message) is None
    assert queue.stats() == {"abandoned": 1}


def test_removing_a_missing_message_changes_nothing(queue):
    queue.configure()
    assert queue.call("removeMessage", "id") is None


@pytest.mark.parametrize("state", State)
def test_a_message_is_removed_in_any_state(queue, state):
    queue.configure()
    message = queue.in_state(state)
    assert queue.call("removeMessage", message) is None
    assert queue.peek(message) is None
    assert queue.stats() == {}


@pytest.mark.parametrize("method", ["abandonAllFailedMessages", "renewAllFailedMessages"])
def test_a_missing_queue_has_no_failed_messages(queue, method):
    assert "QueueNotFound" in queue.error(method).classes


@pytest.mark.parametrize(("behavior", "kept"), [(KEEP, {"slot": "value"}), (REMOVE_SLOTS, {}), (REMOVE_MESSAGE, None)])
def test_all_failed_messages_are_abandoned_as_the_queue_says(queue, behavior, kept):
    queue.configure(behaviorWhenAbandoned=behavior)
    failed = [queue.failed() for _ in range(3)]
    others = [queue.waiting(), queue.draft()]
    assert queue.call("abandonAllFailedMessages") is None
    expected = None if kept is None else {"state": State.ABANDONED, "priority": None, "slots": kept}
    assert [queue.peek(message) for message in failed] == [expected] * 3
    assert queue.stats() == {"abandoned": 3, "waiting": 1, "drafting": 1}
    assert [queue.state(message) for message in others] == [State.WAITING, State.DRAFTING]


def test_all_failed_messages_are_renewed(queue):
    queue.configure()
    abandoned = queue.abandoned()
    failed = [queue.failed() for _ in range(3)]
    assert queue.call("renewAllFailedMessages") is None
    assert queue.stats() == {"abandoned": 1, "waiting": 3}
    assert {queue.call("orderMessage") for _ in failed} == set(failed)
    assert queue.state(abandoned) is State.ABANDONED


@pytest.mark.parametrize("method", ["getMessageIdsByState", "clearMessagesByState"])
def test_a_missing_queue_has_no_messages_in_a_state(queue, method):
    assert "QueueNotFound" in queue.error(method, State.DRAFTING).classes


def test_the_ids_of_messages_are_listed_by_state(queue):
    queue.configure()
    found = {state: [queue.in_state(state) for _ in range(2)] for state in reversed(State)}
    assert {state: queue.ids(state) for state in State} == found


@pytest.mark.parametrize("state", State)
def test_only_the_messages_in_a_state_are_cleared(queue, state):
    queue.configure()
    for each in reversed(State):
        queue.in_state(each)
    before = queue.call("getQueueStats")
    assert queue.call("clearMessagesByState", state) is None
    assert queue.call("getQueueStats") == before | {state.name.lower(): 0}
    assert queue.ids(state) == []
