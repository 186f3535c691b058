"""Dialogs at a real daemon: what they wait for, what must be typed, and how they fit."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

from postroom_console.data.text import clean
from tests.console.desk import Desk, kill_one, sit_down
from tests.wire.daemon import Daemon


def test_the_dialog_is_open_and_takes_the_keys_while_messages_are_counted(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms")
        await desk.sees("dead 1!")
        await desk.keys("4")
        await desk.sees("1 REJECTED")
        daemon.freeze()
        await desk.keys("a", "enter", "enter", "enter")
        await desk.sees("counting messages...", "All matching dead letters of alarms")
        await desk.keys("y")  # to a number that nobody has seen
        daemon.thaw()
        await desk.sees("1 message is affected")
        assert daemon.counts("alarms") == {"dlq": 1}
        await kill_one(desk, "alarms")
        await desk.keys("y")
        await desk.sees("2 messages are affected", "the number has changed")
        assert daemon.counts("alarms") == {"dlq": 2}
        await desk.keys("y")
        await desk.sees("reprocess alarms -> ok 2")

    sit_down(daemon, visit)


def test_a_dialog_that_is_left_during_the_count_never_comes_back(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms")
        await desk.keys("4")
        await desk.sees("1 REJECTED")
        daemon.freeze()
        await desk.keys("X")
        await desk.sees("counting messages...")
        await desk.keys("escape")
        await desk.sees("nothing was changed")
        daemon.thaw()
        await desk.keys("1")
        await desk.sees("[1 Queues]", "RUN")
        assert "PURGE" not in desk.text() and daemon.counts("alarms") == {"dlq": 1}

    sit_down(daemon, visit)


def test_a_name_is_typed_as_it_is_shown_in_any_unicode_form(daemon: Daemon) -> None:
    strange = normalize("NFD", "수집") + "\u202e"
    assert clean(strange) == normalize("NFD", "수집") + "\\u202e"

    async def visit(desk: Desk) -> None:
        desk.client.publish(strange, "x")
        await desk.has("queues")
        await desk.keys("X")
        await desk.sees("1 message is affected", "Type the name")
        await desk.keys("수", "집", "backslash", *"u202e", "enter")
        await desk.waits(lambda: daemon.counts(strange) == {}, "the queue is empty")

    sit_down(daemon, visit)


def test_the_question_is_shown_on_the_smallest_screen_and_the_rest_can_be_scrolled(
    daemon: Daemon, tmp_path: Path
) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("X")
        await desk.sees("PURGE alarms", "1 message is affected", "Type the name", "| >")
        desk.is_in_shape()
        assert "jsonl" not in desk.text()
        await desk.keys(*["down"] * 8)
        await desk.sees("jsonl", "Type the name", "| >")
        await desk.types("alarms")
        await desk.keys("enter")
        await desk.sees("purge alarms -> ok 1")

    deep = tmp_path / "a-long-name-of-a-directory" / "and-another-one-below-it"
    deep.mkdir(parents=True)
    sit_down(daemon, visit, size=(40, 10), save_root=deep)


def test_an_action_can_be_confirmed_only_if_it_is_shown(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("p")
        await desk.sees("y yes")
        await desk.pilot.resize_terminal(39, 9)
        await desk.sees("need 40x10, have 39x9")
        await desk.keys("y")
        await desk.pilot.resize_terminal(80, 24)
        await desk.sees("y yes", "Consumers of alarms")
        assert not desk.client.status("alarms")["paused"]["consume"]
        await desk.keys("y")
        await desk.sees("pause alarms -> ok")

    sit_down(daemon, visit)
