"""HTTP as the gateway speaks it, whatever the dialect: through the door of LMQ, and that of health and metrics."""

from __future__ import annotations

import random
import socket
import sys

import pytest

from tests.gateway.gateway import receive_all, receive_answer, request
from tests.wire.daemon import wait_until

PUSH = b"POST /messages/q HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"


def limited(**limits: float) -> str:
    lines = "".join(f"{name} = {value}\n" for name, value in limits.items())
    return f"[limits]\n{lines}[doors.lmq-http]\nport = 0\n"


def test_requests_that_come_together_are_answered_in_order(gateway):
    with gateway.connect() as peer:
        peer.sendall(
            PUSH
            + b"a"
            + b"GET /messages/q?t=0 HTTP/1.1\r\nHost: x\r\n\r\n"
            + b"GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert [receive_answer(peer).status, receive_answer(peer).body, receive_answer(peer).status] == [200, b"a", 404]


def test_a_request_may_come_byte_by_byte(gateway):
    with gateway.connect() as peer:
        for byte in PUSH + b"a":
            peer.sendall(bytes([byte]))
        assert receive_answer(peer).body == b'{"accum":"no"}'


def test_a_body_may_come_in_chunks(gateway):
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.sendall(b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n")
        assert receive_answer(peer).status == 200
    assert gateway.ask("GET", "/messages/q?t=0").body == b"hello world"


def test_a_client_that_expects_to_be_asked_for_the_body_is_asked(gateway):
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"x")
        assert receive_answer(peer).status == 200


def test_an_old_client_gets_an_old_answer_and_the_end_of_the_connection(gateway):
    with gateway.connect() as peer:
        peer.sendall(b"GET /messages/q?t=0 HTTP/1.0\r\n\r\n")
        answer = receive_all(peer)
    assert answer.startswith(b"HTTP/1.0 204 No Content\r\nserver: ")
    assert b"connection" not in answer


def test_a_connection_is_kept_until_its_client_asks_for_its_end(gateway):
    with gateway.connect() as peer:
        for _ in range(3):
            peer.sendall(b"GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n")
            assert receive_answer(peer).header("connection") == "keep-alive"
        peer.sendall(b"GET /nosuch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"connection: close\r\n" in receive_all(peer)


def test_a_client_that_closes_its_side_still_gets_its_answer(gateway):
    with gateway.connect() as peer:
        peer.sendall(PUSH + b"x")
        peer.shutdown(socket.SHUT_WR)
        assert receive_all(peer).endswith(b'{"accum":"no"}')


def test_a_request_for_another_protocol_is_answered_as_usual_and_so_is_what_follows(gateway):
    upgrade = request("GET", "/nosuch", headers={"Connection": "Upgrade", "Upgrade": "h2c"})
    with gateway.connect() as peer:
        peer.sendall(3 * upgrade + request("GET", "/messages/q?t=0"))
        assert [receive_answer(peer).status for _ in range(4)] == [404, 404, 404, 204]


@pytest.mark.parametrize(
    "announced", [b"Content-Length: 42\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n2a\r\n"], ids=["sized", "chunked"]
)
def test_the_body_of_a_request_for_another_protocol_is_its_body_and_no_request(gateway, announced):
    inner = b"POST /messages/smuggled HTTP/1.1\r\nX: y\r\n\r\n"[:42]
    upgrade = b"POST /messages/q HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    end = b"\r\n0\r\n\r\n" if b"chunked" in announced else b""
    with gateway.connect() as peer:
        peer.sendall(upgrade + announced + inner + end + request("GET", "/messages/q?t=0"))
        assert receive_answer(peer).status == 200
        assert receive_answer(peer).body == inner
    assert gateway.ask("GET", "/messages/smuggled?t=0").status == 204


def test_a_tunnel_is_refused_and_what_follows_is_not_read(gateway):
    with gateway.connect() as peer:
        peer.sendall(b"CONNECT other:80 HTTP/1.1\r\nHost: x\r\n\r\n" + request("POST", "/messages/q", b"x"))
        assert receive_all(peer).count(b"HTTP/1.1 404 ") == 1
    assert gateway.ask("OPTIONS", "*").status == 404
    assert gateway.ask("GET", "/messages/q?t=0").status == 204


def test_a_flood_of_requests_at_once_is_answered_in_part(gateway):
    with gateway.connect() as peer:
        peer.sendall(5000 * b"GET /x HTTP/1.1\r\n\r\n")
        answered = receive_all(peer).count(b"HTTP/1.1 404 ")
    assert 1 <= answered < 5000


def test_what_is_no_http_is_answered_with_400(gateway):
    with gateway.connect() as peer:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert receive_all(peer).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
    ],
)
def test_a_request_whose_end_can_be_read_in_two_ways_is_refused(gateway, lines):
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        answer = receive_all(peer)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert gateway.ask("GET", "/messages/q?t=0").status == 204


def test_a_trailer_adds_nothing_to_its_request(gateway):
    chunked = b"POST /messages/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    with gateway.connect() as peer:
        peer.sendall(chunked + b"Content-Type: text/evil\r\n\r\n")
        assert receive_answer(peer).status == 200
    assert gateway.ask("GET", "/messages/q?t=0").header("content-type") == "application/octet-stream"


@pytest.mark.parametrize("endless", [b"0\r\n" + 9000 * b"x:y\r\n", b"0\r\nx: " + 40_000 * b"y", b"1;" + 40_000 * b"x"])
def test_what_comes_beside_a_body_is_limited(any_daemon, make_gateway, endless):
    gateway = make_gateway(any_daemon).start()
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 1, "the first chunk is there")
        peer.sendall(endless)
        assert receive_answer(peer).status == 431


def test_a_body_in_very_many_chunks_takes_its_size_in_memory(gateway):
    resident = gateway.metric("postroom_gateway_process_resident_memory_bytes")
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(6):
            peer.sendall(100_000 * b"2\r\nxy\r\n")
        peer.sendall(b"0\r\n\r\n")
        assert receive_answer(peer).status == 200
    assert gateway.metric("postroom_gateway_process_resident_memory_bytes") - resident < 12 << 20
    assert gateway.ask("GET", "/messages/q?t=0").body == 600_000 * b"xy"


def test_a_vanished_peer_is_noticed_by_the_kernel(gateway):
    with gateway.connect() as peer:
        ours = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}:{peer.getsockname()[1]:04X}"
        peer.sendall(request("GET", "/nosuch"))
        assert receive_answer(peer).status == 404

        def timer() -> str:
            with open("/proc/net/tcp") as table:
                return next(line.split()[5] for line in table if line.split()[2] == ours)

        wait_until(lambda: timer().startswith("02:"), "the timer of keepalive runs")


def test_damaged_requests_hurt_nobody(make_gateway, daemon):
    """Requests of every kind with bytes changed, left out, repeated: each is answered, or its connection is closed."""
    limits = "header_seconds = 0.2\nbody_seconds = 0.2\nidle_seconds = 0.2\n"
    gateway = make_gateway(daemon, f"[limits]\n{limits}[doors.lmq-http]\nport = 0\n").start()
    chance = random.Random(20261129)
    chunked = b"POST /messages/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    bases = [
        PUSH + b"a",
        chunked,
        request("GET", "/messages?qre=q&t=0&cf=msgpack"),
        request("PATCH", "/properties/q", b'{"retry":1}', {"Content-Type": "application/json"}),
        request("POST", "/messages/q/1fd4f096-421b-4edd-af48-25cb018e723a?reply=ack", b""),
    ]
    for _ in range(400):
        damaged = bytearray(chance.choice(bases))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(damaged))
            end = min(len(damaged), at + chance.randrange(1, 12))
            damaged[at:end] = chance.choice([b"", 2 * bytes(damaged[at:end]), chance.randbytes(end - at)])
        with gateway.connect() as peer:
            peer.sendall(damaged)
            peer.shutdown(socket.SHUT_WR)
            receive_all(peer)
    assert gateway.ask("GET", "/nosuch").status == 404
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is in memory")
    wait_until(lambda: gateway.metric('postroom_gateway_connections{door="lmq-http"}') == 0, "all have gone")
    assert "Traceback" not in gateway.log()


def test_a_header_over_the_limit_is_refused(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(header_bytes=2000)).start()
    with gateway.connect() as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + 3000 * b"x")
        assert receive_all(peer).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("announced", [b"Content-Length: 3000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_over_the_limit_is_refused_before_it_has_come(any_daemon, make_gateway, announced):
    gateway = make_gateway(any_daemon, limited(body_bytes=2000)).start()
    with gateway.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\n" + announced + b"\r\n")
        if b"chunked" in announced:
            peer.sendall(b"bb8\r\n" + 3000 * b"x")
        assert receive_answer(peer).status == 413
        peer.sendall(1000 * b"y")  # it may go on sending: its answer is not lost by that


def test_all_bodies_together_are_limited(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(buffer_bytes=2000)).start()
    with gateway.connect() as first, gateway.connect() as second:
        for peer in (first, second):
            peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nContent-Length: 1500\r\n\r\n")
        first.sendall(1400 * b"x")
        wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 1400, "the first body is there")
        second.sendall(1400 * b"x")
        assert receive_answer(second).status == 503
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is buffered")


def test_a_slow_header_and_a_slow_body_are_answered_with_408(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(header_seconds=0.2, body_seconds=0.2)).start()
    with gateway.connect() as slow, gateway.connect() as slower:
        slow.sendall(b"GET / HTT")
        slower.sendall(PUSH)
        assert receive_answer(slow).status == receive_answer(slower).status == 408
    assert gateway.metric('postroom_gateway_slow_peers_total{door="lmq-http"}') == 2


def test_a_client_that_waits_for_an_answer_is_not_slow(make_gateway, daemon):
    limits = "header_seconds = 0.2\nbody_seconds = 0.2\nidle_seconds = 0.2\nread_seconds = 0.2\n"
    gateway = make_gateway(daemon, f"[limits]\n{limits}[doors.lmq-http]\nport = 0\n").start()
    with gateway.connect() as peer:
        last = request("GET", "/nosuch", headers={"Connection": "close"})
        peer.sendall(request("GET", "/messages/q?t=2.5") + last)
        assert [receive_answer(peer).status, receive_answer(peer).status] == [204, 404]


def test_a_connection_that_asks_nothing_is_closed(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(header_seconds=0.2, idle_seconds=0.2)).start()
    with gateway.connect() as silent, gateway.connect() as idle:
        idle.sendall(b"GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n")
        assert receive_all(silent) == b""
        assert receive_all(idle).startswith(b"HTTP/1.1 404 ")


def test_a_peer_that_reads_nothing_is_closed(make_daemon, make_gateway):
    daemon = make_daemon().start()
    gateway = make_gateway(daemon, limited(read_seconds=0.3)).start()
    assert gateway.ask("POST", "/messages/big", 3_000_000 * b"x").status == 200
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", gateway.ports["lmq-http"]))
        peer.sendall(b"GET /messages/big?t=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        name = 'postroom_gateway_slow_peers_total{door="lmq-http"}'
        wait_until(lambda: gateway.metric(name) == 1, "the peer is closed")


def test_connections_are_limited_in_all_and_by_address(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(connections=4, peer_connections=2)).start()
    with gateway.connect() as first, gateway.connect() as second:
        for peer in (first, second):
            peer.sendall(b"GET /nosuch HTTP/1.1\r\nHost: x\r\n\r\n")
            assert receive_answer(peer).status == 404
        with gateway.connect() as third:
            assert receive_all(third) == b""
    wait_until(lambda: gateway.metric('postroom_gateway_connections{door="lmq-http"}') == 0, "all have gone")
    assert gateway.ask("GET", "/nosuch").status == 404
    assert gateway.metric('postroom_gateway_connections_refused_total{door="lmq-http"}') >= 1


def test_requests_are_limited_by_the_second(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, limited(requests_per_second=2)).start()
    with gateway.connect() as peer:
        peer.sendall(4 * request("GET", "/nosuch"))  # together: the time between them would count
        assert [receive_answer(peer).status for _ in range(4)] == [404, 404, 429, 429]


def test_health_and_metrics_say_what_is_wrong(make_gateway, daemon):
    lonely = make_gateway().start()
    answer = lonely.ask("GET", "/health", door="observe")
    assert answer.status == 503
    assert b"there is no socket" in answer.body
    assert lonely.metric("postroom_gateway_daemon_up") == 0
    gateway = make_gateway(daemon).start()
    assert gateway.health()["ok"] is True
    assert gateway.metric("postroom_gateway_daemon_up") == 1
    assert gateway.ask("GET", "/nosuch", door="observe").status == 404
    assert gateway.ask("POST", "/health", b"", door="observe").status == 405


def test_the_metrics_can_be_parsed(gateway):
    from prometheus_client.parser import text_string_to_metric_families as parse

    gateway.ask("GET", "/nosuch")
    families = {one.name: one for one in parse(gateway.ask("GET", "/metrics", door="observe").body.decode())}
    samples = families["postroom_gateway_answers"].samples
    assert [(one.labels, one.value) for one in samples] == [({"door": "lmq-http", "status": "404"}, 1.0)]
