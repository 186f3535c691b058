"""What was done from here: on the screen, and in a file."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_an_unknown_outcome_is_told_and_the_action_goes_on(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    log.begin(1, "pause", "alarms", "")
    log.end(Outcome(1, Result.UNKNOWN, 0, "", "no answer", has_ended=False))
    assert [entry.result for entry in log.running] == [Result.UNKNOWN]
    assert log.running_tickets == [1]
    log.end(Outcome(1, Result.OK, 1))
    assert (log.running, log.entries[-1].result) == ([], Result.OK)
    assert [result for _, result, _ in lines(tmp_path / "log")] == ["begun", "unknown", "ok"]


def test_an_outcome_of_something_else_is_no_entry(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "log")
    assert log.end(Outcome(9, Result.OK)) is None
    assert not (tmp_path / "log").exists()


def test_a_log_that_cannot_be_written_is_told_and_keeps_nobody_from_acting(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    log = ActionLog(tmp_path / "link")
    log.begin(1, "pause", "alarms", "")
    assert log.problem.startswith(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()
    assert log.end(Outcome(1, Result.OK))


def test_the_screen_keeps_the_last_ones() -> None:
    log = ActionLog(None)
    for ticket in range(LOG_ENTRIES + 10):
        log.begin(ticket, "pause", str(ticket), "")
        log.end(Outcome(ticket, Result.OK))
    assert (len(log.entries), log.entries[0].queue) == (LOG_ENTRIES, "10")
