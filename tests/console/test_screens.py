"""The screens of the console, at a real daemon."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from postroom_console.data.action_log import ActionLog
from postroom_console.data.config import Config
from postroom_console.tui.widgets.row_list import RowList
from tests.console.desk import Desk, sit_down
from tests.wire.daemon import Daemon

HOSTILE = "\x1b]52;c;cm0=\x07 [/bold] [red] \u202egnp \x9b2J"
VIEWS = "123456"


async def kill_one(desk: Desk, queue: str, reason: str = "no good", body: object = "x") -> str:
    """A message becomes a dead letter; its key."""
    desk.client.publish(queue, body)
    delivery = desk.client.consume_next(queue, consumer_id="worker-1")
    assert delivery
    desk.client.nack(delivery, reason=reason)
    return str(delivery.message_key)


def test_queues_with_trouble_stand_in_front_and_say_what_is_wrong(daemon: Daemon) -> None:
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


def test_a_queue_is_paused_when_that_is_confirmed_and_the_last_action_is_taken_back(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("p")
        await desk.sees("Consumers of alarms get no more messages")
        await desk.keys("n")
        await desk.sees("nothing was changed")
        await desk.keys("p")
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.sees("pause alarms -> ok", "U takes it back", "1 PAUSED")
        assert desk.client.status("alarms")["paused"]["consume"]
        await desk.keys("U")
        await desk.sees("resume alarms -> ok")
        assert not desk.client.status("alarms")["paused"]["consume"]

    sit_down(daemon, visit)


def test_marked_dead_letters_are_reprocessed_and_no_others(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for _ in range(3):
            await kill_one(desk, "alarms", "연결 거부")
        await desk.sees("dead 3!")
        await desk.keys("4")
        await desk.sees("3 REJECTED", "연결 거부")
        await desk.has("letters", 3)
        await desk.keys("tab", "space", "space", "r")
        await desk.sees("2 dead letters become ready again")
        await desk.keys("y")
        await desk.sees("reprocess alarms -> ok 2", "dead 1!")
        assert desk.client.status("alarms")["metrics"] | {"held": 0} == {
            "ready": 2,
            "inflight": 0,
            "delayed": 0,
            "held": 0,
            "dlq": 1,
        }

    sit_down(daemon, visit)


def test_all_that_fit_are_counted_before_and_go_where_they_are_told(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for number in range(4):
            await kill_one(desk, "alarms", "odd" if number % 2 else "even", f"body-{number % 2}")
        await desk.sees("dead 4!")
        await desk.keys("4")
        await desk.sees("4 REJECTED")
        await desk.keys("slash")
        await desk.types("body1")
        await desk.keys("backspace", "minus", "1", "enter")
        await desk.sees("filter body-1", "odd")
        await desk.sees_no("even")
        await desk.keys("a")
        await desk.sees("REPROCESS all that fit of alarms")
        await desk.types("office")
        await desk.keys("enter", "enter", "enter")
        await desk.sees("2 messages are meant", "-> office")
        await desk.keys("y")
        await desk.sees("reprocess alarms -> ok 2")
        assert desk.client.status("office")["metrics"]["ready"] == 2

    sit_down(daemon, visit)


def test_what_is_removed_for_ever_is_saved_first_and_wants_the_queue_s_name(daemon: Daemon, tmp_path: Path) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", body={"n": 1})
        await desk.sees("dead 1!")
        await desk.keys("4")
        await desk.sees("1 REJECTED")
        await desk.keys("X")
        await desk.sees("removed for ever", "saved first", "Type the name")
        await desk.types("alarm")
        await desk.keys("enter")
        await desk.types("y")
        await desk.keys("escape")
        await desk.sees("nothing was changed")
        assert list(tmp_path.glob("*.jsonl")) == []
        await desk.keys("X")
        await desk.sees("Type the name")
        await desk.types("alarms")
        await desk.keys("enter")
        await desk.sees("purge alarms -> ok 1")

    sit_down(daemon, visit, save_root=tmp_path)
    (saved,) = tmp_path.glob("alarms-dead-*.jsonl")
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    (letter,) = map(json.loads, saved.read_text().splitlines())
    assert letter["reason"] == "no good" and '"n"' in json.dumps(letter)


def test_a_lease_is_released_in_the_name_of_its_holder(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        desk.client.consume_next("alarms", consumer_id="worker-7")
        await desk.keys("3")
        await desk.sees("worker-7", "1 lease")
        await desk.keys("l")
        await desk.sees("goes back to its place")
        await desk.keys("y")
        await desk.sees("release alarms -> ok", "nothing is in flight")
        assert desk.client.status("alarms")["metrics"]["ready"] == 1

    sit_down(daemon, visit)


def test_a_message_is_shown_whole_with_its_history(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", "too hot", {"sensor": "A1", "名前": "温度"})
        await desk.keys("4")
        await desk.has("letters")
        await desk.keys("tab", "enter")
        await desk.sees('"sensor": "A1"', "温度", "published", "leased", "died")
        await desk.keys("escape")
        await desk.sees("REASON")

    sit_down(daemon, visit, size=(100, 40))


def test_the_tail_stays_where_it_is_read_and_counts_what_came(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for number in range(40):
            desk.client.publish("alarms", f"body-{number}")
        await desk.keys("2", "b")
        await desk.sees("FOLLOW", "body-39")
        await desk.keys("g")
        await desk.sees("HELD +0")
        before = desk.lines()[1:20]
        for number in range(40, 60):
            desk.client.publish("alarms", f"body-{number}")
        await desk.waits(lambda: desk.console.ring.taken >= 120, "all has come")
        await desk.sees("HELD +40")
        assert desk.lines()[1:20] == before
        await desk.keys("G")
        await desk.sees("FOLLOW", "body-59")

    sit_down(daemon, visit)


def test_many_lines_alike_are_one_until_it_is_opened(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish_batch([{"message": f"body-{number}"} for number in range(30)], "alarms")
        await desk.keys("2")
        await desk.sees("body-29")
        await desk.keys("slash", *"ev", "colon", *"published", "enter")
        listed = desk.console.screen.query_one("#tail", RowList)
        await desk.waits(lambda: 1 <= len(listed.rows) <= 8, "they are collapsed")
        await desk.keys("g", "enter")
        await desk.sees("HELD")
        before = len(listed.rows)
        assert before > 1 and "body-0" in desk.text()
        await desk.keys("b")
        await desk.waits(lambda: len(listed.rows) == 30, "all are shown")

    sit_down(daemon, visit)


def test_a_search_finds_the_message_of_a_line_and_its_key_goes_to_the_clipboard_only_when_it_is_wanted(
    daemon: Daemon,
) -> None:
    async def visit(desk: Desk) -> None:
        keys = [desk.client.publish("alarms", f"body-{number}")["messageKey"] for number in range(9)]
        await desk.keys("2")
        await desk.sees("FOLLOW", "alarms")
        await desk.keys("s")
        await desk.sees("SEARCH")
        await desk.types("body-4")
        await desk.keys("enter")
        await desk.sees("HELD", "body-4")
        copied: list[str] = []
        desk.console.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await desk.keys("n")
        await desk.sees("no more hits")
        assert copied == []
        await desk.keys("y")
        assert copied == [keys[4]]
        await desk.keys("enter")
        await desk.sees("HISTORY", "body-4", keys[4])

    sit_down(daemon, visit, size=(100, 40))


def test_dead_letters_of_one_reason_are_chosen_above_and_set_apart(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.set_policy("alarms", {"retry": {"limit": 1}})
        for reason in ("odd", "even", "odd"):
            await kill_one(desk, "alarms", reason)
        desk.client.publish("alarms", "x")
        delivery = desk.client.consume_next("alarms", consumer_id="worker-2")
        assert delivery
        desk.client.nack(delivery, reason="too often", requeue=True)
        await desk.keys("4")
        await desk.sees("all reasons", "REJECTED", "RETRY_LIMIT")
        await desk.has("letters", 4)
        await desk.keys("j", "j")
        await desk.sees("retry limit")
        await desk.sees_no("even")
        await desk.keys("tab", "z")
        await desk.sees("set apart")
        await desk.keys("y")
        await desk.sees("quarantine alarms -> ok 1")
        assert desk.client.list_dlq("alarms")["messages"][3]["quarantined"]
        await desk.keys("U")
        await desk.waits(lambda: "quarantined" not in desk.client.list_dlq("alarms")["messages"][3], "it is taken back")

    sit_down(daemon, visit)


def test_dead_letters_are_filtered_by_the_daemon_and_counted_without_being_changed(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for reason in ("odd", "even", "odd"):
            await kill_one(desk, "alarms", reason)
        await desk.keys("4")
        await desk.has("letters", 3)
        await desk.keys("slash", *"why", "colon", *"odd", "enter")
        await desk.sees_no("even")
        await desk.keys("a")
        await desk.sees("REPROCESS all that fit")
        await desk.keys("enter", "enter", "y", "enter")
        await desk.sees("Counts what would be reprocessed")
        await desk.keys("y")
        await desk.sees("dry run alarms -> ok 2")
        assert desk.client.status("alarms")["metrics"]["dlq"] == 3
        await desk.keys("slash", *["backspace"] * 9, *"older", "colon", *"soon", "enter")
        await desk.sees("a time span is 90s")

    sit_down(daemon, visit)


def test_a_queue_is_looked_through_page_by_page(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for _ in range(3):
            desk.client.publish_batch([{"message": f"body-{number}"} for number in range(100)], "alarms")
        await desk.has("queues")
        await desk.keys("enter")
        await desk.sees("1-200", "m more", "ready 300")
        await desk.keys("m")
        await desk.sees("201-300")
        await desk.keys("m")
        await desk.sees("there are no more")
        await desk.keys("b")
        await desk.sees("1-200")

    sit_down(daemon, visit, size=(120, 40))


def test_marked_messages_of_a_queue_are_held_back_moved_and_brought_back(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for number in range(3):
            desk.client.publish("alarms", f"body-{number}")
        await desk.has("queues")
        await desk.keys("enter")
        await desk.has("messages", 3)
        await desk.keys("space", "space", "h")
        await desk.sees("2 messages are not delivered")
        await desk.keys("y")
        await desk.sees("hold alarms -> ok 2", "held 2")
        await desk.keys("U")
        await desk.sees("held 0")
        await desk.has("messages", 3)
        await desk.keys("space", "t")
        await desk.sees("MOVE to another queue")
        await desk.types("office")
        await desk.keys("enter")
        await desk.sees("1 message is moved -> office")
        await desk.keys("y")
        await desk.sees("move alarms -> ok 1")
        assert desk.client.status("office")["metrics"]["ready"] == 1
        await desk.keys("U")
        await desk.waits(lambda: desk.client.status("alarms")["metrics"]["ready"] == 3, "it is back")

    sit_down(daemon, visit, size=(120, 40))


def test_a_policy_is_changed_and_taken_back_to_what_it_was(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.set_policy("alarms", {"ttlSec": 60})
        await desk.has("queues")
        await desk.keys("enter")
        await desk.has("policy")
        await desk.keys("w")
        await desk.sees("key of the policy")
        await desk.keys(*["backspace"] * 40)
        await desk.types("retry.limit")
        await desk.keys("enter", "9", "enter")
        await desk.sees("policy of alarms is changed", "retry")
        await desk.keys("y")
        await desk.sees("policy alarms -> ok")
        assert desk.client.get_policy("alarms")["override"] == {"ttlSec": 60, "retry": {"limit": 9}}
        await desk.keys("U")
        await desk.waits(lambda: desk.client.get_policy("alarms")["override"] == {"ttlSec": 60}, "it is as it was")

    sit_down(daemon, visit, size=(120, 40))


def test_the_queue_under_the_cursor_is_told_of_at_the_side_of_a_wide_screen(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms")
        desk.client.publish("alarms", "x")
        desk.client.consume_next("alarms", consumer_id="worker-7")
        desk.client.pause("alarms")
        await desk.sees("PAUSED: consuming", "by legacy-app", "LEASES 1", "worker-7", "DEAD 1", "+1 in 1h", "tries 5")

    sit_down(daemon, visit, size=(120, 40))


def test_a_terminal_that_is_too_small_is_told_what_is_needed(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await desk.sees("need 40x10, have 39x9")
        await desk.keys("q")

    sit_down(daemon, visit, size=(39, 9))


def test_a_filter_that_cannot_be_read_is_told_and_the_old_one_stays(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "one")
        await desk.keys("2")
        await desk.sees("published")
        await desk.keys("slash")
        await desk.types("q")
        await desk.keys("colon", "enter")
        await desk.sees("q: needs something behind it")
        await desk.keys("slash", "e", "v", "colon", "a", "c", "k", "e", "d", "enter")
        await desk.sees_no("published")
        await desk.keys("escape")
        await desk.sees("published")

    sit_down(daemon, visit)


def test_who_may_only_look_is_offered_no_action(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.sees("alarms", "RO")
        await desk.keys("p")
        assert "Consumers" not in desk.text()
        await desk.keys("question_mark")
        await desk.sees("EVERYWHERE")

    sit_down(daemon, visit, read_only=True)


def test_a_lost_daemon_is_told_what_was_known_stays_and_it_is_found_again(daemon: Daemon) -> None:
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


def test_hostile_text_steers_nothing_wherever_it_stands(daemon: Daemon) -> None:
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


def test_each_action_and_its_end_stand_in_a_file_of_the_user_alone(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "state" / "actions.jsonl"

    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("p")
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.sees("pause alarms -> ok")
        await desk.keys("6")
        await desk.sees("pause", "alarms", "Consumers of alarms")

    sit_down(daemon, visit, log=ActionLog(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line)["result"] for line in path.read_text().splitlines()] == ["begun", "ok"]


def test_other_keys_work_and_are_shown_wherever_keys_are_named(daemon: Daemon) -> None:
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
