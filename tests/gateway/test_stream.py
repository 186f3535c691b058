"""Connections whose bytes a dialect reads itself: through the door of LMQ's MessagePack-RPC."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgpack

from tests.gateway.gateway import DOORS, receive_all
from tests.wire.daemon import wait_until


def call(number: int, method: str, *arguments: Any) -> bytes:
    return bytes(msgpack.packb([0, number, method, list(arguments)], use_bin_type=False))


def answers(peer: socket.socket) -> Iterator[list[Any]]:
    unpacker = msgpack.Unpacker(raw=False)
    while piece := peer.recv(1 << 16):
        unpacker.feed(piece)
        yield from unpacker


def test_more_requests_than_may_be_executed_at_once_are_all_answered(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\npeer_requests = 4\n" + DOORS).start()
    with gateway.connect("lmq-rpc") as peer:
        peer.sendall(b"".join(call(number, "push", "q", number) for number in range(500)))
        found = list(islice(answers(peer), 500))
    assert sorted(number for _, number, _, _ in found) == list(range(500))
    assert {result for _, _, _, result in found} == {"ok"}
    assert gateway.metric('postroom_gateway_answers_total{door="lmq-rpc",status="ok"}') == 500


def test_errors_are_counted_by_their_kind(gateway):
    with gateway.connect("lmq-rpc") as peer:
        calls: list[list[Any]] = [["push", "q", "x"], ["nothing"], ["push", 1, 2], ["done", "q", "x"]]
        calls += [["done", "none", "x"], ["pull_any", "a[1-", 0], ["update_props", "q", {"retry": "1"}]]
        calls += [["set_default_props", []]]
        for number, (method, *arguments) in enumerate(calls):
            peer.sendall(call(number, method, *arguments))
        assert len(list(islice(answers(peer), len(calls)))) == len(calls)
    kinds = ("ok", "undef", "function_clause", "not_found", "queue_not_found", "invalid_regexp", "invalid", "forbidden")
    metric = 'postroom_gateway_answers_total{{door="lmq-rpc",status="{}"}}'
    assert {kind: gateway.metric(metric.format(kind)) for kind in kinds} == dict.fromkeys(kinds, 1)


def test_a_peer_that_asks_too_fast_is_read_more_slowly(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nrequests_per_second = 100\n" + DOORS).start()
    began_s = time.monotonic()
    with gateway.connect("lmq-rpc") as peer:
        for number in range(150):
            peer.sendall(call(number, "push", "q", "x" * 8000))
        assert len(list(islice(answers(peer), 150))) == 150
    assert time.monotonic() - began_s > 0.4


def test_a_peer_that_sends_nonsense_or_half_a_request_is_closed(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nheader_seconds = 0.3\n" + DOORS).start()
    for data in (b"\xc1", b"GET / HTTP/1.1\r\n\r\n", call(1, "push", "q", "x")[:-1]):
        with gateway.connect("lmq-rpc") as peer:
            peer.sendall(data)
            assert receive_all(peer) == b""
    assert gateway.metric('postroom_gateway_slow_peers_total{door="lmq-rpc"}') == 1


def test_requests_that_never_end_where_a_piece_ends_are_all_in_time(daemon, make_gateway):
    """A peer that sends without a break is in the middle of a request whenever somebody looks."""
    gateway = make_gateway(daemon, "[limits]\nheader_seconds = 2\n" + DOORS).start()
    with gateway.connect("lmq-rpc") as peer:
        found = answers(peer)
        last, began_s = call(0, "pull", "q", 0), time.monotonic()
        peer.sendall(last[:5])
        while time.monotonic() - began_s < 5:
            peer.sendall(last[5:] + last[:5])
            assert next(found)[1:] == [0, None, "empty"]


def test_requests_that_are_executed_are_limited_by_their_bytes(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nbuffer_bytes = 4000000\n" + DOORS).start()
    daemon.freeze()
    peers = [gateway.connect("lmq-rpc") for _ in range(3)]
    for peer in peers:
        peer.setblocking(False)
    request = memoryview(call(1, "push", "q", "x" * 400_000))
    sent = [0, 0, 0]

    def buffered_when_no_more_is_taken():
        while select.select([], peers, [], 0.5)[1]:
            for number, peer in enumerate(peers):
                with contextlib.suppress(BlockingIOError):
                    sent[number] += peer.send(request[sent[number] % len(request) :])
        return gateway.metric("postroom_gateway_buffered_bytes")

    wait_until(lambda: buffered_when_no_more_is_taken() > 3_000_000, "as much is read as may be")
    assert buffered_when_no_more_is_taken() < 7_000_000
    daemon.thaw()
    for number, peer in enumerate(peers):
        peer.setblocking(True)
        peer.sendall(request[sent[number] % len(request) or len(request) :])
        assert len(list(islice(answers(peer), -(-sent[number] // len(request))))) == -(-sent[number] // len(request))
        peer.close()
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is in memory")


def test_a_peer_that_reads_no_answers_is_closed_when_they_take_too_much(daemon, make_gateway):
    limits = "[limits]\nbuffer_bytes = 4000000\nbody_bytes = 2000000\nread_seconds = 600\n"
    gateway = make_gateway(daemon, limits + DOORS).start()
    for _ in range(8):
        assert gateway.ask("POST", "/messages/big", 1_500_000 * b"x").status == 200
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", gateway.ports["lmq-rpc"]))
        peer.sendall(b"".join(call(number, "pull", "big", 0) for number in range(8)))
        name = 'postroom_gateway_slow_peers_total{door="lmq-rpc"}'
        wait_until(lambda: gateway.metric(name) == 1, "the peer is closed")
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is in memory")


def test_incomplete_requests_of_all_peers_are_bounded_together(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nbuffer_bytes = 20000\n" + DOORS).start()
    request = call(1, "push", "q", "x" * 15_000)
    with gateway.connect("lmq-rpc") as first, gateway.connect("lmq-rpc") as second:
        first.sendall(request[:-1])
        wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") > 14_000, "the first peer is received")
        second.sendall(request[:-1])
        assert receive_all(second) == b""
        first.sendall(request[-1:])
        assert next(answers(first)) == [1, 1, None, "ok"]
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is in memory")


def test_a_peer_that_closes_its_side_gets_the_answers_to_what_it_has_sent(gateway):
    with gateway.connect("lmq-rpc") as peer:
        peer.sendall(b"".join(call(number, "push", "q", number) for number in range(20)))
        peer.shutdown(socket.SHUT_WR)
        assert len(list(answers(peer))) == 20


def test_a_pull_whose_client_has_gone_ends(gateway):
    with gateway.connect("lmq-rpc") as peer:
        peer.sendall(call(1, "pull", "q"))
        wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 1, "the pull waits")
    wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 0, "its wait has ended")


def test_a_stop_answers_a_pull_that_waits(gateway):
    with gateway.connect("lmq-rpc") as peer:
        peer.sendall(call(7, "pull", "q"))
        wait_until(lambda: gateway.metric("postroom_gateway_waiting_requests") == 1, "the pull waits")
        gateway.stop()
        assert list(answers(peer)) == [[1, 7, None, "empty"]]
