"""Of how many bytes each user's messages are: in memory, whatever becomes of a group, and from the start on."""

from __future__ import annotations

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry
from postroom_daemon.model.usage import Stored


def message(key: str, seq: int, size: int = 10, uid: str = "7") -> Entry:
    return Entry(key, "q", State.READY, 0, seq, 0, 0, size=size, publisher_uid=uid)


def test_what_goes_before_it_was_counted_is_not_taken_off() -> None:
    stored = Stored(since=100)
    stored.count([message("a", 1), message("b", 2)], is_last=False)
    stored.goes(message("a", 1))
    stored.goes(message("c", 3))
    assert stored.of_account(7) == 10
    stored.count([message("d", 4)], is_last=True)
    stored.goes(message("d", 4))
    assert stored.of_account(7) == 10


def test_what_comes_after_the_start_is_counted_once() -> None:
    stored = Stored(since=100)
    stored.comes(message("b", 101))
    stored.count([message("a", 1), message("b", 101)], is_last=True)
    assert stored.of_account(7) == 20
    stored.goes(message("b", 101))
    assert stored.of_account(7) == 10


def test_a_group_that_is_taken_back_has_counted_nothing() -> None:
    stored = Stored(since=100)
    stored.comes(message("b", 101))
    stored.begin()
    stored.count([message("a", 1)], is_last=True)
    stored.comes(message("c", 102))
    stored.goes(message("b", 101))
    stored.rollback()
    assert (stored.of_account(7), stored.counted, stored.is_complete) == (10, "", False)


def test_messages_without_a_publisher_count_for_nobody() -> None:
    stored = Stored(since=0)
    stored.comes(message("a", 1, uid=""))
    assert stored.of_account(0) == 0
