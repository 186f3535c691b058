"""Bodies: text is kept byte for byte, other values as equal values, binary as its bytes."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_common.body import part_bytes, part_from_wire, part_to_wire, preview
from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_a_text_is_kept_as_it_is_whatever_the_consumer_asks(text):
    part = part_from_wire(text, "", "")
    assert part_to_wire(part, as_value=False) == part_to_wire(part, as_value=True) == {"payload": text}
    assert part_bytes(part) == text.encode()


@pytest.mark.parametrize("value", [None, True, 0, -1.5, 2**64 - 1, -(2**63), [], {"a": [1, {"b": "é"}]}])
def test_another_value_is_given_as_itself_or_as_json_text(value):
    part = part_from_wire(value, "", "")
    assert part_to_wire(part, as_value=True) == {"payload": value}
    shown = part_to_wire(part, as_value=False)["payload"]
    assert isinstance(shown, str)
    assert orjson.loads(shown) == value
    assert part_bytes(part) == shown.encode()


def test_a_text_that_looks_like_json_stays_text():
    assert part_to_wire(part_from_wire('{"a" : 1}', "", ""), as_value=True) == {"payload": '{"a" : 1}'}


@given(st.binary())
def test_binary_is_counted_by_its_own_bytes(data):
    part = part_from_wire(base64.b64encode(data).decode(), "base64", "image/png")
    assert part_bytes(part) == data
    shown = part_to_wire(part, as_value=True)
    assert base64.b64decode(shown["payload"]) == data
    assert (shown["encoding"], shown["contentType"]) == ("base64", "image/png")


def test_binary_without_a_type_is_called_octets():
    assert part_to_wire(part_from_wire("", "base64", ""), as_value=False)["contentType"] == "application/octet-stream"


def test_the_content_type_of_a_text_is_shown():
    assert part_to_wire(part_from_wire("<a/>", "", "text/xml"), as_value=False)["contentType"] == "text/xml"


@pytest.mark.parametrize(
    ("message", "encoding", "code"),
    [
        ("QUI", "base64", ErrorCode.INVALID_REQUEST),
        ("QU I=", "base64", ErrorCode.INVALID_REQUEST),
        ("é===", "base64", ErrorCode.INVALID_REQUEST),
        (7, "base64", ErrorCode.PARSE_ERROR),
        ("text", "hex", ErrorCode.INVALID_REQUEST),
        ("text", "BASE64", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_body_is_refused_with_a_reason(message, encoding, code):
    with pytest.raises(CommandError) as caught:
        part_from_wire(message, encoding, "")
    assert caught.value.code is code
    assert caught.value.message


def test_a_preview_never_ends_in_half_a_character():
    assert preview({"text": "aé"}, 2) == "a"
    assert preview({"text": "aé"}, 3) == "aé"
    assert preview({"json": [1, 2]}, 3) == "[1,"
    assert preview({"base64": "/wA="}, 1) == "ff"
    assert preview({"text": "abc"}, 0) == ""
