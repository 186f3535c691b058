"""Actions from the console, at a real daemon."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from postroom_console.data.action_log import ActionLog
from postroom_console.data.actions import pause
from postroom_console.data.config import Config
from postroom_console.data.updates import Outcome, Result
from tests.console.desk import Desk, kill_one, sit_down
from tests.wire.daemon import Daemon


def test_a_queue_is_paused_after_confirmation_and_the_last_action_is_undone(daemon: Daemon) -> None:
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
        await desk.sees("pause alarms -> ok", "U undoes it", "1 PAUSED")
        assert desk.client.status("alarms")["paused"]["consume"]
        await desk.keys("U")
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.sees("resume alarms -> ok")
        assert not desk.client.status("alarms")["paused"]["consume"]

    sit_down(daemon, visit)


def test_a_user_who_may_not_operate_one_queue_sees_that_and_operates_the_others(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        plan = pause("press", "consume")
        desk.console.runner.begin(99, plan)
        refusal = Outcome(99, Result.REFUSED, 0, "ERR_FORBIDDEN", "uid 7 may not operate queue 'press'")
        desk.console.runner.handle(refusal)
        await desk.sees("pause press -> refused", "ERR_FORBIDDEN uid 7 may not operate queue")
        await desk.keys("p")
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.sees("pause alarms -> ok")

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
        counts = desk.client.status("alarms")["metrics"]
        assert {state: count for state, count in counts.items() if count} == {"ready": 2, "dlq": 1}

    sit_down(daemon, visit)


def test_all_matching_messages_are_counted_first_and_then_moved_to_the_named_queue(daemon: Daemon) -> None:
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
        await desk.sees("REPROCESS all matching letters of alarms")
        await desk.types("office")
        await desk.keys("enter", "enter", "enter")
        await desk.sees("2 messages are affected", "-> office")
        await desk.keys("y")
        await desk.sees("reprocess alarms -> ok 2")
        assert desk.client.status("office")["metrics"]["ready"] == 2

    sit_down(daemon, visit)


def test_permanent_removal_saves_first_and_requires_the_queue_s_name(daemon: Daemon, tmp_path: Path) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms", body={"n": 1})
        await desk.sees("dead 1!")
        await desk.keys("4")
        await desk.sees("1 REJECTED")
        await desk.keys("X")
        await desk.sees("removed permanently", "They are first", "Type the name")
        await desk.types("alarm")
        await desk.keys("enter")
        await desk.sees("this is not the name of the queue")
        await desk.types("y")
        await desk.keys("escape")
        await desk.sees("nothing was changed")
        assert list(tmp_path.glob("*.jsonl")) == []
        await desk.keys("X")
        await desk.sees("Type the name", "1 message is affected")
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
        await desk.sees("returns to its place")
        await desk.keys("y")
        await desk.sees("release alarms -> ok", "nothing is in flight")
        assert desk.client.status("alarms")["metrics"]["ready"] == 1

    sit_down(daemon, visit)


def test_dead_letters_of_one_reason_are_selected_and_quarantined(daemon: Daemon) -> None:
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
        await desk.sees("is quarantined")
        await desk.keys("y")
        await desk.sees("quarantine alarms -> ok 1")
        assert desk.client.list_dlq("alarms")["messages"][3]["quarantined"]
        await desk.keys("U")
        await desk.sees("y yes")
        await desk.keys("y")
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
        await desk.sees("REPROCESS all matching")
        await desk.keys("enter", "enter", "y", "enter")
        await desk.sees("Counts what would be reprocessed")
        await desk.keys("y")
        await desk.sees("dry run alarms -> ok 2")
        assert desk.client.status("alarms")["metrics"]["dlq"] == 3
        await desk.keys("slash", *["backspace"] * 9, *"older", "colon", *"soon", "enter")
        await desk.sees("a time span is 90s")

    sit_down(daemon, visit)


def test_marked_messages_of_a_queue_are_put_on_hold_moved_and_brought_back(daemon: Daemon) -> None:
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
        await desk.sees("y yes")
        await desk.keys("y")
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
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.waits(lambda: desk.client.status("alarms")["metrics"]["ready"] == 3, "it is back")

    sit_down(daemon, visit, size=(120, 40))


def test_a_policy_is_changed_and_restored(daemon: Daemon) -> None:
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
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.waits(lambda: desk.client.get_policy("alarms")["override"] == {"ttlSec": 60}, "it is as it was")

    sit_down(daemon, visit, size=(120, 40))


def test_each_action_and_its_end_are_logged_in_a_private_file(daemon: Daemon, tmp_path: Path) -> None:
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


def test_after_an_action_that_cannot_be_undone_no_earlier_one_is_undone_in_its_place(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await kill_one(desk, "alarms")
        await desk.sees("dead 1!")
        await desk.keys("p")
        await desk.sees("U undoes it")
        await desk.keys("y")
        await desk.sees("pause alarms -> ok", "U undoes it")
        await desk.keys("4")
        await desk.sees("1 REJECTED")
        await desk.has("letters")
        await desk.keys("tab", "r")
        await desk.sees("y yes")
        await desk.keys("y")
        await desk.sees("reprocess alarms -> ok 1")
        await desk.keys("U")
        await desk.sees("the last action cannot be undone")
        assert desk.client.status("alarms")["paused"]["consume"]

    sit_down(daemon, visit)


def test_the_configured_undo_key_is_shown(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", "x")
        await desk.has("queues")
        await desk.keys("p")
        await desk.sees("u undoes it", "y yes")
        await desk.keys("y")
        await desk.sees("pause alarms -> ok", "(u undoes it)")
        await desk.keys("u")
        await desk.sees("alarms is resumed", "y yes")
        await desk.keys("y")
        await desk.sees("resume alarms -> ok")

    sit_down(daemon, visit, config=Config(keys={"undo": ("u",)}))
