"""Bodies: text is kept byte for byte, other values as equal values, binary as its bytes."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_common.body import (
    Form,
    Message,
    Part,
    decode_message,
    encode_text,
    part_from_wire,
    part_to_wire,
    preview,
    text_alone,
)
from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT,
    lambda one: st.lists(one) | st.dictionaries(TEXT, one),
)
PARTS = st.builds(
    lambda part, content_type, name: part._replace(content_type=content_type, name=name),
    st.binary().map(lambda data: Part(data, Form.BINARY))
    | TEXT.map(lambda text: Part(text.encode()))
    | JSON.map(lambda value: Part(orjson.dumps(value), Form.JSON)),
    TEXT,
    TEXT,
)


def shown(part, as_value):
    return orjson.loads(orjson.dumps(part_to_wire(part, as_value)))


@given(st.lists(PARTS, min_size=1), st.none() | PARTS, st.dictionaries(st.sampled_from(["type", "replyTo"]), TEXT))
def test_a_message_of_any_parts_is_stored_and_read_back_as_it_was(parts, attributes, carried):
    message = Message(tuple(parts), attributes, carried)
    assert decode_message(message.encode()) == message


def test_the_stored_form_is_the_one_that_older_journals_have():
    stored = b'{"parts":[{"text":"a"}],"attributes":{"json":{"x":1}},"replyTo":"r"}'
    message = Message((Part(b"a"),), Part(b'{"x":1}', Form.JSON), {"replyTo": "r"})
    assert (message.encode(), decode_message(stored)) == (stored, message)
    binary = b'{"parts":[{"base64":"/wA=","contentType":"image/png"},{"json":[1,null],"name":"n"}]}'
    message = Message((Part(b"\xff\0", Form.BINARY, "image/png"), Part(b"[1,null]", Form.JSON, "", "n")))
    assert (message.encode(), decode_message(binary)) == (binary, message)


@given(TEXT)
def test_a_text_is_stored_unchanged_whatever_the_consumer_asks(text):
    part = part_from_wire(text, "", "")
    assert part_to_wire(part, as_value=False) == part_to_wire(part, as_value=True) == {"payload": text}
    assert part == Part(text.encode())


@pytest.mark.parametrize("value", [None, True, 0, -1.5, 2**64 - 1, -(2**63), [], {"a": [1, {"b": "é"}]}])
def test_another_value_is_given_as_itself_or_as_json_text(value):
    part = part_from_wire(value, "", "")
    assert shown(part, as_value=True) == {"payload": value}
    text = part_to_wire(part, as_value=False)["payload"]
    assert isinstance(text, str)
    assert orjson.loads(text) == part.value() == value
    assert part.data == text.encode()


def test_a_text_that_looks_like_json_stays_text():
    assert part_to_wire(part_from_wire('{"a" : 1}', "", ""), as_value=True) == {"payload": '{"a" : 1}'}


@given(st.binary())
def test_the_size_of_binary_is_that_of_its_decoded_bytes(data):
    part = part_from_wire(base64.b64encode(data).decode(), "base64", "image/png")
    assert part == Part(data, Form.BINARY, "image/png")
    wire = part_to_wire(part, as_value=True)
    assert base64.b64decode(wire["payload"]) == data
    assert (wire["encoding"], wire["contentType"]) == ("base64", "image/png")


@pytest.mark.parametrize(("published", "given"), [("QR==", "QQ=="), ("QUJDRB==", "QUJDRA==")])
def test_unused_bits_of_base64_are_given_as_0(published, given):
    assert part_to_wire(part_from_wire(published, "base64", ""), as_value=True)["payload"] == given


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
def test_an_invalid_body_is_refused_with_a_reason(message, encoding, code):
    with pytest.raises(CommandError) as caught:
        part_from_wire(message, encoding, "")
    assert caught.value.code is code
    assert caught.value.message


def test_a_preview_never_ends_in_half_a_character():
    assert preview(Part("aé".encode()), 2) == "a"
    assert preview(Part("aé".encode()), 3) == "aé"
    assert preview(Part(b"[1,2]", Form.JSON), 3) == "[1,"
    assert preview(Part(b"\xff\0", Form.BINARY), 1) == "ff"
    assert preview(Part(b"abc"), 0) == ""


@given(PARTS, PARTS, TEXT)
def test_a_message_that_is_a_text_and_nothing_else_is_told_from_all_others(part, other, text):
    plain = Message((Part(text.encode()),))
    assert encode_text(text) == plain.encode()
    assert text_alone(orjson.loads(plain.encode())) == text
    for message in (
        Message((plain.body, other)),
        Message(plain.parts, other),
        Message(plain.parts, None, {"type": text}),
        Message((plain.body._replace(content_type="a"),)),
        Message((plain.body._replace(name="a"),)),
        Message((Part(part.data, Form.BINARY),)),
    ):
        assert text_alone(orjson.loads(message.encode())) is None
