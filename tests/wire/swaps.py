"""A hostile user who swaps what its names in ``requests/`` show, while the daemon looks, moves and opens.

Its names show in turn requests, links to what only the daemon may read, FIFOs, sockets, directories, files with two
names, empty ones, endless ones and ones that nobody may read. Nothing of it is followed, nothing stalls the daemon, all
of it is taken away, and another user is served all the while.
"""

from __future__ import annotations

import os
import random
import socket
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.wire.daemon import Daemon
from tests.wire.users import ANNA, BERT, acting_as, client_of, send_as, spilled_files

#: What only the daemon may read; nobody is ever to see it.
SECRET: Final = b"the secret of the daemon"
#: Names that the hostile user swaps, and swaps between two requests of the other.
_NAMES: Final = 40
_BETWEEN: Final = 50


class _Swapper:
    """Makes one thing after the other under its names."""

    def __init__(self, daemon: Daemon, chance: random.Random) -> None:
        self._daemon = daemon
        self._chance = chance
        self._numbers = 0
        self.made: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[Path], None]] = {
            "request": self._request,
            "link to a secret": lambda path: path.symlink_to(daemon.root / "secret.json"),
            "link to a directory": lambda path: path.symlink_to(daemon.root / "journal"),
            "link to itself": lambda path: path.symlink_to(path.name),
            "FIFO": os.mkfifo,
            "socket": self._socket,
            "directory": os.mkdir,
            "full directory": self._full_directory,
            "second name": self._second_name,
            "empty": Path.touch,
            "endless": self._endless,
            "unreadable": lambda path: path.touch(0o000),
            "half a request": self._half,
        }

    def swap(self) -> None:
        """Let one of the names show something else, by a rename over what it shows, or, where that cannot be, by
        another name."""
        kind = self._chance.choice(["request", *self._kinds])
        place = self._daemon.requests
        fresh = place / f".new-{self._numbers}"
        self._numbers += 1
        suffix = self._chance.choice([b".json", b".json", b"\xff\xfe.json", b"\n.json"])
        target = os.fsencode(place / f"swap-{self._chance.randrange(_NAMES):02d}") + suffix
        self._kinds[kind](fresh)
        try:
            os.rename(fresh, target)
        except OSError:
            os.rename(fresh, place / f"other-{self._numbers}.json")  # a directory and something else cannot be swapped
        self.made[kind] += 1

    def _request(self, path: Path) -> None:
        sent = self._daemon.request("publish", {"queue": "hostile"}, client_id=client_of(ANNA))
        path.write_bytes(sent.data)

    def _socket(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{self._fd()}/{path.name}")

    def _full_directory(self, path: Path) -> None:
        path.mkdir()
        (path / "inside.json").write_bytes(SECRET)

    def _second_name(self, path: Path) -> None:
        first = self._daemon.responses / client_of(ANNA) / "first"
        first.touch()
        os.link(first, path)

    def _endless(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(2**40)

    def _half(self, path: Path) -> None:
        path.write_bytes(b'{"requestId":"r"')

    def _fd(self) -> int:
        if not hasattr(self, "_place"):
            self._place = os.open(self._daemon.requests, os.O_PATH)
        return self._place


def run_swaps(daemon: Daemon, swaps: int, number: int) -> Counter[str]:
    """Swap so often beside a running daemon whose mailbox is shared; ``number`` makes it another run. What was made.

    Fails if the daemon has ended or was stalled, followed a link, or left something that is none of its own.
    """
    (daemon.root / "secret.json").write_bytes(
        daemon.request("publish", {"queue": "stolen", "message": SECRET.decode()}, client_id=client_of(ANNA)).data
    )
    (daemon.root / "secret.json").chmod(0o600)
    pid, swapper = daemon.process.pid, _Swapper(daemon, random.Random(number))
    others = [send_as(daemon, BERT, "publish", {"queue": "q"}), send_as(daemon, ANNA, "publish", {"queue": "hostile"})]
    for one in others:
        assert daemon.answer(one)["ok"]
    for done in range(0, swaps, _BETWEEN):
        sent = send_as(daemon, BERT, "publish", {"queue": "q", "message": str(done)})
        with acting_as(ANNA):
            for _ in range(_BETWEEN):
                swapper.swap()
        assert daemon.answer(sent)["ok"]
        _forget_answers(daemon)
    daemon.wait(lambda: _left(daemon) == 0, "all that was swapped in is taken away")
    assert daemon.process.pid == pid
    assert "Traceback" not in daemon.log()
    assert "stolen" not in [event["queue"] for event in daemon.events("published")], "a link was followed"
    for path in daemon.dead.iterdir():
        if stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size < 2**20:
            assert SECRET not in path.read_bytes()
    published = [event["by"]["uid"] for event in daemon.events("published") if event["queue"] == "q"]
    assert published == [BERT] * (len(range(0, swaps, _BETWEEN)) + 1)
    return swapper.made


def _left(daemon: Daemon) -> int:
    """How much is still to be taken from ``requests/`` and ``held/``; directories stay under names of their own."""
    requests = [name for name in os.listdir(daemon.requests) if name.endswith(".json")]
    return len(spilled_files(daemon)) + len(requests)


def _forget_answers(daemon: Daemon) -> None:
    for path in (daemon.responses / client_of(ANNA)).glob("*.json"):
        path.unlink()
