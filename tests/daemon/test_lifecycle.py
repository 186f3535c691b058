"""The table of transitions, and the arithmetic of retries."""

from __future__ import annotations

from itertools import product

import pytest

from postroom_common.events import EventType
from postroom_common.policy import Policy, read_layer
from postroom_common.protocol import State
from postroom_daemon.model.lifecycle import TRANSITIONS, IllegalTransition, attempts_left, backoff_ms, check_transition
from tests.table import table

#: Everything that may happen to a message, written down independently.
LEGAL = {
    ("published", None, "ready"),
    ("published", None, "delayed"),
    ("published", None, "gathering"),
    ("published", None, "drafting"),
    ("part_appended", "gathering", "gathering"),
    ("part_set", "drafting", "drafting"),
    ("part_set", "drafting", "ready"),
    ("part_set", "ready", "ready"),
    ("part_set", "delayed", "delayed"),
    ("body_set", "inflight", "inflight"),
    ("body_set", "dead", "dead"),
    ("leased", "ready", "inflight"),
    ("leased", "delayed", "inflight"),  # due: that it became ready is no event
    ("leased", "gathering", "inflight"),  # due, likewise
    ("leased", "dead", "dead"),  # by the name of its queue's dead letters
    ("lease_extended", "inflight", "inflight"),
    ("lease_extended", "dead", "dead"),
    ("activated", "inflight", "inflight"),
    ("acked", "inflight", None),
    ("acked", "inflight", "done"),  # it is kept
    ("acked", "dead", None),
    ("released", "inflight", "ready"),
    ("released", "dead", "dead"),
    ("retried", "inflight", "delayed"),
    ("died", "inflight", "dead"),
    ("died", "ready", "dead"),  # its body is lost, its time is over, or it should not have been published
    ("died", "delayed", "dead"),
    ("died", "gathering", "dead"),
    ("died", "held", "dead"),  # abandoned, as all others may be
    ("died", "dead", "dead"),
    ("died", "done", "dead"),
    ("died", "drafting", "dead"),  # its body is lost
    ("dropped", "inflight", None),
    ("dropped", "ready", None),
    ("dropped", "delayed", None),
    ("dropped", "gathering", None),
    ("dropped", "drafting", None),
    ("dropped", "held", None),
    ("dropped", "dead", None),
    ("dropped", "done", None),
    ("reprocessed", "dead", "ready"),
    ("held", "ready", "held"),
    ("held", "delayed", "held"),
    ("held", "gathering", "held"),  # due, likewise
    ("unheld", "held", "ready"),
    ("unheld", "held", "delayed"),
    ("moved", "ready", "ready"),
    ("moved", "delayed", "delayed"),
    ("moved", "gathering", "gathering"),
    ("moved", "held", "held"),
    ("retargeted", "ready", "ready"),
    ("retargeted", "delayed", "delayed"),
    ("rescheduled", "delayed", "delayed"),
    ("quarantined", "dead", "dead"),
}
STATES: tuple[State | None, ...] = (None, *State)


def policy(backoff: str, initial: float, longest: float, limit: int = 5) -> Policy:
    retry = {"backoff": backoff, "initialDelaySec": initial, "maxDelaySec": longest, "limit": limit}
    return Policy.from_layers(read_layer({"retry": retry}, "policy", lambda text: None))


@table("before, event, after", {str(row): row for row in product(STATES, TRANSITIONS, STATES)})
def test_a_transition_is_allowed_exactly_if_it_is_on_the_list(
    before: State | None, event: EventType, after: State | None
) -> None:
    if (event.value, before and before.value, after and after.value) in LEGAL:
        check_transition(before, event, after)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(before, event, after)


@pytest.mark.parametrize(
    ("backoff", "initial", "longest", "attempt", "expected"),
    [
        ("exponential", 2, 60, 1, 2000),
        ("exponential", 1, 60, 4, 8000),
        ("exponential", 1, 10, 5, 10_000),
        ("exponential", 1, 60, 10**9, 60_000),
        ("linear", 3, 60, 2, 6000),
        ("linear", 3, 10, 4, 10_000),
        ("fixed", 5, 60, 1, 5000),
        ("fixed", 5, 60, 99, 5000),
        ("exponential", 0.5, 60, 2, 1000),
        ("linear", 1, 60, 0, 1000),
    ],
)
def test_the_wait_before_a_retry(backoff: str, initial: float, longest: float, attempt: int, expected: int) -> None:
    assert backoff_ms(policy(backoff, initial, longest), attempt) == expected


@pytest.mark.parametrize(
    ("limit", "attempt", "spent"), [(3, 2, False), (3, 3, True), (3, 4, True), (0, 1, True), (1, 1, True)]
)
def test_the_limit_is_the_number_of_deliveries(limit: int, attempt: int, spent: bool) -> None:
    assert (attempts_left(policy("fixed", 1, 1, limit), 0, attempt) == 0) is spent


def test_the_own_limit_of_a_message_goes_before_that_of_its_policy() -> None:
    assert [attempts_left(policy("fixed", 1, 1, 5), 2, attempt) for attempt in (0, 1, 2, 3)] == [2, 1, 0, 0]
