"""MessagePack of the old specification, and frames in a stream."""

from __future__ import annotations

import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_gateway.dialects.lmq.msgpack_old import (
    CHUNK_BYTES,
    Frames,
    FrameTooLarge,
    NotMsgpack,
    Request,
    is_one_object,
    pack,
    pack_bin,
    pack_str,
    read_bytes,
    read_request,
    to_old,
    unpack,
)

PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner), max_leaves=30
)


@given(VALUES)
def test_an_object_of_the_new_specification_becomes_the_same_object_of_the_old(value):
    assert to_old(msgpack.packb(value, use_bin_type=True)) == msgpack.packb(value, use_bin_type=False) == pack(value)


@given(VALUES)
def test_an_object_of_the_old_specification_stays_byte_for_byte(value):
    old = msgpack.packb(value, use_bin_type=False)
    assert to_old(old) == old


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_strings_of_all_sizes_become_raw(size):
    expected = msgpack.packb(b"x" * size, use_bin_type=False)
    assert to_old(msgpack.packb(b"x" * size)) == expected
    assert to_old(msgpack.packb("x" * size)) == expected


@pytest.mark.parametrize("frame", ["c70105ff", "d4ff01", "92c40161d605000000ff", "c90000000105ff"])
def test_an_extension_type_is_refused(frame):
    with pytest.raises(NotMsgpack, match="extension"):
        to_old(bytes.fromhex(frame))


def test_a_body_of_very_many_objects_needs_no_stack():
    frame = msgpack.packb(["é", 1.5, b""] * 200_000)
    assert to_old(frame) == msgpack.packb(["é", 1.5, b""] * 200_000, use_bin_type=False)


def test_an_object_of_very_many_strings_is_converted_in_little_memory():
    frame = msgpack.packb([b"xy"] * 50_000)
    tracemalloc.start()
    try:
        assert to_old(frame) == msgpack.packb([b"xy"] * 50_000, use_bin_type=False)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(frame)
    finally:
        tracemalloc.stop()


def test_a_str_is_of_the_new_specification_and_a_bin_is_packed_as_lmq_does():
    assert [pack_str(b"x" * size)[0] for size in (31, 32, 255, 256, 65_536)] == [0xBF, 0xD9, 0xD9, 0xDA, 0xDB]
    assert [pack_bin(b"x" * size)[0] for size in (31, 32, 255, 256, 65_535, 65_536)] == [0xC4] + 4 * [0xC5] + [0xC6]
    for size in (0, 31, 32, 255, 256, 65_535, 65_536):
        assert msgpack.unpackb(pack_str(b"x" * size)) == "x" * size
        assert msgpack.unpackb(pack_bin(b"x" * size)) == b"x" * size


NO_STRINGS: list[object] = [None, 1, [], {}, 1.5]


@pytest.mark.parametrize("size", [0, 31, 32, 256, 65_536])
def test_the_bytes_of_every_kind_of_string_are_read(size):
    for frame in (msgpack.packb("x" * size), msgpack.packb(b"x" * size), pack("x" * size)):
        assert read_bytes(frame) == b"x" * size
    assert [read_bytes(msgpack.packb(value)) for value in NO_STRINGS] == 5 * [None]


def test_an_argument_is_read_with_text_where_there_is_some():
    assert unpack(pack({b"a": [b"b", b"\xff", 1.5, None]})) == {"a": ["b", b"\xff", 1.5, None]}


@pytest.mark.parametrize(
    "frame",
    [
        b"\xd4\x05a",
        b"\x81\x90\x01",
        b"\x81\x01\x01",
        b"\x91" * 1100 + b"\xc0",
        b"\xc6\x00\x08\x00\x00" + bytes(1 << 19),
    ],
)
def test_an_argument_that_no_method_has_is_refused(frame):
    with pytest.raises(NotMsgpack):
        unpack(frame)


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (b"\x01", True),
        (b"\x93\x01\x02\x03", True),
        (b"", False),
        (b"\x01\x02", False),
        (b"\x93\x01", False),
        (b"\xc1", False),
    ],
)
def test_a_body_is_one_object_or_not(data, is_one):
    assert is_one_object(data) is is_one


def test_a_request_has_a_number_and_a_notification_has_none():
    assert read_request(msgpack.packb([0, 7, "push", ["q", 1]])) == Request(7, b"push", (b"\xa1q", b"\x01"))
    assert read_request(msgpack.packb([2, "push", ["q", [1]]])) == Request(None, b"push", (b"\xa1q", b"\x91\x01"))


@pytest.mark.parametrize(
    "value",
    [
        1,
        [],
        [0],
        [0, 1, "m"],
        [1, 1, None, "ok"],
        [2, "m"],
        [0, "1", "m", []],
        [0, 1, 2, []],
        [0, 1, "m", 3],
        [[], 1, "m", []],
    ],
)
def test_other_objects_are_no_requests(value):
    with pytest.raises(NotMsgpack):
        read_request(msgpack.packb(value))


def test_a_request_with_very_many_arguments_costs_no_more_than_its_bytes():
    request = read_request(msgpack.packb([0, 1, "push", [None] * 1_000_000]))
    assert (request.method, len(request.arguments)) == (b"push", 8)


@given(st.binary() | VALUES.map(msgpack.packb))
def test_whatever_a_peer_sends_is_read_or_refused(data):
    frames = Frames(1000)
    try:
        frames.feed(data)
        while (frame := frames.next()) is not None:
            for argument in read_request(frame).arguments:
                unpack(argument)
                to_old(argument)
    except (FrameTooLarge, NotMsgpack):
        pass


@given(st.lists(VALUES, max_size=5), st.integers(1, 40))
def test_frames_are_cut_wherever_the_stream_is(values, size):
    stream = b"".join(map(msgpack.packb, values))
    frames, found = Frames(1 << 20), []
    for start in range(0, len(stream), size):
        frames.feed(stream[start : start + size])
        while (frame := frames.next()) is not None:
            found.append(frame)
    assert found == [msgpack.packb(value) for value in values]
    assert frames.pending_bytes == 0


def test_frames_follow_a_large_one():
    frames, large = Frames(1 << 20), msgpack.packb(b"x" * (3 * CHUNK_BYTES))
    found: list[bytes] = []
    for start in range(0, len(large), CHUNK_BYTES):
        frames.feed(large[start : start + CHUNK_BYTES])
        found += iter(frames.next, None)
    frames.feed(b"\x01\xa2")
    found += iter(frames.next, None)
    frames.feed(b"hi")
    found += iter(frames.next, None)
    assert found == [large, b"\x01", b"\xa2hi"]


def test_a_frame_over_the_limit_is_refused_as_soon_as_it_has_arrived():
    frames = Frames(100)
    frames.feed(b"\xdb\xff\xff\xff\xff" + b"x" * 95)
    assert frames.next() is None
    frames.feed(b"x")
    with pytest.raises(FrameTooLarge, match="more than 100 bytes"):
        frames.next()


@pytest.mark.parametrize("data", [b"\xc1", b"\x92\x01\xc1", b"\x91" * 5000])
def test_what_is_not_messagepack_is_refused(data):
    frames = Frames(1 << 20)
    frames.feed(data)
    with pytest.raises(NotMsgpack):
        frames.next()
