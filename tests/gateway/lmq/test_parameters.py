"""What LMQ reads in paths and query strings."""

from __future__ import annotations

import pytest

from postroom_gateway.dialects.lmq.parameters import (
    CompoundFormat,
    InvalidParameter,
    Reply,
    decode_name,
    parse_compound_format,
    parse_message_id,
    parse_reply,
    parse_wait_ms,
)

ID = "1fdd8534-42f8-4309-b70d-8a37bfc100b0"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (None, None),
        ("0", 0),
        ("0.0", 0),
        ("10", 10_000),
        ("+10", 10_000),
        ("0.5", 500),
        ("0.0004", 0),
        ("0.2abc", 200),
        ("12.34abc", 12_340),
        ("1.5e1", 15_000),
        ("-1", 0),
        ("-0.5", 0),
        ("9" * 400, None),
        ("-" + "9" * 400, 0),
        ("-1.0e999", 0),
    ],
)
def test_a_wait_is_a_whole_number_or_a_decimal_fraction_that_anything_may_follow(text, milliseconds):
    assert parse_wait_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "abc", ".5", "1e0", "10abc", "1.", " 1", "1\n", "٣", "nan", "inf", "1_0"])
def test_anything_else_is_no_wait(text):
    with pytest.raises(InvalidParameter, match="number of seconds"):
        parse_wait_ms(text)


def test_a_compound_message_is_multipart_unless_msgpack_is_asked_for():
    assert parse_compound_format(None) is CompoundFormat.MULTIPART
    assert parse_compound_format("multipart") is CompoundFormat.MULTIPART
    assert parse_compound_format("msgpack") is CompoundFormat.MSGPACK


@pytest.mark.parametrize("text", ["json", "", "MSGPACK"])
def test_there_is_no_other_form_of_compound_messages(text):
    with pytest.raises(InvalidParameter, match="cf must be"):
        parse_compound_format(text)


def test_a_reply_is_one_of_three_words():
    assert [parse_reply(word) for word in ("ack", "nack", "ext")] == [Reply.ACK, Reply.NACK, Reply.EXT]


@pytest.mark.parametrize("text", [None, "", "foo", "ACK"])
def test_anything_else_is_no_reply(text):
    with pytest.raises(InvalidParameter, match="reply must be"):
        parse_reply(text)


@pytest.mark.parametrize("text", [ID, ID.upper(), ID.replace("-", ""), ID.replace("-", "").upper()])
def test_an_id_is_read_in_upper_case_and_without_dashes_too(text):
    assert parse_message_id(text) == ID


@pytest.mark.parametrize(
    "text", ["", "foo", ID[:-1], ID + "0", ID + "\n", ID[:-1] + "g", ID.replace("-", "", 1), "-" * 36, "٣" * 36]
)
def test_anything_else_is_the_id_of_no_message(text):
    assert parse_message_id(text) is None


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        ("myqueue", "myqueue"),
        ("e%2Fa", "e/a"),
        ("%E3%81%82", "あ"),
        ("あ", "あ"),
        ("a%20b+c", "a b c"),
        ("a%2Bb", "a+b"),
        ("100%", "100%"),
        ("%zz", "%zz"),
    ],
)
def test_a_name_in_a_path_is_percent_decoded_and_a_plus_sign_is_a_space(segment, name):
    assert decode_name(segment) == name


def test_a_name_that_is_not_utf_8_is_refused():
    with pytest.raises(InvalidParameter, match="UTF-8"):
        decode_name("%E3")
