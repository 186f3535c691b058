"""Makes exports in this process and reads them back; keeps a device busy with all commands."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from postroom_client import Client, PostroomError
from postroom_common.snapshot_reader import check, read_lines
from postroom_console.export.exporter import Exporter, Made
from postroom_console.export.request import ExportRequest
from postroom_console.paths import find_paths
from tests.wire.daemon import PATIENCE_S, Daemon

Line = dict[str, Any]
QUEUES = ("a", "b", "c", "d", "e", "f", "g")


class Snapshot:
    """A snapshot that was read back and is complete."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            (self.member,) = check(file)
        assert self.member.reason is None, (self.member.reason, self.member.detail)
        with path.open("rb") as file:
            self.lines = list(read_lines(file))
        self.header = self.lines[0]

    def of(self, kind: str) -> list[Line]:
        """Its lines of a kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def events(self) -> list[int]:
        """The ids of its events."""
        return [line["event"] for line in self.of("event")]


def make(root: Path, folder: Path, page: int = 1000, **options: Any) -> Made:
    """Export the daemon of a root, without pauses."""
    request = ExportRequest(folder, **options)
    return Exporter(find_paths(root), request, lambda: False, lambda seconds: None, page=page).run()


def export(root: Path, folder: Path, page: int = 1000, **options: Any) -> Snapshot:
    """As ``make``; returns the snapshot."""
    return Snapshot(make(root, folder, page, **options).path)


@contextlib.contextmanager
def busy(daemon: Daemon, clients: int = 2, seed: int = 0) -> Iterator[Callable[[], int]]:
    """Keep a daemon busy; yields a function that returns the number of answered requests."""
    ended = threading.Event()
    answered = [0] * clients

    def work(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        with Client(str(daemon.ipc), client_id=f"load-{number}") as client:
            while not ended.is_set():
                command, payload = _wish(chance, number)
                with contextlib.suppress(PostroomError):
                    reported = ask(client, command, payload)
                    if command == "consume_next" and reported.get("message"):
                        _settle(client, chance, reported)
                answered[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(answered)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _wish(chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    queue, other = chance.choice(QUEUES), chance.choice(QUEUES)
    late: dict[str, Any] = {"delayMs": chance.choice((20, 5000))} if chance.random() < 0.2 else {}
    publish = {"queue": queue, "message": {"n": chance.random()}, "attributes": {"kind": "x"}, **late}
    consume = {"queue": chance.choice((queue, f"{queue}.dlq")), "consumerId": f"worker-{number}-{chance.randrange(3)}"}
    limit = chance.randrange(1, 5)
    wishes: list[tuple[int, str, dict[str, Any]]] = [
        (40, "publish", publish),
        (40, "consume_next", {**consume, "visibilityTimeoutSec": chance.choice((1, 60))}),
        (2, "reprocess_dlq", {"queue": queue, "limit": 3, **({"to": other} if chance.random() < 0.5 else {})}),
        (2, "drop_dlq", {"queue": queue, "limit": 2}),
        (2, "move", {"queue": queue, "to": other, "state": "ready", "limit": 3}),
        (1, "purge", {"queue": queue, "limit": 5}),
        (1, chance.choice(("pause", "resume")), {"queue": queue, "operation": "publish"}),
        (1, "resume", {"queue": queue, "operation": "publish"}),
        (
            1,
            "set_policy",
            {"queue": queue, "policy": {"retry": {"limit": limit, "initialDelaySec": 0}}},
        ),
        (1, "delete_queue", {"queue": queue}),
    ]
    _, command, payload = chance.choices(wishes, [one[0] for one in wishes])[0]
    return command, payload


def _settle(client: Client, chance: random.Random, reported: dict[str, Any]) -> None:
    receipt = {"messageKey": reported["message"]["messageKey"], "leaseId": reported["lease"]["leaseId"]}
    what = chance.choices(("ack", "nack", "retry", "release", "extend", "keep"), (30, 25, 15, 10, 10, 10))[0]
    more: dict[str, dict[str, Any]] = {
        "nack": {"reason": "no good", "requeue": False},
        "retry": {"reason": "again", "requeue": True},
        "extend": {"extendSec": chance.choice((1, 30))},
    }
    command = {"retry": "nack", "extend": "extend_lease"}.get(what, what)
    if what != "keep":
        ask(client, command, {**receipt, **more.get(what, {})})
    if what == "nack" and chance.random() < 0.2:
        ask(client, "quarantine_dlq", {"messageKey": receipt["messageKey"], "quarantined": True, "reason": "odd"})


def ask(client: Client, command: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Send a request with a timeout for a loaded machine."""
    reported: dict[str, Any] = client.send(client.prepare(command, payload, PATIENCE_S), PATIENCE_S)
    return reported
