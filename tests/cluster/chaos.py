"""Clients that publish to a cluster while nodes, links and servers fail at random, and a check of their answers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from tests.cluster.nodes import Cluster, Place, cluster_of
from tests.cluster.peer import NotConfirmed
from tests.cluster.servers import Servers

FAULTS = ("crash", "cut", "stall", "deaf", "mute", "server killed", "server frozen", "daemon silent")


class Client:
    """Publishes texts one after the other, to whichever node leads; a text that was not confirmed is not repeated."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.confirmed: list[str] = []
        self.unknown: list[str] = []
        self._name = name
        self._cluster = cluster

    async def run(self) -> None:
        number = 0
        while True:
            leaders = [place for place in self._cluster.places if place.peer.is_leader]
            if not leaders:
                await asyncio.sleep(0.01)
                continue
            number += 1
            text = f"{self._name}-{number}"
            try:
                await random.choice(leaders).peer.publish(text)
            except NotConfirmed:
                self.unknown.append(text)
                await asyncio.sleep(0.01)
            else:
                self.confirmed.append(text)


async def campaign(servers: Servers, home: Path, faults: int, seed: int, clients: int = 3) -> str:
    """Run; return a line of figures. Raises ``AssertionError`` for what must not be."""
    chance = random.Random(seed)
    async with cluster_of(servers, home, "a", "b", "c") as cluster:
        for place in cluster.places:
            place.peer.confirm_s = 3.0
        made = [Client(f"client {one}", cluster) for one in range(clients)]
        tasks = [asyncio.create_task(client.run()) for client in made]
        counts: Counter[str] = Counter()
        try:
            for _ in range(faults):
                kind = chance.choice(FAULTS)
                counts[kind] += 1
                place = chance.choice([await cluster.leader(), chance.choice(cluster.places)])
                await fail(kind, servers, place, chance)
                before = sum(len(client.confirmed) for client in made)
                async with asyncio.timeout(60):
                    while sum(len(client.confirmed) for client in made) < before + 5:
                        await asyncio.sleep(0.02)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        await cluster.publish("the end")
        check(made, await cluster.agree())
        unknown = sum(len(client.unknown) for client in made)
        confirmed = sum(len(client.confirmed) for client in made)
        return f"seed {seed}: {dict(counts)}; {confirmed} confirmed, {unknown} not, 0 lost, 0 doubled"


async def fail(kind: str, servers: Servers, place: Place, chance: random.Random) -> None:
    """One fault, from its beginning to its end."""
    length_s = chance.uniform(0.2, 3.0)
    one = chance.randrange(3)
    if kind == "crash":
        await place.peer.stop()
        await asyncio.sleep(length_s)
        await place.peer.start()
    elif kind == "server killed":
        servers.kill(one)
        await asyncio.sleep(length_s)
        servers.restart(one)
    elif kind == "server frozen":
        servers.freeze(one)
        await asyncio.sleep(length_s)
        servers.freeze(one, False)
    elif kind == "daemon silent":
        place.peer.is_silent = True
        await asyncio.sleep(length_s)
        place.peer.is_silent = False
    else:
        if kind == "cut":
            place.proxy.cut()
        else:
            place.proxy.hold(*{"stall": (), "deaf": ("down",), "mute": ("up",)}[kind])
        await asyncio.sleep(length_s)
        place.proxy.pass_on()


def check(clients: list[Client], texts: list[str]) -> None:
    """Every confirmed text is there once, in the order in which its client published it; nothing is there twice."""
    doubled = [text for text, number in Counter(texts).items() if number > 1]
    assert not doubled, f"doubled: {doubled[:5]}"
    places = {text: place for place, text in enumerate(texts)}
    for client in clients:
        lost = [text for text in client.confirmed if text not in places]
        assert not lost, f"lost: {lost[:5]}"
        order = [places[text] for text in client.confirmed]
        assert order == sorted(order), "the order has changed"
