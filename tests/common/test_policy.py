"""Policies: layers, corrections, and error texts that name the key."""

from __future__ import annotations

import pytest

from postroom_common.errors import ConfigurationError
from postroom_common.policy import Policy, dlq_name, read_layer
from postroom_common.policy_keys import POLICY_KEYS

#: What an unknown key is told that there is.
TOP_LEVEL = (
    "abandon, deduplication, dlq, done, draftingSec, expireAfterIdleSec, gatherWindowSec, kind, limits, log,"
    " orderedSec, pipe, priority, retry, statistics, targetFallbackSec, ttlAction, ttlSec, validation,"
    " visibilityTimeoutSec"
)


def read(policy):
    warnings: list[str] = []
    return read_layer(policy, "policy", warnings.append), warnings


def test_without_layers_the_defaults_apply():
    assert Policy.from_layers().to_wire() == {
        "visibilityTimeoutSec": 30,
        "retry": {
            "limit": 5, "backoff": "exponential", "initialDelaySec": 1, "maxDelaySec": 60, "jitter": 0,
            "sameReasonLimit": 0, "returnTo": "place", "nackCounts": True,
        },
        "dlq": {"enabled": True, "queue": "", "retentionDays": 14, "maxMessages": 0},
        "gatherWindowSec": 0,
        "orderedSec": 0,
        "done": {"keep": "none", "retentionDays": 0, "maxMessages": 0},
        "abandon": {"keep": "message"},
        "draftingSec": 0,
        "ttlSec": 0,
        "ttlAction": "dead-letter",
        "targetFallbackSec": 0,
        "priority": {"oldestEvery": 0},
        "limits": {
            "messages": 0, "bytes": 0, "messageBytes": 0, "inflight": 0, "inflightPerConsumer": 0, "publishPerSec": 0,
            "overflow": "reject",
        },
        "deduplication": {"mode": "off", "windowSec": 300, "content": False},
        "validation": {"schema": {}, "onFailure": "reject"},
        "statistics": {"enabled": False},
        "expireAfterIdleSec": 0,
        "kind": "queue",
        "log": {
            "retentionHours": 0, "retentionBytes": 0, "keepUnread": True, "segmentBytes": 67108864, "expireAtMs": 0,
        },
        "pipe": {"to": []},
    }  # fmt: skip


def test_what_a_policy_shows_can_be_set_again_and_shows_the_same():
    layer, _ = read({"visibilityTimeoutSec": 0.25, "retry": {"limit": 2, "backoff": "fixed"}, "dlq": {"queue": "d"}})
    shown = Policy.from_layers(layer).to_wire()
    again, warnings = read(shown)
    assert Policy.from_layers(again).to_wire() == shown
    assert warnings == []


def test_a_later_layer_covers_only_the_keys_it_sets():
    below, _ = read({"retry": {"limit": 2, "backoff": "linear"}, "visibilityTimeoutSec": 5})
    above, _ = read({"retry": {"limit": 9}})
    policy = Policy.from_layers(below, above)
    assert (policy.retry_limit, policy.backoff, policy.visibility_ms) == (9, "linear", 5000)


@pytest.mark.parametrize(
    ("policy", "path", "used"),
    [
        ({"visibilityTimeoutSec": 0}, "visibilityTimeoutSec", 30),
        ({"visibilityTimeoutSec": -1}, "visibilityTimeoutSec", 30),
        ({"retry": {"limit": -3}}, "retry.limit", 0),
        ({"retry": {"backoff": "sometimes"}}, "retry.backoff", "exponential"),
        ({"retry": {"initialDelaySec": 0}}, "retry.initialDelaySec", 1),
        ({"retry": {"maxDelaySec": -2.5}}, "retry.maxDelaySec", 60),
        ({"dlq": {"retentionDays": 0}}, "dlq.retentionDays", 14),
    ],
)
def test_a_value_out_of_range_is_corrected_with_a_warning_that_names_it(policy, path, used):
    layer, (warning,) = read(policy)
    assert layer == {path: used}
    assert f"policy.{path}" in warning


@pytest.mark.parametrize(
    ("policy", "path", "expected"),
    [
        ({"visibilityTimeoutSec": "30"}, "visibilityTimeoutSec", "number"),
        ({"visibilityTimeoutSec": True}, "visibilityTimeoutSec", "number"),
        ({"retry": {"limit": 1.5}}, "retry.limit", "integer"),
        ({"retry": {"limit": None}}, "retry.limit", "integer"),
        ({"retry": 5}, "retry", "object"),
        ({"retry": {"backoff": 1}}, "retry.backoff", "exponential, linear, fixed"),
        ({"dlq": {"enabled": 1}}, "dlq.enabled", "boolean"),
        ({"dlq": {"queue": "a\nb"}}, "dlq.queue", "control characters"),
        ({"dlq": {"queue": "é" * 129}}, "dlq.queue", "256 bytes"),
        ({"dlq": {"colour": 1}}, "dlq.colour", "enabled, maxMessages, queue, retentionDays"),
        ({"colour": 1}, "colour", TOP_LEVEL),
        ({"retry.limit": 5}, "retry.limit", TOP_LEVEL),
    ],
)
def test_a_wrong_type_or_key_is_refused_naming_the_key_and_what_is_expected(policy, path, expected):
    with pytest.raises(ConfigurationError) as caught:
        read(policy)
    assert f"policy.{path}" in str(caught.value)
    assert expected in str(caught.value)


def test_reversed_delays_are_swapped():
    layer, _ = read({"retry": {"initialDelaySec": 90, "maxDelaySec": 10}})
    policy = Policy.from_layers(layer)
    assert (policy.initial_delay_ms, policy.max_delay_ms) == (10_000, 90_000)


def test_the_dead_letter_name_is_the_queues_unless_the_policy_says_otherwise():
    assert dlq_name("orders", Policy.from_layers()) == "orders.dlq"
    assert dlq_name("orders", Policy.from_layers({"dlq.queue": "graveyard"})) == "graveyard"


def test_every_default_passes_its_own_check():
    for key in POLICY_KEYS:
        warnings: list[str] = []
        assert key.check(key.default, key.key, warnings.append) == key.default
        assert warnings == []
