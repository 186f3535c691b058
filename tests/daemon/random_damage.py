"""Random damage: one to four places at once, on any files of a root; nothing may be lost in silence.

``build(folder, backend)`` makes four sound roots with messages in every state: stopped or killed, with the whole
journal or without its old segments. ``damage_one(victims, scratch, seed)`` copies one of them, damages it, starts it,
and compares: wrong bytes are never delivered; and unless ``health`` is degraded, no message is missing, none that was
acknowledged is delivered again, and no other one has lost its state. If it is degraded, it still is after a restart,
and ``accept_losses`` ends it. The seed decides everything: a failure names it, and ``damage_one`` with it fails again.

Damage is what a disk does: flipped bytes, blocks of NULs or garbage, lines that are gone, a file cut short, a file that
is gone. The database and the mark of the journal's end are never both gone: then nobody knows how far the journal went.

A store is tried by its name: ``test_random_damage.py`` is the short form, and the long one is::

    scripts/campaign damage --runs 180 --backend filesystem [--first SEED] [--go-on 1]

which lists the seeds that failed, and with ``--go-on 1`` does not stop at the first.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from postroom_daemon.broker.engine_state import READS_MS
from postroom_daemon.journal.end_mark import END_MARK_NAME
from postroom_daemon.journal.segments import is_segment_name, list_segments
from postroom_daemon.stores.errors import StoreDamaged
from tests.conformance.bench import Bench
from tests.daemon.damage import OwnRoots, append, records

QUEUES = ("work", "spare parts/ü", "late")
MESSAGES = 300
SEGMENT_BYTES = 12_000
_MINUTE_MS = 60_000
#: No message ends by itself, and none is delivered later than this (engine ms).
_ALL_DUE_MS = 60 * _MINUTE_MS


@dataclass
class Truth:
    """A sound root, and what is true of its messages: their bodies by key, and the keys of those with a state; and of
    a log's records, by their positions."""

    path: Path
    backend: str
    bodies: dict[str, str] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    on_hold: set[str] = field(default_factory=set)
    records: dict[int, str] = field(default_factory=dict)

    def copy(self, path: Path) -> Truth:
        """The same of a copy of the root as it is now, in the middle of its work: as a kill leaves it."""
        shutil.copytree(self.path, path)
        states = set(self.acked), set(self.dead), set(self.on_hold)
        return Truth(path, self.backend, dict(self.bodies), *states, dict(self.records))

    def bench(self, path: Path, first: int = 1) -> Bench:
        """A bench on ``path`` whose ids begin with a number."""
        bench = Bench(path, self.backend, segment_bytes=SEGMENT_BYTES)
        bench.ids = itertools.count(first)
        bench.requests = itertools.count(first)
        return bench


def build(folder: Path, backend: str, seed: int = 1) -> list[Truth]:
    """The four sound roots of a store, in ``folder``."""
    return [truth for lean in (False, True) for truth in _build(folder / f"lean-{lean}", backend, lean, seed)]


def _build(folder: Path, backend: str, lean: bool, seed: int) -> list[Truth]:
    chance = random.Random(seed)
    truth = Truth(folder / "stopped", backend)
    bench = truth.bench(truth.path)
    with patch("tests.conformance.bench.CountedIds", OwnRoots):
        bench.open()
    for number in range(MESSAGES):
        queue = QUEUES[number % 2]
        body = f"body {number} " + chr(97 + number % 26) * chance.choice([10, 90, 300, 300, 5000 * (number % 40 == 0)])
        options: dict[str, Any] = {"priority": number % 3}
        if number % 11 == 0:
            queue, options = QUEUES[2], {"delayMs": chance.randrange(1, 20) * _MINUTE_MS}
        key = bench.publish(queue, body, **options)
        truth.bodies[key] = body
        if number % 5 == 0:
            truth.records[append(bench, body, 3000)] = body
        _use(bench, truth, key, number)
        bench.clocks.pass_ms(50)
        if number == MESSAGES * 2 // 3:
            bench.store.disk.checkpoint()
            if lean:
                bench.live.journal.drop_segments(bench.live.journal.last_id, 2**62, 0, 2**62)
    killed = truth.copy(folder / "killed")
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    return [truth, killed]


def _use(bench: Bench, truth: Truth, key: str, number: int) -> None:
    if number % 11 and number % 7 == 3:
        bench.do("hold", messageKey=key)
        truth.on_hold.add(key)
    if number % 4 != 1:
        return
    delivery = bench.do("consume_next", queue=QUEUES[number % 2], visibilityTimeoutSec=600)
    receipt = {name: delivery["lease"][name] for name in ("messageKey", "leaseId")}
    if number % 8 == 1:
        bench.do("ack", **receipt)
        truth.acked.add(receipt["messageKey"])
    elif number % 16 == 5:
        bench.do("nack", **receipt, requeue=False, reason="as the test wants it")
        truth.dead.add(receipt["messageKey"])


# --- damage -----------------------------------------------------------------------------------------------------------


def targets(root: Path) -> dict[str, list[Path]]:
    """The files of a root by kind."""
    segments = [path for _, path in list_segments(root / "journal")]
    found = {"last segment": segments[-1:], "segment": segments}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and path not in segments):
        name = path.name
        if name.endswith(".lock") or "quarantine" in path.parts:
            continue
        below = path.relative_to(root).parts[0]
        kind = (
            "write-ahead log" if name.endswith("-wal")
            else "database" if name.endswith(".db")
            else "mark" if below == "journal" or "checkpoint" in name
            else "log" if "logs" in path.relative_to(root).parts
            else "body" if below == "data"
            else ""
        )  # fmt: skip
        if kind and path.stat().st_size:
            found.setdefault(kind, []).append(path)
    return found


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 3, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _block(data: bytearray, chance: random.Random) -> None:
    size = chance.choice([512, 4096])
    begin = chance.randrange(len(data)) // size * size
    end = min(len(data), begin + size)
    data[begin:end] = bytes(end - begin) if chance.random() < 0.5 else chance.randbytes(end - begin)


def _lines(data: bytearray, chance: random.Random) -> None:
    lines = bytes(data).splitlines(True)
    begin = chance.choice([chance.randrange(len(lines)), max(0, len(lines) - 3)])
    del lines[begin : begin + chance.choice([1, 2, 5])]
    data[:] = b"".join(lines)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.choice([chance.randrange(len(data)), len(data) * 9 // 10]) :]


HOW = {"flip": _flip, "block": _block, "lines": _lines, "cut": _cut}


def _damage(root: Path, chance: random.Random) -> str:
    """Damage one to four places. Returns what was done, in words."""
    done = []
    witnesses_gone = 0
    for _ in range(chance.randrange(1, 5)):
        found = targets(root)
        kind = chance.choice(sorted(kind for kind, paths in found.items() if paths))
        path = chance.choice(found[kind])
        how = chance.choice([*HOW])
        witness = path.suffix == ".db" or path.name == END_MARK_NAME
        if chance.random() < 0.1 and not (witness and witnesses_gone):
            path.unlink()
            how = "gone"
            witnesses_gone += witness
        else:
            data = bytearray(path.read_bytes())
            if data:
                HOW[how](data, chance)
                path.write_bytes(data)
        done.append(f"{how} {path.name if is_segment_name(path.name) else kind}")
    return ", ".join(done)


# --- and then ---------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a damaged root showed: bodies by key that were delivered, keys of messages that it still has, and records
    of the log by their positions."""

    delivered: dict[str, str] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    lost_bodies: set[str] = field(default_factory=set)
    on_hold: set[str] = field(default_factory=set)
    records: dict[int, str] = field(default_factory=dict)
    degraded: bool = False
    what: str = ""


def damage_one(victims: list[Truth], scratch: Path, seed: int) -> Outcome:
    """Damage a copy of one of the roots, start it, and compare. Raises ``AssertionError``, which names the damage."""
    chance = random.Random(seed)
    truth = chance.choice(victims)
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(truth.path, scratch)
    done = _damage(scratch, chance)
    outcome = Outcome(what=f"{truth.path.parent.name}/{truth.path.name}: {done}")
    try:
        with patch("tests.conformance.bench.CountedIds", OwnRoots):
            _examine(truth.bench(scratch, first=10**6), outcome)
        _judge(truth, outcome)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {outcome.what}: {type(error).__name__}: {error}") from error
    return outcome


def _examine(bench: Bench, outcome: Outcome) -> None:
    bench.open()
    for _ in range(2):  # leases are over, and then the delays behind them
        bench.clocks.pass_ms(_ALL_DUE_MS)
        _serve(bench, Bench.run)
    _serve(bench, lambda bench: _look(bench, outcome))
    outcome.records = records(bench)
    outcome.degraded = _is_degraded(bench)
    _serve(bench, Bench.stop)
    _serve(bench, lambda bench: bench.store.disk.checkpoint())
    bench.reopen()
    assert records(bench) == outcome.records
    if outcome.degraded:
        assert _is_degraded(bench), "degraded, and forgotten by a restart"
        _serve(bench, lambda bench: bench.live.broker.accept_losses())
        bench.reopen()
        assert not _is_degraded(bench), f"accepted, and still degraded: {bench.do('health')['checks']}"
    new = bench.publish("new", "afterwards")
    assert bench.do("consume_next", queue="new")["message"]["messageKey"] == new
    bench.close()


def _serve(bench: Bench, work: Callable[[Bench], object]) -> None:
    """Do something with an open root; if its store turns out to be damaged, set it aside as the service does, and do it
    once more."""
    try:
        work(bench)
    except StoreDamaged:
        bench.close()
        bench.open(refold=True)
        bench.run()
        work(bench)


def _is_degraded(bench: Bench) -> bool:
    checks = bench.do("health")["checks"]
    return not (checks["journal"]["ok"] and checks["store"]["ok"])


def _look(bench: Bench, outcome: Outcome) -> None:
    for queue in QUEUES:
        while True:
            asked = [bench.make("consume_next", queue=queue, visibilityTimeoutSec=40_000) for _ in range(100)]
            bench.run(*asked)
            refused = {sent.code for sent in asked if sent.code != "OK"}
            found = [data for sent in asked if (data := sent.data_or_none()) and data["message"]]
            for data in found:
                outcome.delivered[data["message"]["messageKey"]] = data["message"]["payload"]
            if refused:  # a body is given up after some failed reads
                assert refused == {"ERR_STORAGE_FAILED"}, refused
                bench.clocks.pass_ms(READS_MS)
            elif len(found) < len(asked):
                break
        for letter in _letters(bench, queue):
            key = letter["messageKey"]
            (outcome.lost_bodies if letter["reasonCode"] == "BODY_LOST" else outcome.dead).add(key)
    after = ""
    while page := bench.store.pages.entries(after, 100):
        outcome.on_hold |= {entry.key for entry in page if entry.state == "held"}
        after = page[-1].key


def _letters(bench: Bench, queue: str) -> Iterator[dict[str, Any]]:
    """The dead letters of a queue, by pages: on a busy machine a page ends early."""
    after: dict[str, str] = {}
    while True:
        sent = bench.send("list_dlq", queue=queue, limit=1000, **after)
        assert sent.code in ("OK", "ERR_QUEUE_NOT_FOUND"), sent.answer.error
        page = sent.data_or_none() or {"messages": [], "next": ""}
        yield from page["messages"]
        if not page["next"]:
            return
        after = {"after": page["next"]}


def _judge(truth: Truth, outcome: Outcome) -> None:
    for key, body in outcome.delivered.items():
        assert truth.bodies.get(key) == body, f"wrong bytes for {key}: {body!r}"
    assert outcome.records.items() <= truth.records.items(), "wrong records"
    if outcome.degraded:
        return
    there = outcome.delivered.keys() | outcome.dead | outcome.lost_bodies | outcome.on_hold
    missing = truth.bodies.keys() - truth.acked - there
    assert not missing, f"lost without a word: {sorted(missing)}"
    bodies = outcome.lost_bodies - truth.dead  # nobody else reads those of dead letters, and list_dlq shows them
    assert not bodies, f"bodies lost, and health ok: {sorted(bodies)}"
    back = there & truth.acked
    assert not back, f"acknowledged, and back without a word: {sorted(back)}"
    alive = outcome.delivered.keys() & (truth.dead | truth.on_hold)
    assert not alive, f"dead or on hold, and delivered without a word: {sorted(alive)}"
    records_lost = truth.records.keys() - outcome.records.keys()
    assert not records_lost, f"records lost without a word: {sorted(records_lost)}"
