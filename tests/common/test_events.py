"""The journal's lines: what was written is read back, and any change of a byte is noticed."""

from __future__ import annotations

import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_common.errors import DamagedRecord
from postroom_common.events import decode_event, encode_event, raw_json

HEAD = {"id": 7, "epoch": 1, "req": 7, "grp": 9, "engineMs": 5, "wallMs": 6, "type": "published"}
EVENT = HEAD | {"queue": "q\n", "part": {"text": 'a","crc":"x'}}


def test_an_event_is_read_back_as_it_was_written():
    event = decode_event(encode_event(EVENT))
    assert event.pop("crc")
    assert event == EVENT


def test_a_line_is_one_line_of_json_with_the_checksum_last():
    line = encode_event(EVENT)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    body, _, checksum = line.rpartition(b',"crc":"')
    assert checksum == b'%08x"}\n' % zlib.crc32(body)
    assert list(orjson.loads(line))[-1] == "crc"


def test_the_newline_may_be_missing():
    assert decode_event(encode_event(EVENT)[:-1])["id"] == 7


@given(st.data())
def test_every_changed_byte_is_detected(data):
    line = bytearray(encode_event(EVENT)[:-1])
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedRecord):
        decode_event(bytes(line))


@given(st.integers(0, len(encode_event(EVENT)) - 2))
def test_no_truncated_line_is_taken_for_an_event(length):
    with pytest.raises(DamagedRecord):
        decode_event(encode_event(EVENT)[:length])


@pytest.mark.parametrize("body", [b'[1,"id"', b'{"id":"7"', b'{"type":"acked"', b'{"id":true', b"nonsense"])
def test_a_valid_checksum_alone_does_not_make_an_event(body):
    with pytest.raises(DamagedRecord):
        decode_event(b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body)))


def test_a_fragment_and_the_value_read_back_have_the_same_bytes():
    value = {"key": ["é", 1.5, None]}
    fragment = orjson.Fragment(orjson.dumps(value))
    assert raw_json(fragment) == raw_json(value) == orjson.dumps(value)
    assert raw_json(orjson.Fragment('"text"')) == b'"text"'


@pytest.mark.parametrize("name", sorted(HEAD))
def test_an_object_without_the_common_fields_is_not_an_event(name):
    with pytest.raises(DamagedRecord, match="no event"):
        decode_event(encode_event({field: value for field, value in EVENT.items() if field != name}))
