"""The lane: bodies, repeats over both doors, waits, ends of connections, and peers that mean harm."""

from __future__ import annotations

import base64
import json
import os
import stat
import struct
from typing import Any

import pytest

from postroom_client import Binary, Client
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Sent, wait_until
from tests.wire.lane import LaneClient, as_in_mailbox, frame
from tests.wire.users import ANNA, BERT, acting_as, client_of, send_as

LARGE = b"x" * 300_000


def error_of(client: LaneClient) -> str:
    """The code of the error with which the daemon ends a connection."""
    answer, _ = client.receive()
    assert "requestId" not in answer and client.is_ended()
    code: str = answer["error"]["code"]
    return code


def publish_and_consume(daemon: Daemon, body: bytes, **fields: Any) -> tuple[dict[str, Any], bytes]:
    with LaneClient(daemon.ipc) as client:
        client.ask("publish", {"queue": "q", "bodyBytes": len(body), **fields}, body)
        answer, bodies = client.call("consume_next", {"queue": "q", "payloadAs": "value"})
        message: dict[str, Any] = answer["data"]["message"]
        return message, bodies


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("binary", bytes(range(256))), ("text", "Grüße\n".encode()), ("json", b'{"b":1,"a":[2.5]}'), ("binary", b"")],
)
def test_a_body_arrives_byte_for_byte(daemon: Daemon, encoding: str, body: bytes) -> None:
    message, bodies = publish_and_consume(daemon, body, encoding=encoding)
    assert (message["encoding"], message["bodyBytes"], bodies) == (encoding, len(body), body)


def test_a_body_without_an_encoding_is_binary_and_base64_over_the_mailbox(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.ask("publish", {"queue": "q", "bodyBytes": 3, "contentType": "image/png"}, b"\0\xff\n")
    message = daemon.consume("q")["message"]
    assert (message["payload"], message["encoding"]) == (base64.b64encode(b"\0\xff\n").decode(), "base64")
    assert message["contentType"] == "image/png"


def test_messages_of_a_batch_have_bodies_in_the_frame_or_in_the_json(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        messages = [{"bodyBytes": 2}, {"message": "in the JSON"}, {"bodyBytes": 3, "encoding": "text"}]
        client.ask("publish_batch", {"queue": "q", "messages": messages}, b"\0\1abc")
        answer, bodies = client.call("consume_next", {"queue": "q", "max": 10})
    shown = [(one["message"]["encoding"], one["message"]["bodyBytes"]) for one in answer["data"]["messages"]]
    assert (shown, bodies) == ([("binary", 2), ("text", 11), ("text", 3)], b"\0\1in the JSONabc")


@pytest.mark.parametrize(
    ("command", "payload", "body", "code"),
    [
        ("publish", {"bodyBytes": 4}, b"abc", "ERR_INVALID_REQUEST"),
        ("publish", {"bodyBytes": 2}, b"abc", "ERR_INVALID_REQUEST"),
        ("publish", {"bodyBytes": -1}, b"", "ERR_INVALID_REQUEST"),
        ("publish", {"bodyBytes": 1.5}, b"", "ERR_PARSE_ERROR"),
        ("publish", {"message": "x"}, b"abc", "ERR_INVALID_REQUEST"),
        ("publish", {"message": "x", "bodyBytes": 3}, b"abc", "ERR_INVALID_REQUEST"),
        ("publish", {"bodyBytes": 3, "encoding": "base64"}, b"abc", "ERR_INVALID_REQUEST"),
        ("publish", {"bodyBytes": 2, "encoding": "text"}, b"\xff\xfe", "ERR_PARSE_ERROR"),
        ("publish", {"bodyBytes": 15, "encoding": "json"}, b'{"a":1,"a":  2}', "ERR_PARSE_ERROR"),
        ("status", {}, b"abc", "ERR_INVALID_REQUEST"),
        ("set_schedule", {"name": "s", "bodyBytes": 3, "everyMs": 60000}, b"abc", "ERR_INVALID_REQUEST"),
    ],
)
def test_bodies_that_do_not_fit_are_refused_and_the_connection_continues(
    daemon: Daemon, command: str, payload: dict[str, Any], body: bytes, code: str
) -> None:
    with LaneClient(daemon.ipc) as client:
        answer, _ = client.call(command, {"queue": "q", **payload}, body)
        assert answer["error"]["code"] == code, answer
        assert client.ask("health", {})


# --- exactly once ----------------------------------------------------------------------------------------------------


def test_a_request_that_is_repeated_over_the_other_door_is_executed_once(daemon: Daemon) -> None:
    by_file = daemon.request("publish", {"queue": "q", "message": "first over the mailbox"})
    daemon.put(by_file.data, by_file.name)
    first = daemon.answer(by_file)
    by_lane = daemon.request("publish", {"queue": "q", "message": "first over the lane"})
    with LaneClient(daemon.ipc) as client:
        client.send(by_file.data)
        assert client.receive()[0] == first
        client.send(by_lane.data)
        second, _ = client.receive()
    assert daemon.again(by_lane) == second
    assert daemon.counts("q") == {"ready": 2}


@pytest.mark.parametrize("kill", [False, True])
def test_an_idempotency_key_makes_different_bytes_one_request(daemon: Daemon, kill: bool) -> None:
    with LaneClient(daemon.ipc) as client:
        first = client.ask("publish", {"queue": "q", "bodyBytes": 2}, b"\0\1", idempotencyKey="k-1")
    if kill:
        daemon.restart(kill=True)
    in_json = {"queue": "q", "message": "AAE=", "encoding": "base64"}
    again = daemon.request("publish", in_json, client_id="another", idempotencyKey="k-1")
    assert daemon.again(again)["data"] == first
    assert daemon.again(daemon.request("publish", in_json, idempotencyKey="k-2"))["data"] != first
    assert daemon.counts("q") == {"ready": 2}


@pytest.mark.parametrize("key", ["", 7, "x" * 257, None])
def test_an_idempotency_key_is_a_string_of_1_to_256_bytes(daemon: Daemon, key: Any) -> None:
    response = daemon.again(daemon.request("health", {}, idempotencyKey=key))
    assert response["ok"] if key is None else response["error"]["code"] == "ERR_INVALID_REQUEST"


def test_the_same_bytes_from_clients_with_other_ids_are_other_requests(daemon: Daemon) -> None:
    for client_id in ("one", "two", "two"):
        with LaneClient(daemon.ipc, client_id) as client:
            client.send({"requestId": "r", "command": "publish", "payload": {"queue": "q", "message": "x"}})
            assert client.receive()[0]["ok"]
    assert daemon.counts("q") == {"ready": 2}


def test_what_was_answered_survives_a_kill_and_its_repeat_changes_nothing(daemon: Daemon) -> None:
    requests = [daemon.request("publish", {"queue": "q", "message": str(number)}) for number in range(50)]
    with LaneClient(daemon.ipc) as client:
        for request in requests:
            client.send(request.data)
        answers = {answer["requestId"]: answer for answer, _ in (client.receive() for _ in requests)}
    daemon.restart(kill=True)
    with LaneClient(daemon.ipc) as client:
        for request in requests:
            client.send(request.data)
            assert client.receive()[0] == answers[request.request_id]
    assert daemon.counts("q") == {"ready": 50}


def test_the_client_continues_over_files_when_its_connection_is_lost(daemon: Daemon) -> None:
    with Client(str(daemon.ipc), client_id="survivor") as client:
        client.publish("q", Binary(b"\0before"))
        daemon.freeze()
        request = client.prepare("publish", {"queue": "q", "message": Binary(b"\0during")})
        waiting = _in_thread(lambda: client.send(request))
        wait_until(lambda: request.sent, "the request is sent")
        daemon.kill()
        daemon.start()
        key = waiting()["messageKey"]
        assert client.send(request)["messageKey"] == key
        assert [one.payload.data for one in client.consume_next("q", max=3)] == [b"\0before", b"\0during"]


def _in_thread(work: Any) -> Any:
    """Begin work in another thread; what waits for its result."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(60)


# --- waits and ends --------------------------------------------------------------------------------------------------


def test_cancel_ends_a_wait_as_if_its_time_had_passed(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        waiting = client.request("consume_next", {"queue": "q", "waitMs": 3_600_000})
        client.send({"cancel": waiting})
        answer, _ = client.receive()
        assert (answer["requestId"], answer["data"]) == (waiting, {"message": None})
    daemon.publish("q")
    assert daemon.counts("q") == {"ready": 1}


def test_cancel_of_anything_else_has_no_effect(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.send({"cancel": "nothing"})
        published = client.request("publish", {"queue": "q", "message": "x"})
        client.send({"cancel": published})
        assert client.receive()[0]["ok"]
        assert client.ask("status", {"queue": "q"})["metrics"]["ready"] == 1


def test_the_end_of_a_connection_ends_its_waits(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.request("consume_next", {"queue": "q", "waitMs": 3_600_000})
        daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "the request waits")
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 0, "the wait has ended")
    daemon.publish("q")
    assert daemon.counts("q") == {"ready": 1}


def test_a_request_that_nobody_has_read_is_withdrawn_with_its_connection(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        daemon.freeze()
        client.request("publish", {"queue": "q", "message": "x"})
    daemon.thaw()
    daemon.wait(lambda: daemon.ask("metrics")["lane"]["connections"] == 0, "the connection is gone")
    assert daemon.events("published") == []


def test_a_lease_that_could_not_be_delivered_is_returned_to_its_place_and_not_counted(daemon: Daemon) -> None:
    daemon.ask("set_policy", queue="q", policy={"retry": {"returnTo": "end"}})  # of what a consumer returns
    with LaneClient(daemon.ipc, "publisher") as publisher:
        for _ in range(8):
            publisher.ask("publish", {"queue": "q", "bodyBytes": len(LARGE)}, LARGE)
    with LaneClient(daemon.ipc, receive_bytes=4096) as client:
        for _ in range(8):
            client.request("consume_next", {"queue": "q"})
        daemon.wait(lambda: daemon.counts("q").get("inflight", 0) >= 4, "more are leased than the kernel takes")
    daemon.wait(lambda: daemon.counts("q").get("ready", 0) >= 6, "those that were not handed over are back")
    back = [daemon.consume("q")["message"] for _ in range(daemon.counts("q")["ready"])]
    assert {message["attempt"] for message in back} == {1}
    keys = [message["messageKey"] for message in back]
    assert keys == [event["key"] for event in daemon.events("published") if event["key"] in keys]
    assert all("returnTo" not in event for event in daemon.events("released"))


@pytest.mark.parametrize("door", ["lane", "mailbox"])
def test_a_lease_that_a_repeat_got_by_another_connection_stays_when_the_first_one_ends(
    door: str, daemon: Daemon
) -> None:
    with LaneClient(daemon.ipc, "publisher") as publisher:
        for _ in range(8):
            publisher.ask("publish", {"queue": "q", "bodyBytes": len(LARGE)}, LARGE)
    requests = [daemon.request("consume_next", {"queue": "q"}) for _ in range(8)]
    with LaneClient(daemon.ipc, receive_bytes=4096) as first, LaneClient(daemon.ipc) as second:
        for request in requests:
            first.send(request.data)
        daemon.wait(lambda: daemon.counts("q").get("inflight", 0) >= 4, "more are leased than the kernel takes")
        if door == "lane":
            second.send(requests[3].data)
            delivery = as_in_mailbox(*second.receive())["data"]
        else:
            delivery = daemon.again(requests[3])["data"]
        first.close()
        daemon.wait(lambda: daemon.counts("q").get("ready", 0) >= 5, "those that nobody else has are back")
        daemon.settle("ack", delivery)
    assert delivery["message"]["messageKey"] not in {event["key"] for event in daemon.events("released")}


def test_requests_of_a_connection_are_executed_in_their_order_and_a_wait_holds_nobody_up(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        waiting = client.request("consume_next", {"queue": "late", "waitMs": 3_600_000})
        sent = [client.request("publish", {"queue": "q", "message": str(number)}) for number in range(200)]
        answered = [client.receive()[0]["requestId"] for _ in sent]
        assert answered == sent
        client.request("publish", {"queue": "late", "message": "x"})
        assert waiting in {client.receive()[0]["requestId"] for _ in range(2)}
    bodies = [one["message"]["payload"] for one in daemon.ask("consume_next", queue="q", max=200)["messages"]]
    assert bodies == [str(number) for number in range(200)]


def test_a_request_id_that_is_in_flight_is_refused_and_the_first_continues(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.request("consume_next", {"queue": "q", "waitMs": 3_600_000}, requestId="twice")
        client.request("health", {}, requestId="twice")
        assert client.receive()[0]["error"]["code"] == "ERR_INVALID_REQUEST"
        client.send({"cancel": "twice"})
        assert client.receive()[0]["data"] == {"message": None}


# --- who -------------------------------------------------------------------------------------------------------------


def test_who_may_write_requests_may_connect(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    assert stat.S_IMODE((daemon.ipc / "lane.sock").stat().st_mode) == 0o622
    with acting_as(ANNA), LaneClient(daemon.ipc, client_of(ANNA)) as client:
        client.ask("publish", {"queue": "q", "message": "x"})
        assert client.call("drain", {})[0]["error"]["code"] == "ERR_FORBIDDEN"
    assert daemon.events("published")[0]["by"]["uid"] == ANNA


def test_nobody_else_may_connect(make_shared: MakeDaemon) -> None:
    daemon = make_shared()
    daemon.requests.chmod(0o2770)
    daemon.start()
    with acting_as(ANNA), pytest.raises(PermissionError):
        LaneClient(daemon.ipc)


def test_a_client_id_belongs_to_its_owner_over_the_lane_too(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    daemon.answer(send_as(daemon, BERT, "publish", {"queue": "q", "message": "x"}))
    with acting_as(ANNA):
        with LaneClient(daemon.ipc, greet=False) as client:
            client.send({"hello": {"versions": [1], "clientId": client_of(BERT)}})
            assert error_of(client) == "ERR_FORBIDDEN"
        with LaneClient(daemon.ipc, client_of(ANNA)) as client:
            answer, _ = client.call("health", {}, clientId=client_of(BERT))
            assert answer["error"]["code"] == "ERR_FORBIDDEN"
            assert client.ask("publish", {"queue": "q", "message": "x"}, clientId="nobodys")


def test_the_repeat_of_another_user_is_another_request(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    request = daemon.request("publish", {"queue": "q", "message": "x"}, client_id="shared")
    for uid in (ANNA, BERT):
        with acting_as(uid), LaneClient(daemon.ipc, "shared") as client:
            client.send(request.data)
            assert client.receive()[0]["ok"]
    assert daemon.counts("q") == {"ready": 2}


# --- peers that mean harm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"not JSON"), "ERR_PARSE_ERROR"),
        (frame(b"[1]"), "ERR_INVALID_REQUEST"),
        (frame(b""), "ERR_PARSE_ERROR"),
        (frame({"requestId": "r", "clientId": "c", "command": "health"}), "ERR_INVALID_REQUEST"),
        (frame({"hello": {"versions": [2], "clientId": "c"}}), "ERR_INVALID_REQUEST"),
        (frame({"hello": {"versions": 1, "clientId": "c"}}), "ERR_INVALID_REQUEST"),
        (frame({"hello": {"versions": [1], "clientId": "../c"}}), "ERR_INVALID_REQUEST"),
        (frame({"hello": {"versions": [1], "clientId": "c"}}, b"body"), "ERR_INVALID_REQUEST"),
        (struct.pack("<II", 2**32 - 1, 2**32 - 1), "ERR_MESSAGE_TOO_LARGE"),
        (struct.pack("<II", 10, 2**32 - 1), "ERR_MESSAGE_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "ERR_MESSAGE_TOO_LARGE"),
    ],
)
def test_a_peer_that_begins_with_something_else_is_told_and_closed(daemon: Daemon, data: bytes, code: str) -> None:
    with LaneClient(daemon.ipc, greet=False) as client:
        client.socket.sendall(data)
        assert error_of(client) == code
    assert daemon.ask("metrics")["lane"]["connections"] == 0


def test_four_gigabytes_that_are_announced_occupy_nothing(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.socket.sendall(struct.pack("<II", 100, 2**32 - 1))
        assert error_of(client) == "ERR_MESSAGE_TOO_LARGE"
    assert daemon.resident_kb() < 100_000


def test_half_a_frame_is_not_waited_for_longer_than_configured(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"frameMs": 1000}})
    daemon.start()
    with LaneClient(daemon.ipc, greet=False) as silent, LaneClient(daemon.ipc) as half, LaneClient(daemon.ipc) as idle:
        half.socket.sendall(frame({"requestId": "r", "command": "health"})[:-1])
        assert error_of(half) == "ERR_TIMEOUT"
        assert error_of(silent) == "ERR_TIMEOUT"
        assert idle.ask("health", {})


def test_a_peer_that_is_refused_and_reads_nothing_is_closed_too(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"frameMs": 1000}})
    daemon.start()
    with LaneClient(daemon.ipc, "publisher") as publisher:
        publisher.ask("publish", {"queue": "q", "bodyBytes": 4 * len(LARGE)}, 4 * LARGE)
    with LaneClient(daemon.ipc, receive_bytes=4096) as client:
        client.request("consume_next", {"queue": "q"})
        client.socket.sendall(frame(b"not JSON") + b"half")
        daemon.wait(lambda: daemon.ask("metrics")["lane"]["dropped"] == 1, "the connection is closed")
        assert daemon.ask("metrics")["lane"]["refused"] == 1
    assert daemon.counts("q") == {"ready": 1}


def test_frames_that_arrive_byte_by_byte_are_read(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        data = frame({"requestId": "r", "command": "publish", "payload": {"queue": "q", "bodyBytes": 3}}, b"\0\1\2")
        for position in range(len(data)):
            client.socket.sendall(data[position : position + 1])
        assert client.receive()[0]["ok"]


def test_a_peer_that_reads_no_answers_occupies_no_more_than_configured(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"userBytes": 2**20}})
    daemon.start()
    with LaneClient(daemon.ipc, "publisher") as publisher:
        for _ in range(100):
            publisher.ask("publish", {"queue": "q", "bodyBytes": len(LARGE)}, LARGE)
    before_kb = daemon.resident_kb()
    with LaneClient(daemon.ipc, receive_bytes=4096) as client:
        asked = [
            {"requestId": f"{number}", "command": "consume_next", "payload": {"queue": "q"}} for number in range(100)
        ]
        client.socket.sendall(b"".join(map(frame, asked)))  # at once: later ones would wait for the daemon to read on
        daemon.wait(lambda: daemon.ask("metrics")["lane"]["heldBytes"] > 2**20, "answers pile up")
        assert daemon.ask("metrics")["lane"]["heldBytes"] < 2 * 2**20
        assert daemon.resident_kb() - before_kb < 20_000
        assert daemon.counts("q")["inflight"] < 30
        assert daemon.ask("health")["status"] == "ok"
    daemon.wait(lambda: daemon.ask("metrics")["lane"]["connections"] == 0, "the connection is gone")


def test_frames_that_together_exceed_the_memory_of_a_user_are_completed_one_after_the_other(
    make_daemon: MakeDaemon,
) -> None:
    daemon = make_daemon(config={"lane": {"userBytes": 2**20}})
    daemon.start()
    body = b"x" * 600_000
    data = frame({"requestId": "r", "command": "publish", "payload": {"queue": "q", "bodyBytes": len(body)}}, body)
    clients = [LaneClient(daemon.ipc, f"c{number}") for number in range(4)]
    for client in clients:
        client.socket.sendall(data[:300_000])
    daemon.wait(lambda: daemon.ask("metrics")["lane"]["heldBytes"] >= 2**20, "the memory is used up")
    senders = [_in_thread(lambda one=client: one.socket.sendall(data[300_000:])) for client in clients]
    for client, sent in zip(clients, senders, strict=True):
        sent()
        assert client.receive()[0]["ok"]
        client.close()
    assert daemon.counts("q") == {"ready": 4}


def test_connections_beyond_the_limit_of_a_user_are_refused_and_the_others_served(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"userConnections": 3}})
    daemon.start()
    clients = [LaneClient(daemon.ipc) for _ in range(3)]
    with LaneClient(daemon.ipc, greet=False) as client:
        assert error_of(client) == "ERR_QUOTA_EXCEEDED"
    with Client(str(daemon.ipc)) as client_by_file:
        assert client_by_file.health()["status"] == "ok"
    for one in clients:
        assert one.ask("health", {})
        one.close()
    daemon.wait(lambda: daemon.ask("metrics")["lane"]["connections"] == 0, "the connections are gone")
    with LaneClient(daemon.ipc) as client:
        assert client.ask("health", {})


def test_no_more_requests_are_read_than_a_connection_may_have_in_flight(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"requests": 4}})
    daemon.start()
    with LaneClient(daemon.ipc) as client:
        assert client.hello is not None and client.hello["requests"] == 4
        waits = [client.request("consume_next", {"queue": f"q{n}", "waitMs": 3_600_000}) for n in range(6)]
        daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 4, "four wait")
        daemon.publish("q0")
        assert client.receive()[0]["requestId"] == waits[0]
        daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 4, "the fifth was read")


# --- the socket ------------------------------------------------------------------------------------------------------


def test_a_socket_that_a_killed_daemon_has_left_is_replaced(daemon: Daemon) -> None:
    daemon.restart(kill=True)
    with LaneClient(daemon.ipc) as client:
        assert client.ask("health", {})


def test_a_path_longer_than_a_socket_may_have_is_served(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    deep = daemon.root / ("d" * 100)
    daemon.root.mkdir()
    (daemon.root / "config.json").write_text(json.dumps({"ipc": {"root": str(deep)}}))
    daemon.ipc, daemon.requests, daemon.responses = deep, deep / "requests", deep / "responses"
    daemon.start()
    assert len(os.fsencode(deep / "lane.sock")) > 107
    with Client(str(deep), transport="lane") as client:
        client.publish("q", "x")
    assert daemon.counts("q") == {"ready": 1}


def test_a_daemon_that_cannot_make_its_socket_says_so_and_serves_files(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    (daemon.ipc / "lane.sock").mkdir(parents=True)
    daemon.start()
    assert "no lane, because its socket cannot be made" in daemon.log()
    with Client(str(daemon.ipc)) as client:
        client.publish("q", "x")
    assert daemon.counts("q") == {"ready": 1}


def test_without_a_lane_the_client_uses_files(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"enabled": False}})
    daemon.start()
    assert not (daemon.ipc / "lane.sock").exists()
    with Client(str(daemon.ipc)) as client:
        client.publish("q", Binary(b"\0"))
        assert [one.payload for one in client.consume_next("q", max=2)] == [Binary(b"\0", "application/octet-stream")]


def test_the_traffic_log_says_which_door_a_request_came_by(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc) as client:
        client.ask("publish", {"queue": "q", "message": "x"}, requestId="by-lane")
    sent: Sent = daemon.send("publish", {"queue": "q", "message": "x"}, request_id="by-mailbox")
    daemon.answer(sent)
    daemon.stop()
    paths = sorted((daemon.root / "traffic").glob("*.jsonl"))
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    doors = {line["request"]: line.get("door") for line in lines if line.get("request", "").startswith("by-")}
    assert doors == {"by-lane": "lane", "by-mailbox": None}
