"""What LMQ's door over HTTP adds: headers that are preserved, deliveries that do not count, texts of errors."""

from __future__ import annotations

import json

import pytest

from tests.gateway.gateway import receive_answer, request
from tests.wire.daemon import wait_until

DOOR = "[doors.lmq-http]\nport = 0\n[doors.lmq-http.options]\n{}\n"


def test_header_fields_that_the_configuration_names_come_back(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR.format('preserve_headers = ["User-Agent", "x-foo"]')).start()
    sent = {"Content-Type": "text/plain", "X-Foo": "bar\tbaz", "User-Agent": "UA/1", "X-Other": "no"}
    gateway.ask("POST", "/messages/hk", b"h", sent)
    answer = gateway.ask("GET", "/messages/hk?t=0")
    names = [name for name, _ in answer.headers]
    at = names.index("content-type")
    assert answer.headers[at : at + 3] == [
        ("content-type", "text/plain"),
        ("user-agent", "UA/1"),
        ("x-foo", "bar\tbaz"),
    ]
    assert names[at + 3] == "x-lmq-queue-name"
    assert "x-other" not in names


def test_parts_of_a_compound_message_have_their_own_header_fields(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR.format('preserve_headers = ["x-foo"]')).start()
    gateway.ask("PATCH", "/properties/acc", b'{"accum":3}', {"Content-Type": "application/json"})
    gateway.ask("POST", "/messages/acc", b"one", {"X-Foo": "1"})
    gateway.ask("POST", "/messages/acc", b"two", {"X-Foo": "2"})
    body = gateway.ask("GET", "/messages/acc?t=20").body
    assert b"x-foo: 1\r\ncontent-transfer-encoding: binary\r\n\r\none\r\n" in body
    assert b"x-foo: 2\r\ncontent-transfer-encoding: binary\r\n\r\ntwo\r\n" in body


def test_a_nack_does_not_count_if_the_configuration_says_so(daemon, make_gateway):
    gateway = make_gateway(daemon, DOOR.format("nack_counts = false")).start()
    gateway.ask("POST", "/messages/q", b"m")
    for _ in range(4):
        pulled = gateway.ask("GET", "/messages/q?t=0")
        assert pulled.header("x-lmq-retry-remaining") == "2"
        path = f"/messages/q/{pulled.header('x-lmq-message-id')}?reply=nack"
        assert gateway.ask("POST", path).status == 204


def test_a_message_that_was_delivered_too_often_is_a_dead_letter(daemon, gateway):
    gateway.ask("PATCH", "/properties/q", b'{"retry":0}', {"Content-Type": "application/json"})
    gateway.ask("POST", "/messages/q", b"m", {"Content-Type": "text/plain"})
    pulled = gateway.ask("GET", "/messages/q?t=0")
    gateway.ask("POST", f"/messages/q/{pulled.header('x-lmq-message-id')}?reply=nack")
    assert gateway.ask("GET", "/messages/q?t=0").status == 204
    assert daemon.ask("list_dlq", queue="q")["count"] == 1
    dead = gateway.ask("GET", "/messages/q.dlq?t=0")
    assert (dead.status, dead.body) == (200, b"m")
    assert gateway.ask("POST", f"/messages/q.dlq/{dead.header('x-lmq-message-id')}?reply=ack").status == 204
    assert daemon.ask("list_dlq", queue="q")["count"] == 0


def test_a_message_of_another_client_of_the_daemon_has_a_type(daemon, gateway):
    daemon.ask("publish", queue="other", message={"n": 1})
    daemon.ask("publish", queue="other", message="text")
    first, second = (gateway.ask("GET", "/messages/other?t=0") for _ in range(2))
    assert (first.header("content-type"), json.loads(first.body)) == ("application/json", {"n": 1})
    assert (second.header("content-type"), second.body) == ("text/plain; charset=utf-8", b"text")


def test_a_queue_is_deleted_with_messages_in_every_state(daemon, gateway):
    for _ in range(3):
        gateway.ask("POST", "/messages/q", b"m")
    pulled = gateway.ask("GET", "/messages/q?t=0").header("x-lmq-message-id")
    gateway.ask("PATCH", "/properties/q", b'{"accum":60}', {"Content-Type": "application/json"})
    gateway.ask("POST", "/messages/q", b"m")
    assert gateway.ask("DELETE", "/queues/q").status == 204
    assert daemon.ask("status", queue="q")["exists"] is False
    assert gateway.ask("POST", f"/messages/q/{pulled}?reply=ack").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("GET", "/messages/q?t=1e0", None, b"t must be a number of seconds"),
        ("GET", "/messages/q?cf=json", None, b"cf must be multipart or msgpack"),
        ("GET", "/messages", None, b"qre is missing"),
        ("GET", "/messages?qre=a%5B1-&t=0", None, b"queuePattern"),
        ("POST", "/messages/q/x?reply=foo", b"", b"reply must be ack, nack or ext"),
        ("POST", "/messages/%ff", b"m", b"must be UTF-8"),
        ("POST", "/messages/q.dlq", b"m", b"q.dlq"),
        ("PATCH", "/properties/q", b"{", b"the body must be JSON"),
        ("PUT", "/properties", b'[["a[1-",{}]]', b"patterns[0].pattern"),
        ("PUT", "/properties", b"[" + 400_000 * b"[]," + b"[]]", b"at most 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_said(gateway, method, path, body, text):
    answer = gateway.ask(method, path, body, {"Content-Type": "application/json"} if body else {})
    assert answer.status == 400
    assert text in answer.body


def test_the_requests_of_lmqs_client_in_go_are_read(gateway):
    """It names the host where there is a slash in a queue's name, and encodes no regular expression."""
    at = f"http://localhost:{gateway.ports['lmq-http']}"
    assert gateway.ask("POST", f"{at}/messages/go%2Fa:1", b"Multi", {"Content-Type": "text/plain"}).status == 200
    pushed = gateway.ask("POST", "/messages?qre=^go/[a-z]:(1|2)\\b.{0}$", b"Multi")
    assert json.loads(pushed.body) == {"go/a:1": {"accum": "no"}}
    pulled = gateway.ask("GET", f"{at}/messages/go%2Fa:1?cf=msgpack&t=0")
    assert (pulled.body, pulled.header("x-lmq-queue-name")) == (b"Multi", "go/a:1")
    reply = f"{at}/messages/go%2Fa:1/{pulled.header('x-lmq-message-id')}?reply=ack"
    assert gateway.ask("POST", reply, b"").status == 204
    assert gateway.ask("DELETE", f"{at}/queues/go%2Fa:1").status == 204


def test_a_puller_goes_on_waiting_while_its_queue_is_deleted_and_made_again(gateway):
    with gateway.connect() as peer:
        peer.sendall(request("GET", "/messages/q"))
        wait_until(lambda: gateway.ask("DELETE", "/queues/q").status == 204, "the queue is there, and deleted")
        gateway.ask("POST", "/messages/q", b"m")
        assert receive_answer(peer).body == b"m"
