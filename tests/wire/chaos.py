"""Eight client processes on mixed interpreters, one daemon that is killed and started again: what must hold at the end.

The clients record their answers, the journal says what happened, and the two are compared.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom_common.events import Event
from tests.wire.audit import EXPLANATIONS, audit
from tests.wire.daemon import Daemon, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "legacy" / "chaos_client.py"
CLIENT_SOURCE = REPOSITORY / "packages" / "client" / "src"
#: The Pythons that share the work; the first two must be there where CI is set.
VERSIONS = ("2.7", "3.6", "3.11", "3.13")
NEEDED = ("2.7", "3.6")
CLIENTS = 8
#: How clients reach the daemon: by the lane or by files as the library chooses, by one of them, or by both in turns.
TRANSPORTS = ("auto", "lane", "mailbox", "both")
QUEUES = ("chaos", "chaos.a", "a.chaos")
POLICY = {"retry": {"limit": 100, "backoff": "linear", "initialDelaySec": 0.01, "maxDelaySec": 0.1}}

Notes = list[list[Any]]


@dataclass
class Outcome:
    """What a run came to."""

    seconds: float
    kills: int
    interpreters: list[str]
    events: Counter[str] = field(default_factory=Counter)
    redelivered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    doors: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        events = ", ".join(f"{name} {count}" for name, count in sorted(self.events.items()))
        refused = ", ".join(f"{name} {count}" for name, count in sorted(self.refused.items())) or "none"
        return (
            f"{self.seconds:.1f} s, {self.kills} kills, Python {', '.join(sorted(set(self.interpreters)))}\n"
            f"last requests by door: {dict(self.doors)}\nevents: {events}\n"
            f"redeliveries, all explained: {self.redelivered}; late settlements refused: {refused}"
        )


def find_interpreters() -> dict[str, str]:
    """Paths of the interpreters that are there, by version. Where CI is set, the oldest must be."""
    found = {}
    for version in VERSIONS:
        script = [str(REPOSITORY / "scripts" / "find-python"), version]
        path = subprocess.run(script, capture_output=True, text=True).stdout.strip()
        if path:
            found[version] = path
    missing = [version for version in NEEDED if version not in found]
    assert not (missing and os.environ.get("CI")), f"no Python {', '.join(missing)} on this machine"
    if missing:
        print(f"not tested, since they are not on this machine: Python {', '.join(missing)}")
    assert found, "no interpreter was found"
    return found


def run_chaos(daemon: Daemon, messages: int, kills: int, seed: int, patience_s: float) -> Outcome:
    """Let the clients work while the daemon is killed ``kills`` times; then judge. Raises ``AssertionError``."""
    rng, began = random.Random(seed), time.monotonic()
    interpreters = find_interpreters()
    daemon.start()
    for queue in QUEUES:
        daemon.ask("set_policy", queue=queue, policy=POLICY)
    folder = daemon.root.parent
    stop = folder / "stop"
    notes = [folder / f"notes-{number}" for number in range(CLIENTS)]
    processes = []
    versions = list(interpreters)
    try:
        for number in range(CLIENTS):
            share = messages // CLIENTS + (number < messages % CLIENTS)
            python = interpreters[versions[number % len(versions)]]
            transport = TRANSPORTS[(number + number // len(TRANSPORTS)) % len(TRANSPORTS)]
            arguments = [python, PROGRAM, daemon.ipc, number, share, notes[number], stop, seed + number, transport]
            environment = {**os.environ, "PYTHONPATH": str(CLIENT_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
            with (folder / f"client-{number}.log").open("wb") as log:
                command = [str(argument) for argument in arguments]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        progress = _Progress(daemon, processes, notes, folder)
        for number in range(kills):
            # Anywhere in the work, and at a moment that nobody has chosen.
            share_done = (number + rng.random()) / kills * 0.95
            progress.wait_for(share_done * messages, patience_s)
            daemon.kill()
            daemon.start(ready=rng.random() < 0.5)
        progress.wait_for(messages, patience_s)
        daemon.wait(lambda: not _left(daemon), "every message is settled", patience_s)
        stop.touch()
        for process in processes:
            assert process.wait(60) == 0, _logs(folder)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    reported = [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in notes]
    totals = {queue: daemon.ask("status", queue=queue) for queue in QUEUES}
    outcome = Outcome(time.monotonic() - began, kills, [list_[0][1] for list_ in reported])
    outcome.doors = _doors(daemon)
    assert min(outcome.doors["lane"], outcome.doors["mailbox"]) > messages / 4, outcome.doors
    judge(daemon.events(), [note for list_ in reported for note in list_], totals, messages, outcome)
    return outcome


class _Progress:
    """How many publishes the clients were told of, read from what they write down."""

    def __init__(
        self, daemon: Daemon, processes: list[subprocess.Popen[bytes]], notes: list[Path], folder: Path
    ) -> None:
        self._daemon = daemon
        self._processes = processes
        self._notes = notes
        self._folder = folder
        self._read = dict.fromkeys(notes, 0)
        self._published = 0

    def wait_for(self, published: float, patience_s: float) -> None:
        wait_until(lambda: self._count() >= published, f"{published:.0f} messages are published", patience_s)

    def _count(self) -> int:
        assert all(process.poll() is None for process in self._processes), _logs(self._folder)
        assert self._daemon.process.poll() is None, "the daemon ended by itself"
        for path in self._notes:
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self._read[path])
                    data = file.read()
                self._read[path] += len(data)
                self._published += data.count(b'["published"')
        return self._published


def _left(daemon: Daemon) -> int:
    """Messages that are neither gone nor dead."""
    counts = [daemon.ask("status", queue=queue)["metrics"] for queue in QUEUES]
    return sum(one["ready"] + one["inflight"] + one["delayed"] for one in counts)


def _doors(daemon: Daemon) -> Counter[str]:
    """How many of the last requests came by each door."""
    doors = Counter[str]()
    for path in (daemon.root / "traffic").glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            doors["lane" if b'"door":"lane"' in line else "mailbox"] += 1
    return doors


def _logs(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text('utf-8', 'replace')}" for path in folder.glob("client-*.log"))


def judge(
    events: list[Event], notes: Notes, statuses: dict[str, dict[str, Any]], messages: int, outcome: Outcome
) -> None:
    """Compare the answers that the clients recorded with the journal."""
    ledger = audit(events)  # dense ids, checksums, one holder a lease, no request executed twice
    outcome.events = Counter(event["type"] for event in events)
    reported = defaultdict(list)
    for note in notes:
        reported[note[0]].append(note[1:])
    uids = _uids(events, reported)
    _judge_publishes(uids, reported, messages)
    _judge_deliveries(events, uids, reported, outcome)
    for _, _, _, code in reported["refused"]:
        assert code in ("ERR_LEASE_EXPIRED", "ERR_LEASE_MISMATCH", "ERR_MESSAGE_NOT_FOUND"), code
        outcome.refused[code] += 1
    for queue, status in statuses.items():
        happened = {name: ledger.totals[queue, name] for name in ("published", "acked", "died", "dropped")}
        metrics = status["metrics"]
        assert all(status["totals"].get(name, 0) == count for name, count in happened.items()), (queue, status)
        assert happened["published"] == happened["acked"] + happened["dropped"] + sum(metrics.values()), queue
        shown = {state: count for state, count in (("dead", metrics["dlq"]),) if count}
        assert ledger.counts(queue) == shown, queue


def _uids(events: list[Event], reported: dict[str, Notes]) -> dict[str, str]:
    """What was published under which key, by the requests that the clients noted down: a body may lie in a file."""
    of_request = {request: uid for uid, request in reported["attempt"]}
    assert len(of_request) == len(reported["attempt"])
    uids = {}
    for event in events:
        if event["type"] == "published":
            uids[event["key"]] = uid = of_request[event["by"]["request"]]
            if "message" in event:
                assert event["message"]["parts"][0]["json"]["uid"] == uid, event
    return uids


def _judge_publishes(uids: dict[str, str], reported: dict[str, Notes], messages: int) -> None:
    """Nothing acknowledged is lost, nothing is published twice."""
    keys = defaultdict(list)
    for key, uid in uids.items():
        keys[uid].append(key)
    acknowledged = dict(reported["published"])
    assert len(reported["published"]) == len(acknowledged) == messages
    for uid, key in acknowledged.items():
        assert keys[uid] == [key], f"acknowledged {uid} as {key}: {keys[uid]}"
    for uid, found in keys.items():
        assert len(found) == 1, f"{uid} is published {len(found)} times"


def _judge_deliveries(events: list[Event], uids: dict[str, str], reported: dict[str, Notes], outcome: Outcome) -> None:
    """Every delivery that a client saw is in the journal, and of what was published under that key; every settlement is
    there too, and every redelivery has its reason."""
    leases = {event["lease"]: event for event in events if event["type"] == "leased"}
    for uid, key, lease, attempt, consumer in reported["delivered"]:
        event = leases[lease]
        assert (event["key"], event["attempt"], event["consumer"]) == (key, attempt, consumer), uid
        assert uids[key] == uid, f"{key} was published as {uids[key]} and delivered as {uid}"
    names = {"ack": ["acked"], "release": ["released"], "extend_lease": ["lease_extended"], "nack": ["retried", "died"]}
    settled = {(event["lease"], event["type"]) for event in events if "by" in event and "lease" in event}
    for command, key, lease in reported["settled"]:
        assert any((lease, name) in settled for name in names[command]), f"{command} of {key} under {lease} is lost"
    told_acks = {key for command, key, _ in reported["settled"] if command == "ack"}
    acked = Counter(event["key"] for event in events if event["type"] == "acked")
    assert set(acked.values()) <= {1}
    assert told_acks == set(acked), "an ack happened that nobody was told of, or was told and did not happen"
    explained: dict[str, str | None] = {}
    for event in events:
        if event["type"] in EXPLANATIONS:
            explained[event["key"]] = event["type"]
        elif event["type"] == "leased":
            if event["key"] in explained:
                outcome.redelivered += 1
                assert explained[event["key"]], f"nothing explains the redelivery {event}"
            explained[event["key"]] = None
