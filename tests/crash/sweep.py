"""Runs every scenario on every store with a fault at its first, second, third, ... file call.

One run is a case: ``python -m tests.crash.sweep CASE`` repeats it alone.
"""

from __future__ import annotations

import copy
import itertools
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.bench import descriptors
from tests.conformance.power_cut import Disk
from tests.crash.faults import KILLING, FaultyFiles, Killed
from tests.crash.invariants import check_invariants
from tests.crash.scenarios import ROLL_BYTES, SCENARIOS, prepare, run_scenario
from tests.crash.server import Client, Sent, Server
from tests.crash.strace import NOT_FOR_EVER, SYSTEM_CALLS, Fault, RemoteServer

BACKENDS: Final = ("filesystem", "hybrid", "memory", "sqlite")
KINDS: Final = ("KILL", "POWER", "ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "SHORT")
#: No scenario makes more calls.
MOST_CALLS: Final = 2000
#: Recovery from a kill is killed as well, at one of its first so many calls.
RECOVERY_CALLS: Final = 23


@dataclass(frozen=True)
class Case:
    """One run, named by its text ``backend/scenario/KIND/number``.

    With ``KIND:call`` the scenario runs in a process of its own, in which the n-th such system call fails. With
    ``/for-ever`` at the end, all later calls fail too.
    """

    backend: str
    scenario: str
    kind: str
    number: int
    persistent: bool = False
    call: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}:{self.call}" if self.call else self.kind
        return f"{self.backend}/{self.scenario}/{kind}/{self.number}" + "/for-ever" * self.persistent

    @staticmethod
    def parse(text: str) -> Case:
        """Parse the text of a case. Raises ``ValueError``."""
        backend, scenario, kind, number, *rest = text.split("/")
        kind, _, call = kind.partition(":")
        return Case(backend, scenario, kind, int(number), bool(rest), call)


@dataclass
class Template:
    """A root with the messages that every scenario starts with, and the requests that made them."""

    root: Path
    sent: list[Sent]


class Sweep:
    """Runs cases, each on a copy of a template in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: How many calls of the last run could have failed.
        self.calls = 0
        self._templates: dict[str, Template] = {}

    def template(self, backend: str) -> Template:
        """The template of a backend, made once."""
        if backend not in self._templates:
            root = self.folder / f"template-{backend}"
            client = Client(Server(root, backend, 2**24, FaultyFiles()))
            client.server.open()
            prepare(client)
            client.server.close()
            self._templates[backend] = Template(root, client.sent)
        return self._templates[backend]

    def client(self, backend: str, scenario: str, files: FaultyFiles) -> Client:
        """A client of a server on a copy of the template. The server is not open yet."""
        template = self.template(backend)
        root = self.folder / "run"
        shutil.copytree(template.root, root)
        server = Server(root, backend, ROLL_BYTES if scenario == "roll" else 2**24, files, 1000)
        client = Client(server)
        client.sent = copy.deepcopy(template.sent)
        client.numbers = itertools.count(len(client.sent) + 1)
        if scenario == "recover":
            server.bench.lose_store()
            with server.bench.segments()[-1].open("ab") as file:
                file.write(b'{"id":99,"torn')
        return client

    def run(self, case: Case) -> bool:
        """Run a case. Returns whether the fault occurred: False if the scenario makes fewer calls. Raises
        ``AssertionError`` if an invariant does not hold."""
        files = FaultyFiles()
        client = self.client(case.backend, case.scenario, files)
        before = descriptors(self.folder)
        try:
            fired, self.calls = _trace(client, case) if case.call else _fail(client, case, files)
            if fired:
                check_invariants(client, case.kind)
                client.server.close()
                leaked = descriptors(self.folder) - before
                assert not leaked, f"descriptors are left open: {sorted(leaked)}"
            return fired
        finally:
            files.heal()
            client.server.close()
            shutil.rmtree(client.server.bench.path)


def _fail(client: Client, case: Case, files: FaultyFiles) -> tuple[bool, int]:
    """Run a scenario in this process. Returns whether the fault occurred, and the number of calls up to then."""
    if case.scenario != "recover":
        assert client.server.open()
    disk, chance = Disk(client.server.bench.journal_root), random.Random(str(case))
    files.arm(case.kind, case.number, case.persistent)
    disk.watch(files)
    _until_killed(client, case.scenario)
    calls = files.count
    if not files.fired:
        return False, calls
    if case.kind == "POWER":
        disk.cut(chance)
    if case.kind in KILLING:
        files.arm(case.kind, 1 + case.number % RECOVERY_CALLS)
        disk.watch(files)
        _until_killed(client, "")
    if case.kind == "POWER" and files.fired:
        disk.cut(chance)
    files.heal()
    if client.server.serves():
        _go_on(client)
    client.server.close()
    return True, calls


def _trace(client: Client, case: Case) -> tuple[bool, int]:
    """Like ``_fail``, in a process of its own."""
    server = client.server
    assert isinstance(server, Server)
    remote = RemoteServer(server)
    server.bench.ids = itertools.count(100_000)  # the process assigns ids from its own copy
    try:
        if case.scenario != "recover":
            remote.open()
        fault = remote.fault = Fault(remote.pid, case.call, case.kind, case.number, case.persistent)
        client.server = remote
        run_scenario(client, case.scenario)
        fault.let_go()
        serves = remote.serves()
        assert case.kind == "KILL" or not remote.dead, "the fault killed the process"
        fired, calls = remote.dead or fault.fired, fault.count
        if fired and serves:
            _go_on(client)
    finally:
        client.server = server
        remote.end()
    return fired, calls


def _until_killed(client: Client, scenario: str) -> None:
    try:
        if scenario:
            run_scenario(client, scenario)
        else:
            client.server.turn()
    except Killed:
        client.server.close()


def _go_on(client: Client) -> None:
    """A server that still runs serves again as soon as the disk works, without a restart."""
    client.server.pass_ms(2000)
    client.turn()
    sent = client.ask("publish", queue="healed", message="healed")
    client.server.tick()  # the directory of its answer counts as not writable until the daemon has written into it
    client.turn()
    assert sent.code == "OK", f"the disk works again, and a publish is answered {sent.answer}"


def in_process() -> Iterator[Case]:
    """The first case of each series. A series ends with the number of calls that its scenario makes."""
    for backend, scenario, kind in itertools.product(BACKENDS, SCENARIOS, KINDS):
        for persistent in (False, True) if kind not in KILLING else (False,):
            yield Case(backend, scenario, kind, 1, persistent)


def in_processes() -> Iterator[Case]:
    """Like ``in_process``, for the stores that make system calls past ``Files``."""
    for backend, scenario in itertools.product(("hybrid", "sqlite"), SCENARIOS):
        for kind, calls in SYSTEM_CALLS.items():
            for call in calls:
                yield Case(backend, scenario, kind, 1, False, call)
                if kind != "KILL" and (kind, call) not in NOT_FOR_EVER:
                    yield Case(backend, scenario, kind, 1, True, call)


def main() -> int:
    """Repeat one case."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-crash-"))
    try:
        fired = Sweep(folder).run(Case.parse(sys.argv[1]))
        print("all invariants hold" if fired else "the scenario makes fewer such calls")
        return 0
    except AssertionError:
        traceback.print_exc()
        return 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
