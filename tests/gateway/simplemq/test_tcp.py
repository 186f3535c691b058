"""The two protocols of SimpleMQ over TCP."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from postroom_gateway.dialects.simplemq.frames import FrameReader, decode_utf
from tests.gateway.gateway import receive_all
from tests.wire.daemon import wait_until

Connect = Callable[..., socket.socket]


def old(topic: bytes, body: bytes) -> bytes:
    return b"\1" + struct.pack(">H", len(topic)) + topic + struct.pack(">i", len(body)) + body


def new(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body)) + body


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        assert piece, data
        data += piece
    return data


def said(peer: socket.socket) -> bytes:
    """The body of the next frame of the newer protocol."""
    kind, size = struct.unpack(">4si", read(peer, 8))
    assert kind == b"BATM"
    return read(peer, size)


@pytest.fixture
def connect(served) -> Iterator[Connect]:
    """Makes connections to the door."""
    made: list[socket.socket] = []

    def make(route: bytes = b"") -> socket.socket:
        made.append(served.gateway.connect("simplemq-tcp"))
        if route:
            made[-1].sendall(new(b"HATM", route))
            assert said(made[-1]) == b"handshake ok"
        return made[-1]

    yield make
    for peer in made:
        peer.close()


def test_the_older_protocol_publishes_bytes_in_order(connect, client, topic):
    consumer = client.consume(topic)
    peer = connect()
    for byte in old(topic.encode(), b"\0\xff"):
        peer.sendall(bytes([byte]))
    assert read(peer, 1) == b"\1"
    peer.sendall(old(topic.encode(), b"a") + old(topic.encode(), b"") + old(b"", b"x") + old(topic.encode(), b"b"))
    assert read(peer, 4) == b"\1\1\0\1", "a message without a topic is refused, and the connection goes on"
    assert consumer.bodies(4) == [b"\0\xff", b"a", b"", b"b"]


def test_the_newer_protocol_routes_messages_to_their_target(connect, served, topic):
    name = topic.encode()
    first = connect(name + b"-a->" + name + b"-b")
    first.sendall(new(b"BATM", b"kept until b comes"))
    assert said(first) == b"ACK"
    second = connect(name + b"-b->" + name + b"-a")
    assert said(second) == b"kept until b comes"
    second.sendall(new(b"BATM", b"answer") + new(b"BATM", b"another"))
    assert {said(second), said(second)} == {b"ACK"}
    assert [said(first), said(first)] == [b"answer", b"another"]
    wait_until(lambda: not served.daemon.counts(f"{topic}-a"), "what has arrived is acknowledged")
    wait_until(lambda: not served.daemon.counts(f"{topic}-b"), "what has arrived is acknowledged")


def test_what_cannot_be_stored_is_not_acknowledged(connect, served, topic):
    served.daemon.ask("set_policy", queue=topic, policy={"limits": {"messages": 1}})
    peer = connect(b"sender->" + topic.encode())
    peer.sendall(new(b"BATM", b"x") * 2)
    assert said(peer) == b"ACK"
    assert said(peer).startswith(b"NACK ")
    older = connect()
    older.sendall(old(topic.encode(), b"x"))
    assert read(older, 1) == b"\0"
    text = f"a message of anonymous:simplemq-tcp for topic {topic!r} was refused"
    wait_until(lambda: text in served.gateway.log(), "it is logged")


def test_what_is_no_frame_closes_the_connection(connect):
    huge = struct.pack(">i", 2**31 - 1)
    cases = [
        b"GET / HTTP/1.1\r\n",
        b"\2",
        b"\1\0\1t" + huge,
        b"\1\0\1t" + struct.pack(">i", -1),
        b"\1\0\1\xff\0\0\0\0",
        b"HATM" + huge,
        new(b"BATM", b"a->b"),
        new(b"HATM", b"a"),
        new(b"HATM", b"->b"),
        new(b"HATM", b"a\n->b\0"),
        new(b"MATM", b"a->b"),
    ]
    for data in cases:
        peer = connect()
        peer.sendall(data)
        assert receive_all(peer) == b"", data
    peer = connect(b"a->b")
    peer.sendall(new(b"HATM", b"a->b"))
    assert receive_all(peer) == b"", "a second handshake"


def test_frames_are_cut_wherever_they_are_torn():
    data = old("t\0€".encode().replace(b"\0", b"\xc0\x80"), b"body") + old(b"t", b"")
    for size in (1, 2, 3, 7, len(data)):
        reader = FrameReader(100)
        found = []
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            while frame := reader.next():
                found.append((frame.topic, frame.body))
        assert found == [("t\0€", b"body"), ("t", b"")]
        assert reader.buffered_bytes == 0


def test_texts_are_those_of_java():
    assert decode_utf(b"\xed\xa0\xbd\xed\xb8\x80\xc0\x80") == "😀\0"
    for wrong in (b"\xff", b"\xed\xa0\xbd", b"\xc0\x81"):
        with pytest.raises(ValueError, match="codec"):
            decode_utf(wrong)
