"""Logs, through the mailbox and the lane, and as ``postroom`` and the Python client show them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from postroom_client import Binary, Client, PositionNotFound, QueueExists, QueueNotFound, WrongKind
from postroom_common.log_blocks import block_of
from postroom_daemon.stores.log.records import records_of
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon
from tests.wire.lane import LaneClient


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    return make_daemon().start()


def payloads(data: dict[str, Any]) -> list[Any]:
    return [one["payload"] for one in data["records"]]


@on_every_store
def test_two_readers_read_all_records_and_a_killed_daemon_keeps_records_and_positions(daemon: Daemon) -> None:
    daemon.ask("create_queue", queue="log", createWith={"kind": "log"})
    first = daemon.ask("append", queue="log", messages=[{"message": "a"}, {"message": {"n": 1}}])
    daemon.ask("append", queue="log", message="AP8=", encoding="base64", attributes={"k": "v"})
    daemon.ask("move_reader", queue="log", reader="one", position=first["last"])
    daemon.kill()
    daemon.start()
    assert payloads(daemon.ask("read", queue="log", payloadAs="value", reader="two")) == ["a", {"n": 1}, "AP8="]
    (record,) = daemon.ask("read", queue="log", reader="one")["records"]
    assert (record["payload"], record["encoding"], record["attributes"]) == ("AP8=", "base64", '{"k":"v"}')
    later = daemon.ask("append", queue="log", message="more")
    assert later["first"] > first["last"]
    assert daemon.ask("status", queue="log")["log"]["records"] == 4


def test_the_lane_appends_blocks_and_reads_records_as_they_are_stored(daemon: Daemon) -> None:
    blocks = [block_of({b"k": b"\xff"}, b"one"), block_of({}, b"two" * 100)]
    with LaneClient(daemon.ipc) as lane:
        lane.call("create_queue", {"queue": "log", "createWith": {"kind": "log"}})
        wanted = {"queue": "log", "encoding": "records", "bodyBytes": len(b"".join(blocks))}
        appended = lane.call("append", wanted, b"".join(blocks))[0]["data"]
        assert appended["count"] == 2 and appended["last"] == appended["first"] + 1
        answer, raw = lane.call("read", {"queue": "log", "payloadAs": "raw"})
        assert answer["data"]["rawBytes"] == len(raw) and answer["data"]["count"] == 2
        assert [block for _, _, block in records_of(raw)] == blocks
        assert [position for _, position, _ in records_of(raw)] == [appended["first"], appended["last"]]
        answer, body = lane.call("read", {"queue": "log", "payloadAs": "value"})
        shown = answer["data"]["records"]
        assert [(one["bodyBytes"], one["encoding"]) for one in shown] == [(3, "binary"), (300, "binary")]
        assert body == b"one" + b"two" * 100 and shown[0]["attributes"] == {"k": "\\xff"}
        for wrong in (b"", b"\0" * 8, blocks[0][:-1], blocks[0] + b"x", b"\x01\0\0\0\xff\xff\xff\xffx"):
            refused = lane.call("append", wanted | {"bodyBytes": len(wrong)}, wrong)[0]
            assert refused["error"]["code"] == "ERR_INVALID_REQUEST", wrong
    refused = daemon.answer(daemon.send("read", {"queue": "log", "payloadAs": "raw"}))
    assert refused["error"]["code"] == "ERR_INVALID_REQUEST"


def test_the_client_appends_reads_and_tails(daemon: Daemon) -> None:
    for transport in ("mailbox", "lane"):
        with Client(daemon.ipc, transport=transport) as client:
            queue = "log-" + transport
            client.create_queue(queue, {"kind": "log"})
            with pytest.raises(QueueExists):
                client.create_queue(queue)
            with pytest.raises(WrongKind):
                client.publish(queue, "x")
            client.append(queue, "a", attributes={"k": "v"})
            several = client.append(queue, messages=[{"message": {"n": 1}}, {"message": Binary(b"\0\xff", "image/x")}])
            first, second, third = client.tail(queue, reader="r", wait_ms=0)
            assert (first.payload, first.attributes, second.payload) == ("a", {"k": "v"}, {"n": 1})
            assert (third.payload, third.position) == (Binary(b"\0\xff", "image/x"), several["last"])
            assert read_positions(client, queue) == {"r": several["last"]}
            assert client.read(queue, reader="r", wait_ms=1)["records"] == []
            assert client.read(queue, start="oldest", max=1)["records"][0].position == first.position
            with pytest.raises(PositionNotFound):
                client.read(queue, after=1, exact=True)
            client.delete_reader(queue, "r")
            assert client.append(queue, "later", delay_ms=60_000)["count"] == 1
            assert client.delete_queue(queue, discard=True)["deleted"]
            with pytest.raises(QueueNotFound):
                client.read(queue)


def read_positions(client: Client, queue: str) -> dict[str, int]:
    return {one["reader"]: one["position"] for one in client.list_readers(queue)["readers"]}


def postroom(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *arguments]
    return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_the_command_line_creates_appends_reads_and_deletes(daemon: Daemon) -> None:
    assert postroom(daemon, "log", "create", "m").returncode == 0
    done = postroom(daemon, "log", "append", "m", "--message", "hello", "--attributes", '{"site": "roof"}')
    assert done.stdout.startswith("position ")
    shown = postroom(daemon, "log", "read", "m", "--reader", "r", "--move")
    assert "hello" in shown.stdout and "roof" in shown.stdout
    assert postroom(daemon, "log", "read", "m", "--reader", "r").returncode == 4
    assert "at the end" in postroom(daemon, "log", "readers", "m").stdout
    assert "the log ends at" in postroom(daemon, "log", "read", "m", "--after", "999").stdout
    status = postroom(daemon, "status", "--queue", "m").stdout
    assert "last position" in status and "retentionHours" in status and "retry" not in status
    helped = postroom(daemon, "log", "--help").stdout
    assert all(word in helped for word in ("create", "tail", "pipe", "delete", "append", "move-reader"))
    assert "records" in postroom(daemon, "queues").stdout
    assert postroom(daemon, "log", "pipe", "jobs", "m").returncode == 0
    assert daemon.ask("get_policy", queue="jobs")["override"] == {"pipe": {"to": ["m"]}}
    assert postroom(daemon, "log", "pipe", "jobs", "m", "n", "--json").returncode == 0
    assert postroom(daemon, "log", "pipe", "jobs").stdout.split() == ["jobs", "->", "m,", "n"]
    changed = postroom(daemon, "log", "pipe", "jobs", "o", "--remove", "m", "--remove", "n", "--json")
    assert json.loads(changed.stdout) == {"ok": True, "command": "log pipe", "data": {"queue": "jobs", "to": ["o"]}}
    for _ in range(2):
        assert "no pipe" in postroom(daemon, "log", "pipe", "jobs", "--remove", "o").stdout
    assert daemon.ask("get_policy", queue="jobs")["override"] == {"pipe": {"to": []}}
    assert "FROM" in postroom(daemon, "log", "pipe").stderr
    raw = postroom(daemon, "log", "read", "m", "--raw")
    assert raw.stdout == "hello"
    as_json = json.loads(postroom(daemon, "log", "read", "m", "--json").stdout)
    assert as_json["command"] == "log read" and as_json["data"]["count"] == 1
    postroom(daemon, "log", "append", "m", "--message", "x", "--binary")
    assert "1 bytes: 78" in postroom(daemon, "log", "read", "m").stdout
    daemon.publish("jobs", "still needed")
    missing = postroom(daemon, "log", "read", "--after", "1")
    assert missing.returncode == 2 and "the name of the log is missing: postroom log read NAME" in missing.stderr
    refused = postroom(daemon, "log", "delete", "jobs")
    assert refused.returncode == 1 and "ERR_WRONG_KIND" in refused.stderr
    assert daemon.consume("jobs")
    assert postroom(daemon, "log", "delete", "m").returncode == 0
    assert postroom(daemon, "log", "read", "m").returncode == 1
