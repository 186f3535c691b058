"""The daemon's configuration: where values come from, what is corrected, what is refused and how that is said."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from postroom_common.errors import ConfigurationError
from postroom_common.policy import Policy
from postroom_common.settings import split_words
from postroom_daemon.config.config import Config, load
from postroom_daemon.config.settings import SETTINGS, Settings

POLICY: dict[str, Any] = {
    "visibilityTimeoutSec": 45,
    "retry": {"limit": 3, "backoff": "linear", "initialDelaySec": 2, "maxDelaySec": 90},
    "dlq": {"enabled": True, "queue": "telemetry-dlq", "retentionDays": 7},
}

#: Every key that the C++ system knows, none at its default where a choice is free.
COMPLETE: dict[str, Any] = {
    "schemaVersion": "0.2",
    "nodeId": "device-17",
    "backend": "sqlite",
    "mode": "mailbox_sqlite",
    "paths": {"dataRoot": "./storage", "logRoot": "./logs"},
    "ipc": {
        "root": "./box",
        "requestsDir": "in",
        "processingDir": "work",
        "responsesDir": "out",
        "deadDir": "bad",
        "staleTimeoutMs": 10000,
        "pollIntervalMs": 20,
        "useFolderWatcher": False,
    },
    "sqlite": {
        "dbPath": "./storage/queue.db",
        "kvTable": "kv2",
        "messageIndexTable": "index2",
        "schemaPath": "./sqlite_schema.sql",
        "busyTimeoutMs": 1000,
        "journalMode": "WAL",
        "synchronous": "FULL",
    },
    "filesystem": {
        "root": "./storage/files",
        "inboxDir": "i",
        "processingDir": "p",
        "archiveDir": "a",
        "dlqDir": "d",
        "metaDir": "m",
    },
    "hybrid": {"payloadRoot": "./storage/payloads"},
    "lease": {"visibilityTimeoutSec": 20, "sweepIntervalMs": 500},
    "policyDefaults": POLICY,
    "queues": [
        {
            "name": "telemetry",
            "policy": {"retry": {"limit": 9}},
            "messageSchema": {
                "name": "reading",
                "description": "one reading",
                "rules": [
                    {"field": "deviceId", "type": "required", "errorMessage": "who are you?"},
                    {"field": "deviceId", "type": "type", "expectedType": "string"},
                    {"field": "deviceId", "type": "minLength", "value": 1},
                    {"field": "deviceId", "type": "maxLength", "value": 64},
                    {"field": "temp", "type": "minValue", "value": -40.5},
                    {"field": "temp", "type": "maxValue", "value": 125},
                    {"field": "deviceId", "type": "pattern", "value": "dev-[0-9]+"},
                    {"field": "unit", "type": "enum", "values": ["C", "F"]},
                    {"field": "temp", "type": "custom", "validator": "plausible"},
                ],
            },
        },
        {"name": "alarms"},
    ],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def write(root: Path, tree: Any) -> Path:
    root.mkdir(exist_ok=True)
    path = root / "config.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return path


def loaded(root: Path, tree: Any = None, environ: dict[str, str] | None = None, **flags: str) -> Config:
    if tree is not None:
        write(root, tree)
    return load(root, None, environ or {}, {key.replace("__", "."): text for key, text in flags.items()})


def refusal(root: Path, tree: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(root, tree)
    return str(caught.value)


def nested(key: str, value: Any) -> Any:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def test_without_a_file_every_setting_has_its_default(root):
    config = loaded(root)
    assert config.file is None
    assert config.warnings == ()
    assert set(config.sources.values()) == {"default"}
    assert (config.defaults, dict(config.queues)) == ({}, {})
    assert config.settings.sqlite_db_path == root / "data/yirangmq.db"
    assert config.settings.ipc_root == root / "ipc"
    assert config.settings.journal_durability == "commit"


def test_every_key_of_the_cpp_configuration_is_read(root):
    config = loaded(root, COMPLETE)
    shown = config.values()
    for key in SETTINGS:
        group, _, name = key.rpartition(".")
        given = (COMPLETE[group] if group else COMPLETE).get(name) if group in (*COMPLETE, "") else None
        if given is not None:
            assert config.sources[key] == "file"
            is_path = SETTINGS[key].type is Path or key == "paths.logRoot"
            assert shown[key] == (str(root / given) if is_path else given)
    policy = Policy.from_layers(config.defaults).to_wire()
    assert policy["visibilityTimeoutSec"] == POLICY["visibilityTimeoutSec"]
    assert [policy[group] | POLICY[group] for group in ("retry", "dlq")] == [policy["retry"], policy["dlq"]]
    assert config.queues["telemetry"].policy == {"retry.limit": 9}
    assert config.queues["telemetry"].schema == COMPLETE["queues"][0]["messageSchema"]
    assert config.queues["alarms"].policy == {}
    reported = "\n".join(config.warnings)
    unused = [known.key for known in SETTINGS.values() if known.unused]
    for key in [*unused, "messageSchema.rules[8]"]:
        assert key in reported
    assert len(config.warnings) == len(unused) + 1


def test_the_configuration_of_the_cpp_system_gives_warnings_only_for_settings_without_effect(root):
    shipped: dict[str, Any] = json.loads(json.dumps({**COMPLETE, "queues": []}))
    shipped["paths"] = {"dataRoot": "./data", "logRoot": "./logs"}
    shipped["ipc"] |= {"processingDir": "processing", "staleTimeoutMs": 30000}
    shipped["lease"]["sweepIntervalMs"] = 1000
    reported = loaded(root, shipped).warnings
    assert [warning.partition("json: ")[2].partition(":")[0] for warning in reported] == ["sqlite.schemaPath"]


def test_the_attributes_are_the_keys_in_snake_case():
    for item in fields(Settings):
        assert item.name == split_words(item.metadata["setting"].key, "_")


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(root):
    write(root, {"ipc": {"pollIntervalMs": 10}})
    environ = {"POSTROOM_IPC_POLL_INTERVAL_MS": "20"}
    flags = {"ipc.pollIntervalMs": "30"}
    found = [load(root, None, environ, flags), load(root, None, environ, {}), load(root, None, {}, {})]
    assert [config.settings.ipc_poll_interval_ms for config in found] == [30, 20, 10]
    assert [config.sources["ipc.pollIntervalMs"] for config in found] == [
        "flag --ipc-poll-interval-ms",
        "environment POSTROOM_IPC_POLL_INTERVAL_MS",
        "file",
    ]


def test_every_setting_but_the_clients_can_be_set_from_the_environment(root):
    for known in (one for one in SETTINGS.values() if one.by_variable):
        text = "false" if known.type is bool else "other" if known.type is Path else str(known.default)
        config = loaded(root, environ={known.environment: text or "x"})
        assert config.sources[known.key] == f"environment {known.environment}"


def test_the_clients_mailbox_setting_does_not_move_the_daemons_mailbox(root):
    for mailbox, reported in {"/elsewhere/ipc": 1, str(root / "ipc"): 0, "": 0}.items():
        config = loaded(root, environ={"POSTROOM_IPC_ROOT": mailbox})
        assert config.settings.ipc_root == root / "ipc"
        assert len([text for text in config.warnings if "names another mailbox than" in text]) == reported


def test_an_empty_environment_variable_counts_as_unset(root):
    assert loaded(root, environ={"POSTROOM_LOG_LEVEL": ""}).sources["log.level"] == "default"


def test_a_misspelt_environment_variable_is_reported(root):
    (warning,) = loaded(root, environ={"POSTROOM_IPC_ROOOT": "x", "POSTROOM_CLIENT_ID": "c", "PATH": "/bin"}).warnings
    assert "POSTROOM_IPC_ROOOT" in warning


def test_relative_paths_are_relative_to_the_root_from_every_source(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(root, {"ipc": {"root": "a/../b"}})
    environ = {"POSTROOM_JOURNAL_ROOT": "j"}
    config = load(Path("root"), None, environ, {"sqlite.dbPath": "x.db", "traffic.root": "/var/t"})
    assert config.root == root
    assert config.settings.ipc_root == root / "b"
    assert config.settings.journal_root == root / "j"
    assert config.settings.sqlite_db_path == root / "x.db"
    assert config.settings.traffic_root == Path("/var/t")


def test_a_named_file_is_read_instead_of_the_roots_own(root, tmp_path):
    write(root, {"nodeId": "own"})
    other = tmp_path / "other.json"
    other.write_text('{"nodeId": "named"}')
    assert load(root, other, {}, {}).settings.node_id == "named"


def test_a_named_file_must_exist(root, tmp_path):
    with pytest.raises(ConfigurationError, match=r"gone\.json: cannot be read: No such file"):
        load(root, tmp_path / "gone.json", {}, {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ('{"lease": {"sweepIntervalMs": NaN}}', "NaN is not allowed; give a number"),
        ('{"lease": {"visibilityTimeoutSec": -Infinity}}', "-Infinity is not allowed; give a number"),
        ('{"nodeId": "a", "nodeId": "b"}', "'nodeId' stands twice"),
        ('{"journal": {"maxBytes": 1, "maxBytes": 2}}', "'maxBytes' stands twice"),
        ('{"nodeId": "\\ud800"}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "expected object"),
        ("null", "expected object"),
    ],
)
def test_a_file_that_is_not_a_strict_json_object_is_refused_by_name(root, text, reason):
    reported = refusal(root, text)
    assert reported.startswith(f"{root}/config.json: ")
    assert reason in reported


@pytest.mark.parametrize(
    ("tree", "key", "beside"),
    [
        ({"nodeID": "x"}, "nodeID", "nodeId"),
        ({"ipc": {"rooot": "x"}}, "ipc.rooot", "pollIntervalMs"),
        ({"quues": []}, "quues", "queues"),
        ({"policyDefaults": {"retries": 1}}, "policyDefaults.retries", "retry"),
        ({"policyDefaults": {"retry": {"max": 1}}}, "policyDefaults.retry.max", "limit"),
        ({"queues": [{"name": "q", "polic": {}}]}, "queues[0].polic", "policy"),
        ({"queues": [{"name": "q", "messageSchema": {"rule": []}}]}, "queues[0].messageSchema.rule", "rules"),
    ],
)
def test_an_unknown_key_is_refused_naming_its_neighbours(root, tree, key, beside):
    reported = refusal(root, tree)
    assert f"{key}: unknown key; expected one of: " in reported
    assert beside in reported.partition("expected one of")[2]


@pytest.mark.parametrize("key", SETTINGS)
def test_a_wrong_type_is_refused_naming_key_and_expected_type(root, key):
    wrongs: list[Any] = [{"a": 1}, [], None, "text" if SETTINGS[key].type in (int, float, bool) else 5]
    for wrong in wrongs:
        reported = refusal(root, nested(key, wrong))
        assert f"{key}: expected {SETTINGS[key].expected}, got " in reported


@pytest.mark.parametrize(
    ("tree", "place", "expected"),
    [
        ({"ipc": 5}, "ipc", "object"),
        ({"queues": {}}, "queues", "array"),
        ({"queues": [5]}, "queues[0]", "object"),
        ({"queues": [{}]}, "queues[0].name", "string"),
        ({"policyDefaults": []}, "policyDefaults", "object"),
        ({"policyDefaults": {"retry": 3}}, "policyDefaults.retry", "object"),
        ({"policyDefaults": {"retry": {"limit": 2.5}}}, "policyDefaults.retry.limit", "integer"),
        ({"policyDefaults": {"dlq": {"enabled": "yes"}}}, "policyDefaults.dlq.enabled", "boolean"),
        ({"queues": [{"name": "q", "policy": {"visibilityTimeoutSec": "9"}}]}, "policy.visibilityTimeoutSec", "number"),
    ],
)
def test_a_wrong_type_in_policies_and_queues_is_refused_too(root, tree, place, expected):
    assert f"{place}: expected {expected}, got " in refusal(root, tree)


@pytest.mark.parametrize(
    ("policy", "key", "used"),
    [
        ({"visibilityTimeoutSec": 0}, "visibilityTimeoutSec", 30),
        ({"visibilityTimeoutSec": -5}, "visibilityTimeoutSec", 30),
        ({"retry": {"limit": -1}}, "retry.limit", 0),
        ({"retry": {"backoff": "random"}}, "retry.backoff", "exponential"),
        ({"retry": {"initialDelaySec": 0}}, "retry.initialDelaySec", 1),
        ({"retry": {"maxDelaySec": -2}}, "retry.maxDelaySec", 60),
        ({"dlq": {"retentionDays": 0}}, "dlq.retentionDays", 14),
    ],
)
def test_policies_out_of_range_are_corrected_as_in_the_cpp_system(root, policy, key, used):
    tree = {"policyDefaults": policy, "queues": [{"name": "q", "policy": policy}]}
    config = loaded(root, tree)
    assert config.defaults == {key: used}
    assert config.queues["q"].policy == {key: used}
    assert [f"policyDefaults.{key}" in config.warnings[0], f"queues[0].policy.{key}" in config.warnings[1]] == [
        True
    ] * 2


@pytest.mark.parametrize("text", ["nan", "NaN", "-inf", "Infinity"])
def test_a_flag_or_variable_that_is_not_a_finite_number_is_refused(root, text):
    for environ, flags in (
        ({}, {"lease.visibilityTimeoutSec": text}),
        ({"POSTROOM_LEASE_VISIBILITY_TIMEOUT_SEC": text}, {}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load(root, None, environ, flags)
        assert f"lease.visibilityTimeoutSec: {text} is not allowed; expected number" in str(caught.value)


@pytest.mark.parametrize(("value", "used"), [(0, 30), (10**7, 604800)])
def test_an_integer_is_shown_as_an_integer(root, value, used):
    config = loaded(root, {"lease": {"visibilityTimeoutSec": value}})
    assert config.warnings[0].endswith(f": {value} is out of range (0.001 to 604,800), using {used}")
    for shown in (config, loaded(root, {})):
        assert type(shown.values()["lease.visibilityTimeoutSec"]) is int


def test_reversed_delays_are_swapped_with_a_warning(root):
    delays = {"retry": {"initialDelaySec": 100, "maxDelaySec": 10}}
    config = loaded(root, {"queues": [{"name": "q", "policy": delays}]})
    policy = Policy.from_layers(config.defaults, config.queues["q"].policy)
    assert (policy.initial_delay_ms, policy.max_delay_ms) == (10_000, 100_000)
    (warning,) = config.warnings
    assert warning.startswith("queue q: ")
    assert "swapped" in warning


@pytest.mark.parametrize(
    ("key", "given", "used"),
    [
        ("lease.visibilityTimeoutSec", 0, 30),
        ("lease.sweepIntervalMs", 0, 1000),
        ("lease.sweepIntervalMs", -1, 1000),
        ("ipc.pollIntervalMs", 0, 100),
        ("sqlite.busyTimeoutMs", -1, 5000),
        ("sqlite.journalMode", "delete", "WAL"),
        ("sqlite.synchronous", "OFF", "NORMAL"),
        ("limits.requestBytes", 1, 4194304),
        ("limits.requestBytes", 2**40, 67108864),
        ("traffic.sampleEvery", 0, 1),
    ],
)
def test_settings_out_of_range_are_corrected_with_a_warning(root, key, given, used):
    config = loaded(root, nested(key, given))
    assert config.values()[key] == used
    (warning,) = config.warnings
    assert f"{key}: {json.dumps(given)} is out of range ({SETTINGS[key].range}), using " in warning


def test_choices_are_read_in_any_case(root):
    config = loaded(root, {"log": {"level": "DEBUG"}, "sqlite": {"journalMode": "wal"}})
    assert (config.settings.log_level, config.settings.sqlite_journal_mode) == ("debug", "WAL")
    assert config.warnings == ()


@pytest.mark.parametrize("mode", ["mailbox_sqlite", "mailbox_fs", "mailbox_filesystem", "hybrid"])
def test_mode_alone_picks_the_backend(root, mode):
    backend = {"mailbox_sqlite": "sqlite", "hybrid": "hybrid"}.get(mode, "filesystem")
    config = loaded(root, {"mode": mode})
    assert config.settings.backend == backend
    assert config.warnings == ()


def test_backend_beats_mode_and_says_so(root):
    config = loaded(root, {"backend": "memory", "mode": "hybrid"})
    assert config.settings.backend == "memory"
    assert config.warnings == ("mode: hybrid disagrees with backend memory; backend wins",)


@pytest.mark.parametrize("name", ["sqlite", "memory", "filesystem", "fs", "hybrid"])
def test_a_backend_is_recognised_by_each_of_its_names(root, name):
    assert loaded(root, {"backend": name}).settings.backend == {"fs": "filesystem"}.get(name, name)


def test_two_folders_of_the_filesystem_store_cannot_be_one(root):
    reported = refusal(root, {"filesystem": {"inboxDir": "here", "dlqDir": "here"}})
    assert "filesystem.dlqDir: here is already filesystem.inboxDir" in reported


def test_an_unknown_backend_is_refused(root):
    assert "backend: expected one of sqlite, memory, " in refusal(root, {"backend": "redis"})


@pytest.mark.parametrize("name", ["kv; DROP TABLE kv", "1kv", "", "a" * 64, 'kv"', "kv-2"])
def test_table_names_that_are_not_plain_identifiers_are_refused(root, name):
    for key in ("sqlite.kvTable", "sqlite.messageIndexTable"):
        assert f"{key}: expected SQL name" in refusal(root, nested(key, name))


@pytest.mark.parametrize("name", ["../out", "a/b", ".", "..", "", "x\u0000"])
def test_mailbox_directories_are_plain_names(root, name):
    assert "ipc.requestsDir: expected name of a directory" in refusal(root, nested("ipc.requestsDir", name))


def test_a_text_that_is_not_utf8_is_refused_but_a_path_may_be(root):
    with pytest.raises(ConfigurationError, match=r"nodeId: expected string, got .*udcff"):
        loaded(root, environ={"POSTROOM_NODE_ID": "a\udcff"})
    assert loaded(root, environ={"POSTROOM_JOURNAL_ROOT": "a\udcff"}).settings.journal_root == root / "a\udcff"


def test_an_empty_path_is_refused(root):
    assert "ipc.root: expected path" in refusal(root, {"ipc": {"root": ""}})


@pytest.mark.parametrize(
    "tree", [{"ipc": {"requestsDir": "x", "deadDir": "x"}}, {"journal": {"root": "t"}, "traffic": {"root": "./t"}}]
)
def test_two_purposes_cannot_share_a_directory(root, tree):
    assert "give each its own directory" in refusal(root, tree)


@pytest.mark.parametrize(
    "file",
    [
        "journal/00000000000000000001.jsonl",
        "ipc/requests/x.prom",
        "data/yirangmq.db",
        "data/yirangmq.db-wal",
        "data/fs/x/y",
        "config.json",
        "quarantine/x",
        "link/x.prom",
    ],
)
def test_the_metrics_file_may_not_be_a_file_of_the_daemon(root, file):
    (root / "journal").mkdir(parents=True)
    (root / "link").symlink_to("journal")
    assert "the daemon needs" in refusal(root, {"metrics": {"file": file}})
    write(root, {"metrics": {"file": "data/postroom.prom"}})
    assert loaded(root).settings.metrics_file == str(root / "data/postroom.prom")


def make_large_file(path):
    path.touch()
    os.truncate(path, 2**32)


@pytest.mark.parametrize(
    ("make", "reported"),
    [
        (os.mkfifo, "config.json: is not a regular file"),
        (os.mkdir, "config.json: cannot be read: Is a directory"),
        (lambda path: os.symlink("/dev/zero", path), "/dev/zero: is not a regular file"),
        (lambda path: os.symlink("nowhere", path), "nowhere: cannot be read: No such file or directory"),
        (
            lambda path: os.symlink("config.json", path),
            "config.json: cannot be read: Too many levels of symbolic links",
        ),
        (make_large_file, "config.json: is larger than 16,777,216 bytes"),
    ],
)
def test_an_unreadable_configuration_file_is_refused_and_not_ignored(root, make, reported):
    root.mkdir()
    make(root / "config.json")
    with pytest.raises(ConfigurationError, match=re.escape(reported)):
        loaded(root)


def test_the_older_visibility_is_the_default_of_policies_that_set_none(root):
    older = {"lease": {"visibilityTimeoutSec": 12}}
    assert loaded(root, older).defaults == {"visibilityTimeoutSec": 12}
    newer = {**older, "policyDefaults": {"visibilityTimeoutSec": 50}}
    assert loaded(root, newer).defaults == {"visibilityTimeoutSec": 50}


@pytest.mark.parametrize("durability", ["interval", "none"])
def test_less_than_full_durability_is_warned_of(root, durability):
    (warning,) = loaded(root, {"journal": {"durability": durability}}).warnings
    assert "journal.durability" in warning


@pytest.mark.parametrize(
    ("name", "problem"), [("", "must not be empty"), ("a\nb", "control"), ("x" * 257, "256 bytes")]
)
def test_an_invalid_queue_name_is_refused(root, name, problem):
    reported = refusal(root, {"queues": [{"name": name}]})
    assert "queues[0].name" in reported
    assert problem in reported


def test_a_queue_may_be_listed_only_once(root):
    assert 'queues[1].name: "q" occurs twice' in refusal(root, {"queues": [{"name": "q"}, {"name": "q"}]})


def test_a_queue_named_like_another_queues_dead_letter_address_is_reported(root):
    (warning,) = loaded(root, {"queues": [{"name": "q"}, {"name": "q.dlq"}]}).warnings
    assert "q.dlq" in warning


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({"type": "required"}, "field: expected string"),
        ({"field": "f"}, "type: expected string"),
        ({"field": "f", "type": "unique"}, "type: expected one of required, type"),
        ({"field": "f", "type": "type", "expectedType": "date"}, "expectedType: expected one of string, number"),
        ({"field": "f", "type": "type"}, "expectedType: expected string"),
        ({"field": "f", "type": "minLength", "value": "3"}, "value: expected number"),
        ({"field": "f", "type": "pattern", "value": 3}, "value: expected string"),
        ({"field": "f", "type": "enum", "values": [1]}, "values: expected array of strings"),
        ({"field": "f", "type": "enum", "values": []}, "values: expected array of strings"),
        ({"field": "f", "type": "custom"}, "validator: expected string"),
        ({"field": "f", "type": "required", "value": 1}, "value: unknown key"),
    ],
)
def test_an_invalid_rule_of_a_message_schema_is_refused(root, rule, place):
    reported = refusal(root, {"queues": [{"name": "q", "messageSchema": {"rules": [rule]}}]})
    assert f"queues[0].messageSchema.rules[0].{place}" in reported
