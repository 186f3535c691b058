"""scripts/bench gateway: every row has its figures; answers are read wherever they are cut; a server that loses,
doubles or changes a message ends the run."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from bench.gateway.amqp import Amqp
from bench.gateway.beanstalk import Beanstalk
from bench.gateway.contest import check
from bench.gateway.driver import body_of
from bench.gateway.lmq import LmqHttp, LmqRpc
from bench.gateway.nats import JetStream
from bench.gateway.peers import PEERS, Missing, running
from bench.gateway.redis import RedisStream
from bench.gateway.wires import Answer, Pulled, Refused
from bench.stores.queue import WrongMessages

ROOT = Path(__file__).resolve().parents[2]
EMPTY = Answer(None, is_empty=True)
DONE = Answer(None)


def test_every_row_of_the_gateway_and_the_lane_has_its_figures(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "gateway", "--tiny", "--dir", tmp_path / "data", "--json", figures]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    values = {figure["name"]: figure["value"] for figure in json.loads(figures.read_text())["figures"]}
    http, rpc = "LMQ over HTTP", "LMQ over MessagePack-RPC"
    cycle = "WebSocket MQ: cycle (draft, set, order, get, complete)"
    for row in (
        "lane: push, 1 process",
        "lane: push, 8 processes",
        "lane: push, 8 processes, 16 in flight each",
        f"{http}: push, 1 connection",
        f"{http}: push, 16 connections",
        f"{http}: pull and ack, 1 connection",
        f"{http}: pull and ack, 16 connections",
        f"{rpc}: push, 1 connection",
        f"{rpc}: push, 1 connection, 64 in flight",
        f"{rpc}: pull and ack, 1 connection",
        "SimpleMQ over REST: push, 1 connection",
        "SimpleMQ over REST: push, 16 connections",
        "SimpleMQ over TCP: push, 1 connection",
        "SimpleMQ over TCP: push, 16 connections",
        f"{cycle}, 1 caller",
        f"{cycle}, 16 callers, 1 connection",
        f"{cycle}, 16 callers, 16 connections",
    ):
        assert values[row] > 0
        assert values[f"{row}: p99"] >= values[f"{row}: p50"] > 0
        assert f"{row}: CPU of the daemon" in values
        assert (f"{row}: CPU of the gateway" in values) == ("MQ" in row)
    assert values["WebSocket MQ: delivery to one of 150 consumers: p50"] > 0
    for how in ("bare, a pong after each", "settled by the subscriber"):
        assert values[f"SimpleMQ: messages to one subscriber, {how}"] > 0
    assert values["SimpleMQ: publish until a subscriber that waits has it: p50"] > 0
    for connections in ("1 connection", "16 connections", "256 connections"):
        for how in ("durable", "durability interval"):
            assert values[f"smss: publish, {connections}, {how}"] > 0
    assert all(values[f"smss: read a backlog, batches of {batch}"] > 0 for batch in (1, 10, 100, 255))
    assert values["gateway: resident memory after the load"] > 0
    assert values["gateway: CPU, idle"] >= 0
    assert list((tmp_path / "data").iterdir()) == []


def amqp_method(method, arguments):
    payload = struct.pack(">HH", *method) + arguments
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


def amqp_message(tag, *bodies):
    frames = [amqp_method((60, 71), struct.pack(">Q", tag) + b"\0\0\1q" + bytes(4))]
    header = struct.pack(">HHQH", 60, 0, len(b"".join(bodies)), 0)
    for kind, payload in ((2, header), *((3, body) for body in bodies)):
        frames.append(struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce")
    return b"".join(frames)


def http_puller():
    wire = LmqHttp("q")
    wire.pull(0)
    return wire


def jet_stream():
    wire = JetStream("q")
    wire.inbox = "inbox"
    return wire


def amqp_pusher():
    wire = Amqp("q")
    for key in range(5):
        wire.push(key, b"")
    return wire


@pytest.mark.parametrize(
    ("wire", "received", "answers"),
    [
        pytest.param(
            LmqHttp("q"),
            b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"accum":"no"}' * 2,
            [DONE, DONE],
            id="LMQ over HTTP, pushes",
        ),
        pytest.param(
            http_puller(),
            b"HTTP/1.1 200 OK\r\nx-lmq-message-id: 1-2\r\ncontent-length: 4\r\n\r\n\r\n\r\n"
            b"HTTP/1.1 204 No Content\r\nserver: x\r\n\r\n",
            [Answer(None, Pulled(b"\r\n\r\n", b"1-2")), EMPTY],
            id="LMQ over HTTP, pulls",
        ),
        pytest.param(
            LmqRpc("q"),
            b"".join(
                msgpack.packb([1, key, None, result], use_bin_type=False)
                for key, result in ((1, "ok"), (0, {"id": "1-2", "content": b"\xc1"}), (2, "empty"))
            ),
            [Answer(1), Answer(0, Pulled(b"\xc1", b"1-2")), Answer(2, is_empty=True)],
            id="LMQ over MessagePack-RPC",
        ),
        pytest.param(
            Beanstalk("q"),
            b"INSERTED 1\r\nRESERVED 1 4\r\n\r\n\r\n\r\nDELETED\r\nTIMED_OUT\r\n",
            [DONE, Answer(None, Pulled(b"\r\n\r\n", b"1")), DONE, EMPTY],
            id="beanstalkd",
        ),
        pytest.param(
            RedisStream("q"),
            b"$3\r\n1-0\r\n*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nb\r\n$2\r\n\r\n\r\n"
            b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:1\r\n*-1\r\n",
            [DONE, Answer(None, Pulled(b"\r\n", b"1-0")), DONE, EMPTY],
            id="Redis streams",
        ),
        pytest.param(
            jet_stream(),
            b'PING\r\nMSG inbox.1 1 9\r\n{"seq":1}\r\nMSG q 1 $JS.ACK.1 4\r\n\r\n\r\n\r\nMSG inbox.2 1 0\r\n\r\n'
            b"HMSG inbox.3 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
            [Answer(1), Answer(None, Pulled(b"\r\n\r\n", b"$JS.ACK.1")), Answer(2), Answer(3, is_empty=True)],
            id="JetStream",
        ),
        pytest.param(
            amqp_pusher(),
            amqp_method((60, 80), struct.pack(">QB", 2, 0)) + amqp_method((60, 80), struct.pack(">QB", 4, 1)),
            [Answer(1), Answer(0), Answer(2), Answer(3)],
            id="RabbitMQ, confirms of one and of all until one",
        ),
        pytest.param(
            Amqp("q"),
            amqp_message(7, b"ab", b"\xce") + amqp_method((60, 72), b"\0"),
            [Answer(None, Pulled(b"ab\xce", struct.pack(">Q", 7))), EMPTY],
            id="RabbitMQ, pulls",
        ),
    ],
)
def test_answers_are_read_wherever_they_are_cut(wire, received, answers):
    buffer, found = bytearray(), []
    for byte in received:
        buffer.append(byte)
        found.extend(wire.answers(buffer))
    assert found == answers
    assert buffer == b""


@pytest.mark.parametrize(
    ("wire", "received"),
    [
        (LmqHttp("q"), b"HTTP/1.1 507 Insufficient Storage\r\ncontent-length: 0\r\n\r\n"),
        (LmqRpc("q"), msgpack.packb([1, 0, list(b"throw:invalid"), None])),
        (Beanstalk("q"), b"OUT_OF_MEMORY\r\n"),
        (RedisStream("q"), b"-MISCONF Errors writing to the AOF file\r\n"),
        (jet_stream(), b'MSG inbox.0 1 24\r\n{"error":{"code":10077}}\r\n'),
        (Amqp("q"), amqp_method((60, 120), struct.pack(">QB", 1, 0))),
    ],
    ids=["LMQ over HTTP", "LMQ over MessagePack-RPC", "beanstalkd", "Redis streams", "JetStream", "RabbitMQ"],
)
def test_a_refused_message_is_an_error(wire, received):
    with pytest.raises(Refused):
        wire.answers(bytearray(received))


@pytest.mark.parametrize(
    ("pulled", "left", "error"),
    [
        ([0, 1], 0, "has 0 messages and should have 1"),
        ([0, 0], 1, "delivered twice"),
        ([0, 3], 1, "not what was pushed"),
    ],
    ids=["lost", "doubled", "never pushed"],
)
def test_a_server_that_does_not_give_back_what_it_got_ends_the_run(pulled, left, error):
    with pytest.raises(WrongMessages, match=error):
        check("it", 3, [body_of(number) for number in pulled], left)


def test_a_server_that_changes_a_message_ends_the_run():
    with pytest.raises(WrongMessages, match="not what was pushed"):
        check("it", 1, [body_of(0)[:-1]], 0)


def test_a_server_that_gives_back_what_it_got_is_measured():
    check("it", 3, [body_of(2), body_of(0)], 1)


def test_a_peer_that_is_not_installed_is_named_with_its_package(tmp_path):
    peer = replace(PEERS[0], program="no-such-program", package="its-package")
    with pytest.raises(Missing, match=r"no no-such-program .* apt-get install its-package"), running(peer, tmp_path):
        pass
