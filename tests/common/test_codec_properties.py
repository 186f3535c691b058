"""The strict JSON reader accepts exactly what a slow, obviously right reference accepts, and gives equal values."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom_common.codec import decode_request, strict_loads
from postroom_common.errors import CommandError, RequestRejected
from postroom_common.protocol import JSON_DEPTH_LIMIT

# --- the reference ---------------------------------------------------------------------------------------------------


def reference_loads(data: bytes) -> Any:
    text = data.decode("utf-8")
    try:
        value = json.loads(
            text, parse_int=_checked_int, parse_constant=_refused_constant, object_pairs_hook=_checked_object
        )
    except RecursionError:
        raise ValueError("too deep") from None
    _check(value, 0)
    return value


def _checked_int(digits: str) -> int:
    if len(digits) > 21:
        raise ValueError("integer out of range")
    value = int(digits)
    if value < -(2**63) or value > 2**64 - 1:
        raise ValueError("integer out of range")
    return value


def _refused_constant(name: str) -> None:
    raise ValueError(name)


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("duplicate key")
    return dict(pairs)


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError, a ValueError, for a lone surrogate
    elif isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise ValueError("infinite")
    elif isinstance(value, (list, dict)):
        if depth == JSON_DEPTH_LIMIT:
            raise ValueError("too deep")
        if isinstance(value, dict):
            for key in value:
                key.encode("utf-8")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)


def outcome(load: Any, data: bytes) -> tuple[str, str]:
    try:
        value = load(data)
    except ValueError:
        return "refused", ""
    return "accepted", repr(value)  # repr tells 1 from 1.0 and from true, and shows every bit of a float


# --- documents -------------------------------------------------------------------------------------------------------

SPACES = st.sampled_from(["", "", "", " ", "\n", "\t", "\r", "\r\n  "])
#: Pieces of string literals that have to do with how a quick look may miscount keys, or with what is refused.
PIECES = st.sampled_from(
    [
        "a",
        "a",
        "b",
        ":",
        '\\"',
        '\\":',
        "\\\\",
        "\\/",
        "\\u0061",
        "\\u0062",
        "\\u0022",
        "\\u003a",
        "\\u005c",
        " ",
        ",",
        "{",
        "}",
    ]
    + ["한", "😀", "\\ud83d\\ude00", "\\u0000", "\\n"]
)
RARE_PIECES = st.sampled_from(["\\ud800", "\\udc00", "\\u12", "\\x41", "\\", "\x01", "\x7f", "\x00", "\ufeff"])
LITERALS = st.lists(PIECES, max_size=4).map(lambda pieces: '"' + "".join(pieces) + '"')
NUMBERS = st.one_of(
    st.sampled_from(
        ["0", "-0", "-0.0", "1", "1.0", "1e2", "1E+2", "1e308", "1e309", "-1e999", "1e-999", "9223372036854775807"]
        + ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775808"]
        + ["-9223372036854775809", "9223372036854775808.0", "18446744073709551616e0", "NaN", "Infinity", "-Infinity"]
        + ["01", "+1", "1.", ".5", "0x10", "1_0", "--1", "9" * 30, "9" * 5000, "1" + "0" * 309, "0." + "3" * 400]
    ),
    st.integers(min_value=-(2**66), max_value=2**66).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
SCALARS = st.one_of(LITERALS, NUMBERS, st.sampled_from(["true", "false", "null", "True", "nul"]))


def _spaced(inner: Any) -> Any:
    return st.tuples(SPACES, inner, SPACES).map("".join)


def _array(inner: Any) -> Any:
    return st.lists(_spaced(inner), max_size=4).map(lambda items: "[" + ",".join(items) + "]")


def _object(inner: Any) -> Any:
    pair = st.tuples(_spaced(LITERALS), _spaced(inner)).map(":".join)
    return st.lists(pair, max_size=4).map(lambda pairs: "{" + ",".join(pairs) + "}")


DOCUMENTS = _spaced(st.recursive(SCALARS, lambda inner: st.one_of(_array(inner), _object(inner)), max_leaves=12))
SOUP = st.lists(
    st.one_of(PIECES, RARE_PIECES, st.sampled_from(["{", "}", "[", "]", '"', '":', '{"a":', ",", "1", '"a"'])),
    max_size=24,
).map("".join)


@st.composite
def damaged_documents(draw: Any) -> bytes:
    """A document with one byte changed, removed or put in."""
    data = bytearray(draw(DOCUMENTS).encode())
    place = draw(st.integers(min_value=0, max_value=len(data)))
    with_byte = draw(
        st.one_of(st.binary(max_size=1), st.sampled_from([b'"', b"\\", b":", b"{", b"\xed\xa0\x80", b"\xc0\x80"]))
    )
    data[place : place + draw(st.integers(min_value=0, max_value=1))] = with_byte
    return bytes(data)


@settings(deadline=None, max_examples=500)
@given(DOCUMENTS)
@example('{"a":1,"\\u0061":2}')
@example('{"a" :1,"a":2}')
@example('{"a\\\\":1,"a\\\\":2}')
@example('{"a\\\\":1,"b":2,"b":3}')  # the key that is counted too little makes up for the one that is kept too little
@example('{"a\\"":1,"a\\"":2}')
@example('{"":":",":":""}')
@example('["\\":",{"a":1,"a":2}]')
@example('[1e300,{"a":1,"a":2}]')
@example("[1e300,18446744073709551616]")
@example("18446744073709551616")
def test_a_document_is_read_as_the_reference_reads_it(text: str) -> None:
    data = text.encode()
    assert outcome(strict_loads, data) == outcome(reference_loads, data)


@settings(deadline=None, max_examples=300)
@given(damaged_documents())
def test_a_damaged_document_is_read_as_the_reference_reads_it(data: bytes) -> None:
    assert outcome(strict_loads, data) == outcome(reference_loads, data)


@settings(deadline=None, max_examples=300)
@given(st.one_of(SOUP.map(lambda text: text.encode()), st.binary(max_size=40)))
def test_bytes_that_resemble_json_are_read_as_the_reference_reads_them(data: bytes) -> None:
    assert outcome(strict_loads, data) == outcome(reference_loads, data)


@settings(deadline=None, max_examples=100)
@given(st.integers(min_value=JSON_DEPTH_LIMIT - 3, max_value=JSON_DEPTH_LIMIT + 3), st.data())
def test_depth_is_counted_as_the_reference_counts_it(depth: int, data: Any) -> None:
    openings = data.draw(st.lists(st.sampled_from(["[", '{"a":']), min_size=depth, max_size=depth))
    closings = ["]" if opening == "[" else "}" for opening in reversed(openings)]
    text = "".join(openings) + data.draw(st.sampled_from(["1", "null", '"x"', "1e300", "[]"])) + "".join(closings)
    assert outcome(strict_loads, text.encode()) == outcome(reference_loads, text.encode())


@settings(deadline=None, max_examples=300)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(
                st.sampled_from(["r1", "health", "", 1, 2**64 - 1, None, {}]), st.floats(), st.booleans(), st.text()
            )
            for name in ("requestId", "clientId", "command", "timestampMs", "deadlineMs", "payload")
        },
    )
)
def test_every_object_is_a_request_an_answerable_fault_or_rejected_with_a_reason(envelope: dict[str, Any]) -> None:
    data = json.dumps(envelope, allow_nan=True).encode()
    try:
        request = decode_request(data)
    except RequestRejected as rejected:
        assert rejected.reason
        return
    assert request.request_id == envelope["requestId"]
    assert request.client_id == envelope["clientId"]
    assert request.deadline_ms >= 0
    if request.problem is None:
        assert request.command == envelope["command"]
        assert request.payload == (envelope.get("payload") or {})
    else:
        assert isinstance(request.problem, CommandError)
        assert request.problem.message


@pytest.mark.parametrize(
    "item",
    ["1e300", '"\\\\"', '"a" ', '":"', '{"a" :1}', '"\\":"', "[]", '{"":{}}'],
    ids=lambda item: item,
)
def test_reading_takes_steps_in_proportion_to_the_length(item: str) -> None:
    def steps(count: int) -> int:
        """Calls of functions, those written in C included."""
        data = ("[" + ",".join([item] * count) + "]").encode()
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _argument: events.append(event))
        try:
            strict_loads(data)
        finally:
            sys.setprofile(None)
        return sum(event in ("call", "c_call") for event in events)

    assert steps(3200) < 20 * steps(200), "of sixteen times the length"
