"""Every life, on every store, with a fault at its first, second, third … file call, until a life has none left.

One run is a case: ``python -m tests.crash.sweep CASE`` repeats it alone.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.crash.faults import FaultyFiles, Killed
from tests.crash.lives import LIVES, ROLL_BYTES, live, prepare
from tests.crash.office import Office, Sent, Server
from tests.crash.promises import judge
from tests.crash.traced import NOT_FOR_EVER, SYSTEM_CALLS, Fault, RemoteServer

BACKENDS: Final = ("filesystem", "hybrid", "memory", "sqlite")
KINDS: Final = ("KILL", "ENOSPC", "EDQUOT", "EIO", "EROFS", "EMFILE", "SHORT")
#: A life has fewer calls.
MOST_CALLS: Final = 2000
#: Recovery from the n-th kill is killed itself, at a call that goes through these.
RECOVERY_CALLS: Final = 23


@dataclass(frozen=True)
class Case:
    """One run. Its text names it: ``backend/life/KIND/number``; with ``:call`` behind the kind the life is that of a
    process, and the n-th such system call fails; with ``/for-ever`` the fault stays."""

    backend: str
    life: str
    kind: str
    number: int
    persistent: bool = False
    call: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}:{self.call}" if self.call else self.kind
        return f"{self.backend}/{self.life}/{kind}/{self.number}" + "/for-ever" * self.persistent

    @staticmethod
    def parse(text: str) -> Case:
        """The case of a text. Raises ``ValueError``."""
        backend, life, kind, number, *rest = text.split("/")
        kind, _, call = kind.partition(":")
        return Case(backend, life, kind, int(number), bool(rest), call)


@dataclass
class Template:
    """A root with the messages that every life finds, and the requests that made them."""

    root: Path
    sent: list[Sent]


class Sweep:
    """Runs, each on a copy of a template in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: How many calls the last life had that could have failed.
        self.calls = 0
        self._templates: dict[str, Template] = {}

    def template(self, backend: str) -> Template:
        """The template of a backend, made once."""
        if backend not in self._templates:
            root = self.folder / f"template-{backend}"
            office = Office(Server(root, backend, 2**24, FaultyFiles()))
            office.server.open()
            prepare(office)
            office.server.close()
            self._templates[backend] = Template(root, office.sent)
        return self._templates[backend]

    def office(self, backend: str, life: str, files: FaultyFiles) -> Office:
        """An office on a copy of the template, for one life; it is not open yet."""
        template = self.template(backend)
        root = self.folder / "run"
        shutil.copytree(template.root, root)
        server = Server(root, backend, ROLL_BYTES if life == "roll" else 2**24, files, 1000)
        office = Office(server)
        office.sent = copy.deepcopy(template.sent)
        office.numbers = itertools.count(len(office.sent) + 1)
        if life == "recover":
            server.bench.lose_store()
            with server.bench.segments()[-1].open("ab") as file:
                file.write(b'{"id":99,"torn')
        return office

    def run(self, case: Case) -> bool:
        """One run. Whether it came to the fault; if not, the life has no such call. Raises ``AssertionError``."""
        files = FaultyFiles()
        office = self.office(case.backend, case.life, files)
        before = _descriptors(self.folder)
        try:
            fired, self.calls = _trace(office, case) if case.call else _fail(office, case, files)
            if fired:
                judge(office, case.kind)
                office.server.close()
                leaked = _descriptors(self.folder) - before
                assert not leaked, f"descriptors are left open: {sorted(leaked)}"
            return fired
        finally:
            files.heal()
            office.server.close()
            shutil.rmtree(office.server.bench.path)


def _descriptors(folder: Path) -> set[tuple[str, str]]:
    """The open descriptors of this process that a server can have: of files and directories below ``folder``, and
    watches, each with its number.

    Watches have no path. A client of an earlier test may close its own at any moment, in a thread: so it is looked for
    those that are new, not whether all are the same.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself, or closed by a thread
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith(f"{folder}/") or target == "anon_inode:inotify":
                found.add((number, target))
    return found


def _fail(office: Office, case: Case, files: FaultyFiles) -> tuple[bool, int]:
    """A life in this process: whether it came to the fault, and how many calls there were until then."""
    if case.life != "recover":
        assert office.server.open()
    files.arm(case.kind, case.number, case.persistent)
    _until_killed(office, case.life)
    calls = files.count
    if not files.fired:
        return False, calls
    if case.kind == "KILL":
        files.arm("KILL", 1 + case.number % RECOVERY_CALLS)
        _until_killed(office, "")
    files.heal()
    if office.server.serves():
        _go_on(office)
    office.server.close()
    return True, calls


def _trace(office: Office, case: Case) -> tuple[bool, int]:
    """A life in a process of its own; as ``_fail``."""
    server = office.server
    assert isinstance(server, Server)
    remote = RemoteServer(server)
    server.bench.ids = itertools.count(100_000)  # not those that the other gives out
    try:
        if case.life != "recover":
            remote.open()
        fault = remote.fault = Fault(remote.pid, case.call, case.kind, case.number, case.persistent)
        office.server = remote
        live(office, case.life)
        fault.let_go()
        serves = remote.serves()
        assert case.kind == "KILL" or not remote.dead, "the process died of it"
        fired, calls = remote.dead or fault.fired, fault.count
        if fired and serves:
            _go_on(office)
    finally:
        office.server = server
        remote.end()
    return fired, calls


def _until_killed(office: Office, life: str) -> None:
    try:
        if life:
            live(office, life)
        else:
            office.server.turn()
    except Killed:
        office.server.close()


def _go_on(office: Office) -> None:
    """What was alive serves again as soon as the disk works, without being started again."""
    office.server.pass_ms(2000)
    office.turn()
    sent = office.ask("publish", queue="healed", message="healed")
    assert sent.code == "OK", f"the disk works again, and a publish is answered {sent.answer}"


def in_process() -> Iterator[Case]:
    """The first case of each series; its number goes up until a run has no such call."""
    for backend, life, kind in itertools.product(BACKENDS, LIVES, KINDS):
        for persistent in (False, True) if kind != "KILL" else (False,):
            yield Case(backend, life, kind, 1, persistent)


def in_processes() -> Iterator[Case]:
    """As ``in_process``, for the stores with calls that no seam sees."""
    for backend, life in itertools.product(("hybrid", "sqlite"), LIVES):
        for kind, calls in SYSTEM_CALLS.items():
            for call in calls:
                yield Case(backend, life, kind, 1, False, call)
                if kind != "KILL" and (kind, call) not in NOT_FOR_EVER:
                    yield Case(backend, life, kind, 1, True, call)


def main() -> int:
    """Repeat one case."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-crash-"))
    try:
        fired = Sweep(folder).run(Case.parse(sys.argv[1]))
        print("held" if fired else "the life has no such call")
        return 0
    except AssertionError:
        traceback.print_exc()
        return 1
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
