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


def test_a_sound_journal_passes() -> None:
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
def test_a_broken_promise_is_found(index: int, change: dict[str, Any], said: str) -> None:
    events = story()
    events[index] = events[index] | change
    with pytest.raises(AssertionError, match=said):
        audit(events)


def test_a_message_that_is_published_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="published twice"):
        audit([*story(), event("published", 6, 60, message={})])


def test_a_message_that_comes_back_after_its_ack_is_found() -> None:
    with pytest.raises(AssertionError, match="leased while it is gone"):
        audit([*story(), event("leased", 6, 60, lease="l3", consumer="c", untilEngineMs=90, attempt=3)])
