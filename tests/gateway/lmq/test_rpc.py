"""MessagePack-RPC over real sockets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from tests.gateway.gateway import DOORS
from tests.gateway.lmq.peers import RpcClient
from tests.wire.daemon import PATIENCE_S, wait_until

#: Where scripts/setup installs the client of the time, whose dependencies are older than ours.
MSGPACK_RPC = Path(sys.prefix) / "share" / "lmq"


@pytest.fixture
def client(gateway):
    """A client that speaks the old specification."""
    with RpcClient(gateway) as client:
        yield client


def test_requests_of_a_connection_are_answered_as_they_are_done(client):
    client.send([0, 40, "pull", ["pip"]])
    client.send([0, 41, "push", ["other", "x"]])
    assert client.receive() == [1, 41, None, "ok"]
    client.send([0, 42, "push", ["pip", "x"]])
    pushed, pulled = sorted((client.receive(), client.receive()), key=lambda answer: -answer[1])
    assert pushed == [1, 42, None, "ok"]
    assert (pulled[1], pulled[2], pulled[3]["content"]) == (40, None, "x")


def test_many_requests_at_once_are_all_answered(client):
    client.socket.sendall(b"".join(msgpack.packb([0, n, "push", ["many", n]], use_bin_type=False) for n in range(1000)))
    assert sorted(client.receive()[1] for _ in range(1000)) == list(range(1000))
    assert sorted(client.call("pull", "many", 0)["content"] for _ in range(1000)) == list(range(1000))


def test_a_library_of_today_works(gateway):
    with RpcClient(gateway, is_new=True) as modern:
        content = {"text": "x" * 200, "data": b"\xff" * 300, "list": [None, True, 1.5, -7]}
        assert modern.call("push", "modern", content) == "ok"
        pulled = modern.call("pull", "modern", 0)
        assert pulled["content"]["list"] == content["list"]
        assert pulled["content"]["text"] == content["text"]
        assert modern.call("done", "modern", pulled["id"]) == "ok"
        assert modern.ask("done", "modern", pulled["id"]) == (list(b"throw:not_found"), None)


def test_an_object_comes_back_as_it_was_and_http_shows_it_in_messagepack(gateway, client):
    assert client.call("push", "mixed", {"k": 1}) == "ok"
    reply = gateway.ask("GET", "/messages/mixed?t=0")
    assert (reply.status, reply.header("content-type"), reply.body.hex()) == (200, "application/x-msgpack", "81a16b01")


def test_push_all_encodes_its_content_as_push_does(gateway, client):
    client.call("push", "all/a", 0)
    client.call("push", "all/b", 0)
    assert client.call("push_all", "^all/", {"k": 1}) == "ok"
    assert [client.call("pull", "all/a", 0)["content"] for _ in range(2)] == [0, {"k": 1}]
    assert gateway.ask("GET", "/messages/all%2Fb?t=0").body == b"\x00"
    assert gateway.ask("GET", "/messages/all%2Fb?t=0").body.hex() == "81a16b01"


def test_a_message_of_another_type_is_returned_as_its_bytes(gateway, client):
    for content_type, body in (("text/plain", b"text"), ("application/x-msgpack", b"\x93\x01"), ("", b"\xd4\x05a")):
        gateway.ask("POST", "/messages/other", body, {"content-type": content_type} if content_type else {})
        content = client.call("pull", "other", 0)["content"]
        assert content.encode("utf-8", "surrogateescape") == body


def test_a_large_object_of_the_new_specification_is_converted_while_others_go_on(gateway, client):
    content = [""] * 300_000 + ["x" * 40]
    with RpcClient(gateway, is_new=True) as modern:
        modern.send([0, 1, "push", ["large", content]])
        assert client.call("pull", "small", 0) == "empty"
        assert modern.receive() == [1, 1, None, "ok"]
        assert modern.call("pull", "large", 0)["content"] == content


def test_a_compound_message_is_a_package(gateway, client):
    client.call("update_props", "pack", {"pack": 4})
    assert client.call("push", "pack", {"n": 1}) == "packing started"
    assert gateway.ask("POST", "/messages/pack", b"two", {"content-type": "text/plain"}).body == b'{"accum":"yes"}'
    assert client.call("push", "pack", 3) == "packed"
    pulled = client.call("pull", "pack")
    assert (pulled["type"], pulled["content"]) == ("package", [{"n": 1}, "two", 3])


def test_a_notification_is_executed_and_not_answered(client):
    client.send([2, "push", ["nq", "notified"]])
    client.send([2, "no_such_method", []])
    assert client.call("pull", "nq")["content"] == "notified"


def test_a_message_that_a_notification_pulled_goes_back_uncounted(client):
    client.call("push", "lost", "m")
    client.send([2, "pull", ["lost"]])
    assert wait_until(lambda: pulled(client, "lost"), "the message is back")["retry"] == 2


def waiting(gateway):
    """Number of requests that wait for a message."""
    return gateway.metric("postroom_gateway_waiting_requests")


def pulled(client, queue):
    """A message of a queue, or None."""
    result = client.call("pull", queue, 0)
    return None if result == "empty" else result


def test_a_puller_that_has_gone_takes_no_message_with_it(gateway, client):
    with RpcClient(gateway) as gone:
        gone.send([0, 1, "pull", ["q"]])
        wait_until(lambda: waiting(gateway) == 1, "it waits")
    wait_until(lambda: waiting(gateway) == 0, "it has gone")
    client.call("push", "q", "m")
    assert client.call("pull", "q", 0)["retry"] == 2


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("nothing", [], "undef"),
        ("create", ["q"], "undef"),
        ("push", ["q"], "undef"),
        ("push", ["q", 1, 2], "undef"),
        ("push", [1, 2], "function_clause"),
        ("pull", ["q", "soon"], "function_clause"),
        ("pull", ["q", None], "function_clause"),
        ("done", ["q", 7], "function_clause"),
        ("push", [b"\xff", 1], "throw:invalid"),
        ("push", ["", 1], "throw:invalid"),
        ("push", ["q.dlq", 1], "throw:invalid"),
        ("pull_any", ["a[1-", 0], "throw:invalid_regexp"),
        ("update_props", ["q", {"retry": "1"}], "throw:invalid"),
        ("update_props", ["q", {"retry": 1.5}], "throw:invalid"),
        ("set_default_props", [[["a[1-", {}]]], "throw:invalid"),
    ],
)
def test_an_error_has_the_form_of_lmq_and_the_connection_stays(client, method, arguments, error):
    given, result = client.ask(method, *arguments)
    assert (bytes(given).decode() if type(given) is list else given, result) == (error, None)
    assert client.call("pull", "q", 0) == "empty"


def test_an_extension_type_is_an_error(client):
    client.send([0, 1, "push", ["q", msgpack.ExtType(5, b"x")]])
    assert client.receive() == [1, 1, "function_clause", None]
    assert client.call("pull", "q", 0) == "empty"


@pytest.mark.parametrize("data", [b"\xc1", b"\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x94\x01\x00\xc0\xc0", b"\x91" * 5000])
def test_what_is_no_request_closes_the_connection(gateway, data):
    with RpcClient(gateway) as peer:
        peer.socket.sendall(data)
        assert peer.receive() is None


def test_half_a_request_closes_the_connection_after_a_while(daemon, make_gateway):
    gateway = make_gateway(daemon, f"[limits]\nheader_seconds = 0.2\n{DOORS}").start()
    with RpcClient(gateway) as peer, RpcClient(gateway) as idle:
        peer.socket.sendall(msgpack.packb([0, 1, "push", ["q", "m"]])[:-1])
        assert peer.receive() is None
        assert idle.call("pull", "q", 0) == "empty"


def test_a_request_that_is_too_large_closes_the_connection(gateway):
    with RpcClient(gateway) as peer:
        peer.socket.sendall(b"\x94\x00\x01\xa4push\x92\xa1q\xdb\xff\xff\xff\xff")
        with pytest.raises(ConnectionError):
            for _ in range(64):
                peer.socket.sendall(bytes(1 << 20))
    with RpcClient(gateway) as other:
        assert other.call("pull", "q", 0) == "empty"


def test_the_client_library_of_the_time_works(gateway):
    program = Path(__file__).with_name("msgpack_rpc_program.py")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), str(gateway.ports["lmq-rpc"])],
        env={"PYTHONPATH": str(MSGPACK_RPC)},
        capture_output=True,
        timeout=PATIENCE_S,
        text=True,
    )
    assert (ran.stdout, ran.returncode) == ("all is well\n", 0), ran.stderr
