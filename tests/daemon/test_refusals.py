"""How many refusals of a user are logged, and that none is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom_common.codec import Request as WireRequest
from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Answer, Request
from postroom_daemon.observe.traffic import WINDOW_MS, Refusals, TrafficLog
from postroom_daemon.platform.files import Files


def test_refusals_of_each_user_are_limited_per_minute_and_the_next_one_counts_the_omitted() -> None:
    refusals = Refusals(per_minute=2)
    reported = [refusals.admit("7", now) for now in (0, 1, 2, 3, 4)]
    assert reported == [0, 0, None, None, None]
    assert refusals.admit("8", 4) == 0
    assert refusals.admit("7", WINDOW_MS - 1) is None
    assert [refusals.admit("7", WINDOW_MS), refusals.admit("7", WINDOW_MS)] == [4, 0]
    assert refusals.suppressed == 4


def test_without_a_limit_no_refusal_is_omitted() -> None:
    refusals = Refusals(per_minute=0)
    assert [refusals.admit("7", 0) for _ in range(100)] == [0] * 100


def test_any_number_of_users_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom_daemon.observe.traffic.ACCOUNTS_LIMIT", 10)
    refusals = Refusals(per_minute=1)
    assert [refusals.admit(str(uid), 0) for uid in range(100)] == [0] * 100
    assert refusals.admit(str(99), 0) is None
    assert [refusals.admit(str(uid), WINDOW_MS) for uid in range(200, 210)] == [0] * 10


def test_a_batch_with_too_many_refusals_has_its_usual_line(tmp_path: Path) -> None:
    log = TrafficLog(tmp_path, Files(), 10**6, 2, sample_every=2, refusals=Refusals(per_minute=1))
    for number, code in enumerate(["ERR_FORBIDDEN", "ERR_FORBIDDEN", "", ""]):
        request = Request(WireRequest(str(number), "c", "ack_batch", 0, {}), Principal("c", 7), None, 0, print)
        request.refusals = 1
        error = CommandError(ErrorCode.FORBIDDEN, "refused") if code else None
        log.add_all([(request, Answer(error=error))], 0, 5)
    log.close()
    (path,) = tmp_path.iterdir()
    assert [json.loads(text)["request"] for text in path.read_text().splitlines()] == ["0", "3"]
