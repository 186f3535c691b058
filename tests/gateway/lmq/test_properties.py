"""LMQ's properties and the policies behind them."""

from __future__ import annotations

import pytest

from postroom_gateway.dialects.lmq.properties import (
    RESET,
    SYSTEM,
    InvalidProperties,
    default_from_rpc,
    default_policy,
    encode_default_properties,
    encode_properties,
    from_patterns,
    from_policy,
    from_rpc,
    number,
    read_default_properties,
    read_properties,
    to_patterns,
    to_policy,
    to_rpc,
)


def shown(body: bytes) -> bytes:
    """What a client sees of properties that it has set."""
    return encode_properties(from_policy(to_policy(read_properties(body))))


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        (b"{}", {}),
        (b'{"retry":1,"timeout":0.5}', {"retry": {"limit": 2}, "visibilityTimeoutSec": 0.5}),
        (b'{"accum":0.3}', {"gatherWindowSec": 0.3}),
        (b'{"accum":0.0004}', {"gatherWindowSec": 0}),
        (b'{"accum":-1}', {"gatherWindowSec": 0}),
        (b'{"retry":0}', {"retry": {"limit": 1}}),
        (b'{"retry":-1}', {"retry": {"limit": 0}}),
        (b'{"retry":-7}', {"retry": {"limit": 0}}),
        (b'{"timeout":0}', {"visibilityTimeoutSec": 0.001}),
        (b'{"timeout":-5}', {"visibilityTimeoutSec": 0.001}),
        (b'{"pack":1}', {}),
    ],
)
def test_properties_are_keys_of_a_policy(body, policy):
    assert to_policy(read_properties(body)) == policy


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b'{"timeout":60.0,"retry":2,"accum":30}', b'{"accum":30,"retry":2,"timeout":60}'),
        (b'{"accum":0.3}', b'{"accum":0.3}'),
        (b'{"accum":0.0004}', b'{"accum":0}'),
        (b'{"retry":-1,"timeout":-5}', b'{"retry":-1,"timeout":0}'),
        (b'{"timeout":0}', b'{"timeout":0}'),
        (b"{}", b"{}"),
    ],
)
def test_properties_are_shown_in_the_order_of_their_names_and_without_needless_fractions(body, seen):
    assert shown(body) == seen


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"not json", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        (b"1", "object"),
        (b'{"foo":1}', "'foo' is no property"),
        (b'{"hooks":{}}', "preserve_headers"),
        (b'{"retry":1.5}', "retry must be an integer"),
        (b'{"retry":1.0}', "retry must be an integer"),
        (b'{"retry":"1"}', "retry must be an integer"),
        (b'{"retry":null}', "retry must be an integer"),
        (b'{"retry":true}', "retry must be an integer"),
        (b'{"timeout":"1"}', "timeout must be a number"),
        (b'{"timeout":1e400}', "timeout must be a number"),
        (b'{"timeout":NaN}', "timeout must be a number"),
        (b'{"accum":null}', "accum must be a number"),
        (b'{"pack":"x"}', "pack must be a number"),
        (b'{"timeout":604801}', "timeout must be at most 604800"),
        (b'{"retry":2147483647}', "retry must be at most 2147483646"),
    ],
)
def test_other_properties_are_refused_with_the_reason(body, why):
    with pytest.raises(InvalidProperties, match=why):
        read_properties(body)


def test_default_properties_are_patterns_in_order():
    body = b'[["accum/.*",{"accum":30}],[".*",{"retry":0}]]'
    patterns = to_patterns(read_default_properties(body))
    assert patterns == [
        {"pattern": "accum/.*", "policy": {"gatherWindowSec": 30}},
        {"pattern": ".*", "policy": {"retry": {"limit": 1}}},
    ]
    assert encode_default_properties(from_patterns(patterns)) == body


def test_a_pattern_is_shown_as_it_was_given():
    body = '[["あ\\"\\\\d",{"retry":0}]]'.encode()
    assert encode_default_properties(read_default_properties(body)) == body


@pytest.mark.parametrize(
    "body", [b'{"a":1}', b'[["x",{"bad":1}]]', b'[["x"]]', b"[[1,{}]]", b'["ab"]', b'[["x",{},1]]', b'[["x",[]]]']
)
def test_other_default_properties_are_refused(body):
    with pytest.raises(InvalidProperties):
        read_default_properties(body)


@pytest.mark.parametrize(
    ("value", "printed"),
    [(0, b"0"), (0.0, b"0"), (30.0, b"30"), (0.1 + 0.2, b"0.3"), (1e22, b"1e+22"), (1 / 3, b"0.333333333333333")],
)
def test_numbers_have_15_digits_and_no_needless_fraction(value, printed):
    assert number(value) == printed


def test_messagepack_rpc_has_the_name_pack_for_accum():
    assert from_rpc({"pack": 1, "retry": 0}) == {"accum": 1, "retry": 0}
    assert from_rpc({"accum": 0.5}) == {"accum": 0.5}
    assert to_rpc({"accum": 1, "retry": 0, "timeout": 30}) == {"pack": 1.0, "retry": 0, "timeout": 30}
    assert default_from_rpc([["def/", {"retry": 0, "pack": 1}]]) == [("def/", {"retry": 0, "accum": 1})]


@pytest.mark.parametrize("value", [None, [], "x", {"bad": 1}, {"pack": "x"}, {1: 2}])
def test_messagepack_rpc_refuses_other_properties(value):
    with pytest.raises(InvalidProperties):
        from_rpc(value)


@pytest.mark.parametrize("value", [None, {}, [1], [["x"]], [["x", 1]], [[1, {}]]])
def test_messagepack_rpc_refuses_other_default_properties(value):
    with pytest.raises(InvalidProperties):
        default_from_rpc(value)


def test_queues_are_created_with_the_values_of_lmq():
    assert from_policy(default_policy()) | {"accum": 0} == SYSTEM


def test_a_reset_removes_exactly_the_properties():
    assert RESET == {"gatherWindowSec": None, "retry": {"limit": None}, "visibilityTimeoutSec": None}
