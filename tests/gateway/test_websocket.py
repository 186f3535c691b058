"""WebSocket: handshake, frames, pings, the close, and who may connect. Through the door of WebSocket MQ."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
from pathlib import Path

import pytest

from tests.gateway.frames import BINARY, CLOSE, PING, PONG, TEXT, Frame, Refused, WebSocketPeer, frame, request
from tests.gateway.gateway import Gateway, receive_all
from tests.wire.daemon import wait_until

DOOR = "[doors.mq-websocket]\nport = 0\n"
CALL = json.dumps(request("getAllQueueIds"))
ANSWER = b'{"protocol":"delight-rpc","version":"3.1","id":"1","result":[]}'
TLS = Path(__file__).parent / "tls"


@pytest.fixture
def gateway(daemon, make_gateway) -> Gateway:
    """A gateway with a door of WebSocket MQ."""
    gateway: Gateway = make_gateway(daemon, DOOR)
    return gateway.start()


# --- handshake --------------------------------------------------------------------------------------------------------


def test_a_client_may_connect_to_any_path(gateway):
    for path in ("/", "/any/path?x=1", "/%ff", "//"):
        with WebSocketPeer(gateway, path=path) as peer:
            peer.send(CALL)
            assert peer.receive() == Frame(TEXT, ANSWER)


def test_compression_is_declined(gateway):
    offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    with WebSocketPeer(gateway, headers=offer) as peer:
        assert "extensions" not in peer.head.lower()
        peer.send(CALL)
        assert peer.receive() == Frame(TEXT, ANSWER)


def test_the_first_subprotocol_that_a_client_offers_is_selected(gateway):
    with WebSocketPeer(gateway) as peer:
        assert "Sec-WebSocket-Protocol" not in peer.head
    with WebSocketPeer(gateway, headers={"Sec-WebSocket-Protocol": "mq, other"}) as peer:
        assert "Sec-WebSocket-Protocol: mq\r\n" in peer.head


def test_a_request_that_asks_for_no_upgrade_gets_426(gateway):
    for method in (b"GET", b"POST", b"DELETE"):
        with gateway.connect("mq-websocket") as peer:
            peer.sendall(method + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head, _, body = receive_all(peer).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 426 ")
            assert b"\r\nUpgrade: websocket" in head
            assert body == b"Upgrade Required"


def test_what_is_no_handshake_gets_400(gateway):
    for headers in ({"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "x"}):
        with pytest.raises(Refused) as refused:
            WebSocketPeer(gateway, headers=headers)
        assert refused.value.status == 400
    for data in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"GET /\r\n\r\n"):
        with gateway.connect("mq-websocket") as peer:
            peer.sendall(data)
            assert receive_all(peer).startswith(b"HTTP/1.1 400 ")


def test_a_header_that_is_too_large_or_too_slow_ends_the_connection(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nheader_bytes = 4096\nheader_seconds = 0.3\n" + DOOR).start()
    with gateway.connect("mq-websocket") as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyy\r\n" * 60 + b"Z: " + b"z" * 4000)
        assert receive_all(peer).startswith(b"HTTP/1.1 431 ")
    with gateway.connect("mq-websocket") as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n")
        assert receive_all(peer) == b""
    with gateway.connect("mq-websocket") as silent:
        assert receive_all(silent) == b""
    assert gateway.metric('postroom_gateway_slow_peers_total{door="mq-websocket"}') == 2


# --- messages ---------------------------------------------------------------------------------------------------------


def test_binary_messages_are_ignored(gateway):
    with WebSocketPeer(gateway) as peer:
        peer.send(CALL, BINARY)
        peer.send(CALL[:5], BINARY, fin=False)
        peer.send(CALL[5:], 0)
        peer.send(CALL)
        assert peer.receive() == Frame(TEXT, ANSWER)
        peer.send(b"", PING)
        assert peer.receive() == Frame(PONG, b"")


def test_a_message_may_come_in_fragments_with_pings_between_them(gateway):
    with WebSocketPeer(gateway) as peer:
        peer.send(CALL[:10], TEXT, fin=False)
        peer.send(b"here?", PING)
        assert peer.receive() == Frame(PONG, b"here?")
        for character in CALL[10:]:
            peer.send(character, 0, fin=False)
        peer.send(b"", 0)
        assert peer.receive() == Frame(TEXT, ANSWER)


def test_frames_may_arrive_byte_by_byte_and_many_at_once(gateway):
    with WebSocketPeer(gateway) as peer:
        for byte in frame(CALL):
            peer.socket.sendall(bytes([byte]))
        assert peer.receive() == Frame(TEXT, ANSWER)
        peer.socket.sendall(frame(CALL) * 500)
        assert {peer.receive() for _ in range(500)} == {Frame(TEXT, ANSWER)}


def test_a_ping_is_answered_with_its_payload(gateway):
    with WebSocketPeer(gateway) as peer:
        for payload in (b"", b"x" * 125):
            peer.send(payload, PING)
            assert peer.receive() == Frame(PONG, payload)


def test_wrong_frames_close_the_connection_and_say_why(gateway):
    wrong = {
        1002: [frame(CALL, masked=False), frame(CALL, 0), frame(b"x" * 126, PING), frame(CALL, 3), b"\xc1\x80mask"],
        1007: [frame(b'{"id":"\xff"}'), frame(b"\xc3", TEXT, fin=False) + frame(b"(", 0)],
    }
    for code, cases in wrong.items():
        for data in cases:
            with WebSocketPeer(gateway) as peer:
                peer.socket.sendall(data)
                closed = peer.receive()
                assert (closed.opcode, int.from_bytes(closed.payload[:2], "big")) == (CLOSE, code)
                assert peer.is_closed()


def test_a_message_larger_than_the_limit_closes_the_connection(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR + "[doors.mq-websocket.options]\nmessage_bytes = 2000\n").start()
    padded = CALL + " " * (2000 - len(CALL))
    with WebSocketPeer(gateway) as peer:
        peer.send(padded)
        assert peer.receive() == Frame(TEXT, ANSWER)
        peer.send_fragments(padded[:1000].encode(), padded[1000:].encode())
        assert peer.receive() == Frame(TEXT, ANSWER)
        peer.send_fragments(padded[:1000].encode(), padded[1000:].encode() + b" ")
        assert peer.receive().payload[:2] == (1009).to_bytes(2, "big")
        assert peer.is_closed()
    with WebSocketPeer(gateway) as peer:
        peer.socket.sendall(frame(padded + " ")[:20])  # the limit is known from the header
        assert peer.receive().payload[:2] == (1009).to_bytes(2, "big")


def test_a_close_is_answered_and_ends_the_connection(gateway):
    for payload in (b"", (1000).to_bytes(2, "big") + b"done"):
        with WebSocketPeer(gateway) as peer:
            peer.send(payload, CLOSE)
            assert peer.receive() == Frame(CLOSE, payload)
            assert peer.is_closed()


def test_messages_behind_a_close_are_ignored(gateway):
    with WebSocketPeer(gateway) as peer:
        peer.socket.sendall(frame(b"", CLOSE) + frame(CALL))
        assert peer.receive() == Frame(CLOSE, b"")
        assert peer.is_closed()


# --- limits -----------------------------------------------------------------------------------------------------------


def test_incomplete_messages_of_all_peers_are_bounded_together(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nbuffer_bytes = 40000\n" + DOOR).start()
    padded = CALL + " " * 30_000
    with WebSocketPeer(gateway) as first, WebSocketPeer(gateway) as second:
        first.send(padded[:-1], fin=False)
        wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") > 29_000, "the first peer is received")
        second.socket.sendall(frame(padded)[:-1])
        assert second.is_closed()
        first.send(padded[-1:], 0)
        assert first.receive() == Frame(TEXT, ANSWER)
    wait_until(lambda: gateway.metric("postroom_gateway_buffered_bytes") == 0, "nothing is in memory")


def test_a_large_message_has_time_for_each_of_its_pieces(daemon, make_gateway):
    limits = "[limits]\nheader_seconds = 0.3\nbody_seconds = 600\n"
    gateway = make_gateway(daemon, limits + DOOR).start()
    data = frame(CALL + " " * 200_000)
    with WebSocketPeer(gateway) as peer, WebSocketPeer(gateway) as slow:
        slow.socket.sendall(data[:1000])
        peer.socket.sendall(data[:100_000])
        assert slow.is_closed()
        peer.socket.sendall(data[100_000:])
        assert peer.receive() == Frame(TEXT, ANSWER)


# --- heartbeat and stop -----------------------------------------------------------------------------------------------


def test_a_heartbeat_pings_and_a_peer_that_is_silent_is_closed(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR + "[doors.mq-websocket.options]\nheartbeat_seconds = 0.6\n").start()
    with WebSocketPeer(gateway) as peer, WebSocketPeer(gateway) as silent:
        for _ in range(5):
            assert peer.receive() == Frame(PING, b"")
            peer.send(b"", PONG)
        with pytest.raises(ConnectionError):
            while silent.receive() == Frame(PING, b""):
                pass
        peer.send(CALL)
        while (received := peer.receive()) == Frame(PING, b""):
            peer.send(b"", PONG)
        assert received == Frame(TEXT, ANSWER)
    assert gateway.metric('postroom_gateway_slow_peers_total{door="mq-websocket"}') == 1


def test_a_stop_closes_every_connection(gateway):
    with WebSocketPeer(gateway) as peer, WebSocketPeer(gateway) as other:
        gateway.stop()
        for one in (peer, other):
            assert one.receive() == Frame(CLOSE, b"")
            assert one.is_closed()


# --- who may connect --------------------------------------------------------------------------------------------------


def connects(gateway: Gateway, **headers: str) -> bool:
    """Whether a client with these header fields may connect."""
    try:
        with WebSocketPeer(gateway, headers={name.replace("_", "-"): value for name, value in headers.items()}) as peer:
            peer.send(CALL)
            return bool(json.loads(peer.receive().payload)["id"] == "1")
    except Refused as refused:
        assert refused.status in (401, 403)
        return False


def test_a_page_of_another_origin_may_not_connect(gateway):
    here = f"127.0.0.1:{gateway.ports['mq-websocket']}"
    assert connects(gateway)
    assert connects(gateway, Origin=f"http://{here}")
    for origin in (
        "https://evil.example",
        f"http://127.0.0.1:{gateway.ports['observe']}",
        "null",
        "",
        "http://[",
        f"{here}",
    ):
        assert not connects(gateway, Origin=origin)


def test_a_name_that_leads_to_this_machine_is_no_own_origin(gateway):
    """The owner of a domain can let its name lead to 127.0.0.1 (DNS rebinding)."""
    assert not connects(gateway, Origin="http://evil.example:8080", Host="evil.example:8080")
    assert connects(gateway, Origin="http://localhost:8080", Host="localhost:8080")
    assert connects(gateway, Origin="http://[::1]:8080", Host="[::1]:8080")


def test_the_configuration_names_origins_that_may_connect(daemon, make_gateway):
    options = "[doors.mq-websocket.options]\norigins = ['https://console.example']\n"
    gateway = make_gateway(daemon, DOOR + options).start()
    assert connects(gateway, Origin="https://console.example")
    assert not connects(gateway, Origin="http://console.example")
    gateway = make_gateway(daemon, DOOR + "[doors.mq-websocket.options]\norigins = ['*']\n").start()
    assert connects(gateway, Origin="https://other.example")


def with_tokens(**tokens: str) -> str:
    """The configuration of a door that asks for tokens, which some principals have."""
    principals = "".join(
        f'[principals.{name}]\ntoken_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        for name, token in tokens.items()
    )
    return principals + DOOR + 'authentication = "tokens"\n'


def test_a_token_is_in_the_header_the_url_or_a_subprotocol(daemon, make_gateway):
    gateway = make_gateway(daemon, with_tokens(anna="a-token-of-sixteen")).start()
    assert connects(gateway, Authorization="Bearer a-token-of-sixteen")
    assert connects(gateway, Authorization="Basic YW5uYTphLXRva2VuLW9mLXNpeHRlZW4=")  # ws://anna:a-token…@host/
    assert connects(gateway, Sec_WebSocket_Protocol="mq, bearer.a-token-of-sixteen", Origin="https://any.example")
    assert not connects(gateway)
    assert not connects(gateway, Authorization="Bearer another-token-of-it")
    assert not connects(gateway, Sec_WebSocket_Protocol="bearer.another-token-of-it")
    with WebSocketPeer(gateway, headers={"Sec-WebSocket-Protocol": "bearer.a-token-of-sixteen, mq"}) as peer:
        assert "Sec-WebSocket-Protocol: mq\r\n" in peer.head
        assert "a-token" not in peer.head
    assert "a-token" not in gateway.log()


def test_requests_are_those_of_the_tokens_principal(make_daemon, make_gateway):
    access = {"operators": ["principal token:anna"], "rules": [], "default": ["publish", "consume", "browse"]}
    daemon = make_daemon(config={"access": access}).start()
    gateway = make_gateway(daemon, with_tokens(anna="a-token-of-sixteen", ben="b-token-of-sixteen")).start()
    with WebSocketPeer(gateway, headers={"Authorization": "Bearer b-token-of-sixteen"}) as peer:
        error = peer.ask("removeQueue", "q")["error"]
        assert (error["name"], error["ancestors"], error["stack"]) == ("Forbidden", ["CustomError", "Error"], None)
    with WebSocketPeer(gateway, headers={"Authorization": "Bearer a-token-of-sixteen"}) as peer:
        assert peer.ask("removeQueue", "q") == {"result": None}


def test_a_reload_that_removes_a_token_ends_its_connections(daemon, make_gateway):
    both = with_tokens(anna="a-token-of-sixteen", ben="b-token-of-sixteen")
    gateway = make_gateway(daemon, both).start()
    with (
        WebSocketPeer(gateway, headers={"Authorization": "Bearer a-token-of-sixteen"}) as anna,
        WebSocketPeer(gateway, headers={"Authorization": "Bearer b-token-of-sixteen"}) as ben,
        gateway.connect("mq-websocket") as connecting,
    ):
        connecting.sendall(b"GET / HTTP/1.1\r\n")
        gateway.write(with_tokens(ben="b-token-of-sixteen"))
        gateway.reload()
        assert anna.is_closed()
        ben.send(CALL)
        assert ben.receive() == Frame(TEXT, ANSWER)
        connecting.sendall(b"\r\n")
        assert receive_all(connecting).startswith(b"HTTP/1.1 426 ")


def test_certificates_identify_clients_of_a_door_with_tls(daemon, make_gateway):
    der = ssl.PEM_cert_to_DER_cert((TLS / "client.pem").read_text())
    toml = f"""
[principals.anna]
certificate_sha256 = "{hashlib.sha256(der).hexdigest()}"

{DOOR}
authentication = "certificates"
tls_certificate = "{TLS / "server.pem"}"
tls_key = "{TLS / "server.key"}"
tls_client_ca = "{TLS / "authority.pem"}"
"""
    gateway = make_gateway(daemon, toml).start()
    context = ssl.create_default_context(cafile=str(TLS / "authority.pem"))
    context.check_hostname = False
    context.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    secured = context.wrap_socket(gateway.connect("mq-websocket"), server_hostname="localhost")
    with WebSocketPeer(gateway, connection=secured) as peer:
        peer.send(CALL)
        assert peer.receive() == Frame(TEXT, ANSWER)
    secured = context.wrap_socket(gateway.connect("mq-websocket"), server_hostname="localhost")
    with pytest.raises(Refused) as refused:
        WebSocketPeer(gateway, connection=secured, headers={"Origin": "https://evil.example"})
    assert refused.value.status == 403


def test_wrong_options_are_refused(make_gateway):
    for line in (
        "message_bytes = 5",
        "message_bytes = '5'",
        "heartbeat_seconds = -1",
        "heartbeat_seconds = nan",
        "origins = 'x'",
        "origins = ['x']",
        "other = 1",
    ):
        gateway = make_gateway(None, f"{DOOR}[doors.mq-websocket.options]\n{line}\n").start(ready=False)
        assert gateway.process.wait(20) == 2
        assert "doors.mq-websocket.options" in gateway.log()


def test_a_peer_that_reads_nothing_is_closed(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nread_seconds = 0.5\n" + DOOR).start()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", gateway.ports["mq-websocket"]))
        WebSocketPeer(gateway, connection=connection)
        ping = frame(b"x" * 125, PING) * 500
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                connection.sendall(ping)
    assert gateway.metric('postroom_gateway_slow_peers_total{door="mq-websocket"}') == 1
