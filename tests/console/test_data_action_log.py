"""The log of the actions: on the screen, and in a file."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from postroom_console.data.action_log import LOG_ENTRIES, ActionLog
from postroom_console.data.updates import Outcome, Result


def lines(path: Path) -> list[tuple[str, str, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(one["verb"], one["result"], one["count"]) for one in found]


def test_an_action_is_written_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "state" / "actions.jsonl")
    log.begin(1, "purge", "alarms", "All are removed.")
    assert [entry.result for entry in log.running] == [None]
    entry = log.end(Outcome(1, Result.REFUSED, 3, "ERR_FORBIDDEN", "not you"))
    assert entry and (entry.result, entry.changed, entry.text) == (Result.REFUSED, 3, "ERR_FORBIDDEN not you")
    assert (log.running, list(log.entries)) == ([], [entry])
    assert lines(tmp_path / "state" / "actions.jsonl") == [("purge", "begun", 0), ("purge", "refused", 3)]


def test_the_file_is_for_its_owner_only_and_says_who_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state" / "actions.jsonl"
    ActionLog(path).begin(1, "pause", "수집\x1b[2J", "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    (line,) = path.read_text().splitlines()
    assert line.isprintable()
    assert {"wallMs", "uid", "user", "ssh", "queue", "what", "text"} <= set(json.loads(line))


def test_an_unknown_outcome_is_logged_and_the_action_continues(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    log.begin(1, "pause", "alarms", "")
    log.end(Outcome(1, Result.UNKNOWN, 0, "", "no answer", has_ended=False))
    assert [entry.result for entry in log.running] == [Result.UNKNOWN]
    assert log.running_tickets == [1]
    log.end(Outcome(1, Result.OK, 1))
    assert (log.running, log.entries[-1].result) == ([], Result.OK)
    assert [result for _, result, _ in lines(tmp_path / "log")] == ["begun", "unknown", "ok"]


def test_other_outcomes_are_not_logged(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    assert log.end(Outcome(9, Result.OK)) is None
    assert not (tmp_path / "log").exists()


def test_an_unwritable_log_is_reported_and_actions_still_work(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    log = ActionLog(tmp_path / "link")
    log.begin(1, "pause", "alarms", "")
    assert log.problem.startswith(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()
    assert log.end(Outcome(1, Result.OK))


def test_the_screen_shows_the_last_actions() -> None:
    log = ActionLog(None)
    for ticket in range(LOG_ENTRIES + 10):
        log.begin(ticket, "pause", str(ticket), "")
        log.end(Outcome(ticket, Result.OK))
    assert (len(log.entries), log.entries[0].queue) == (LOG_ENTRIES, "10")


def test_half_a_line_left_by_a_full_disk_is_reported_and_spoils_no_other(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    log.begin(1, "pause", "alarms", "")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "log").stat().st_size + 20, before[1]))
    try:
        log.begin(2, "pause", "office", "")
        assert log.problem == f"{tmp_path / 'log'}: No space left on device"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.begin(3, "pause", "site", "")
    first, half, last = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["queue"] for line in (first, last)] == ["alarms", "site"]
    assert len(half) == 20


def test_a_name_with_strange_bytes_is_logged_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "andr\udce9")
    log = ActionLog(tmp_path / "log")
    log.begin(1, "pause", "alarms", "")
    assert not log.problem and lines(tmp_path / "log") == [("pause", "begun", 0)]


def test_the_progress_of_an_action_is_shown_and_not_logged(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    log.begin(1, "purge", "alarms", "")
    log.end(Outcome(1, Result.RUNNING, 7, has_ended=False))
    assert [(entry.result, entry.changed) for entry in log.running] == [(Result.RUNNING, 7)]
    assert lines(tmp_path / "log") == [("purge", "begun", 0)]
