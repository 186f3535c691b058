"""The bytes of smss, both ways: those that the official client sends, and those that it was seen to accept."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from postroom_gateway.dialects.smss.codec import (
    ALIVE,
    OK,
    SUB_END,
    Op,
    Request,
    RequestReader,
    count_blocks,
    cut_records,
    encode_error,
    encode_json,
    encode_push,
    read_ack,
)
from postroom_gateway.dialects.smss.topics import name_of, topic_root
from tests.gateway.smss import client
from tests.gateway.smss.client import block

#: What the official client was seen to send, the function of the test's client that makes the same, and what it means.
GOLDEN: list[tuple[str, Callable[[], bytes], Request]] = [
    (
        f"020300{'00' * 16}03 6f7264 746964 0068e5cf8b010000",
        lambda: client.create(b"ord", 1_700_000_000_000, b"tid"),
        Request(Op.CREATE, b"ord", 1_700_000_000_000, size=34),
    ),
    (
        f"030300{'00' * 16}03 6f7264 746964",
        lambda: client.delete(b"ord", b"tid"),
        Request(Op.DELETE, b"ord", size=26),
    ),
    (
        f"010300 18000000 {'00' * 12}03 6f7264 746964 10000000 01000000 01000000 6b 01000000 76 6d2d302d3020",
        lambda: client.pub(b"ord", block(b"m-0-0 ", [(b"k", b"v")]), b"tid"),
        Request(Op.PUB, b"ord", 0, block(b"m-0-0 ", [(b"k", b"v")]), size=50),
    ),
    (
        f"100300 0b000000 {'00' * 12}03 6f7264 746964 8813000000000000 03000000 00000000 422d30",
        lambda: client.delay(b"ord", block(b"B-0"), 5000, b"tid"),
        Request(Op.DELAY, b"ord", 5000, block(b"B-0"), size=45),
    ),
    (f"11{'00' * 19}", client.alive, Request(Op.ALIVE, b"")),
    (f"64{'00' * 18}01 74", lambda: client.list_topics(b"t"), Request(Op.LIST, b"", size=21)),
    (f"410300{'00' * 16}01 6f7264 74", lambda: client.info(b"ord", b"t"), Request(Op.INFO, b"ord", size=24)),
    (
        f"000300 05 01 {'00' * 15} 6f7264 0201000000000000 00e40b5402000000 02000000 6d65",
        lambda: client.sub(b"ord", b"me", 258, 5, 10.0),
        Request(Op.SUB, b"ord", 258, b"me", 5, 10_000_000_000, size=45),
    ),
    (f"40{'00' * 19}0201000000000000", lambda: client.replica(258), Request(Op.REPLICA, b"", 258, size=28)),
]


def read(data: bytes, pieces: int | None = None, limit: int = 1 << 20) -> list[Request]:
    """The requests in data that arrives in pieces."""
    reader, found = RequestReader(limit), []
    for start in range(0, len(data), pieces or len(data)):
        reader.feed(data[start : start + (pieces or len(data))])
        while request := reader.next():
            found.append(request)
    assert reader.buffered_bytes == 0
    assert not reader.is_dropping
    return found


def test_requests_of_the_official_client_are_read_and_the_tests_client_sends_the_same():
    for text, make, request in GOLDEN:
        data = bytes.fromhex(text)
        assert make() == data
        assert read(data) == [request]


def test_requests_are_read_however_they_are_cut():
    data = b"".join(bytes.fromhex(text) for text, _, _ in GOLDEN)
    for pieces in (1, 7, 19, 20, 21, 64):
        assert read(data, pieces) == [request for _, _, request in GOLDEN]


def test_a_subscription_without_a_batch_has_one_message_and_may_have_no_time_for_acks():
    [request] = read(client.sub(b"t", b"w", -5, 0, None))
    assert (request.batch, request.ack_timeout_ns, request.number, request.payload) == (1, 0, -5, b"w")


def test_responses_are_those_that_the_official_client_reads():
    assert OK.hex() == "c8000000000000000000"
    assert ALIVE.hex() == "c9000000000000000000"
    assert SUB_END.hex() == "ff000000000000000000"
    assert encode_error("topic exist").hex() == "90010b00000000000000" + b"topic exist".hex()
    assert encode_json(b"").hex() == "c8000000000000000000"
    assert encode_json(b"[{}]").hex() == "c8000400000000000000" + b"[{}]".hex()
    assert encode_push(3, bytes(300)).hex() == "c80003002c0100000000" + "00" * 300
    assert (read_ack(b"\0\0"), read_ack(b"\1\0")) == (0, 1)


def test_the_text_of_an_error_is_cut_between_characters():
    data = encode_error("é" * 5000)
    assert len(data) == 10 + int.from_bytes(data[2:4], "little") == 10 + 4096
    assert data[10:].decode() == "é" * 2048


def test_the_bytes_of_a_request_that_is_too_large_are_dropped_as_they_come():
    large = client.pub(b"t", bytes(5000)) + client.alive()
    who = client.sub(b"t", b"w" * 2000) + client.alive()
    for data in (large, who):
        for pieces in (100, None):
            first, second = read(data, pieces, limit=1024)
            assert "the limit is 1,024" in first.fault
            assert second == Request(Op.ALIVE, b"")
    reader = RequestReader(1024)
    reader.feed(client.header(Op.PUB, b"t", b"", b"\xff\xff\xff\xff"))  # 4 GiB are announced
    assert reader.next() is None
    assert (reader.buffered_bytes, reader.is_dropping) == (0, True)


def test_blocks_are_counted_and_what_is_none_is_refused():
    assert count_blocks(block(b"x") + block(b"", [(b"k", b"")]) + block(b"y", [(b"a", b"b"), (b"", b"")])) == 3
    u32 = [number.to_bytes(4, "little") for number in range(10)]
    wrong = {
        "nothing": b"",
        "an empty block": u32[0] + u32[0],
        "sizes alone": u32[1] + u32[0],
        "half of the sizes": block(b"x") + b"\1\0\0",
        "more than there is": u32[3] + u32[0] + b"ab",
        "bytes behind it": block(b"x") + b"y",
        "a header that the block does not have": u32[4] + u32[1] + b"body",
        "a header that is longer than the block": u32[9] + u32[1] + u32[1] + b"k" + b"\xff\xff\xff\x7f",
        "many headers": u32[4] + b"\xff\xff\xff\xff" + u32[0],
        "too many blocks": 1001 * block(b"x"),
    }
    for what, payload in wrong.items():
        with pytest.raises(ValueError, match=r"block|headers"):
            pytest.fail(f"{what}: {count_blocks(payload)}")


def test_no_bytes_make_the_check_of_blocks_fail_otherwise():
    chance = random.Random(7)
    for _ in range(3000):
        payload = bytearray(b"".join(block(b"x" * chance.randrange(1, 9), [(b"k", b"v")]) for _ in range(3)))
        for _ in range(chance.randrange(4)):
            payload[chance.randrange(len(payload))] = chance.choice((0, 1, 4, 255, chance.randrange(256)))
        try:
            assert 1 <= count_blocks(bytes(payload)) <= 3
        except ValueError:
            pass


def test_records_are_cut_between_blocks():
    records = [bytes([number]) * 32 + block(b"x" * number) for number in range(1, 8)]
    raw = b"".join(records)
    for most in (1, 2, 3, 7, 255):
        pieces = list(cut_records(raw, len(records), most))
        assert b"".join(data for _, data in pieces) == raw
        assert [count for count, _ in pieces] == [min(most, 7 - done) for done in range(0, 7, most)]
        assert [data for _, data in pieces] == [b"".join(records[at : at + most]) for at in range(0, 7, most)]
    assert list(cut_records(b"", 0, 3)) == []


def test_names_that_could_be_paths_are_no_names():
    good = [b"order", b"a.b-c_d", "订单".encode(), b"x" * 128, b"..."]
    bad = [b"", b".", b"..", b"../x", b"a/b", b"a\\b", b"a b", b"a\tb", b"a\nb", b"x" * 129, b"\xff", b"a\0b", b"\x7f"]
    bad += ["a\u00a0b".encode(), "a\u200bb".encode()]
    assert [name for name in good if name_of(name) is None] == []
    assert [name for name in bad if name_of(name) is not None] == []


def test_the_place_of_a_topic_is_that_of_the_reference():
    assert topic_root("order") == "/3/3/order"
    assert topic_root("t2") == "/3/7/t2"
