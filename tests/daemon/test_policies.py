"""Which policy is in force for a queue, by name and by pattern, and the reported origin of each key."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_common.errors import ConfigurationError
from postroom_common.policy_keys import POLICY_KEYS
from postroom_common.settings import Setting
from postroom_daemon.cli import main
from postroom_daemon.config.config import Config, load
from postroom_daemon.model.records import QueueRecord
from postroom_daemon.policy.policies import Policies
from tests.conformance.bench import Bench

TREE = {
    "policyDefaults": {"ttlSec": 9, "retry": {"limit": 9}},
    "queues": [
        {"pattern": "sensor\\..*", "policy": {"retry": {"limit": 2}, "visibilityTimeoutSec": 7}},
        {"pattern": "sensor\\.hot.*|alarm", "policy": {"retry": {"limit": 3}}},
        {"name": "sensor.hot", "policy": {"visibilityTimeoutSec": 8}},
    ],
}


def configured(root: Path, tree: Any = TREE) -> Config:
    (root / "config.json").write_text(json.dumps(tree))
    return load(root, None, {}, {})


@pytest.fixture
def policies(tmp_path: Path) -> Policies:
    return made_of(configured(tmp_path))


def made_of(config: Config) -> Policies:
    return Policies(config.defaults, config.queues, config.patterns)


def with_override(queue: str, **layer: Any) -> QueueRecord:
    record = QueueRecord(queue)
    record.override = layer
    return record


@pytest.mark.parametrize(
    ("queue", "limit", "lease_ms"),
    [
        ("alarm", 3, 30_000),
        ("alarms", 9, 30_000),
        ("sensor.", 2, 7000),
        ("sensor.hot", 2, 8000),
        ("sensor.hotter", 2, 7000),
        ("my sensor.hot", 9, 30_000),
        ("Sensor.hot", 9, 30_000),
    ],
)
def test_the_first_pattern_that_matches_the_whole_name_counts_and_the_exact_name_overrides_it(
    policies, queue, limit, lease_ms
):
    policy = policies.effective(queue, None)
    assert (policy.retry_limit, policy.visibility_ms, policy.ttl_ms) == (limit, lease_ms, 9000)


def test_a_policy_set_at_run_time_overrides_all(policies):
    record = with_override("sensor.hot", visibilityTimeoutSec=1)
    assert policies.effective("sensor.hot", record).visibility_ms == 1000
    record.override = {}
    assert policies.effective("sensor.hot", record).visibility_ms == 8000


def test_each_key_is_shown_with_its_value_and_its_origin(policies):
    reported = policies.explain("sensor.hot", {"ttlSec": 0, "dlq.enabled": False})
    assert set(reported) == {key.key for key in POLICY_KEYS}
    assert reported["visibilityTimeoutSec"] == {"value": 8, "layer": "name", "name": "sensor.hot"}
    assert reported["retry.limit"] == {"value": 2, "layer": "pattern", "pattern": "sensor\\..*"}
    assert reported["ttlSec"] == {"value": 0, "layer": "override"}
    assert reported["dlq.enabled"] == {"value": False, "layer": "override"}
    assert reported["retry.backoff"] == {"value": "exponential", "layer": "default"}
    assert policies.explain("other", {})["ttlSec"] == {"value": 9, "layer": "policyDefaults"}


def test_swapped_delays_are_shown_with_their_origins_swapped(policies):
    reported = policies.explain("other", {"retry.initialDelaySec": 90})
    assert reported["retry.initialDelaySec"] == {"value": 60, "layer": "default"}
    assert reported["retry.maxDelaySec"] == {"value": 90, "layer": "override"}


def test_the_explained_policy_is_the_one_in_force(policies):
    for queue in ("alarm", "sensor.hot", "sensor.cold", "x"):
        layer = {"retry.initialDelaySec": 90.5, "validation.schema": {"type": "object"}}
        wire = policies.resulting(queue, layer).to_wire()
        for key, one in policies.explain(queue, layer).items():
            group, _, name = key.rpartition(".")
            assert one["value"] == (wire[group] if group else wire)[name]


def test_a_message_schema_comes_from_the_name_or_else_from_the_pattern(tmp_path):
    rule = {"rules": [{"field": "temp", "type": "required"}]}
    other = {"rules": [{"field": "name", "type": "required"}]}
    tree = {
        "queues": [
            {"pattern": "s.*", "messageSchema": rule},
            {"name": "s1", "messageSchema": other},
            {"name": "s2", "policy": {"ttlSec": 1}},
        ]
    }
    policies = made_of(configured(tmp_path, tree))

    def faults(queue: str) -> list[str]:
        checks = policies.checks(queue, policies.effective(queue, None))
        return [fault for check in checks for fault in check.problems({})]

    assert ["temp" in fault for fault in faults("s2")] == [True]
    assert ["name" in fault for fault in faults("s1")] == [True]
    assert ["temp" in fault for fault in faults("s3")] == [True]
    assert faults("other") == []


@pytest.mark.parametrize(
    ("entry", "reported"),
    [
        ({"pattern": "("}, "queues[0].pattern: '(' is not a regular expression"),
        ({"pattern": "a)|(b"}, "queues[0].pattern: "),
        ({"pattern": "(a)\\1"}, "queues[0].pattern: "),
        ({"pattern": "(?=a)b"}, "queues[0].pattern: "),
        ({"pattern": 5}, "queues[0].pattern: expected string, got 5"),
        ({"pattern": "a", "name": "a"}, "queues[0]: has a name and a pattern"),
        ({"pattern": "a", "policy": {"ttl": 5}}, "queues[0].policy.ttl: unknown key"),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_place(tmp_path, entry, reported):
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, {"queues": [entry]})
    assert reported in str(caught.value)


def test_a_pattern_may_be_listed_only_once(tmp_path):
    with pytest.raises(ConfigurationError, match=r'queues\[1\].pattern: "a" occurs twice'):
        configured(tmp_path, {"queues": [{"pattern": "a"}, {"pattern": "a"}]})


def test_a_name_may_be_written_like_a_pattern(tmp_path):
    config = configured(tmp_path, {"queues": [{"pattern": "a"}, {"name": "a"}]})
    assert (list(config.queues), [one.text for one in config.patterns]) == (["a"], ["a"])


def test_reversed_delays_of_a_pattern_are_warned_of(tmp_path):
    tree = {"queues": [{"pattern": "a.*", "policy": {"retry": {"initialDelaySec": 90}}}, {"name": "ab"}]}
    assert [warning.partition(":")[0] for warning in configured(tmp_path, tree).warnings] == ["queue ab", "pattern a.*"]


def test_dead_letter_addresses_given_by_patterns_are_reserved(tmp_path):
    tree = {"queues": [{"pattern": "a.*", "policy": {"dlq": {"queue": "graveyard"}}}]}
    assert made_of(configured(tmp_path, tree)).dlq_names == {"graveyard"}


def test_a_pattern_made_to_take_for_ever_is_fast(tmp_path):
    # An engine that tries one way after the other would not come to an end with this.
    policies = made_of(configured(tmp_path, {"queues": [{"pattern": "(a*)*(a|aa)+b", "policy": {"ttlSec": 1}}]}))
    assert policies.effective("a" * 256, None).ttl_ms == 0
    assert policies.effective("a" * 255 + "b", None).ttl_ms == 1000


@pytest.mark.interpreted  # vars() shows no attributes of a compiled class
def test_any_number_of_queues_shares_a_few_policies(policies):
    """The cache holds thousands of names, not a policy for each queue that there is or that somebody asked for."""
    found = {id(policies.effective(f"sensor.{number}", QueueRecord(f"sensor.{number}"))) for number in range(20_000)}
    found |= {id(policies.effective(f"other {number}", None)) for number in range(20_000)}
    assert len(found) == 2
    for number in range(10_000):
        policies.effective(f"own {number}", with_override(f"own {number}", ttlSec=number))
    caches = [value for value in vars(policies).values() if isinstance(value, dict)]
    assert max(map(len, caches)) <= 4096
    assert sum(map(sys.getsizeof, caches)) < 1_000_000


def test_check_config_shows_the_policy_of_a_name_and_the_origin_of_each_key(tmp_path):
    configured(tmp_path)
    shown = CliRunner().invoke(main, ["check-config", "--root", str(tmp_path), "--queue", "sensor.hot"])
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert shown.exit_code == 0
    assert 'visibilityTimeoutSec 8 name "sensor.hot"' in lines
    assert 'retry.limit 2 pattern "sensor\\\\..*"' in lines
    assert "ttlSec 9 policyDefaults" in lines
    assert 'retry.backoff "exponential" default' in lines
    assert len(lines) == len(POLICY_KEYS)


def test_check_config_shows_it_as_json_too(tmp_path):
    configured(tmp_path)
    shown = CliRunner().invoke(main, ["check-config", "--root", str(tmp_path), "--queue", "alarm", "--json"])
    reported = json.loads(shown.stdout)
    assert (reported["ok"], reported["queue"], set(reported["explanation"])) == (
        True,
        "alarm",
        {key.key for key in POLICY_KEYS},
    )
    assert reported["explanation"]["retry.limit"] == {"value": 3, "layer": "pattern", "pattern": "sensor\\.hot.*|alarm"}


def test_check_config_refuses_a_name_that_no_queue_can_have(tmp_path):
    shown = CliRunner().invoke(main, ["check-config", "--root", str(tmp_path), "--queue", "a\nb"])
    assert (shown.exit_code, "--queue" in shown.stderr) == (2, True)


def test_check_config_lists_the_patterns_with_their_policies(tmp_path):
    configured(tmp_path)
    shown = json.loads(CliRunner().invoke(main, ["check-config", "--root", str(tmp_path), "--json"]).stdout)
    assert shown["patterns"]["sensor\\..*"]["policy"]["retry"]["limit"] == 2
    assert shown["queues"]["sensor.hot"]["policy"]["retry"]["limit"] == 2


@pytest.mark.parametrize(
    "known", [one for one in POLICY_KEYS if one.low is not None or one.choices], ids=lambda one: one.key
)
def test_a_value_out_of_range_is_refused_with_what_it_may_be(bench: Bench, known: Setting) -> None:
    wrong: Any = "mauve" if known.choices else -1
    for name in reversed(known.key.split(".")):
        wrong = {name: wrong}
    error = bench.send("set_policy", queue="q", policy=wrong).answer.error
    assert error and f"policy.{known.key}: " in error.message and known.range in error.message
