"""A setting read from a file, the environment or a flag: used, corrected, or refused with its name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from postroom_common.errors import ConfigurationError
from postroom_common.settings import Setting, flatten

LIMIT = Setting("ipc.staleTimeoutMs", int, 30_000, "help", low=1, high=60_000)
RATIO = Setting("log.sample", float, 0.5, "help", low=0)
FLAG = Setting("log.on", bool, True, "help")
LEVEL = Setting("log.level", str, "info", "help", choices=("debug", "info"), corrected=("trace",))
PLACE = Setting("data.path", Path, "data", "help")
TABLE = {setting.key: setting for setting in (LIMIT, RATIO, FLAG, LEVEL, PLACE)}


def check(setting, value):
    warnings: list[str] = []
    return setting.check(value, "file: " + setting.key, warnings.append), warnings


def parse(setting, text):
    warnings: list[str] = []
    return setting.parse(text, setting.environment, warnings.append), warnings


def test_its_names_follow_from_its_key():
    assert LIMIT.environment == "POSTROOM_IPC_STALE_TIMEOUT_MS"
    assert LIMIT.flag == "--ipc-stale-timeout-ms"


@pytest.mark.parametrize(
    ("setting", "value", "used"),
    [(LIMIT, 1, 1), (RATIO, 1, 1), (RATIO, 0.25, 0.25), (FLAG, False, False), (LEVEL, "DEBUG", "debug")],
)
def test_a_valid_value_is_used_without_a_warning(setting, value, used):
    assert check(setting, value) == (used, [])


def test_a_text_becomes_a_path():
    assert check(PLACE, "/a/b") == (Path("/a/b"), [])


@pytest.mark.parametrize(
    ("setting", "value", "used"),
    [(LIMIT, 0, 30_000), (LIMIT, 10**9, 60_000), (RATIO, -1, 0.5), (LEVEL, "trace", "info")],
)
def test_a_value_out_of_range_is_corrected_with_a_warning(setting, value, used):
    result, (warning,) = check(setting, value)
    assert result == used
    assert warning.startswith("file: " + setting.key)


@pytest.mark.parametrize(
    ("setting", "value"),
    [(LIMIT, "5"), (LIMIT, 5.0), (LIMIT, True), (RATIO, "x"), (FLAG, 1), (LEVEL, "loud"), (LEVEL, 1), (PLACE, "")],
)
def test_an_unusable_value_is_refused_naming_the_key_and_what_is_expected(setting, value):
    with pytest.raises(ConfigurationError) as caught:
        check(setting, value)
    assert setting.key in str(caught.value)
    assert setting.expected in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "text", "used"),
    [(LIMIT, "77", 77), (RATIO, "0.25", 0.25), (FLAG, "No", False), (FLAG, "1", True), (LEVEL, "Info", "info")],
)
def test_a_text_from_the_environment_is_read(setting, text, used):
    assert parse(setting, text) == (used, [])


@pytest.mark.parametrize(("setting", "text"), [(LIMIT, "many"), (LIMIT, ""), (RATIO, "half"), (FLAG, "maybe")])
def test_an_invalid_text_is_refused_naming_its_source(setting, text):
    with pytest.raises(ConfigurationError) as caught:
        parse(setting, text)
    assert setting.environment in str(caught.value)


def test_a_number_of_any_length_is_corrected():
    assert parse(LIMIT, "9" * 400)[0] == 60_000
    assert parse(LIMIT, "-" + "9" * 400)[0] == 30_000


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_a_number_is_always_finite(text):
    used, warnings = parse(RATIO, text)
    assert math.isfinite(used)
    assert warnings


def test_a_setting_without_effect_says_so_when_it_is_set():
    setting = Setting("a", int, 1, "help", unused="the kernel decides")
    assert check(setting, 1) == (1, [])
    assert "the kernel decides" in check(setting, 2)[1][0]


def test_a_tree_is_flattened_in_its_order():
    tree = {"log": {"level": "info", "on": True}, "ipc": {"staleTimeoutMs": 5}, "queues": [1]}
    assert list(flatten(tree, TABLE, "", ("queues",)).items()) == [
        ("log.level", "info"),
        ("log.on", True),
        ("ipc.staleTimeoutMs", 5),
    ]


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"log": {"lvl": 1}}, ("file: log.lvl", "level, on, sample")),
        ({"lgo": {}}, ("file: lgo", "data, ipc, log, queues")),
        ({"log": []}, ("file: log", "expected object")),
        ({"log.level": "info"}, ("file: log.level", "data, ipc, log, queues")),
        ({"": 1}, ("file: ", "unknown key")),
    ],
)
def test_an_unknown_key_is_refused_naming_its_neighbours(tree, named):
    with pytest.raises(ConfigurationError) as caught:
        flatten(tree, TABLE, "file: ", ("queues",))
    for text in named:
        assert text in str(caught.value)
