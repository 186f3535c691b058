"""How many bytes of messages each account has stored: in memory, through rollbacks, and from the start on."""

from __future__ import annotations

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry
from postroom_daemon.model.usage import Usage


def message(key: str, seq: int, size: int = 10, uid: str = "7") -> Entry:
    return Entry(key, "q", State.READY, 0, seq, 0, 0, size=size, publisher_uid=uid)


def test_a_message_removed_before_it_was_counted_is_not_subtracted() -> None:
    usage = Usage(since=100)
    usage.count({"7": 20}, "b")
    usage.removed([message("a", 1)])
    usage.removed([message("c", 3)])
    assert usage.of_account(7) == 10
    usage.count({"7": 10}, "")
    usage.removed([message("d", 4)])
    assert usage.of_account(7) == 10


def test_a_message_that_arrives_after_the_start_is_counted_once() -> None:
    usage = Usage(since=100)
    usage.published([message("b", 101)])
    usage.count({"7": 10}, "")
    assert usage.of_account(7) == 20
    usage.removed([message("b", 101)])
    assert usage.of_account(7) == 10


def test_a_group_that_is_rolled_back_has_counted_nothing() -> None:
    usage = Usage(since=100)
    usage.published([message("b", 101)])
    usage.commit()
    usage.count({"7": 10}, "")
    usage.published([message("c", 102)])
    usage.removed([message("b", 101)])
    usage.rollback()
    assert (usage.of_account(7), usage.counted, usage.is_complete) == (10, "", False)


def test_messages_without_a_publisher_count_for_nobody() -> None:
    usage = Usage(since=0)
    usage.published([message("a", 1, uid="")])
    assert usage.of_account(0) == 0
