"""The gateway and its daemon: waits and leases whose clients have gone, and either of them killed."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgpack
import pytest

from postroom_common.lane import FrameReader, encode_frame
from postroom_gateway.contract import Principal
from postroom_gateway.lane.client import Lane
from tests.gateway.gateway import DOORS, Gateway, receive_all, receive_answer, request
from tests.wire.daemon import wait_until

PULL = request("GET", "/messages/q")
SETTINGS = '[daemon]\nsocket = "{}"\npatience_seconds = {}\n[observe]\nport = 0\n'


def waiting(gateway: Gateway) -> float:
    return gateway.metric("postroom_gateway_waiting_requests")


def attempts(daemon) -> list[int]:
    return [event["attempt"] for event in daemon.events() if event["type"] == "leased"]


def test_a_pull_waits_until_there_is_a_message(gateway):
    with gateway.connect() as peer:
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        assert gateway.ask("POST", "/messages/q", b"x").status == 200
        assert receive_answer(peer).body == b"x"


def test_a_socket_with_a_longer_path_than_sockets_may_have_is_reached(daemon, make_gateway, tmp_path):
    far = tmp_path / ("far" * 60)
    far.symlink_to(daemon.ipc)
    gateway = make_gateway(daemon, SETTINGS.format(far / "lane.sock", 60) + DOORS).start()
    assert gateway.ask("POST", "/messages/q", b"x").status == 200


def test_a_client_that_has_gone_waits_no_longer_and_takes_no_message(gateway):
    for _ in range(3):
        with gateway.connect() as peer:
            peer.sendall(PULL)
            wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        wait_until(lambda: waiting(gateway) == 0, "its wait has ended")
    assert gateway.ask("POST", "/messages/q", b"x").status == 200
    answer = gateway.ask("GET", "/messages/q?t=0")
    assert answer.body == b"x"


def test_a_lease_for_a_client_that_has_just_gone_is_returned_and_does_not_count(daemon, gateway):
    """Clients go at the moment at which the message comes: whoever got it, it is there for the next one, at attempt
    1, unless it was handed to the client's socket."""
    for number in range(30):
        peer = gateway.connect()
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        closing = threading.Thread(target=peer.close)
        closing.start()
        body = b"%d" % number
        assert gateway.ask("POST", "/messages/q", body).status == 200
        closing.join()
        wait_until(lambda: gateway.metric("postroom_gateway_daemon_requests") == 0, "a lease that it got is returned")
        pulled = gateway.ask("GET", "/messages/q?t=0")
        if pulled.status == 200:
            assert pulled.body == body
            identity = pulled.header("x-lmq-message-id")
            assert gateway.ask("POST", f"/messages/q/{identity}?reply=ack").status == 204
    assert set(attempts(daemon)) == {1}


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_lease_that_comes_at_the_moment_at_which_its_request_is_given_up_is_returned(tmp_path, is_cancelled):
    async def run() -> dict[str, Any]:
        frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken = FrameReader(2**20)
            while data := await reader.read(65536):
                taken.feed(data)
                while frame := taken.next():
                    header = json.loads(frame.header)
                    if "hello" in header:
                        writer.write(encode_frame(b'{"hello":{"gateway":true}}'))
                    else:
                        frames.put_nowait(header)
            writer.close()
            await writer.wait_closed()
            ended.set()

        server = await asyncio.start_unix_server(serve, tmp_path / "lane.sock")
        lane = Lane(tmp_path / "lane.sock", "gateway", patience_s=9.0, answer_s=0.0, waiting_limit=9)
        assert await lane.until_connected(9.0)
        consuming = asyncio.create_task(lane.request(Principal("a:b"), "consume_next", {"queue": "q"}, door="d"))
        asked = await frames.get()
        if is_cancelled:
            consuming.cancel()
        else:
            lane.tick()
        lease = {"messageKey": "msg:q:1", "leaseId": "lease"}
        answer = {"requestId": asked["requestId"], "ok": True, "data": {"message": {}, "lease": lease}}
        lane._first.data_received(encode_frame(json.dumps(answer).encode()))
        assert isinstance((await asyncio.gather(consuming, return_exceptions=True))[0], BaseException)
        returned = await frames.get()
        await lane.close(0)
        await ended.wait()
        server.close()
        return returned

    returned = asyncio.run(run())
    assert (returned["command"], returned["payload"]["leaseId"]) == ("release", "lease")
    assert returned["payload"]["undelivered"]


def test_more_pulls_may_wait_than_a_connection_to_the_daemon_carries(make_daemon, make_gateway):
    daemon = make_daemon("--lane-requests", "20").start()
    gateway = make_gateway(daemon).start()
    peers = [gateway.connect() for _ in range(60)]
    for number, peer in enumerate(peers):
        peer.sendall(request("GET", f"/messages/q{number}"))
    wait_until(lambda: waiting(gateway) == 60, "all of them wait")
    for number in reversed(range(60)):
        peer = peers.pop()
        assert gateway.ask("POST", f"/messages/q{number}", b"%d" % number).status == 200
        assert receive_answer(peer).body == b"%d" % number
        peer.close()


def test_waits_are_limited(daemon, make_gateway):
    gateway = make_gateway(daemon, "[limits]\nwaiting = 1\n" + DOORS).start()
    with gateway.connect() as peer:
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        assert gateway.ask("GET", "/messages/q").status == 503
        assert gateway.ask("GET", "/messages/q?t=0").status == 204


def test_a_message_that_is_too_large_for_the_daemon_is_refused_and_hurts_nobody(make_daemon, make_gateway):
    daemon = make_daemon("--limits-request-bytes", "100000").start()
    gateway = make_gateway(daemon).start()
    with gateway.connect() as peer:
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        refused = gateway.ask("POST", "/messages/q", 200_000 * b"x")
        assert refused.status == 413
        assert b"limits.requestBytes" in refused.body
        assert gateway.ask("POST", "/messages/q", b"x").status == 200
        assert receive_answer(peer).body == b"x"
    assert gateway.metric("postroom_gateway_daemon_reconnections_total") == 0
    daemon.kill()
    with gateway.connect() as peer:
        peer.sendall(request("POST", "/messages/q", 200_000 * b"x"))
        daemon.start()
        assert receive_answer(peer).status == 413, "also if nobody could say so when it came"


def test_without_a_daemon_clients_get_a_sentence(daemon, make_gateway):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 0.1) + DOORS).start()
    assert gateway.ask("POST", "/messages/q", b"x").status == 200
    daemon.kill()
    answer = gateway.ask("POST", "/messages/q", b"x")
    assert answer.status == 503
    assert b"daemon" in answer.body
    daemon.start()
    wait_until(lambda: gateway.health()["ok"], "the gateway has connected again")
    assert gateway.ask("GET", "/messages/q?t=0").body == b"x"


@pytest.mark.parametrize("is_killed", [False, True], ids=["answers late", "is killed"])
def test_a_pull_that_was_given_up_leases_nothing(daemon, make_gateway, is_killed):
    """The daemon has the request and does not answer in time, so the client gets 503: the message is there for the next
    one, at attempt 1."""
    settings = SETTINGS.format(daemon.ipc / "lane.sock", 0.1).replace("[observe]", "answer_seconds = 0.1\n[observe]")
    gateway = make_gateway(daemon, settings + DOORS).start()
    daemon.ask("publish", queue="q", message="x")
    daemon.freeze()
    assert gateway.ask("GET", "/messages/q?t=0").status == 503
    if is_killed:
        daemon.kill()
        daemon.start()
    else:
        daemon.thaw()
    wait_until(lambda: gateway.metric("postroom_gateway_daemon_requests") == 0, "nothing is in flight")
    wait_until(lambda: gateway.ask("GET", "/messages/q?t=0").body == b"x", "the daemon answers in time again")
    assert set(attempts(daemon)) == {1}


def test_a_killed_daemon_is_waited_for_and_a_wait_goes_on(daemon, make_gateway):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 60) + DOORS).start()
    with gateway.connect() as waiting_one, gateway.connect() as pushing:
        waiting_one.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        daemon.kill()
        pushing.sendall(request("POST", "/messages/q", b"x"))
        daemon.start()
        assert receive_answer(pushing).status == 200
        assert receive_answer(waiting_one).body == b"x"


@pytest.mark.parametrize("wait", ["", "?t=600"])
def test_a_wait_outlasts_a_daemon_that_is_away_for_longer_than_others_wait(daemon, make_gateway, wait):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 0.1) + DOORS).start()
    with gateway.connect() as peer, gateway.connect("lmq-rpc") as other:
        peer.sendall(request("GET", f"/messages/q{wait}"))
        other.sendall(msgpack.packb([0, 7, "pull", ["other"]], use_bin_type=False))
        wait_until(lambda: waiting(gateway) == 2, "both wait")
        daemon.kill()
        for _ in range(3):  # it gives up what has waited too long each second
            assert gateway.ask("POST", "/messages/q", b"x").status == 503
        with gateway.connect() as late:  # one that comes meanwhile
            late.sendall(request("GET", "/messages/late"))
            wait_until(lambda: waiting(gateway) == 3, "it waits, too")
            assert gateway.ask("GET", "/messages/q?t=0").status == 503
            daemon.start()
            wait_until(lambda: gateway.health()["ok"], "the gateway has connected again")
            for queue in ("q", "other", "late"):
                assert gateway.ask("POST", f"/messages/{queue}", queue.encode()).status == 200
            assert [receive_answer(peer).body, receive_answer(late).body] == [b"q", b"late"]
        assert b"other" in other.recv(4096)
    assert set(attempts(daemon)) == {1}


def test_a_wait_that_is_over_before_the_daemon_is_back_is_refused(daemon, make_gateway):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 0.1) + DOORS).start()
    with gateway.connect() as peer:
        peer.sendall(request("GET", "/messages/q?t=4"))
        wait_until(lambda: waiting(gateway) == 1, "it waits")
        daemon.kill()
        assert receive_answer(peer).status == 503


def test_a_wait_that_was_never_sent_is_forgotten_with_its_client(make_gateway):
    gateway = make_gateway().start()
    with gateway.connect() as peer:
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "it waits for a daemon")
    wait_until(lambda: gateway.metric("postroom_gateway_daemon_requests") == 0, "nothing is to be sent")


def test_a_stop_ends_waits_also_without_a_daemon(daemon, make_gateway):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 0.1) + DOORS).start()
    with gateway.connect() as peer:
        peer.sendall(PULL)
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        daemon.kill()
        gateway.stop()
        assert receive_answer(peer).status == 204


def test_a_stop_finishes_answers_ends_waits_and_accepts_nothing_more(daemon, gateway):
    with gateway.connect() as waiting_one, gateway.connect() as idle:
        waiting_one.sendall(PULL)
        idle.sendall(request("GET", "/nosuch"))
        assert receive_answer(idle).status == 404
        wait_until(lambda: waiting(gateway) == 1, "the pull waits")
        gateway.stop()
        answer = receive_answer(waiting_one)
        assert answer.status == 204
        assert answer.header("connection") == "close"
        assert receive_all(idle) == b""
    assert "the gateway stops" in gateway.log()
    gateway.start()
    assert gateway.ask("POST", "/messages/q", b"x").status == 200
    assert gateway.ask("GET", "/messages/q?t=0").body == b"x"


def test_a_client_repeats_a_push_by_its_idempotency_key(gateway):
    headers = {"Idempotency-Key": "order-7"}
    for _ in range(2):
        assert gateway.ask("POST", "/messages/q", b"x", headers).status == 200
    assert gateway.ask("GET", "/messages/q?t=0").status == 200
    assert gateway.ask("GET", "/messages/q?t=0").status == 204
    refused = gateway.ask("POST", "/messages?qre=q", b"x", headers)
    assert (refused.status, b"Idempotency-Key is that of a push to one queue" in refused.body) == (400, True)


def test_the_trace_of_a_request_is_the_daemons(daemon, gateway):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert gateway.ask("POST", "/messages/q", b"x", {"traceparent": trace}).status == 200
    assert trace in [event.get("by", {}).get("traceparent") for event in daemon.events()]
