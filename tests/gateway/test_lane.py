"""The gateway and its daemon: waits and leases whose clients have gone, and either of them killed."""

from __future__ import annotations

import threading
import time
from functools import partial

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


def test_a_wait_that_is_older_than_the_patience_is_not_given_up_when_the_daemon_goes(daemon, make_gateway):
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 5) + DOORS).start()
    with gateway.connect() as peer:
        peer.sendall(PULL)
        began_s = time.monotonic()
        wait_until(lambda: time.monotonic() - began_s > 5.1 and waiting(gateway) == 1, "the pull has waited")
        daemon.kill()
        wait_until(lambda: not gateway.health()["ok"], "the gateway has noticed")
        noticed_s = time.monotonic()
        wait_until(lambda: time.monotonic() - noticed_s > 1.2, "requests that waited too long are given up")
        assert waiting(gateway) == 1
        assert receive_answer(peer).status == 503, "nobody came back"


def test_what_was_answered_survives_kills_of_daemon_and_gateway(daemon, make_gateway):
    """Four clients push, one of them both is killed again and again: every answered message is there, none twice."""
    gateway = make_gateway(daemon, SETTINGS.format(daemon.ipc / "lane.sock", 60) + DOORS).start()
    answered: list[bytes] = []
    sent: list[bytes] = []
    stopped = threading.Event()

    def push(name: int) -> None:
        number = 0
        while not stopped.is_set():
            try:
                with gateway.connect() as peer:
                    while not stopped.is_set():
                        number += 1
                        body = b"%d-%d" % (name, number)
                        sent.append(body)
                        peer.sendall(request("POST", "/messages/q", body))
                        if receive_answer(peer).status == 200:
                            answered.append(body)
            except (OSError, AssertionError):
                continue  # the gateway was killed: nobody knows about this one

    threads = [threading.Thread(target=push, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(4):
        wait_until(partial(_has, answered, len(answered) + 20), "more was answered")
        if turn % 2:
            gateway.process.kill()
            gateway.process.wait()
            gateway.start()
        else:
            daemon.kill()
            daemon.start()
    stopped.set()
    for thread in threads:
        thread.join()
    pulled = []
    while (answer := gateway.ask("GET", "/messages/q?t=0")).status == 200:
        pulled.append(answer.body)
        identity = answer.header("x-lmq-message-id")
        assert gateway.ask("POST", f"/messages/q/{identity}?reply=ack").status == 204
    assert len(pulled) == len(set(pulled))
    assert set(answered) <= set(pulled) <= set(sent)


def _has(found: list[bytes], number: int) -> bool:
    return len(found) >= number


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
