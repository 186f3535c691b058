"""The bytes of LMQ's answers, as the real server sent them."""

from __future__ import annotations

import msgpack
import pytest

from postroom_gateway.dialects.lmq.answers import Part, Pulled, encode_pulled, encode_push, encode_push_all
from postroom_gateway.dialects.lmq.parameters import CompoundFormat

ID = "95cab592-78a6-4951-bec6-b9d589e87fdb"
PARTS = (
    Part(b"one", "text/plain"),
    Part(b'{"n":2}', "application/json"),
    Part(b"\x93\x01\x02\x03", "application/x-msgpack"),
    Part(b"noct"),
)
MULTIPART = (
    b"\r\n--%b\r\ncontent-type: text/plain\r\ncontent-transfer-encoding: binary\r\n\r\none"
    b'\r\n--%b\r\ncontent-type: application/json\r\ncontent-transfer-encoding: binary\r\n\r\n{"n":2}'
    b"\r\n--%b\r\ncontent-type: application/x-msgpack\r\ncontent-transfer-encoding: binary\r\n\r\n\x93\x01\x02\x03"
    b"\r\n--%b\r\ncontent-type: application/octet-stream\r\ncontent-transfer-encoding: binary\r\n\r\nnoct"
    b"\r\n--%b--\r\n"
) % (5 * (ID.encode(),))
MSGPACK = (
    "949281ac636f6e74656e742d74797065aa746578742f706c61696ec4036f6e659281ac636f6e74656e742d74797065b06170706c69636174696f"
    "6e2f6a736f6ec4077b226e223a327d9281ac636f6e74656e742d74797065b56170706c69636174696f6e2f782d6d73677061636bc40493010203"
    "9281ac636f6e74656e742d74797065b86170706c69636174696f6e2f6f637465742d73747265616dc4046e6f6374"
)


def test_a_message_comes_with_its_type_and_four_fields_about_it():
    fields, body = encode_pulled(
        Pulled("myqueue", ID, 2, (Part(b"hello world!", "text/plain"),)), CompoundFormat.MSGPACK
    )
    assert body == b"hello world!"
    assert fields == [
        (b"content-type", b"text/plain"),
        (b"x-lmq-queue-name", b"myqueue"),
        (b"x-lmq-message-id", ID.encode()),
        (b"x-lmq-message-type", b"normal"),
        (b"x-lmq-retry-remaining", b"2"),
    ]


def test_preserved_fields_come_after_the_content_type_and_a_name_is_utf_8():
    part = Part(b"h", "text/plain", (("user-agent", "UA/1"), ("x-foo", "bar")))
    fields, _ = encode_pulled(Pulled("あ", ID, 0, (part,)), CompoundFormat.MULTIPART)
    assert fields[:4] == [
        (b"content-type", b"text/plain"),
        (b"user-agent", b"UA/1"),
        (b"x-foo", b"bar"),
        (b"x-lmq-queue-name", "あ".encode()),
    ]


def test_a_compound_message_is_multipart_with_its_id_as_the_boundary():
    fields, body = encode_pulled(Pulled("acc", ID, 1, PARTS, is_compound=True), CompoundFormat.MULTIPART)
    assert fields[0] == (b"content-type", f"multipart/mixed; boundary={ID}".encode())
    assert fields[3] == (b"x-lmq-message-type", b"compound")
    assert body == MULTIPART


def test_a_compound_message_is_a_list_in_msgpack():
    fields, body = encode_pulled(Pulled("acc", ID, 1, PARTS, is_compound=True), CompoundFormat.MSGPACK)
    assert fields[0] == (b"content-type", b"application/x-msgpack")
    assert body.hex() == MSGPACK


def test_a_compound_message_of_one_part_is_one():
    message = Pulled("acc", ID, 1, (Part(b"next"),), is_compound=True)
    assert encode_pulled(message, CompoundFormat.MULTIPART)[1] == (
        b"\r\n--%b\r\ncontent-type: application/octet-stream\r\ncontent-transfer-encoding: binary\r\n\r\n"
        b"next\r\n--%b--\r\n" % (2 * (ID.encode(),))
    )


@pytest.mark.parametrize("count", [15, 16, 65_536])
def test_a_list_may_be_of_any_length(count):
    message = Pulled("acc", ID, 1, count * (Part(b"x"),), is_compound=True)
    decoded = msgpack.unpackb(encode_pulled(message, CompoundFormat.MSGPACK)[1])
    assert decoded == count * [[{"content-type": "application/octet-stream"}, b"x"]]


def test_no_publisher_can_add_a_header_field():
    fields, body = encode_pulled(
        Pulled("q", ID, 1, (Part(b"x", "text/plain\r\nx-evil: 1", (("x-foo", "a\r\n\r\nb\0"),)),), is_compound=True),
        CompoundFormat.MULTIPART,
    )
    assert b"\r\nx-evil" not in body
    assert b"content-type: text/plain  x-evil: 1\r\nx-foo: a    b \r\n" in body
    assert len(fields) == 5


def test_a_push_says_whether_the_message_was_gathered():
    assert [encode_push(gathering) for gathering in (None, "new", "appended")] == [
        b'{"accum":"no"}',
        b'{"accum":"new"}',
        b'{"accum":"yes"}',
    ]
    assert encode_push_all({"acc": "new", 'o"あ': None}) == '{"acc":{"accum":"new"},"o\\"あ":{"accum":"no"}}'.encode()
    assert encode_push_all({}) == b"{}"
