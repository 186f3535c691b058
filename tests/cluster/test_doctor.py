"""The doctor: what breaks a promise is an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.js import api

from postroom_cluster.config.settings import NatsSection
from postroom_cluster.connection import connect
from postroom_cluster.doctor import _sync_interval, examine, judge_nodes, judge_stream
from postroom_cluster.errors import StreamUnavailable
from tests.cluster.nodes import cluster_of


def info(replicas: int = 3, peers: tuple[api.PeerInfo, ...] | None = None, **config: Any) -> api.StreamInfo:
    found = (api.PeerInfo(name="b", current=True), api.PeerInfo(name="c", current=True)) if peers is None else peers
    return api.StreamInfo(
        config=api.StreamConfig(num_replicas=replicas, storage=config.pop("storage", api.StorageType.FILE), **config),
        state=api.StreamState(messages=0, bytes=0, first_seq=1, last_seq=0, consumer_count=0),
        cluster=api.ClusterInfo(leader="a", replicas=list(found)),
    )


def errors(findings: Any) -> list[str]:
    return [one.name for one in findings if one.level == "error"]


def test_a_stream_that_can_lose_what_was_acknowledged_is_an_error():
    assert errors(judge_stream(info())) == []
    assert errors(judge_stream(info(replicas=1, peers=()))) == ["replicas"]
    assert errors(judge_stream(info(replicas=2))) == ["replicas"]
    assert errors(judge_stream(info(storage=api.StorageType.MEMORY))) == ["storage"]
    assert errors(judge_stream(info(discard=api.DiscardPolicy.NEW, max_bytes=1000))) == ["discard"]
    assert errors(judge_stream(info(peers=(api.PeerInfo(name="b", current=True),)))) == ["servers"]
    away = judge_stream(info(peers=(api.PeerInfo(name="b", offline=True), api.PeerInfo(name="c", current=True))))
    assert [one.text for one in away if one.level == "warning"] == ["b is offline"]


def test_nodes_are_judged_by_leader_names_problems_and_clocks():
    def node(name: str, role: str = "following", **fields: Any) -> dict[str, Any]:
        return {"node": name, "role": role, "problem": "", "wallMs": 0, **fields}

    assert errors(judge_nodes([node("a", "leading"), node("b")], 0)) == []
    assert errors(judge_nodes([node("a"), node("b")], 0)) == ["leader"]
    assert errors(judge_nodes([node("a", "leading"), node("a")], 0)) == ["node"]
    findings = judge_nodes([node("a", "leading"), node("b", wallMs=86_400_000, problem="seed this node")], 0)
    assert {one.name for one in findings if one.level == "warning"} == {"clock", "node"}


def test_servers_of_a_cluster_that_runs_have_no_error(servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b") as cluster:
            await cluster.publish("one")
            settings = cluster.places[0].settings
            connection = await connect(NatsSection(servers=servers.urls), "doctor")
            try:
                found: list[Any] = []

                async def look() -> bool:
                    found[:] = await examine(connection, cluster.stream, settings.cluster.name)
                    return not errors(found)

                for _ in range(20):
                    if await look():
                        break
                assert errors(found) == []
                assert {one.name for one in found if one.level == "ok"} >= {"replicas", "max_payload", "leader"}
                assert "clock" not in {one.name for one in found}
                levels = [(await _sync_interval(connection, is_confirmed)).level for is_confirmed in (False, True)]
                assert levels == ["warning", "ok"], "the servers answer only their system account"
                assert not await cluster.stream.create("a", 3, 2**30), "it exists already"
                with pytest.raises(StreamUnavailable, match="has a stream already"):
                    await cluster.stream.create("b", 3, 2**30)
            finally:
                await connection.close()

    asyncio.run(run())
