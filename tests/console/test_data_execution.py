"""Actions at a real daemon: their results, lost answers, and what is saved before a removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postroom_client import AnswerLost, Client, Request, RequestTimeout
from postroom_console.data import execution
from postroom_console.data.execution import execute_action
from postroom_console.data.link import Link
from postroom_console.data.live import Live
from postroom_console.data.updates import Outcome, Result, Save, Step
from tests.console.watching import Watch, dead_letters, is_alive, live_source
from tests.wire.daemon import Daemon, receipt, wait_until


def test_an_action_ends_with_the_number_of_messages_that_it_changed(daemon: Daemon, source: Live) -> None:
    dead_letters(daemon, "alarms", 3)
    watch = Watch(source)
    counted = watch.outcome(source.execute((Step("reprocess_dlq", {"queue": "alarms", "limit": 2, "dryRun": True}),)))
    assert (counted.result, counted.count) == (Result.OK, 3)
    done = watch.outcome(source.execute((Step("reprocess_dlq", {"queue": "alarms", "limit": 2}),)))
    assert (done.result, done.count) == (Result.OK, 3)
    assert daemon.counts("alarms") == {"ready": 3}


def test_the_first_step_that_is_refused_ends_an_action(daemon: Daemon, source: Live) -> None:
    first, second = dead_letters(daemon, "alarms", 2)
    steps = (first, "msg:alarms:not-there", second)
    ticket = source.execute(tuple(Step("reprocess_dlq", {"messageKey": key}) for key in steps))
    outcome = Watch(source).outcome(ticket)
    assert (outcome.result, outcome.count, outcome.code) == (Result.REFUSED, 1, "ERR_DLQ_NOT_FOUND")
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 1}


def test_an_action_that_did_not_start_in_time_is_unknown_and_then_reported_as_refused(
    daemon: Daemon, source: Live, hasty: None
) -> None:
    daemon.publish("alarms")
    watch = Watch(source)
    daemon.freeze()
    ticket = source.execute((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    outcome = watch.outcome(ticket)
    assert (outcome.result, outcome.has_ended) == (Result.UNKNOWN, False)
    assert "asking for the result" in outcome.text
    daemon.thaw()
    while not (outcome := watch.outcome(ticket)).has_ended:
        pass
    assert (outcome.result, outcome.code) == (Result.REFUSED, "ERR_TIMEOUT")
    assert daemon.events("paused") == []


class Forgetful(Client):
    """Loses the first answer to each request."""

    def send(self, request: Request, *args: Any, **options: Any) -> dict[str, Any]:
        known: set[str] = self.__dict__.setdefault("known", set())
        answer = super().send(request, *args, **options)
        if request.request_id not in known:
            known.add(request.request_id)
            raise RequestTimeout("the answer is lost", request)
        return answer


def test_an_action_whose_answer_was_lost_is_done_once_and_reported_as_done(daemon: Daemon) -> None:
    dead_letters(daemon, "alarms", 3)
    reported: list[Outcome] = []
    actor = Link(lambda: Forgetful(str(daemon.ipc)), lambda: False)
    outcome = execute_action(
        actor, 7, (Step("reprocess_dlq", {"queue": "alarms", "limit": 2}),), report=reported.append
    )
    actor.close()
    assert [(one.result, one.has_ended, one.count) for one in reported] == [
        (Result.UNKNOWN, False, 0),
        (Result.UNKNOWN, False, 2),
    ]
    assert (outcome.result, outcome.count) == (Result.OK, 3)
    assert len(daemon.events("reprocessed")) == 3
    assert daemon.counts("alarms") == {"ready": 3}


class Unanswered(Client):
    """The daemon executes what it is asked, but has lost its answers."""

    def send(self, request: Request, *args: Any, **options: Any) -> Any:
        super().send(request, *args, **options)
        raise AnswerLost("ERR_ANSWER_LOST", "it was executed")


def test_if_answers_are_lost_single_requests_count_as_done_and_pages_as_unknown(daemon: Daemon) -> None:
    keys = dead_letters(daemon, "alarms", 3)
    actor = Link(lambda: Unanswered(str(daemon.ipc)), lambda: False)
    single = execute_action(actor, 1, tuple(Step("reprocess_dlq", {"messageKey": key}) for key in keys[:2]))
    assert (single.result, single.count) == (Result.OK, 2)
    pages = execute_action(actor, 2, (Step("reprocess_dlq", {"queue": "alarms", "limit": 1}),))
    actor.close()
    assert (pages.result, pages.code) == (Result.UNKNOWN, "ERR_ANSWER_LOST")
    assert daemon.counts("alarms") == {"ready": 3}


def test_a_slow_action_is_stopped_and_holds_up_no_other(daemon: Daemon, source: Live) -> None:
    dead_letters(daemon, "alarms", 3)
    watch = Watch(source)
    slow = source.execute((Step("reprocess_dlq", {"queue": "alarms", "limit": 100}),), rate=0.001)
    daemon.wait(lambda: daemon.events("reprocessed"), "the first one is reprocessed")
    quick = source.execute((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    assert watch.outcome(quick).result is Result.OK
    source.cancel(slow)
    outcome = watch.outcome(slow)
    assert (outcome.result, outcome.count, outcome.has_ended) == (Result.STOPPED, 1, True)
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 2}
    source.cancel(slow)  # of what has ended nothing is left to stop


def test_stopping_the_source_stops_a_slow_action(daemon: Daemon) -> None:
    dead_letters(daemon, "alarms", 2)
    source = live_source(daemon, Client)
    source.start()
    source.execute((Step("reprocess_dlq", {"queue": "alarms", "limit": 1}),), rate=0.001)
    daemon.wait(lambda: daemon.events("reprocessed"), "the first one is reprocessed")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")


# --- what is saved before -----------------------------------------------------------------------------------------


def saving(path: Path) -> Save:
    return Save(path, "list_dlq", ({"queue": "alarms", "limit": 2, "fullBodies": True},), "messages")


_RECENT_MS = execution.RECENT_MS
PURGE = Step("purge", {"queue": "alarms", "state": "dead", "limit": 2}, only_saved=True)


def test_messages_are_saved_to_a_private_file_before_they_are_removed(
    daemon: Daemon, source: Live, tmp_path: Path
) -> None:
    keys = dead_letters(daemon, "alarms", 3)
    path = tmp_path / "saved.jsonl"
    ticket = source.execute((saving(path), PURGE))
    outcome = Watch(source).outcome(ticket)
    assert (outcome.result, outcome.count) == (Result.OK, 3)
    assert outcome.text == f"3 saved to {path}"
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["messageKey"] for one in saved] == keys
    assert saved[0]["originalMessage"]["payload"] == "body 0"
    assert path.stat().st_mode & 0o777 == 0o600
    assert daemon.counts("alarms") == {}


def test_nothing_is_removed_when_it_cannot_be_saved(daemon: Daemon, source: Live, tmp_path: Path) -> None:
    dead_letters(daemon, "alarms", 1)
    watch = Watch(source)
    path = tmp_path / "saved.jsonl"
    path.write_text("an earlier one")
    for wrong, reason in ((path, "File exists"), (tmp_path / "missing" / "x", "No such file or directory")):
        outcome = watch.outcome(source.execute((saving(wrong), PURGE)))
        assert (outcome.result, outcome.text) == (Result.REFUSED, f"{wrong}: {reason}")
    assert path.read_text() == "an earlier one"
    assert daemon.counts("alarms") == {"dlq": 1}


class BrokenOff(Client):
    """Gives no second page."""

    def send(self, request: Request, *args: Any, **options: Any) -> dict[str, Any]:
        if b'"after"' in request.data:
            raise RequestTimeout("no answer", request)
        return super().send(request, *args, **options)


def test_an_incomplete_file_is_reported_and_nothing_is_removed(daemon: Daemon, tmp_path: Path) -> None:
    dead_letters(daemon, "alarms", 3)
    path = tmp_path / "saved.jsonl"
    actor = Link(lambda: BrokenOff(str(daemon.ipc)), lambda: False)
    outcome = execute_action(actor, 1, (saving(path), PURGE))
    actor.close()
    assert outcome.result is Result.REFUSED
    assert f"only 2 saved to {path}" in outcome.text
    assert len(path.read_text().splitlines()) == 2
    assert daemon.counts("alarms") == {"dlq": 3}


def test_messages_published_after_the_saving_are_not_removed(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("alarms", "early")

    class Meanwhile(Client):
        """A message comes between saving and removing."""

        def prepare(self, command: str, *args: Any, **options: Any) -> Request:
            if command == "purge":
                daemon.publish("alarms", "late")
            return super().prepare(command, *args, **options)

    actor = Link(lambda: Meanwhile(str(daemon.ipc)), lambda: False)
    browse = Save(tmp_path / "x", "browse", ({"queue": "alarms", "state": "ready", "fullBodies": True},), "messages")
    outcome = execute_action(actor, 1, (browse, Step("purge", {"queue": "alarms", "state": "ready"})))
    actor.close()
    assert (outcome.result, outcome.count) == (Result.OK, 1)
    assert daemon.counts("alarms") == {"ready": 1}
    assert daemon.consume("alarms")["message"]["payload"] == "late"


@pytest.mark.parametrize("recent_ms", [_RECENT_MS, 1000], ids=["by-keys", "by-pages"])
def test_messages_that_died_after_the_saving_are_not_removed_even_if_they_are_older(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recent_ms: int
) -> None:
    daemon.publish("alarms", "older", priority=9)
    late = daemon.consume("alarms")
    dead_letters(daemon, "alarms", 5)
    apart, brought_back = [one["messageKey"] for one in daemon.ask("list_dlq", queue="alarms")["messages"]][:2]
    daemon.ask("quarantine_dlq", messageKey=apart, quarantined=True)
    if recent_ms < _RECENT_MS:
        wait_until(lambda: _youngest_dead_ms(daemon) > recent_ms, "they are old enough")
    commands: list[str] = []

    class Meanwhile(Client):
        """A message dies between saving and removing, and somebody brings one back."""

        def prepare(self, command: str, *args: Any, **options: Any) -> Request:
            if command == "purge" and "purge" not in commands:
                daemon.settle("nack", late, requeue=False)
                daemon.ask("reprocess_dlq", messageKey=brought_back)
            commands.append(command)
            return super().prepare(command, *args, **options)

    monkeypatch.setattr(execution, "RECENT_MS", recent_ms)
    actor = Link(lambda: Meanwhile(str(daemon.ipc)), lambda: False)
    outcome = execute_action(actor, 1, (saving(tmp_path / "x"), PURGE))
    actor.close()
    assert (outcome.result, outcome.count) == (Result.OK, 3)
    assert ("drop_dlq" in commands) == (recent_ms == _RECENT_MS)
    left = [one["messageKey"] for one in daemon.ask("list_dlq", queue="alarms")["messages"]]
    assert left == [apart, receipt(late)["messageKey"]]
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 2}


def test_a_long_action_reports_its_progress(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "REPORT_EVERY_S", -1.0)
    dead_letters(daemon, "alarms", 3)
    reported: list[Outcome] = []
    actor = Link(lambda: Client(str(daemon.ipc)), lambda: False)
    outcome = execute_action(actor, 1, (saving(tmp_path / "x"), PURGE), report=reported.append)
    actor.close()
    assert outcome.count == 3
    assert [(one.count, one.text) for one in reported if one.text] == [(2, "saved so far"), (3, "saved so far")]
    assert [one.count for one in reported if not one.text][-1] == 3
    assert {(one.result, one.has_ended) for one in reported} == {(Result.RUNNING, False)}


def _youngest_dead_ms(daemon: Daemon) -> int:
    reported = daemon.ask("browse", queue="alarms", state="dead")
    return int(min(reported["engineNowMs"] - one["diedAtEngineMs"] for one in reported["messages"]))
