"""The faults of the reference (D1 to D16 in its order), each of which a test here would show."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path

import pytest

from tests.gateway.gateway import request as http_request
from tests.gateway.smss.chaos import run_chaos
from tests.gateway.smss.client import (
    ACK,
    ACK_WITH_END,
    ALIVE,
    OK,
    SUB_END,
    BizError,
    Connection,
    PubClient,
    alive,
    block,
    create,
    delete,
    header,
    info,
    pub,
    replica,
    sub,
)
from tests.gateway.smss.place import CONFIG, DOORS
from tests.wire.daemon import Daemon


def read_all(port: int, topic: str, number: int, who: bytes = b"reads all") -> list[tuple[int, bytes]]:
    """The first messages of a topic, with their event ids."""
    found: list[tuple[int, bytes]] = []
    with Connection(port) as connection:
        connection.send(sub(topic.encode(), who, 0, 255))
        while len(found) < number:
            found += [(one.event_id, one.body) for one in connection.push().messages]
            connection.ack()
    return found


def test_d1_the_deletion_of_a_topic_with_subscribers_stops_no_write(publisher, topic, connect):
    publisher.create(topic + "-other")
    subscribers = [connect("smss-lively") for _ in range(3)]
    for number, one in enumerate(subscribers):
        one.begins(sub(topic.encode(), b"w%d" % number))
    publisher.delete(topic)
    publisher.publish(topic + "-other", b"x")
    assert [one.end() for one in subscribers] == [SUB_END] * 3


def test_d2_a_subscriber_that_is_working_stops_no_write_and_gets_the_end_after_its_ack(publisher, topic, connect):
    publisher.publish(topic, b"x")
    publisher.create(topic + "-other")
    busy = connect()
    busy.send(sub(topic.encode(), b"w", 0, 1, 3600.0))
    busy.push()
    publisher.delete(topic)
    for _ in range(10):
        publisher.publish(topic + "-other", b"x")
    busy.ack()
    assert busy.receive("push").code == SUB_END


def test_d3_a_topic_that_is_made_again_is_empty(publisher, topic, connect):
    for body in (b"a", b"b"):
        publisher.publish(topic, body)
        connection = connect()
        connection.send(sub(topic.encode(), b"w", 0, 255))
        assert connection.push().bodies == [body]
        connection.ack(ACK_WITH_END)
        publisher.delete(topic)
        publisher.create(topic)


def test_d4_a_daemon_that_is_killed_under_load_starts_with_all_that_was_answered(make_daemon):
    print(run_chaos(make_daemon(config=CONFIG), sizes=(200, 64 << 10), kills=2, seed=1, patience_s=120))


def test_d5_a_topic_whose_file_has_lost_its_end_has_it_again_after_a_start(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    with PubClient(gateway.ports["smss"]) as publisher:
        publisher.create("t")
        for number in range(10):
            publisher.publish("t", b"m%d" % number)
    daemon.kill()
    [segment] = (daemon.root / "data" / "logs").glob("*/*.log")
    os.truncate(segment, segment.stat().st_size * 7 // 10 + 3)  # three records, and a torn one
    daemon.audited = False
    daemon.start()
    assert [body for _, body in read_all(gateway.ports["smss"], "t", 10)] == [b"m%d" % one for one in range(10)]


def test_d6_no_name_reaches_a_file(served, publisher, connect):
    victim = served.daemon.root.parent / "victim"
    victim.mkdir()
    before = sorted(path.name for path in served.daemon.root.iterdir())
    names = [b"../victim", b"../../victim", b"../../../../victim", str(victim).encode(), b"", b".", b"..", b"a/b"]
    connection = connect()
    for name in names:
        for request in (create(name), delete(name), pub(name, block(b"x")), info(name), sub(name, b"w")):
            with pytest.raises(BizError):
                connection.ask(request)
    assert victim.is_dir()
    assert sorted(path.name for path in served.daemon.root.iterdir()) == before
    assert not {row["name"].encode() for row in publisher.topics()} & set(names)


def test_d8_event_ids_never_begin_again(daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    seen = 0
    for _ in range(3):
        with PubClient(gateway.ports["smss"]) as publisher:
            publisher.create("t")
            publisher.publish("t", b"x")
            [(event_id, _)] = read_all(gateway.ports["smss"], "t", 1)
            assert event_id > publisher.info("t")["createEventId"] > seen
            seen = event_id
            publisher.delete("t")
        daemon.stop()
        daemon.start()


def test_d9_a_connection_is_usable_after_its_subscription(publisher, topic, connect):
    connection = connect()
    for _ in range(3):
        publisher.publish(topic, b"x")
        connection.send(sub(topic.encode(), b"w"))
        connection.push()
        connection.ack(ACK_WITH_END)
        assert connection.ask(info(topic.encode()), "json").code == OK
    connection.send(sub(topic.encode(), b"w") + b"")
    connection.push()
    connection.ack()
    connection.push()
    connection.send(struct.pack("<H", ACK_WITH_END) + alive() + pub(topic.encode(), block(b"y")))
    assert [connection.receive().code, connection.receive().code] == [ALIVE, OK]
    connection.send(alive() + sub(topic.encode(), b"w"))
    assert connection.receive().code == ALIVE
    for code in (ACK, ACK_WITH_END):  # the ack that ends it has no answer, so the next request may come with it
        connection.push()
        connection.send(struct.pack("<H", ACK_WITH_END) + sub(topic.encode(), b"w"))
        connection.push()
        connection.ack(code)
    publisher.create(topic + "-end")
    connection = connect("smss-lively")
    connection.begins(sub((topic + "-end").encode(), b"w"))
    publisher.delete(topic + "-end")
    assert connection.end() == SUB_END
    assert [connection.ask(alive()).code for _ in range(2)] == [ALIVE, ALIVE]


def test_d10_nothing_that_a_client_sends_ends_the_gateway(served, publisher, topic, connect):
    chance = os.urandom(4096)
    for size in (1, 3, 19, 20, 21, 100, 4096):
        with Connection(served.gateway.ports["smss"]) as connection:
            connection.send(chance[:size])
    for data in (header(0, b"t", b"", b"\xff\xff" + bytes(14)), header(1, b"\xff" * 65535, b"t" * 255)):
        with Connection(served.gateway.ports["smss"]) as connection:
            connection.send(data)
    publisher.publish(topic, b"x")
    assert served.gateway.process.poll() is None


def test_a_page_in_a_browser_cannot_hide_requests_in_what_it_posts(connect, publisher):
    body = bytes(70_000) + 300 * create(b"hidden")
    for method in ("POST", "GET", "HEAD", "OPTIONS"):
        connection = connect()
        try:
            connection.send(http_request(method, "/", body))
        except OSError:
            pass  # it was closed already
        assert connection.is_closed()
    assert "hidden" not in {row["name"] for row in publisher.topics()}


def test_d11_a_subscriber_that_was_overtaken_by_the_retention_gets_an_error(served, publisher, connect):
    policy = {"kind": "log", "log": {"segmentBytes": 4096, "retentionHours": 0.0003}}
    served.daemon.ask("create_queue", queue="small", createWith=policy)
    publisher.publish("small", b"first")
    late = connect()
    late.send(sub(b"small", b"w", 0, 1, 3600.0))
    first = late.push().messages[0].event_id
    publisher.publish("small", *(bytes(1000) for _ in range(20)))
    served.daemon.wait(lambda: served.daemon.ask("status", queue="small")["log"]["first"] > first, "it was trimmed")
    publisher.publish("small", b"newest")
    late.ack()
    with pytest.raises(BizError, match="file not exist"):
        while True:
            late.push()
            late.ack()
    late.send(sub(b"small", b"w", first))
    with pytest.raises(BizError, match="file not exist"):
        late.push()
    late.send(sub(b"small", b"w"))  # from the oldest that is there
    assert late.push().count == 1


def test_d13_a_message_whose_headers_are_wrong_is_refused(publisher, topic, connect):
    connection = connect()
    for headers in (1, 2**31):
        wrong = struct.pack("<II", 4, headers) + b"body"
        with pytest.raises(BizError, match="invalid pub payload"):
            connection.ask(pub(topic.encode(), wrong))
    publisher.publish(topic, b"right")
    connection.send(sub(topic.encode(), b"w", 0, 255))
    assert connection.push().bodies == [b"right"]


def test_d14_a_payload_that_is_too_short_is_read_all_the_same(topic, connect):
    connection = connect()
    for size in range(9):
        with pytest.raises(BizError):
            connection.ask(pub(topic.encode(), b"\x07" * size))
        assert connection.ask(alive()).code == ALIVE


def test_d15_sizes_that_are_announced_reserve_nothing(served, connect):
    pid = served.gateway.process.pid

    def memory_kb() -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmSize")).split()[1])

    before = memory_kb()
    most = b"\xff\xff\xff\xff"
    for _ in range(6):
        for request in (header(1, b"t", b"", most), header(16, b"t", b"", most) + bytes(8)):
            connect().send(request)
        connect().send(header(0, b"t", b"", b"\1\0") + bytes(8) + most)
    last = connect()
    last.send(pub(b"t", bytes(1 << 25)) + alive())
    with pytest.raises(BizError, match="limit"):
        last.ask(b"")
    assert last.receive().code == ALIVE
    assert memory_kb() - before < 64 * 1024


def test_d15_a_batch_is_limited_by_its_bytes_too(publisher, topic, connect):
    for _ in range(4):
        publisher.publish(topic, bytes(100_000))
    connection = connect()
    connection.send(sub(topic.encode(), b"w", 0, 255))
    counts: list[int] = []
    while sum(counts) < 4:
        push = connection.push()
        counts.append(push.count)
        assert len(push.data) < 256 * 1024
        connection.ack()
    for _ in range(3):  # each comes alone, and is read when its turn comes
        publisher.publish(topic, bytes(200_000))
    for _ in range(3):
        push = connection.push()
        assert (push.count, len(push.data)) == (1, 200_040)
        connection.ack()


def test_d16_idle_connections_write_nothing_to_the_log(served, connect, topic):
    def logged() -> list[str]:  # but for another link to the daemon, which is made when many wait at once
        return [line for line in served.gateway.log().splitlines() if '"connected to the daemon' not in line]

    before = logged()
    connections = [connect() for _ in range(20)]
    for number, one in enumerate(connections):
        assert one.ask(alive()).code == ALIVE
        one.send(sub(topic.encode(), b"w%d" % number))
    began_s = time.monotonic()
    lively = connect("smss-lively")
    lively.send(sub(topic.encode(), b"lively"))
    while time.monotonic() - began_s < 1.0:
        assert lively.receive("push").code == ALIVE
    assert logged() == before


def test_a_stop_of_the_gateway_waits_for_no_ack(daemon: Daemon, make_gateway):
    gateway = make_gateway(daemon, DOORS).start()
    late: list[Connection] = []
    with PubClient(gateway.ports["smss"]) as publisher:
        publisher.create("t")
        publisher.publish("t", b"x")
        publisher.create("large")
        for _ in range(3):
            publisher.publish("large", bytes(3_000_000))
    with (
        Connection(gateway.ports["smss"]) as busy,
        Connection(gateway.ports["smss"]) as idle,
        Connection(gateway.ports["smss"]) as slow,
    ):
        slow.send(replica(0))
        slow.entry()  # and reads no further
        busy.send(sub(b"t", b"busy", 0, 1, 3600.0))
        busy.push()
        idle.send(sub(b"t", b"idle"))
        idle.push()
        idle.ack()
        for number in range(20):  # some of these begin as it stops
            late.append(Connection(gateway.ports["smss"]))
            late[-1].send(sub(b"t", b"late %d" % number, 0, 1, 3600.0))
        gateway.process.send_signal(signal.SIGTERM)
        assert busy.is_closed()
        assert idle.is_closed()
        assert gateway.process.wait(15) == 0  # before the time for peers that read slowly is over
    for one in late:
        one.close()


def test_a_thousand_subscribers_of_a_topic_get_each_message_and_the_end(make_daemon, make_gateway):
    daemon = make_daemon("--limits-user-waits", "0", config=CONFIG).start()
    limits = "[limits]\nconnections = 1100\npeer_connections = 1100\nwaiting = 1100\n"
    port = make_gateway(daemon, limits + DOORS).start().ports["smss"]
    publisher = PubClient(port)
    publisher.create("t")
    subscribers = [Connection(port) for _ in range(1000)]
    for number, one in enumerate(subscribers):
        one.send(sub(b"t", b"w%d" % number, 0, 10))
    for body in (b"first", b"second"):
        publisher.publish("t", body)
        for one in subscribers:
            assert one.push().bodies == [body]
            one.ack()
    publisher.delete("t")
    assert [one.receive("push").code for one in subscribers] == [SUB_END] * 1000
    for one in subscribers:
        one.close()
    publisher.close()
