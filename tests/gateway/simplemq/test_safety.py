"""What is not lost, and who may not connect."""

from __future__ import annotations

import hashlib

import pytest

from tests.gateway.frames import Refused
from tests.gateway.simplemq.client import JSON, Client
from tests.gateway.simplemq.place import CONFIG
from tests.wire.daemon import wait_until

SECRET = "a token of sixteen"
TOKENS = f"""
[principals.press]
token_sha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
[principals.other]
token_sha256 = "{hashlib.sha256(b"another token, longer").hexdigest()}"
[doors.simplemq]
port = 0
authentication = "tokens"
options = {{key_file = "KEY", retry_seconds = 0.001}}
"""
SHOWN = {**JSON, "Authorization": f"Bearer {SECRET}"}


def test_what_is_not_settled_survives_the_gateway_and_the_daemon(make_daemon, make_gateway, tmp_path):
    (tmp_path / "key").write_text("sixteen characters")
    (tmp_path / "key").chmod(0o600)
    daemon = make_daemon(config=CONFIG).start()
    toml = TOKENS.replace("KEY", str(tmp_path / "key"))
    gateway = make_gateway(daemon, toml).start()
    client = Client(gateway)
    for number in range(3):
        answer = client.post("/api/message/publish", {"topic": "t", "payload": str(number)}, SHOWN)
        assert answer.status == 200
    answer = client.post("/api/message/subscribe/t", {"consumerId": "c", "ackMode": "CLIENT"}, SHOWN)
    token = answer.body.decode().partition('"token":"')[2].partition('"')[0]
    consumer = client.connect(token)
    first = consumer.said()
    assert consumer.asks("ACK", messageId=first["messageId"])["status"] == "DELIVERED"
    assert consumer.said()["attempt"] == 1
    gateway.kill()
    daemon.restart(kill=True)
    client.close()

    gateway = make_gateway(daemon, toml).start()
    client = Client(gateway)
    consumer = client.connect(token)  # the key is that of before
    (lease,) = daemon.ask("list_inflight", queue="t")["messages"]
    daemon.ask("release", messageKey=lease["messageKey"], anyHolder=True)  # sooner than its time is over
    for _ in range(2):
        got = consumer.said()
        assert consumer.asks("ACK", messageId=got["messageId"])["status"] == "DELIVERED"
    assert daemon.counts("t") == {}

    daemon.kill()
    answer = client.post("/api/message/register/producer", {"producerId": "p"}, SHOWN)
    assert answer.status == 200
    daemon.start()
    answer = client.post("/api/message/publish", {"topic": "t", "payload": "after"}, SHOWN)
    assert answer.status == 200
    assert consumer.said()["body"] == "YWZ0ZXI="

    gateway.write(toml.replace("[principals.press]", "[principals.press-2]"))
    gateway.reload()
    wait_until(consumer.is_closed, "the connection of a principal that is gone ends")
    with pytest.raises(Refused) as refused:
        client.connect(token)
    assert refused.value.status == 401
    client.close()


def test_a_client_without_its_token_is_refused(make_gateway, tmp_path):
    (tmp_path / "key").write_text("sixteen characters")
    (tmp_path / "key").chmod(0o600)
    client = Client(make_gateway(None, TOKENS.replace("KEY", str(tmp_path / "key"))).start())
    for path in ("publish", "subscribe/t", "register/producer"):
        answer = client.post(f"/api/message/{path}", {"consumerId": "c", "producerId": "p"})
        assert answer.status == 401
        assert answer.header("www-authenticate")


def test_requests_and_connections_at_one_address_are_counted_once_each(client, topic):
    gateway, name = client.gateway, 'postroom_gateway_connections{door="simplemq"}'
    wait_until(lambda: gateway.metric(name) == 0, "those of other tests have ended")
    consumer = client.consume(topic)
    with gateway.connect("simplemq") as peer:
        for byte in b"GET /ws/me":
            peer.sendall(bytes([byte]))
        wait_until(lambda: gateway.metric(name) == 2, "both are counted")
        peer.sendall(b"ssages HTTP/1.1\r\nHost: a\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 404")
    consumer.socket.close()
    wait_until(lambda: gateway.metric(name) == 0, "both have ended")
