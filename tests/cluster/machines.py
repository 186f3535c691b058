"""Machines of a cluster: a real daemon and a real ``postroom-cluster`` each, on the same NATS servers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

from tests.cluster.proxy import Links
from tests.wire.daemon import Daemon, Sent, wait_until
from tests.wire.forked import run_command
from tests.wire.lane import LaneClient, as_in_mailbox

_CLUSTERS = count(1)
#: Before other directories in ``PYTHONPATH``, it sets the clock of a process.
_CLOCK = Path(__file__).parent / "clock"
#: The backends of the first machine, the second, ...
BACKENDS = ("sqlite", "filesystem", "hybrid")
#: How long (s) a leader is silent before another machine tries to lead.
AFTER_S = 2.0

_TOML = """
[daemon]
socket = {socket}
[cluster]
name = "{cluster}"
node = "{name}"
address = "{name}.example:9980"
[nats]
servers = {servers}
[failover]
after_seconds = {after_s}
"""


class LaneDaemon(Daemon):
    """A daemon that is asked over the lane: one whose clock is years ahead takes files of answers for old ones, which
    it removes."""

    def ask(self, command: str, **payload: Any) -> dict[str, Any]:
        response = self.response(command, payload)
        assert response["ok"], response
        data: dict[str, Any] = response["data"]
        return data

    def response(self, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, which may be an error."""
        request_id = self.new_name()

        def answer() -> dict[str, Any] | None:
            try:
                with LaneClient(self.ipc) as line:
                    return as_in_mailbox(*line.call(command, payload, requestId=request_id))
            except (OSError, EOFError):  # its root is opened again
                return None

        return self.wait(answer, f"there is an answer to {command}") or {}


class Machine:
    """One machine: ``daemon``, and the process beside it. ``kill`` and ``freeze`` concern both."""

    def __init__(
        self, home: Path, cluster: str, name: str, servers: Sequence[str], after_s: float, backend: str
    ) -> None:
        self.name = name
        self.backend = backend
        self.cluster = cluster
        self.home = home
        self.daemon = LaneDaemon(home / name, backend=backend)
        self.daemon.environment |= {
            "POSTROOM_CLUSTER_ENABLED": "true",
            "POSTROOM_CLUSTER_CONFIRM_MS": "3000",
            "POSTROOM_NODE_ID": name,
        }
        self.config = home / f"{name}.toml"
        fields = {"cluster": cluster, "name": name, "after_s": after_s, "servers": json.dumps(list(servers))}
        self.config.write_text(_TOML.format(socket=json.dumps(str(self.daemon.ipc / "cluster.sock")), **fields))
        self.log_path = home / f"{name}.cluster.log"
        self._environment = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None

    def set_clock(self, off_s: int) -> None:
        """The machine's clock is off by so much from its next start on."""
        path = os.pathsep.join([str(_CLOCK), os.environ.get("PYTHONPATH", "")])
        for environment in (self.daemon.environment, self._environment):
            environment |= {"PYTHONPATH": path, "CLOCK_OFF_S": str(off_s)}

    def start(self) -> Machine:
        self.daemon.start()
        return self.start_process()

    def start_process(self) -> Machine:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._words("run"), stdout=log, stderr=log, env=self._environment)
        return self

    def postroomd(self, *words: str) -> str:
        """What a command of ``postroomd`` about its root prints."""
        command = [*words, "--root", str(self.daemon.root)]
        if self._environment == os.environ:
            done = run_command(command, self.daemon.environment)
        else:  # another clock
            command = [sys.executable, "-m", "postroom_daemon", *command]
            done = subprocess.run(command, capture_output=True, env=self.daemon.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of ``postroom-cluster`` on this machine."""
        return subprocess.run([*self._words(name), *arguments], capture_output=True, text=True)

    def kill(self) -> None:
        """Both processes end at once, as the machine's power does it."""
        self.daemon.kill()
        self.kill_process()

    def kill_process(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop_process(self) -> int:
        """End the process beside the daemon in an orderly way; its exit code."""
        assert self._process
        self._process.terminate()
        code, self._process = self._process.wait(), None
        return code

    def freeze(self, is_frozen: bool = True) -> None:
        """Stop both processes, or let them go on."""
        os.kill(self.daemon.process.pid, signal.SIGSTOP if is_frozen else signal.SIGCONT)
        self.freeze_process(is_frozen)

    def freeze_process(self, is_frozen: bool = True) -> None:
        assert self._process
        self._process.send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def is_leader(self) -> bool:
        """Whether its daemon says that it leads."""
        return bool(self.role()["role"] == "leader")

    def role(self) -> dict[str, Any]:
        """What ``health`` says of the cluster."""
        found: dict[str, Any] = self.daemon.ask("health")["checks"]["cluster"]
        return found

    def log(self) -> str:
        return f"--- {self.name}\n{self.daemon.log()}\n{self.log_path.read_text() if self.log_path.exists() else ''}"

    def _words(self, name: str) -> list[str]:
        return [sys.executable, "-m", "postroom_cluster", name, "--config", str(self.config)]


class Machines:
    """The machines of a cluster; the first one leads first."""

    def __init__(self, made: list[Machine]) -> None:
        self.all = made

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.all)

    def leader(self, *candidates: Machine) -> Machine:
        """The machine that leads, as soon as one does."""
        return wait_until(lambda: next((one for one in candidates or self.all if one.is_leader()), None), "one leads")  # type: ignore[return-value]

    def agree(self, *some: Machine) -> None:
        """Wait until all have the same journal."""

        def journals() -> bool:
            return len({b"".join(path.read_bytes() for path in one.daemon.segments()) for one in some or self.all}) == 1

        wait_until(journals, "all have the same journal")


@contextlib.contextmanager
def machines(
    servers: Sequence[str],
    home: Path,
    *names: str,
    after_s: float = AFTER_S,
    start: bool = True,
    links: Links | None = None,
    backends: Sequence[str] = BACKENDS,
) -> Iterator[Machines]:
    """A cluster with a stream of its own, started; its machines reach the servers over ``links``, or directly."""
    cluster = f"m{next(_CLUSTERS)}"
    made = [
        Machine(home, cluster, name, links.of(name) if links else servers, after_s, backend)
        for name, backend in zip(names, cycle(backends), strict=False)
    ]
    try:
        wait_until(
            lambda: made[0].command("create", "--no-other-node-leads").returncode == 0, "the servers create the stream"
        )
        if start:
            for machine in made:
                machine.start()
        yield Machines(made)
    except BaseException:
        for machine in made:
            print(machine.log())
        raise
    finally:
        for machine in made:
            machine.kill()
    for machine in made:
        assert "Traceback" not in machine.log()


def refused(machine: Machine, sent: Sent) -> str:
    """The code of the error that a request was answered with; empty: it has no answer, or is done."""
    path = machine.daemon.answer_path(sent)
    answer: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"ok": True}
    return "" if answer["ok"] else str(answer["error"]["code"])
