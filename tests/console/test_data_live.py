"""The source that a running daemon is, and the link to it: answers, lines, actions, and a daemon that hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_client import AnswerLost, Client, Request, RequestTimeout
from postroom_console.data import execution, link, live
from postroom_console.data.execution import carry_out
from postroom_console.data.link import Link
from postroom_console.data.live import Live
from postroom_console.data.updates import Answer, Failure, Lines, Outcome, Result, Save, Step, Update
from tests.wire.daemon import Daemon, receipt, wait_until


class Watch:
    """What has come from a source so far."""

    def __init__(self, source: Live) -> None:
        self.source = source
        self.updates: list[Update] = []

    def all(self) -> list[Update]:
        self.updates += [update for _, update in self.source.drain()]
        return self.updates

    def until(self, condition: Callable[[Update], Any], what: str) -> Update:
        """Wait for an update; it and what came before it are forgotten."""

        def found() -> Update | None:
            return next((update for update in self.all() if condition(update)), None)

        update = wait_until(found, what)
        assert update
        del self.updates[: self.updates.index(update) + 1]
        return update

    def outcome(self, ticket: int) -> Outcome:
        update = self.until(
            lambda one: isinstance(one, Outcome) and one.ticket == ticket, f"action {ticket} is told of"
        )
        assert isinstance(update, Outcome)
        return update


@pytest.fixture
def source(daemon: Daemon) -> Iterator[Live]:
    """A source that has been started, ended in any case."""
    made = _live(daemon, Client)
    made.start()
    yield made
    made.stop()


def _live(daemon: Daemon, client: Callable[..., Client]) -> Live:
    make = lambda: client(str(daemon.ipc), client_id="console-1-1")  # noqa: E731
    return Live(make, daemon.root / "journal", daemon.root / "traffic")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(link, "QUESTION_S", 0.2)
    monkeypatch.setattr(link, "ACTION_S", 0.3)


def dead_letters(daemon: Daemon, queue: str, count: int) -> list[str]:
    """Messages that died; their keys."""
    keys = [daemon.publish(queue, f"body {number}") for number in range(count)]
    for _ in keys:
        daemon.ask("nack", **receipt(daemon.consume(queue)), requeue=False)
    return keys


def is_alive() -> bool:
    return any(thread.name == "console" for thread in threading.enumerate())


# --- questions and lines ------------------------------------------------------------------------------------------


def test_questions_are_answered_again_and_again_until_they_are_forgotten(daemon: Daemon, source: Live) -> None:
    watch = Watch(source)
    source.want("queues", "list_queues", {}, 10)
    watch.until(lambda one: isinstance(one, Answer) and one.data["queues"] == [], "there are no queues")
    daemon.publish("alarms")
    watch.until(lambda one: isinstance(one, Answer) and one.data["queues"], "there is a queue")
    source.forget("queues")
    source.want("health", "health", {}, 10)
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "health is told")
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "health is told again")
    watch.until(lambda one: isinstance(one, Answer) and one.name == "health", "and again")
    assert not any(isinstance(one, Answer) and one.name == "queues" for one in watch.all())


def test_a_question_that_is_not_due_for_long_is_asked_when_that_is_wanted(source: Live) -> None:
    watch = Watch(source)
    source.want("health", "health", {}, 3_600_000)
    watch.until(lambda one: isinstance(one, Answer), "health is told")
    source.refresh()
    watch.until(lambda one: isinstance(one, Answer), "health is told again")


def test_a_refusal_has_its_code(source: Live) -> None:
    source.want("message", "get_message", {"messageKey": "msg:alarms:not-there"}, 1000)
    refused = Watch(source).until(lambda one: isinstance(one, Failure), "the question is refused")
    assert isinstance(refused, Failure)
    assert (refused.name, refused.code) == ("message", "ERR_MESSAGE_NOT_FOUND")


def test_a_list_is_gathered_from_its_pages(daemon: Daemon) -> None:
    for number in range(5):
        daemon.publish(f"q{number}")
    asker = Link(lambda: Client(str(daemon.ipc)), lambda: False)
    answer = asker.ask("queues", "list_queues", {"limit": 2})
    asker.close()
    assert isinstance(answer, Answer)
    assert [one["queue"] for one in answer.data["queues"]] == [f"q{number}" for number in range(5)]
    assert answer.data["next"] == ""


def test_what_happens_comes_as_records_of_journal_and_traffic(daemon: Daemon, source: Live) -> None:
    watch = Watch(source)
    key = daemon.publish("alarms", {"a": 1})
    records: list[Any] = []

    def take(update: Update) -> bool:
        if isinstance(update, Lines):
            records.extend(update.records)
        return {"published", "publish"} <= {record.kind for record in records}

    watch.until(take, "event and request are there")
    event = next(record for record in records if record.kind == "published")
    request = next(record for record in records if record.kind == "publish")
    assert (event.key, event.queue, event.detail) == (key, "alarms", 'p0 {"a":1}')
    assert event.request == request.request


def test_answers_that_nobody_took_make_room_for_newer_ones(daemon: Daemon, source: Live) -> None:
    source.want("queues", "list_queues", {}, 1)
    daemon.publish("alarms")
    listed = {line["command"]: line for line in _traffic(daemon)}
    wait_until(lambda: sum(line["command"] == "list_queues" for line in _traffic(daemon)) > 20, "it was asked often")
    assert listed
    assert sum(isinstance(update, Answer) for _, update in source.drain()) <= 1


def _traffic(daemon: Daemon) -> list[dict[str, Any]]:
    lines = [line for path in (daemon.root / "traffic").glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in lines]


def test_records_that_nobody_takes_are_only_counted(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_WAITING_BYTES", 2000)
    source = _live(daemon, Client)
    source.start()
    for number in range(40):
        daemon.publish("alarms", f"{number}")

    def skipped() -> int:
        with source._lock:
            return sum(update.skipped_bytes for _, update in source._updates if isinstance(update, Lines))

    wait_until(skipped, "something was passed over")
    lines = [update for _, update in source.drain() if isinstance(update, Lines)]
    source.stop()
    assert len(lines) == 1
    assert 0 < len(lines[0].records) < 80


def test_without_a_daemon_it_is_said_why_and_nothing_ends(tmp_path: Path, hasty: None) -> None:
    source = Live(lambda: Client(str(tmp_path / "ipc")), tmp_path / "journal", None)
    watch = Watch(source)
    source.want("health", "health", {}, 1)
    source.start()
    missing = watch.until(lambda one: isinstance(one, Failure), "it is said that nobody answers")
    assert isinstance(missing, Failure)
    assert missing.code == "" and "does not exist" in missing.text
    watch.until(lambda one: isinstance(one, Failure), "it is said again")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")


# --- a daemon that hangs ------------------------------------------------------------------------------------------


def test_a_daemon_that_hangs_is_told_and_so_is_its_return(daemon: Daemon, source: Live, hasty: None) -> None:
    watch = Watch(source)
    source.want("health", "health", {}, 10)
    watch.until(lambda one: isinstance(one, Answer), "health is told")
    daemon.freeze()
    lost = watch.until(lambda one: isinstance(one, Failure), "it is said that nobody answers")
    assert isinstance(lost, Failure) and lost.code == ""
    daemon.thaw()
    watch.until(lambda one: isinstance(one, Answer), "health is told again")


def test_it_ends_and_leaves_nothing_behind_though_the_daemon_hangs(daemon: Daemon) -> None:
    source = _live(daemon, Client)
    source.want("health", "health", {}, 10)
    source.start()
    Watch(source).until(lambda one: isinstance(one, Answer), "health is told")
    daemon.freeze()
    source.act((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    wait_until(lambda: len(list(daemon.requests.glob("*.json"))) == 2, "question and action wait")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")
    assert list(daemon.requests.glob("*.json")) == []
    daemon.thaw()
    assert daemon.events("paused") == []


# --- actions ------------------------------------------------------------------------------------------------------


def test_an_action_ends_with_the_number_of_messages_that_it_changed(daemon: Daemon, source: Live) -> None:
    dead_letters(daemon, "alarms", 3)
    watch = Watch(source)
    counted = watch.outcome(source.act((Step("reprocess_dlq", {"queue": "alarms", "limit": 2, "dryRun": True}),)))
    assert (counted.result, counted.count) == (Result.OK, 3)
    done = watch.outcome(source.act((Step("reprocess_dlq", {"queue": "alarms", "limit": 2}),)))
    assert (done.result, done.count) == (Result.OK, 3)
    assert daemon.counts("alarms") == {"ready": 3}


def test_the_first_step_that_is_refused_ends_an_action(daemon: Daemon, source: Live) -> None:
    first, second = dead_letters(daemon, "alarms", 2)
    steps = (first, "msg:alarms:not-there", second)
    ticket = source.act(tuple(Step("reprocess_dlq", {"messageKey": key}) for key in steps))
    outcome = Watch(source).outcome(ticket)
    assert (outcome.result, outcome.count, outcome.code) == (Result.REFUSED, 1, "ERR_DLQ_NOT_FOUND")
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 1}


def test_an_action_that_was_not_begun_in_time_is_unknown_and_then_known_to_be_refused(
    daemon: Daemon, source: Live, hasty: None
) -> None:
    daemon.publish("alarms")
    watch = Watch(source)
    daemon.freeze()
    ticket = source.act((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    outcome = watch.outcome(ticket)
    assert (outcome.result, outcome.has_ended) == (Result.UNKNOWN, False)
    assert "it is asked what became of it" in outcome.text
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


def test_an_action_whose_answer_was_lost_is_done_once_and_known_to_be_done(daemon: Daemon) -> None:
    dead_letters(daemon, "alarms", 3)
    told: list[Outcome] = []
    actor = Link(lambda: Forgetful(str(daemon.ipc)), lambda: False)
    outcome = carry_out(actor, 7, (Step("reprocess_dlq", {"queue": "alarms", "limit": 2}),), tell=told.append)
    actor.close()
    assert [(one.result, one.has_ended, one.count) for one in told] == [
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


def test_where_answers_are_lost_single_requests_count_as_done_and_pages_as_unknown(daemon: Daemon) -> None:
    keys = dead_letters(daemon, "alarms", 3)
    actor = Link(lambda: Unanswered(str(daemon.ipc)), lambda: False)
    single = carry_out(actor, 1, tuple(Step("reprocess_dlq", {"messageKey": key}) for key in keys[:2]))
    assert (single.result, single.count) == (Result.OK, 2)
    pages = carry_out(actor, 2, (Step("reprocess_dlq", {"queue": "alarms", "limit": 1}),))
    actor.close()
    assert (pages.result, pages.code) == (Result.UNKNOWN, "ERR_ANSWER_LOST")
    assert daemon.counts("alarms") == {"ready": 3}


def test_a_slow_action_is_stopped_and_holds_up_no_other(daemon: Daemon, source: Live) -> None:
    dead_letters(daemon, "alarms", 3)
    watch = Watch(source)
    slow = source.act((Step("reprocess_dlq", {"queue": "alarms", "limit": 100}),), rate=0.001)
    daemon.wait(lambda: daemon.events("reprocessed"), "the first one is reprocessed")
    quick = source.act((Step("pause", {"queue": "alarms", "operation": "consume"}),))
    assert watch.outcome(quick).result is Result.OK
    source.cancel(slow)
    outcome = watch.outcome(slow)
    assert (outcome.result, outcome.count, outcome.has_ended) == (Result.STOPPED, 1, True)
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 2}
    source.cancel(slow)  # of what has ended nothing is left to stop


def test_stopping_the_source_stops_a_slow_action(daemon: Daemon) -> None:
    dead_letters(daemon, "alarms", 2)
    source = _live(daemon, Client)
    source.start()
    source.act((Step("reprocess_dlq", {"queue": "alarms", "limit": 1}),), rate=0.001)
    daemon.wait(lambda: daemon.events("reprocessed"), "the first one is reprocessed")
    source.stop()
    wait_until(lambda: not is_alive(), "all threads have ended")


# --- what is saved before -----------------------------------------------------------------------------------------


def saving(path: Path) -> Save:
    return Save(path, "list_dlq", ({"queue": "alarms", "limit": 2, "fullBodies": True},), "messages")


_RECENT_MS = execution.RECENT_MS
PURGE = Step("purge", {"queue": "alarms", "state": "dead", "limit": 2}, only_saved=True)


def test_what_is_removed_was_saved_before_to_a_file_for_its_owner_only(
    daemon: Daemon, source: Live, tmp_path: Path
) -> None:
    keys = dead_letters(daemon, "alarms", 3)
    path = tmp_path / "saved.jsonl"
    ticket = source.act((saving(path), PURGE))
    outcome = Watch(source).outcome(ticket)
    assert (outcome.result, outcome.count) == (Result.OK, 3)
    assert outcome.text == f"3 were saved to {path}"
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
        outcome = watch.outcome(source.act((saving(wrong), PURGE)))
        assert (outcome.result, outcome.text) == (Result.REFUSED, f"{wrong}: {reason}")
    assert path.read_text() == "an earlier one"
    assert daemon.counts("alarms") == {"dlq": 1}


class BrokenOff(Client):
    """Gives no second page."""

    def send(self, request: Request, *args: Any, **options: Any) -> dict[str, Any]:
        if b'"after"' in request.data:
            raise RequestTimeout("no answer", request)
        return super().send(request, *args, **options)


def test_a_file_that_is_not_whole_is_told_and_nothing_is_removed(daemon: Daemon, tmp_path: Path) -> None:
    dead_letters(daemon, "alarms", 3)
    path = tmp_path / "saved.jsonl"
    actor = Link(lambda: BrokenOff(str(daemon.ipc)), lambda: False)
    outcome = carry_out(actor, 1, (saving(path), PURGE))
    actor.close()
    assert outcome.result is Result.REFUSED
    assert f"not all were saved, only 2, to {path}" in outcome.text
    assert len(path.read_text().splitlines()) == 2
    assert daemon.counts("alarms") == {"dlq": 3}


def test_what_was_published_after_the_saving_is_not_removed(daemon: Daemon, tmp_path: Path) -> None:
    daemon.publish("alarms", "early")

    class Meanwhile(Client):
        """A message comes between saving and removing."""

        def prepare(self, command: str, *args: Any, **options: Any) -> Request:
            if command == "purge":
                daemon.publish("alarms", "late")
            return super().prepare(command, *args, **options)

    actor = Link(lambda: Meanwhile(str(daemon.ipc)), lambda: False)
    browse = Save(tmp_path / "x", "browse", ({"queue": "alarms", "state": "ready", "fullBodies": True},), "messages")
    outcome = carry_out(actor, 1, (browse, Step("purge", {"queue": "alarms", "state": "ready"})))
    actor.close()
    assert (outcome.result, outcome.count) == (Result.OK, 1)
    assert daemon.counts("alarms") == {"ready": 1}
    assert daemon.consume("alarms")["message"]["payload"] == "late"


@pytest.mark.parametrize("recent_ms", [_RECENT_MS, 1000], ids=["by-keys", "by-pages"])
def test_what_died_after_the_saving_is_not_removed_though_it_is_older(
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
    outcome = carry_out(actor, 1, (saving(tmp_path / "x"), PURGE))
    actor.close()
    assert (outcome.result, outcome.count) == (Result.OK, 3)
    assert ("drop_dlq" in commands) == (recent_ms == _RECENT_MS)
    left = [one["messageKey"] for one in daemon.ask("list_dlq", queue="alarms")["messages"]]
    assert left == [apart, receipt(late)["messageKey"]]
    assert daemon.counts("alarms") == {"ready": 1, "dlq": 2}


def test_what_takes_long_tells_how_far_it_has_come(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "TELL_EVERY_S", -1.0)
    dead_letters(daemon, "alarms", 3)
    told: list[Outcome] = []
    actor = Link(lambda: Client(str(daemon.ipc)), lambda: False)
    outcome = carry_out(actor, 1, (saving(tmp_path / "x"), PURGE), tell=told.append)
    actor.close()
    assert outcome.count == 3
    assert [(one.count, one.text) for one in told if one.text] == [(2, "saved so far"), (3, "saved so far")]
    assert [one.count for one in told if not one.text][-1] == 3
    assert {(one.result, one.has_ended) for one in told} == {(Result.RUNNING, False)}


def _youngest_dead_ms(daemon: Daemon) -> int:
    told = daemon.ask("browse", queue="alarms", state="dead")
    return int(min(told["engineNowMs"] - one["diedAtEngineMs"] for one in told["messages"]))


def test_an_answer_to_another_question_of_the_same_name_is_not_given_out(daemon: Daemon, source: Live) -> None:
    daemon.publish("alarms", "x")
    daemon.publish("office", "x")
    source.want("status", "status", {"queue": "alarms"}, 600_000)
    wait_until(lambda: "status" in [line["command"] for line in _traffic(daemon)], "the first question is answered")
    source.want("status", "status", {"queue": "office"}, 600_000)
    answer = Watch(source).until(lambda one: isinstance(one, Answer), "the other one is answered")
    assert isinstance(answer, Answer) and answer.data["queue"] == "office"
