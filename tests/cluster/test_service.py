"""What the process beside a daemon does when the daemon does not want it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from postroom_cluster import service
from postroom_common.lane import encode_frame
from tests.cluster.nodes import Place, cluster_of, until
from tests.cluster.peer import line_of


class Refusing:
    """Stands for a daemon that has a process already: it says so, and ends each connection."""

    def __init__(self, place: Place) -> None:
        self.path = place.peer.path
        self.times: list[float] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.times.append(asyncio.get_running_loop().time())
        writer.write(encode_frame(b'{"failed": "one is connected already"}', b""))
        await writer.drain()
        writer.close()


def test_a_process_that_is_refused_says_so_once_and_comes_less_and_less_often(servers, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(service, "_PAUSE_S", 0.05)
    monkeypatch.setattr(service, "_LONGEST_PAUSE_S", 0.4)
    caplog.set_level(logging.INFO)

    async def run():
        async with cluster_of(servers, tmp_path, "a", later=("b",)) as cluster:
            second = cluster.places[1]
            refusing = Refusing(second)
            server = await asyncio.start_unix_server(refusing.accept, refusing.path)
            await second.start_process(await second.proxy.start())
            await until("it has come seven times", lambda: len(refusing.times) >= 7)
            server.close()
            refusing.path.unlink()
            await second.peer.start()
            await until("it follows", lambda: len(second.peer.lines) == len(cluster.places[0].peer.lines))
            pauses = [after - before for before, after in zip(refusing.times, refusing.times[1:], strict=False)]
            assert pauses[-1] >= 0.4, "at least the longest pause"

    asyncio.run(run())
    texts = [record.getMessage() for record in caplog.records if record.name == "postroom_cluster.service"]
    assert texts.count("one is connected already") == 1
    assert texts.count("connected to the daemon") == 2, "one for each node that may work"


@pytest.mark.parametrize("question", ["ask", "truncate"])
def test_a_daemon_that_ends_the_connection_instead_of_answering_is_asked_again(question, servers, tmp_path):
    async def run():
        async with cluster_of(servers, tmp_path, "a", "b") as cluster:
            leader = await cluster.publish("before")
            await cluster.agree()
            (other,) = [place for place in cluster.places if place is not leader]
            other.peer.refusals[question] = "the disk is full"
            await other.peer.stop()
            if question == "truncate":
                other.peer.lines.append(line_of(len(other.peer.lines) + 1, 1, "only here"))
            await other.peer.start()
            await cluster.problem(other, "the disk is full")
            other.peer.refusals.clear()
            await cluster.publish("behind", other)
            assert await cluster.agree() == ["before", "behind"]

    asyncio.run(run())
