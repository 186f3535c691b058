"""The screens of the console, at a real daemon."""

from __future__ import annotations

import re

import pytest

from postroom_console.data.actions import pause
from postroom_console.data.config import Config
from postroom_console.tui.row_list import RowList
from postroom_console.tui.screens.message import MessageView
from tests.console.desk import Desk, kill_one, sit_down
from tests.wire.daemon import Daemon

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HOSTILE = "\x1b]52;c;cm0=\x07 [/bold] [red] \u202egnp \x9b2J"
VIEWS = "123456"


def test_queues_with_trouble_come_first_and_say_what_is_wrong(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("a-quiet-one", "x")
        await kill_one(desk, "with-dead-letters")
        desk.client.publish("paused", "x")
        desk.client.pause("paused")
        await desk.sees("a-quiet-one", "with-dead", "||", "1 PAUSED", "dead 1!")
        await desk.has("queues", 3)
        names = [row.key for row in desk.console.screen.query_one("#queues", RowList).rows]
        assert names == ["paused", "with-dead-letters", "a-quiet-one"]

    sit_down(daemon, visit)


def test_health_shows_the_time_of_the_last_request(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.keys("5")
        time_of_day = re.compile(r"lastRequestMs \d\d[: ]\d\d:\d\d")
        await desk.waits(lambda: bool(time_of_day.search(desk.text())), "it is a time, not a count")

    sit_down(daemon, visit, size=(100, 40))


def test_a_message_is_shown_completely_with_its_history(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", "too hot", {"sensor": "A1", "名前": "温度"})
        await desk.keys("4")
        await desk.has("letters")
        await desk.keys("tab", "enter")
        await desk.sees('"sensor": "A1"', "温度", "published", "leased", "died")
        await desk.keys("escape")
        await desk.sees("REASON")

    sit_down(daemon, visit, size=(100, 40))


def test_the_tail_stays_where_it_is_read_and_counts_new_lines(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for number in range(40):
            desk.client.publish("alarms", f"body-{number}")
        await desk.keys("2", "b")
        await desk.sees("FOLLOW", "body-39")
        await desk.has_published(40)
        await desk.keys("g")
        await desk.sees("PAUSED +0")
        before = desk.lines()[1:20]
        for number in range(40, 60):
            desk.client.publish("alarms", f"body-{number}")
        await desk.has_published(60)
        await desk.sees("PAUSED +40")
        assert desk.lines()[1:20] == before
        await desk.keys("G")
        await desk.sees("FOLLOW", "body-59")

    sit_down(daemon, visit)


def test_many_similar_lines_are_one_until_it_is_opened(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish_batch([{"message": f"body-{number}"} for number in range(30)], "alarms")
        await desk.keys("2")
        await desk.sees("body-29")
        await desk.keys("slash", *"ev", "colon", *"published", "enter")
        listed = desk.console.screen.query_one("#tail", RowList)
        await desk.waits(lambda: 1 <= len(listed.rows) <= 8, "they are collapsed")
        await desk.keys("g", "enter")
        await desk.sees("PAUSED")
        before = len(listed.rows)
        assert before > 1 and "body-0" in desk.text()
        await desk.keys("b")
        await desk.waits(lambda: len(listed.rows) == 30, "all are shown")

    sit_down(daemon, visit)


def test_a_search_finds_the_message_of_a_line_and_its_key_goes_to_the_clipboard_only_when_it_is_wanted(
    daemon: Daemon,
) -> None:
    async def visit(desk: Desk) -> None:
        keys = [desk.client.publish("alarms", f"body-{number}", traceparent=TRACE)["messageKey"] for number in range(9)]
        await desk.keys("2")
        await desk.sees("FOLLOW", "alarms")
        await desk.has_published(9)
        await desk.keys("s")
        await desk.sees("SEARCH")
        await desk.types("body-4")
        await desk.keys("enter")
        await desk.sees("PAUSED", "body-4")
        copied: list[str] = []
        desk.console.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await desk.keys("n")
        await desk.sees("no more hits")
        assert copied == []
        await desk.keys("y")
        assert copied == [keys[4]]
        await desk.keys("enter")
        await desk.sees("HISTORY", "body-4", keys[4], f'"trace": "{TRACE[3:35]}"')

    sit_down(daemon, visit, size=(100, 40))


def test_a_queue_is_browsed_page_by_page(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for _ in range(3):
            desk.client.publish_batch([{"message": f"body-{number}"} for number in range(100)], "alarms")
        await desk.has("queues")
        await desk.keys("enter")
        await desk.sees("1-200", "m more", "ready 300")
        await desk.keys("m")
        await desk.sees("201-300")
        await desk.keys("m")
        await desk.sees("no more pages")
        await desk.keys("b")
        await desk.sees("1-200")

    sit_down(daemon, visit, size=(120, 40))


def test_the_queue_under_the_cursor_is_described_at_the_side_of_a_wide_screen(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms")
        desk.client.publish("alarms", "x")
        desk.client.consume_next("alarms", consumer_id="worker-7")
        desk.client.pause("alarms")
        await desk.sees("PAUSED: consuming", "by legacy-app", "LEASES 1", "worker-7", "DEAD 1", "+1 in 1h", "tries 5")

    sit_down(daemon, visit, size=(120, 40))


def test_on_a_terminal_that_is_too_small_the_needed_size_is_shown(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await desk.sees("need 40x10, have 39x9")
        await desk.keys("q")

    sit_down(daemon, visit, size=(39, 9))


def test_an_invalid_filter_is_reported_and_the_old_one_stays(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "one")
        await desk.keys("2")
        await desk.sees("published")
        await desk.keys("slash")
        await desk.types("q")
        await desk.keys("colon", "enter")
        await desk.sees("q: needs a value")
        await desk.keys("slash", "e", "v", "colon", "a", "c", "k", "e", "d", "enter")
        await desk.sees_no("published")
        await desk.keys("escape")
        await desk.sees("published")

    sit_down(daemon, visit)


def test_a_user_who_may_only_look_is_offered_no_action(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.sees("alarms", "RO")
        await desk.keys("p")
        assert "Consumers" not in desk.text()
        await desk.keys("question_mark")
        await desk.sees("EVERYWHERE")

    sit_down(daemon, visit, read_only=True)


def test_a_node_that_follows_is_read_only_until_it_leads(daemon: Daemon) -> None:
    check = {"ok": True, "leads": 0, "leader": "b", "address": "b:1", "epoch": 2, "pending": 0}

    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.sees("alarms", "RUN")
        assert "RO" not in desk.lines()[0]
        console = desk.console
        health = dict(console.model.data("health"))
        for role, is_offered in (({}, False), ({"leads": 1}, True)):
            console.model.take("health", {**health, "checks": {"cluster": check | role}}, console.clock())
            console.refresh_view()
            await desk.pilot.pause()
            assert ("LEADS epoch 2" if is_offered else "FOLLOWS b epoch 2 lag 0") in desk.lines()[0]
            assert ("RO" in desk.lines()[0]) is not is_offered
            assert bool(console.screen.check_action("pause", ())) is is_offered
            console.last_message = ""
            console.propose(pause("alarms", "consume"))
            assert ("the leader is b (b:1)" in console.last_message) is not is_offered

    sit_down(daemon, visit, size=(120, 40))


def test_a_lost_daemon_is_reported_the_last_state_stays_and_the_console_reconnects(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.sees("alarms", "RUN")
        daemon.stop()
        await desk.sees("STALE", "alarms")
        daemon.start()
        await desk.sees("RUN", "alarms")

    sit_down(daemon, visit)


@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (120, 40), (300, 100)])
def test_every_line_of_every_screen_has_the_width_of_the_terminal(daemon: Daemon, size: tuple[int, int]) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "수집-센서-設定更新", "연결 거부" * 20, {"名前": "温度" * 50})
        desk.client.publish("alarms" * 20, "x")
        desk.client.consume_next("alarms" * 20, consumer_id="작업자" * 9)
        await desk.waits(lambda: desk.console.model.queues, "queues are known")
        for view in VIEWS:
            await desk.keys(view)
            await desk.waits(lambda: True, "")
            desk.is_in_shape()

    sit_down(daemon, visit, size=size)


def test_hostile_text_controls_nothing_wherever_it_is_shown(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        queue = "q[/b] [red]"
        await kill_one(desk, queue, HOSTILE, HOSTILE)
        desk.client.publish(queue, HOSTILE, attributes={HOSTILE: HOSTILE})
        await desk.waits(lambda: desk.console.model.queues, "queues are known")
        for view in VIEWS:
            await desk.keys(view)
            await desk.waits(lambda: True, "")
            _is_harmless(desk)
        await desk.keys("4")
        await desk.has("letters")
        await desk.keys("tab", "enter")
        await desk.sees("HISTORY")
        _is_harmless(desk)
        await desk.keys("escape", "1", "enter")
        await desk.sees("POLICY")
        _is_harmless(desk)
        await desk.keys("escape", "p")
        await desk.sees("PAUSE")
        _is_harmless(desk)

    sit_down(daemon, visit, size=(120, 40))


def _is_harmless(desk: Desk) -> None:
    bad = [char for char in "\x1b\x07\x9b\u202e" if char in desk.text()]
    assert bad == []
    desk.is_in_shape()


def test_configured_keys_work_and_are_shown_wherever_keys_are_named(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.sees("! pause", "% filter")
        await desk.keys("p")
        await desk.keys("question_mark")
        await desk.sees("!       pause or resume consuming")
        await desk.keys("escape", "exclamation_mark")
        await desk.sees("PAUSE alarms")

    sit_down(daemon, visit, config=Config(keys={"pause": ("!",), "filter": ("%",)}))


def test_a_filter_that_the_daemon_refuses_is_reported_in_place_of_the_old_list(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", "odd")
        await desk.keys("4")
        await desk.sees("odd")
        await desk.keys("slash", *"path", "colon", "dollar_sign", "left_square_bracket", "enter")
        await desk.sees("ERR_INVALID_REQUEST")
        assert "odd" not in desk.text()
        await desk.keys("escape")
        await desk.sees("odd")

    sit_down(daemon, visit)


def test_the_list_of_another_filter_is_not_shown_while_the_daemon_hangs(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", "odd")
        await desk.keys("4")
        await desk.sees("odd")
        await desk.keys("tab", "space")
        await desk.sees("marked 1")
        daemon.freeze()
        await desk.keys("slash", *"even", "enter")
        await desk.sees("loading...")
        assert "odd" not in desk.text() and "marked" not in desk.text()
        daemon.thaw()
        await desk.sees("no matching dead letters")

    sit_down(daemon, visit)


def test_a_message_that_is_gone_is_reported_and_one_with_many_brackets_is_shown(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "[" * 90_000)
        await desk.has("queues")
        await desk.keys("enter")
        await desk.has("messages")
        await desk.keys("enter")
        await desk.sees("[[[[[[[[", "BODY")
        desk.console.push_screen(MessageView("msg:alarms:00000000-0000-7000-8000-000000000000"))
        await desk.sees("ERR_MESSAGE_NOT_FOUND")

    sit_down(daemon, visit)


def test_cut_text_is_read_by_scrolling_sideways_and_back(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", f"begin {'연결 거부 ' * 12} finish")
        await desk.sees("dead 1!")
        await desk.keys("4")
        await desk.sees("begin")
        before = desk.lines()[8:10]
        await desk.keys("tab", "right")
        desk.is_in_shape()
        assert "finish" not in desk.text()
        for _ in range(12):
            if "finish" not in desk.text():
                await desk.keys("right")
                desk.is_in_shape()
        await desk.sees("finish")
        await desk.keys(*["left"] * 12)
        await desk.sees("begin")
        assert [line for line in before if line not in desk.lines()] == []

    sit_down(daemon, visit)


def test_a_single_list_uses_the_whole_screen_even_if_a_low_screen_hides_it(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("enter")
        await desk.has("messages")
        assert "POLICY" not in desk.text()
        await desk.keys("Z", "Z", "Z")
        await desk.sees("POLICY", "dlq.retentionDays")
        assert "MESSAGE" not in desk.text()
        await desk.keys("G")
        await desk.sees(">", "visibilityTimeoutSec")
        await desk.keys("Z")
        await desk.sees("MESSAGE")
        assert "POLICY" not in desk.text()

    sit_down(daemon, visit, size=(60, 16))


def test_the_palette_names_every_key_and_does_what_it_does(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("colon", *"the last")
        await desk.sees("to the last", "key G")
        assert desk.text().isascii()
        await desk.keys("escape", "escape")
        await desk.sees("[1 Queues]")
        for words, seen in (("filter", "filter"), ("undo the last", "cannot be undone"), ("help", "EVERYWHERE")):
            await desk.keys("colon", *("space" if one == " " else one for one in words))
            await desk.sees(words)
            await desk.keys("enter")
            await desk.sees(seen)
            await desk.keys("escape")

    sit_down(daemon, visit)


def test_a_filter_that_leaves_no_line_looks_different_from_an_empty_tail(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.keys("2")
        await desk.sees("published")
        await desk.keys("slash", *"nowhere", "enter")
        await desk.sees("no line matches the filter")
        await desk.keys("escape")
        await desk.sees("published")

    sit_down(daemon, visit)
