"""What can fail in a cluster of real machines, each from its beginning to its end, and clients that work meanwhile."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from postroom_cluster.config.settings import NatsSection
from postroom_cluster.connection import connect
from postroom_cluster.stream import Stream
from tests.cluster.clients import QUEUE, Client, check, waiting
from tests.cluster.machines import Machine, Machines, machines
from tests.cluster.proxy import Links
from tests.cluster.servers import Servers
from tests.conformance.journal_end import lose_end
from tests.wire.audit import audit
from tests.wire.daemon import wait_until

#: How often a message may be delivered: more often than any is.
POLICY = {"retry": {"limit": 1000, "backoff": "linear", "initialDelaySec": 0.01, "maxDelaySec": 0.1}}
#: Events that a machine misses that is away for long.
MANY = 10_000
#: Backends whose backups seed a machine with any.
SEEDS_ANY = ("sqlite", "filesystem")
#: How far (s) a clock is off: ten years.
YEARS_S = 10 * 365 * 86400


class Scene:
    """A cluster, its servers, and the ways between them. ``clients`` work from ``begin`` to ``end``."""

    def __init__(self, servers: Servers, links: Links, cluster: Machines, home: Path, seed: int) -> None:
        self.servers = servers
        self.links = links
        self.cluster = cluster
        self.home = home
        self.seed = seed
        self.chance = random.Random(seed)
        self.clients: list[Client] = []
        self.numbers = count(1)

    def begin(self, clients: int, batch: int) -> None:
        self.cluster.leader().daemon.ask("set_policy", queue=QUEUE, policy=POLICY)
        self.clients = [Client(f"client-{one}", self.cluster.all, self.seed + one, batch) for one in range(clients)]
        for client in self.clients:
            client.start()

    def go_on(self, answers: int = 3) -> None:
        """Wait until each client has so many more answers."""
        wanted = {client: len(client.done) + answers for client in self.clients}

        def have_gone_on() -> bool:
            for client in self.clients:
                assert client.is_alive(), f"{client.name} has ended: {client.failure!r}"
            return all(len(client.done) >= number for client, number in wanted.items())

        wait_until(have_gone_on, "each client is answered")

    def end(self) -> str:
        """Let the clients finish, and check what they were answered; a line of figures."""
        for client in self.clients:
            client.end()
        leader = self.cluster.leader()
        wait_until(lambda: "inflight" not in leader.daemon.counts(QUEUE), "all leases are over")
        self.cluster.agree()
        events = leader.daemon.events()
        ledger = audit(events)
        figures = check(self.clients, events, ledger)
        for machine in self.cluster:
            assert waiting(machine.daemon.counts(QUEUE)) == ledger.counts(QUEUE), machine.name
        return figures

    def verify(self) -> None:
        """Kill all machines, and compare the store of each with what its journal says."""
        for machine in self.cluster:
            machine.kill()
            machine.postroomd("verify")

    def stop(self) -> None:
        for client in self.clients:
            client.give_up()


class Fault(Protocol):
    """What fails, from the beginning to the end of a block; most concern one machine."""

    __name__: str

    def __call__(self, scene: Scene, machine: Machine, /) -> AbstractContextManager[None]: ...


@contextmanager
def scene(servers: Servers, home: Path, *names: str, seed: int = 1) -> Iterator[Scene]:
    """A scene whose machines are started."""
    links = Links(servers.urls)
    try:
        with machines(servers.urls, home, *names, links=links) as cluster:
            made = Scene(servers, links, cluster, home, seed)
            try:
                yield made
            finally:
                made.stop()
    finally:
        links.stop()


@contextmanager
def killed(scene: Scene, machine: Machine) -> Iterator[None]:
    machine.kill()
    yield
    machine.start()


@contextmanager
def process_killed(scene: Scene, machine: Machine) -> Iterator[None]:
    """Only ``postroom-cluster`` ends."""
    machine.kill_process()
    yield
    machine.start_process()


@contextmanager
def frozen(scene: Scene, machine: Machine) -> Iterator[None]:
    machine.freeze()
    yield
    machine.freeze(False)


@contextmanager
def process_frozen(scene: Scene, machine: Machine) -> Iterator[None]:
    """Only ``postroom-cluster`` is stopped, so that the daemon waits for its confirmation."""
    machine.freeze_process()
    yield
    machine.freeze_process(False)


@contextmanager
def daemon_frozen(scene: Scene, machine: Machine) -> Iterator[None]:
    """Only the daemon is stopped, as if it hung."""
    machine.daemon.freeze()
    yield
    machine.daemon.thaw()


@contextmanager
def cut_off(scene: Scene, machine: Machine) -> Iterator[None]:
    scene.links.cut(machine.name)
    yield
    scene.links.pass_on(machine.name)


@contextmanager
def cut_off_with_a_client(scene: Scene, machine: Machine) -> Iterator[None]:
    """The client reaches no other machine; bytes on their way arrive after the end."""
    client = scene.clients[0]
    client.only = machine
    scene.links.hold(machine.name)
    yield
    scene.links.pass_on(machine.name)
    client.only = None


@contextmanager
def deaf(scene: Scene, machine: Machine) -> Iterator[None]:
    """What it sends arrives, and it hears nothing."""
    scene.links.hold(machine.name, "down")
    yield
    scene.links.pass_on(machine.name)


@contextmanager
def mute(scene: Scene, machine: Machine) -> Iterator[None]:
    """It hears everything, and nothing arrives that it sends."""
    scene.links.hold(machine.name, "up")
    yield
    scene.links.pass_on(machine.name)


@contextmanager
def disk_full(scene: Scene, machine: Machine) -> Iterator[None]:
    """None of its daemon's files becomes larger than the journal's newest is."""
    pid, size = machine.daemon.process.pid, machine.daemon.segments()[-1].stat().st_size
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def away_for_many_events(scene: Scene, machine: Machine) -> Iterator[None]:
    machine.kill()
    publish_many(scene, *(one for one in scene.cluster if one is not machine))
    yield
    machine.start()


def publish_many(scene: Scene, *machines: Machine) -> None:
    """Publish so many messages, at whichever of the machines leads."""

    def is_published() -> bool:
        daemon = scene.cluster.leader(*machines).daemon
        return bool(daemon.response("publish_batch", {"queue": "many", "messages": [{"message": "x"}] * 1000})["ok"])

    for _ in range(MANY // 1000):
        wait_until(is_published, "a leader publishes them")


@contextmanager
def seeded(scene: Scene, machine: Machine) -> Iterator[None]:
    """A machine that has nothing is seeded from a backup of another, while clients work."""
    machine.kill()
    others = [one for one in scene.cluster if one is not machine and one.backend in (machine.backend, *SEEDS_ANY)]
    other = scene.chance.choice(others)
    backup = scene.home / f"backup-{next(scene.numbers)}"
    other.postroomd("backup", "--to", str(backup))
    machine.postroomd("restore", "--from", str(backup), "--as-member", "--replace")
    yield
    machine.start()


@contextmanager
def journal_end_lost(scene: Scene, machine: Machine) -> Iterator[None]:
    """Its disk has lost the last groups, which it had synced; the store may show them."""
    machine.kill()
    yield
    lose_end(machine.daemon.root / "journal", scene.chance.randint(1, 20), scene.chance.choice([0, 30]))
    machine.start()


@contextmanager
def clock_off(scene: Scene, machine: Machine) -> Iterator[None]:
    """Its clock is years off from its next start on; by how much, another one changes."""
    machine.kill()
    yield
    machine.set_clock(scene.chance.choice([-YEARS_S, YEARS_S]))
    machine.start()


@contextmanager
def stream_leader_killed(scene: Scene, machine: Machine) -> Iterator[None]:
    with _servers_killed(scene, asyncio.run(_stream_leader(scene, machine))):
        yield


@contextmanager
def quorum_lost(scene: Scene, machine: Machine) -> Iterator[None]:
    """The stream's leader and another server end."""
    one = asyncio.run(_stream_leader(scene, machine))
    with _servers_killed(scene, one, (one + 1) % 3):
        yield


@contextmanager
def _servers_killed(scene: Scene, *some: int) -> Iterator[None]:
    for one in some:
        scene.servers.kill(one)
    try:
        yield
    finally:
        for one in some:
            scene.servers.restart(one)


@contextmanager
def server_frozen(scene: Scene, machine: Machine) -> Iterator[None]:
    one = scene.chance.randrange(3)
    scene.servers.freeze(one)
    try:
        yield
    finally:
        scene.servers.freeze(one, False)


async def _stream_leader(scene: Scene, machine: Machine) -> int:
    """The server that leads the stream of the scene's cluster."""
    connection = await connect(NatsSection(servers=scene.servers.urls), "tests")
    try:
        info = await Stream(connection, machine.cluster).info()
        assert info.cluster and info.cluster.leader
        return scene.servers.names.index(info.cluster.leader)
    finally:
        await connection.close()


#: All of them, for the campaign.
FAULTS: tuple[Fault, ...] = (
    killed, process_killed, frozen, process_frozen, daemon_frozen, cut_off, cut_off_with_a_client, deaf, mute,
    disk_full, away_for_many_events, seeded, clock_off, stream_leader_killed, quorum_lost,
    server_frozen, journal_end_lost,
)  # fmt: skip


def campaign(servers: Servers, home: Path, faults: int, seed: int, clients: int = 4, batch: int = 20) -> str:
    """Let faults happen at random, one at a time; return lines of figures. Raises ``AssertionError`` for what must not
    be."""
    counted = Counter[str]()
    with scene(servers, home, "a", "b", "c", seed=seed) as made:
        made.begin(clients, batch)
        for _ in range(faults):
            made.go_on()
            fault = made.chance.choice(FAULTS)
            machine = made.cluster.leader() if made.chance.random() < 0.6 else made.chance.choice(made.cluster.all)
            name = fault.__name__.replace("_", " ")
            with fault(made, machine):
                time.sleep(made.chance.uniform(0.1, 4.0))
            counted[name] += 1
            for one in made.cluster:
                wait_until(lambda one=one: one.role()["ok"], f"{one.name} follows or leads after: {name}")  # type: ignore[misc]
            print(f"\r{sum(counted.values())} faults", end="", flush=True)
        made.go_on()
        figures = made.end()
        made.verify()
    return f"\nseed {seed}: {', '.join(f'{number} {name}' for name, number in counted.most_common())}\n{figures}"
