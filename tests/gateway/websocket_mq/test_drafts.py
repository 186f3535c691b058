"""Drafting messages and setting their slots, as the real client does."""

from __future__ import annotations

import pytest

from tests.gateway.websocket_mq.queue import State


def test_a_missing_queue_has_no_drafts(queue):
    assert "QueueNotFound" in queue.error("draftMessage", None, ["slot"]).classes


def test_a_draft_gets_an_id(queue):
    queue.configure()
    first, second = queue.draft("a", "b", priority=3), queue.draft("a")
    assert first != second
    assert queue.peek(first) == {"state": State.DRAFTING, "priority": 3, "slots": {}}
    assert queue.stats() == {"drafting": 2}


def test_a_missing_queue_has_no_drafts_with_an_id(queue):
    assert "QueueNotFound" in queue.error("draftMessage", None, ["slot"], "my-id").classes


def test_a_draft_may_have_an_id_of_its_own(queue):
    queue.configure()
    for name in ("my-id", "with:colon and %", "ünïcode/€"):
        assert queue.draft(id_=name) == name
        assert queue.peek(name) == {"state": State.DRAFTING, "priority": None, "slots": {}}
        queue.call("setMessageSlot", name, "slot", 1)
        assert queue.call("orderMessage") == name
        assert queue.call("getMessage", name) == {"state": State.ACTIVE, "priority": None, "slots": {"slot": 1}}
        assert queue.call("completeMessage", name) is None


def test_two_messages_of_a_queue_cannot_have_the_same_id(queue):
    queue.configure()
    queue.draft(id_="my-id")
    assert "DuplicateMessageId" in queue.error("draftMessage", None, ["slot"], "my-id").classes
    queue.call("removeMessage", "my-id")
    assert queue.draft(id_="my-id") == "my-id"


def test_setting_a_slot_of_a_missing_queue_fails(queue):
    assert "QueueNotFound" in queue.error("setMessageSlot", "id", "slot", 1).classes


def test_setting_a_slot_of_a_missing_message_fails(queue):
    queue.configure()
    assert "MessageNotFound" in queue.error("setMessageSlot", "id", "slot", 1).classes


def test_setting_a_missing_slot_fails(queue):
    queue.configure()
    message = queue.draft("slot")
    assert "SlotNotFound" in queue.error("setMessageSlot", message, "other", 1).classes


def test_setting_a_slot_that_is_not_the_last_one_leaves_the_message_drafting(queue):
    queue.configure()
    message = queue.draft("a", "b")
    assert queue.call("setMessageSlot", message, "a", {"n": [1, None, "x"]}) is None
    assert queue.peek(message) == {"state": State.DRAFTING, "priority": None, "slots": {"a": {"n": [1, None, "x"]}}}
    assert queue.stats() == {"drafting": 1}


@pytest.mark.parametrize("unique", [False, True])
def test_setting_the_last_slot_makes_the_message_wait(queue, unique):
    queue.configure(unique=unique)
    queue.waiting("other")
    message = queue.draft("a", "b")
    queue.call("setMessageSlot", message, "a", 1)
    assert queue.call("setMessageSlot", message, "b", None) is None
    assert queue.peek(message) == {"state": State.WAITING, "priority": None, "slots": {"a": 1, "b": None}}
    assert queue.stats() == {"waiting": 2}


def test_a_queue_that_is_not_unique_takes_equal_messages(queue):
    queue.configure()
    queue.waiting("same")
    assert queue.state(queue.waiting("same")) is State.WAITING


def test_a_unique_queue_refuses_equal_messages(queue):
    queue.configure(unique=True)
    queue.waiting({"a": 1, "b": 2})
    message = queue.draft()
    assert "DuplicateMessage" in queue.error("setMessageSlot", message, "slot", {"b": 2, "a": 1}).classes
    assert queue.peek(message) == {"state": State.DRAFTING, "priority": None, "slots": {}}
    queue.call("setMessageSlot", message, "slot", {"a": 1, "b": 3})
    assert queue.state(message) is State.WAITING


@pytest.mark.parametrize("unique", [False, True])
def test_a_slot_of_a_message_that_waits_may_be_set_again(queue, unique):
    queue.configure(unique=unique)
    first, second = queue.waiting("a"), queue.waiting("b")
    assert queue.call("setMessageSlot", first, "slot", "c") is None
    assert queue.call("setMessageSlot", first, "slot", "c") is None
    assert queue.peek(first) == {"state": State.WAITING, "priority": None, "slots": {"slot": "c"}}
    assert [queue.call("orderMessage"), queue.call("orderMessage")] == [first, second]


def test_in_a_queue_that_is_not_unique_it_may_become_equal_to_another_one(queue):
    queue.configure()
    queue.waiting("a")
    second = queue.waiting("b")
    assert queue.call("setMessageSlot", second, "slot", "a") is None
    assert queue.peek(second)["slots"] == {"slot": "a"}


def test_in_a_unique_queue_it_may_not_become_equal_to_another_one(queue):
    queue.configure(unique=True)
    queue.waiting("a")
    second = queue.waiting("b")
    assert "DuplicateMessage" in queue.error("setMessageSlot", second, "slot", "a").classes
    assert queue.peek(second)["slots"] == {"slot": "b"}


@pytest.mark.parametrize("state", [State.ORDERED, State.ACTIVE, State.FAILED, State.COMPLETED, State.ABANDONED])
def test_slots_are_set_only_while_a_message_is_drafted_or_waits(queue, state):
    queue.configure()
    error = queue.error("setMessageSlot", queue.in_state(state), "slot", 1)
    assert "BadMessageState" in error.classes
    assert error.message == 'The state of message must be one of "Drafting", "Waiting"'
