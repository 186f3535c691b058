"""Who a peer is: tokens and certificates, and what they may do under their names."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import ssl
from pathlib import Path

import pytest

from tests.gateway.gateway import receive_all, receive_answer, request
from tests.wire.daemon import wait_until

TLS = Path(__file__).parent / "tls"
TOKEN = "a-token-of-a-scanner-7"
OTHER = "a-token-of-another-one"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PRINCIPALS = f"""
[principals.scanner-7]
token_sha256 = "{DIGEST}"
"""
TOKENS = f"""{PRINCIPALS}
[doors.lmq-http]
port = 0
authentication = "tokens"
"""


def digest_of_certificate(name: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert((TLS / name).read_text())).hexdigest()


def with_tls(**door: str) -> str:
    lines = "".join(f'{key} = "{value}"\n' for key, value in door.items())
    return f"""
[principals.scanner-7]
certificate_sha256 = "{digest_of_certificate("client.pem")}"

[doors.lmq-http]
port = 0
tls_certificate = "{TLS}/server.pem"
tls_key = "{TLS}/server.key"
{lines}
"""


def trusting(client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(TLS / "authority.pem"))
    if client:
        context.load_cert_chain(TLS / f"{client}.pem", TLS / f"{client}.key")
    return context


def ask_over_tls(gateway, context, path: str = "/messages/q?t=0", method: str = "GET", body: bytes | None = None):
    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
        peer.sendall(request(method, path, body))
        return receive_answer(peer)


def test_what_a_stranger_sends_takes_no_memory(any_daemon, make_gateway):
    gateway = make_gateway(any_daemon, f"[limits]\nbuffer_bytes = 2000\n{TOKENS}").start()
    with gateway.connect() as stranger:
        stranger.sendall(request("POST", "/messages/q", 3000 * b"x"))
        assert receive_answer(stranger).status == 401
    assert gateway.metric("postroom_gateway_buffered_bytes") == 0


@pytest.fixture
def guarded(daemon, make_gateway):
    """A gateway whose clients need tokens."""
    return make_gateway(daemon, TOKENS).start()


def test_a_token_is_needed_in_either_form(guarded):
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    for value in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Basic {basic}"):
        assert guarded.ask("GET", "/messages/q?t=0", headers={"Authorization": value}).status == 204
    for value in (f"Bearer {OTHER}", f"Bearer {TOKEN}x", "Bearer ", "Bearer", f"Basic {TOKEN}", "Basic !", TOKEN, "x"):
        answer = guarded.ask("GET", "/messages/q?t=0", headers={"Authorization": value})
        assert answer.status == 401
        assert answer.header("www-authenticate") == 'Bearer realm="postroom"'
    assert guarded.ask("GET", "/messages/q?t=0").status == 401


def test_a_token_counts_for_its_request_alone(guarded):
    with guarded.connect() as peer:
        peer.sendall(request("GET", "/messages/q?t=0", headers=BEARER) + request("GET", "/messages/q?t=0"))
        assert [receive_answer(peer).status, receive_answer(peer).status] == [204, 401]


def test_a_body_without_a_token_is_neither_asked_for_nor_kept(guarded):
    with guarded.connect() as peer:
        peer.sendall(b"POST /messages/q HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert receive_answer(peer).status == 401
    with guarded.connect() as peer:
        peer.sendall(request("POST", "/messages/q", 100_000 * b"x") + request("GET", "/messages/q?t=0", headers=BEARER))
        assert [receive_answer(peer).status, receive_answer(peer).status] == [401, 204]


def test_the_daemon_knows_the_principal_and_the_door(daemon, guarded):
    assert guarded.ask("POST", "/messages/q", b"x", BEARER).status == 200
    published = next(event for event in daemon.events() if event["type"] == "published")
    assert published["by"]["principal"] == "token:scanner-7"

    def traffic() -> str:
        return "".join(path.read_text() for path in (daemon.root / "traffic").glob("*.jsonl"))

    wait_until(lambda: '"door":"lmq-http"' in traffic(), "the traffic log has the door")


def test_access_rules_name_the_principal(make_daemon, make_gateway):
    rules = {"default": [], "rules": [{"who": ["principal token:scanner-7"], "queue": "mine", "allow": ["publish"]}]}
    daemon = make_daemon(config={"access": rules}).start()
    gateway = make_gateway(daemon, TOKENS).start()
    assert gateway.ask("POST", "/messages/mine", b"x", BEARER).status == 200
    refused = gateway.ask("POST", "/messages/other", b"x", BEARER)
    assert refused.status == 403
    assert refused.body.startswith(b"ERR_FORBIDDEN: ")


def test_a_peer_without_a_name_is_never_a_master(make_daemon, make_gateway):
    """The tests' gateway runs as the daemon's user, or as root: its peers must not be what it is."""
    daemon = make_daemon(config={"access": {"default": [], "rules": []}}).start()
    gateway = make_gateway(daemon).start()
    assert gateway.ask("POST", "/messages/q", b"x").status == 403


def test_a_daemon_that_does_not_accept_the_gateway_is_said_to(tmp_path, make_gateway):
    from tests.wire.conftest import daemons_in

    with daemons_in(tmp_path / "other", "") as make:
        (tmp_path / "other").mkdir()
        daemon = make().start()
        gateway = make_gateway(daemon).start()
        answer = gateway.ask("POST", "/messages/q", b"x")
        assert answer.status == 503
        assert b"gateway.users" in answer.body
        assert "gateway.users" in gateway.health()["problem"]
        wait_until(lambda: "every request is refused: the daemon accepts no requests" in gateway.log(), "a warning")
        (daemon.root / "config.json").write_text(json.dumps({"gateway": {"users": str(os.getuid())}}))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: gateway.ask("POST", "/messages/q", b"x").status == 200, "the gateway is accepted")


def test_a_door_may_have_tls(daemon, make_gateway):
    gateway = make_gateway(daemon, with_tls()).start()
    assert ask_over_tls(gateway, trusting()).status == 204
    with gateway.connect() as peer:
        peer.sendall(request("GET", "/messages/q?t=0"))
        assert b"HTTP" not in receive_all(peer)
    with pytest.raises(ssl.SSLCertVerificationError):
        ask_over_tls(gateway, ssl.create_default_context())


def test_a_certificate_is_a_principal(daemon, make_gateway):
    toml = with_tls(authentication="certificates", tls_client_ca=f"{TLS}/authority.pem")
    gateway = make_gateway(daemon, toml).start()
    assert ask_over_tls(gateway, trusting("client"), "/messages/q", "POST", b"x").status == 200
    published = next(event for event in daemon.events() if event["type"] == "published")
    assert published["by"]["principal"] == "token:scanner-7"
    assert ask_over_tls(gateway, trusting("stranger")).status == 401
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        ask_over_tls(gateway, trusting())


def test_a_reload_reads_principals_and_certificates_again(daemon, make_gateway, tmp_path):
    for name in ("server.pem", "server.key"):
        shutil.copy(TLS / name, tmp_path / name)
    door = f'[doors.lmq-http]\nport = 0\nauthentication = "tokens"\ntls_certificate = "{tmp_path}/server.pem"\n'
    door += f'tls_key = "{tmp_path}/server.key"\n'
    gateway = make_gateway(daemon, PRINCIPALS + door).start()
    context = trusting()

    def status(token: str) -> int:
        with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
            peer.sendall(request("GET", "/messages/q?t=0", headers={"Authorization": f"Bearer {token}"}))
            return receive_answer(peer).status

    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as open_one:
        open_one.sendall(request("GET", "/messages/q?t=0", headers=BEARER))
        assert receive_answer(open_one).status == 204
        gateway.write(f'[principals.other]\ntoken_sha256 = "{hashlib.sha256(OTHER.encode()).hexdigest()}"\n' + door)
        for name in ("client.pem", "client.key"):
            shutil.copy(TLS / name, tmp_path / name.replace("client", "server"))
        gateway.reload()
        assert [status(TOKEN), status(OTHER)] == [401, 204]
        open_one.sendall(request("GET", "/messages/q?t=0", headers=BEARER))
        assert receive_answer(open_one).status == 401, "a connection that is open has no other rules"
    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
        assert peer.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert((TLS / "client.pem").read_text())


@pytest.mark.parametrize("dialect", ["lmq-http", "lmq-rpc"])
def test_a_certificate_that_a_reload_removes_is_refused_also_on_an_open_connection(daemon, make_gateway, dialect):
    toml = with_tls(dialect=dialect, authentication="certificates", tls_client_ca=f"{TLS}/authority.pem")
    gateway = make_gateway(daemon, toml).start()
    ask, context = request("GET", "/messages/q?t=0"), trusting("client")
    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
        if dialect == "lmq-http":
            peer.sendall(ask)
            assert receive_answer(peer).status == 204
        else:
            peer.sendall(b"\x94\x00\x01\xb1get_default_props\x90")
            assert peer.recv(64) == b"\x94\x01\x01\xc0\x90"
        gateway.write(toml.replace(digest_of_certificate("client.pem"), digest_of_certificate("stranger.pem")))
        gateway.reload()
        if dialect == "lmq-http":
            peer.sendall(ask)
            assert receive_answer(peer).status == 401
        else:
            door = 'postroom_gateway_connections{door="lmq-http"}'
            wait_until(lambda: gateway.metric(door) == 0, "the connection has ended")


def test_a_wait_ends_when_a_reload_removes_its_token_and_goes_on_otherwise(guarded):
    waiting = "postroom_gateway_waiting_requests"
    with guarded.connect() as peer:
        peer.sendall(request("GET", "/messages/q", headers=BEARER))
        wait_until(lambda: guarded.metric(waiting) == 1, "the pull waits")
        guarded.reload()
        assert guarded.metric(waiting) == 1
        other = hashlib.sha256(OTHER.encode()).hexdigest()
        guarded.write(TOKENS.replace(DIGEST, other))
        guarded.reload()
        assert receive_all(peer) == b""
    wait_until(lambda: guarded.metric(waiting) == 0, "its wait has ended")


def test_a_wrong_configuration_is_not_taken_over_by_a_reload(guarded):
    guarded.write(TOKENS + "[limits]\nconections = 1\n")
    guarded.reload()
    assert "limits.conections: unknown key" in guarded.log()
    assert guarded.ask("GET", "/messages/q?t=0", headers=BEARER).status == 204


def test_a_silent_tls_peer_is_closed_and_counts_as_a_connection_meanwhile(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nheader_seconds = 2\npeer_connections = 2\n" + with_tls()).start()
    with gateway.connect() as first, gateway.connect() as second:
        refused = 'postroom_gateway_connections_refused_total{door="lmq-http"}'
        with gateway.connect() as third:
            assert receive_all(third) == b""
        assert receive_all(first) == receive_all(second) == b""
    wait_until(lambda: gateway.metric(refused) == 1, "the third one was refused")
    assert gateway.metric('postroom_gateway_failed_handshakes_total{door="lmq-http"}') == 2
    assert ask_over_tls(gateway, trusting()).status == 204


def test_a_request_may_come_with_the_end_of_the_handshake(daemon, make_gateway):
    gateway = make_gateway(daemon, with_tls()).start()
    for _ in range(20):
        assert ask_over_tls(gateway, trusting()).status == 204
    wait_until(lambda: gateway.metric('postroom_gateway_connections{door="lmq-http"}') == 0, "all have gone")


@pytest.mark.parametrize("dialect", ["lmq-http", "lmq-rpc"])
def test_an_authority_that_a_reload_removes_is_trusted_no_longer(daemon, make_gateway, tmp_path, dialect):
    authorities = tmp_path / "authorities.pem"
    both = (TLS / "authority.pem").read_text() + (TLS / "server.pem").read_text()
    authorities.write_text(both)
    toml = with_tls(dialect=dialect, authentication="certificates", tls_client_ca=str(authorities))
    gateway = make_gateway(daemon, toml).start()
    context, ask = trusting("client"), b"\x94\x00\x01\xb1get_default_props\x90"
    if dialect == "lmq-http":
        ask = request("GET", "/messages/q?t=0")
    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
        for _ in range(2):  # what stays the same closes no connection
            peer.sendall(ask)
            assert peer.recv(4096)
            gateway.reload()
        authorities.write_text((TLS / "server.pem").read_text())
        gateway.reload()
        assert receive_all(peer) == b""
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        ask_over_tls(gateway, context)
    authorities.write_text(both)
    gateway.reload()
    with gateway.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as peer:
        peer.sendall(ask)
        assert peer.recv(4096)


def test_a_reload_takes_over_other_files_of_tls_and_names_no_restart(daemon, make_gateway, tmp_path):
    strangers = f'tls_client_ca = "{TLS}/server.pem"'
    toml = with_tls(authentication="certificates", tls_client_ca=f"{TLS}/authority.pem")
    gateway = make_gateway(daemon, toml).start()
    assert ask_over_tls(gateway, trusting("client")).status == 204
    gateway.write(toml.replace(f'tls_client_ca = "{TLS}/authority.pem"', strangers))
    gateway.reload()
    assert "a restart is needed" not in gateway.log()
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        ask_over_tls(gateway, trusting("client"))
    gateway.write(toml.replace(f"{TLS}/authority.pem", f"{tmp_path}/missing.pem"))
    gateway.reload()
    assert "doors.lmq-http: " in gateway.log() and "missing.pem: No such file" in gateway.log()
