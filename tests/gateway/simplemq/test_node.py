"""What a node says about itself and its peers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from typing import Any, cast

from postroom_common.errors import CommandError
from postroom_common.protocol import Command, ErrorCode
from postroom_gateway.contract import Answer, Daemon, HttpRequest, Principal, Sockets
from postroom_gateway.dialects.simplemq.door import SimpleMq
from postroom_gateway.dialects.simplemq.heartbeats import decode_heartbeat, encode_heartbeat, read_heartbeat_options
from postroom_gateway.dialects.simplemq.node import Node
from tests.wire.daemon import wait_until

KEY = b"sixteen characters"


def get(served, name: str, door: str = "simplemq") -> Any:
    answer = served.gateway.ask("GET", f"/api/metrics/{name}", door=door)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def packet(**fields: Any) -> bytes:
    whole = {"serverId": "2a", "timestamp": 1, "activeTime": 0, "role": "SLAVE", "status": "RUNNING", **fields}
    return json.dumps(whole).encode()


def test_a_node_alone_is_the_master(served):
    status = get(served, "node/status")
    assert set(status) == {"nodeId", "role", "active", "activeTime", "lastCheckTime"}
    assert (status["role"], status["active"]) == ("MASTER", True)
    assert status["nodeId"] == served.daemon.ask("health")["nodeId"]
    assert abs(status["activeTime"] - time.time() * 1000) < 600_000
    assert get(served, "heartbeat/stats") == {}
    (start,) = get(served, "switch/history")
    assert (start["fromRole"], start["toRole"], start["reason"]) == (None, "MASTER", "start")
    answer = served.gateway.ask("POST", "/api/metrics/node/status", b"", door="simplemq")
    assert answer.status == 405


def test_heartbeats_are_sent_received_and_counted(served, other_node):
    own = served.gateway
    port = int(re.findall(r"heartbeats of simplemq-pair at \S+ port (\d+)", own.log())[0])
    sent = json.loads(other_node.recv(4096))
    assert set(sent) == {"serverId", "timestamp", "activeTime", "role", "status", "metrics"}
    assert set(sent["metrics"]) == {"cpu", "memory"}
    wait_until(lambda: json.loads(other_node.recv(4096))["status"] == "RUNNING", "the node runs")
    assert sent["serverId"] == "1a"

    for wrong in (b"", b"[]", packet(role="KING"), packet(serverId=7), packet(serverId="1a"), b"x" * 5000):
        other_node.sendto(wrong, ("127.0.0.1", port))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.2", 0))
        stranger.sendto(packet(serverId="stranger"), ("127.0.0.1", port))
    other_node.sendto(packet(), ("127.0.0.1", port))
    other_node.sendto(packet(role="MASTER"), ("127.0.0.1", port))

    def counted() -> Any:
        found = get(served, "heartbeat/stats", "simplemq-pair")
        return found if found.get("2a", {}).get("missedHeartbeats") else None

    stats = wait_until(counted, "heartbeats were counted, and missed")
    assert set(stats) == {"2a"}
    assert set(stats["2a"]) == {"totalHeartbeats", "missedHeartbeats", "lastHeartbeatTime", "maxDelay"}
    assert stats["2a"]["totalHeartbeats"] == 2
    history = get(served, "switch/history", "simplemq-pair")
    assert [(one["serverId"], one["fromRole"], one["toRole"]) for one in history] == [
        ("1a", None, "MASTER"),
        ("2a", None, "SLAVE"),
        ("2a", "SLAVE", "MASTER"),
    ]


def test_a_heartbeat_that_is_signed_is_believed_only_with_the_key():
    signed = encode_heartbeat("2a", 1, "MASTER", "RUNNING", 0, KEY)
    assert json.loads(signed)["serverId"] == "2a"
    found = decode_heartbeat(signed, KEY)
    assert found
    assert found.server_id == "2a"
    unsigned = encode_heartbeat("2a", 1, "MASTER", "RUNNING", 0, b"")
    for wrong in (unsigned, signed.replace(b"2a", b"2b"), signed[:-1], signed + b" "):
        assert decode_heartbeat(wrong, KEY) is None, wrong
    assert decode_heartbeat(signed, b"another key of sixteen") is None


def test_a_heartbeat_that_is_sent_again_does_not_count(caplog):
    options = read_heartbeat_options({"server_id": "1a", "peers": ["127.0.0.1:9"]}, has_key=True)

    async def heard() -> Any:
        node = Node(cast(Daemon, Follower()), "simplemq", options, KEY)
        packets = [encode_heartbeat("2a", at, role, "RUNNING", 0, KEY) for role, at in (("SLAVE", 5), ("MASTER", 6))]
        for packet in (*packets, *packets, encode_heartbeat("1a", 7, "MASTER", "RUNNING", 0, KEY)):
            node.received(packet, "127.0.0.1")
        return node.heartbeats(), await node.switches()

    figures, switches = asyncio.run(heard())
    assert figures["2a"]["totalHeartbeats"] == 2
    assert [one["toRole"] for one in switches if one["serverId"] == "2a"] == ["SLAVE", "MASTER"]
    assert caplog.text.count("a heartbeat of 2a is older than the last") == 1
    assert caplog.text.count("has this node's server_id 1a") == 1


class Changing:
    """A daemon of a cluster that has another role each time it is asked."""

    def __init__(self) -> None:
        self.roles = ["follower", "leader", "follower", "leader"]
        self.asked = asyncio.Event()

    async def request(self, principal: Principal, command: str, *more: Any, **named: Any) -> Answer:
        role = self.roles.pop(0)
        if not self.roles:
            self.roles.append(role)
            self.asked.set()
        return Answer({"nodeId": "2a", "checks": {"cluster": {"ok": True, "role": role}}})


def test_switches_are_noted_though_nobody_asks_for_them():
    async def noted() -> Any:
        daemon = Changing()
        node = Node(cast(Daemon, daemon), "simplemq", None, b"", interval_s=0.001)
        await node.start(cast(Sockets, None))
        await daemon.asked.wait()
        switches = await node.switches()
        node.stop()
        return switches

    found = [(one["fromRole"], one["toRole"]) for one in asyncio.run(noted())]
    assert found == [(None, "SLAVE"), ("SLAVE", "MASTER"), ("MASTER", "SLAVE"), ("SLAVE", "MASTER")]


class Follower:
    """A daemon that follows another node of its cluster."""

    async def request(self, principal: Principal, command: str, *more: Any, **named: Any) -> Answer:
        if command == Command.HEALTH:
            return Answer({"nodeId": "2a", "checks": {"cluster": {"ok": True, "role": "follower"}}})
        data = {"leader": "1a", "address": "10.0.0.1:8081"}
        raise CommandError(ErrorCode.NOT_LEADER, "1a leads", data)


def test_a_node_that_follows_names_the_one_that_leads():
    door = SimpleMq(cast(Daemon, Follower()), "simplemq", {})
    publish = HttpRequest(
        "POST",
        b"/api/message/publish",
        b"",
        [(b"content-type", b"application/octet-stream"), (b"x-topic", b"t")],
        b"x",
    )
    answer = asyncio.run(door.respond(publish))
    assert answer.status == 503
    assert (b"x-leader", b"10.0.0.1:8081") in answer.headers
    assert answer.body == b"Failed to publish message: ERR_NOT_LEADER: 1a leads, at 10.0.0.1:8081\n"
    status = json.loads(asyncio.run(door.respond(HttpRequest("GET", b"/api/metrics/node/status", b"", []))).body)
    assert (status["nodeId"], status["role"], status["active"]) == ("2a", "SLAVE", False)


def test_a_node_whose_daemon_is_away_says_so(make_gateway):
    toml = "[daemon]\nsocket = 'nowhere'\npatience_seconds = 0\n[observe]\nport = 0\n[doors.simplemq]\nport = 0"
    gateway = make_gateway(None, toml).start()
    for name in ("node/status", "switch/history"):
        answer = gateway.ask("GET", f"/api/metrics/{name}", door="simplemq")
        assert answer.status == 200
        assert b"true" not in answer.body
