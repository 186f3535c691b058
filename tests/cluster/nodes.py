"""Clusters for tests: nodes with hand-driven daemons, each behind a proxy of its own, on real NATS servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from nats.aio.client import Client

from postroom_cluster.config.settings import ClusterSection, DaemonSection, FailoverSection, NatsSection, Settings
from postroom_cluster.connection import connect
from postroom_cluster.control import ask_all
from postroom_cluster.errors import StreamUnavailable
from postroom_cluster.service import serve
from postroom_cluster.stream import Stream
from tests.cluster.peer import NotConfirmed, Peer
from tests.cluster.proxy import Proxy
from tests.cluster.servers import Servers

PATIENCE_S = 60.0
AFTER_S = 1.0
_numbers = count(1)


class Place:
    """One machine: a daemon, the process beside it, and its way to the servers."""

    def __init__(self, home: Path, cluster: str, name: str, servers: Servers, one: int) -> None:
        self.name = name
        self.peer = Peer(home / f"{name}.sock", name)
        self.proxy = Proxy(int(servers.urls[one].rpartition(":")[2]))
        self._cluster = cluster
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.peer.start()
        await self.start_process(await self.proxy.start())

    async def start_process(self, url: str) -> None:
        self.settings = Settings(
            daemon=DaemonSection(self.peer.path),
            cluster=ClusterSection(self._cluster, self.name),
            nats=NatsSection(servers=(url,)),
            failover=FailoverSection(after_seconds=AFTER_S),
        )
        self._task = asyncio.create_task(serve(self.settings))

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.proxy.stop()
        await self.peer.stop()


class Cluster:
    """The places of a cluster."""

    def __init__(self, places: list[Place], stream: Stream, connection: Client) -> None:
        self.places = places
        self.stream = stream
        self.connection = connection

    async def leader(self, *other_than: Place) -> Place:
        """The place that leads, as soon as there is one."""
        found: list[Place] = []

        def is_there() -> bool:
            found[:] = [one for one in self.places if one.peer.is_leader and one not in other_than]
            return bool(found)

        await until("a node leads", is_there)
        return found[0]

    async def publish(self, text: str, *other_than: Place) -> Place:
        """Publish until somebody confirms it, as a client does; return where."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                place = await self.leader(*other_than)
                try:
                    await place.peer.publish(text)
                except NotConfirmed:
                    await asyncio.sleep(0.05)
                else:
                    return place

    async def problem(self, place: Place, text: str) -> None:
        """Wait until a node reports a problem."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                nodes = await ask_all(self.connection, place.settings.cluster.name)
                if any(text in one["problem"] for one in nodes if one["node"] == place.name):
                    return

    async def agree(self) -> list[str]:
        """Wait until all daemons have the same journal; return what was published."""
        await until("all have the same journal", lambda: len({tuple(one.peer.lines) for one in self.places}) == 1)
        assert [one.peer.failures for one in self.places] == [[] for _ in self.places]
        return self.places[0].peer.texts()


@asynccontextmanager
async def cluster_of(
    servers: Servers, home: Path, *names: str, later: tuple[str, ...] = (), max_bytes: int = 2**30
) -> AsyncIterator[Cluster]:
    """A cluster with a stream of its own. The first node leads first; those of ``later`` are not started."""
    cluster = f"t{next(_numbers)}"
    connection = await connect(NatsSection(servers=servers.urls), "tests")
    places = [Place(home, cluster, name, servers, one % 3) for one, name in enumerate((*names, *later))]
    try:
        stream = Stream(connection, cluster)
        await created(stream, names[0], max_bytes)
        for place in places[: len(names)]:
            await place.start()
        yield Cluster(places, stream, connection)
    finally:
        for place in places:
            await place.stop()
        await connection.close()


async def created(stream: Stream, first: str, max_bytes: int) -> None:
    """Create a stream, as soon as the servers can."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await stream.create(first, 3, max_bytes)
            except StreamUnavailable:
                await asyncio.sleep(0.1)
            else:
                return


async def until(what: str, is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None
