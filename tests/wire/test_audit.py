"""The audit must find what it is there to find: each test breaks one promise in a sound journal."""

from __future__ import annotations

from typing import Any

import pytest

from postroom_common.events import Event
from tests.wire.audit import audit

BY = {"uid": 0, "client": "c", "request": "r"}


def event(type_: str, id_: int, at_ms: int, by: bool = True, **fields: Any) -> Event:
    made: Event = {"id": id_, "epoch": 1, "req": id_, "grp": id_, "engineMs": at_ms, "wallMs": 0, "type": type_}
    made |= {"queue": "q", "key": "k", **fields}
    return made | {"by": BY | {"digest": f"d{id_}"}} if by else made


def story() -> list[Event]:
    """Published, leased, lease over, leased again, acknowledged."""
    return [
        event("published", 1, 0, message={"parts": [{"text": "x"}]}),
        event("leased", 2, 10, lease="l1", consumer="c", untilEngineMs=20, attempt=1),
        event("retried", 3, 20, by=False, lease="l1", dueEngineMs=30),
        event("leased", 4, 30, lease="l2", consumer="c", untilEngineMs=50, attempt=2),
        event("acked", 5, 40, lease="l2", heldMs=10),
    ]


def test_an_intact_journal_passes() -> None:
    ledger = audit(story())
    assert ledger.counts("q") == {}
    assert ledger.totals["q", "acked"] == 1


@pytest.mark.parametrize(
    ("index", "change", "said"),
    [
        (1, {"id": 3}, "follows"),
        (3, {"engineMs": 15}, "goes back"),
        (2, {"type": "clock_marked"}, "is leased while it is inflight"),
        (3, {"engineMs": 25}, "before it was due"),
        (3, {"lease": "l1"}, "given twice"),
        (3, {"attempt": 1}, "after attempt 1"),
        (4, {"lease": "l1"}, "held under l2"),
        (4, {"engineMs": 50}, "late holder"),
        (2, {"engineMs": 19}, "too early"),
        (4, {"by": BY | {"digest": "d4"}}, "executed by 4 and again by 5"),
        (4, {"grp": 6}, "torn"),
        (4, {"n": 2}, "has 1 events"),
    ],
)
def test_a_broken_promise_is_reported(index: int, change: dict[str, Any], said: str) -> None:
    events = story()
    events[index] = events[index] | change
    with pytest.raises(AssertionError, match=said):
        audit(events)


def test_a_message_that_is_published_twice_is_reported() -> None:
    with pytest.raises(AssertionError, match="published twice"):
        audit([*story(), event("published", 6, 60, message={})])


def test_a_message_that_comes_back_after_its_ack_is_reported() -> None:
    with pytest.raises(AssertionError, match="leased while it is gone"):
        audit([*story(), event("leased", 6, 60, lease="l3", consumer="c", untilEngineMs=90, attempt=3)])


# --- dead letters that are leased ---------------------------------------------------------------------------------


def letters() -> list[Event]:
    """Published, leased, dead; its letter leased, kept for longer, its lease over, leased again, acknowledged."""
    return [
        event("published", 1, 0, message={"parts": [{"text": "x"}]}),
        event("leased", 2, 10, lease="l1", consumer="c", untilEngineMs=20, attempt=1),
        event("died", 3, 15, lease="l1", failure={"reasonCode": "REJECTED"}),
        event("leased", 4, 30, lease="l2", consumer="m", untilEngineMs=50, attempt=1),
        event("lease_extended", 5, 40, lease="l2", untilEngineMs=60),
        event("released", 6, 60, by=False, lease="l2", attempt=1, state="dead"),
        event("leased", 7, 70, lease="l3", consumer="m", untilEngineMs=90, attempt=1),
        event("acked", 8, 80, lease="l3", heldMs=10),
    ]


def test_an_intact_journal_of_leased_dead_letters_passes() -> None:
    assert audit(letters()).counts("q") == {}
    assert audit(letters()[:4]).counts("q") == {"dead": 1}


@pytest.mark.parametrize(
    ("index", "change", "said"),
    [
        (3, {"attempt": 2}, "has made 1 attempts"),
        (4, {"lease": "l1"}, "held under l2"),
        (4, {"type": "retried", "dueEngineMs": 90}, "retried of k while it is dead"),
        (4, {"type": "died", "failure": {"reasonCode": "RETRY_LIMIT"}}, "died of k while it is dead"),
        (4, {"type": "dropped", "failure": {"reasonCode": "REJECTED"}}, "dropped of k while it is dead"),
        (4, {"type": "reprocessed"}, "brought back while it is leased"),
        (4, {"type": "leased", "lease": "l9", "consumer": "n", "attempt": 1}, "and again"),
        (4, {"by": None}, "too early"),
        (5, {"state": "ready"}, "came to life"),
        (5, {"attempt": 0}, "has made 1 attempts"),
        (5, {"engineMs": 59}, "too early"),
        (5, {"by": BY | {"digest": "d6"}}, "late holder"),
        (6, {"type": "lease_extended", "lease": "l2"}, "is not leased"),
        (6, {"type": "quarantined", "phase": "quarantined"}, "is not leased"),
        (7, {"by": None}, "too early"),
        (7, {"engineMs": 90, "by": None}, "acknowledged unasked"),
        (7, {"queue": "q.dlq"}, "it is in q"),
    ],
)
def test_a_broken_promise_about_a_leased_dead_letter_is_reported(index: int, change: dict[str, Any], said: str) -> None:
    events = letters()
    events[index] = {name: value for name, value in (events[index] | change).items() if value is not None}
    with pytest.raises(AssertionError, match=said):
        audit(events)


@pytest.mark.parametrize("reason", ["PURGED", "QUEUE_FULL"])
def test_a_leased_dead_letter_is_not_evicted(reason: str) -> None:
    drop = event("dropped", 5, 40, failure={"reasonCode": reason})
    with pytest.raises(AssertionError, match="which is leased"):
        audit([*letters()[:4], drop])
    audit([*letters()[:3], drop | {"id": 4, "req": 4, "grp": 4}])


def test_a_quarantined_dead_letter_is_not_leased() -> None:
    apart = event("quarantined", 4, 20, phase="quarantined")
    leased = event("leased", 5, 30, lease="l2", consumer="m", untilEngineMs=50, attempt=1)
    with pytest.raises(AssertionError, match="that is quarantined"):
        audit([*letters()[:3], apart, leased])
