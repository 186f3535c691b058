"""Damaged roots: a root that was used and killed is copied, damaged in one file, opened and checked.

The suite tries each kind of damage on each kind of file once; ``scripts/campaign bits`` draws as many as it is asked
for.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from postroom_common.events import Event, decode_event
from postroom_common.log_blocks import read_block
from postroom_daemon.broker.engine_state import READS_MS
from postroom_daemon.journal.segments import list_segments, segment_name
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.errors import StoreDamaged
from postroom_daemon.stores.log.contract import LogDamaged
from tests.conformance.bench import Bench, CountedIds, all_records

BACKENDS = ("sqlite", "filesystem", "hybrid")
QUEUES = ("work", "spare parts/ü")
LOG = "measures"
SEGMENT_BYTES = 3000


class OwnRoots(CountedIds):
    """Ids with a root id that no other root has."""

    def root(self) -> str:
        return f"root-{os.urandom(4).hex()}"


@dataclass
class Victim:
    """A root whose daemon was killed, and what is true of its messages, and of a log's records by their positions."""

    path: Path
    backend: str
    last_id: int = 0
    bodies: dict[str, str] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    records: dict[int, str] = field(default_factory=dict)

    @property
    def alive(self) -> set[str]:
        return self.bodies.keys() - self.acked - self.dead

    def key_of(self, path: Path) -> str:
        """The key of the message whose file this is; empty for another's."""
        return next((key for key in self.bodies if re.search(rf"-{key.rpartition(':')[2]}[~.]", path.name)), "")

    def bench(self, path: Path, first: int = 1) -> Bench:
        """A bench on ``path`` whose ids begin with a number: two on the same root do not give the same."""
        bench = Bench(path, self.backend, segment_bytes=SEGMENT_BYTES)
        bench.ids = itertools.count(first)
        bench.requests = itertools.count(first)
        return bench


def append(bench: Bench, body: str, segment_bytes: int) -> int:
    """Append a record to a log with small segments. Returns its position."""
    record = bench.store.queue(LOG)
    if record and record.log:
        bench.store.logs.use_segment_bytes(record.log.created, segment_bytes)
    position: int = bench.do("append", queue=LOG, message=body, createWith={})["last"]
    return position


def records(bench: Bench) -> dict[int, str]:
    """The records of the log by their positions. If one is damaged, the root is opened again, as by the service."""
    try:
        return {position: read_block(block)[1].decode() for _, position, block in all_records(bench.store, LOG)}
    except LogDamaged:
        bench.reopen()
        return {position: read_block(block)[1].decode() for _, position, block in all_records(bench.store, LOG)}


def build(path: Path, backend: str, word: str = "body", with_log: bool = False) -> Victim:
    """Messages in all states, in a dozen segments; a checkpoint in the middle, more behind it, and then a kill; and if
    so, a log in several segments."""
    victim = Victim(path, backend)
    bench = victim.bench(path)
    with patch("tests.conformance.bench.CountedIds", OwnRoots):
        bench.open()
    for number in range(36):
        queue = QUEUES[number % 2]
        body = f"{word} {number} " + chr(97 + number % 26) * (40 * (number % 5) + 20)
        victim.bodies[bench.publish(queue, body, priority=number % 3)] = body
        if number % 4 == 1:
            delivery = bench.do("consume_next", queue=queue)
            receipt = {name: delivery["lease"][name] for name in ("messageKey", "leaseId")}
            if number % 8 == 1:
                bench.do("ack", **receipt)
                victim.acked.add(receipt["messageKey"])
            else:
                bench.do("nack", **receipt, requeue=False, reason="as the test wants it")
                victim.dead.add(receipt["messageKey"])
        if with_log and number % 2:
            victim.records[append(bench, body, 500)] = body
        if number in (11, 25):
            bench.store.disk.checkpoint()
    victim.last_id = bench.live.journal.last_id
    bench.close()
    return victim


# --- where ------------------------------------------------------------------------------------------------------------


def targets(victim: Victim) -> dict[str, list[Path]]:
    """The kinds of files that a root has, by name: paths relative to it."""
    root = victim.path
    journal = [path.relative_to(root) for _, path in list_segments(root / "journal")]
    found = {
        "first segment": journal[:1],
        "middle segment": journal[1:-1],
        "last segment": journal[-1:],
        "lock": [Path("postroomd.lock"), Path("journal/postroomd.lock")],
    }
    data = sorted(path.relative_to(root) for path in (root / "data").rglob("*") if path.is_file())
    for path in data:
        found.setdefault(_kind_of(path), []).append(path)
    return found


def _kind_of(path: Path) -> str:
    if "logs" in path.parts:
        return "log"
    return "checkpoint" if path.name.startswith("checkpoint-") else "database" if ".db" in path.name else "message"


# --- how --------------------------------------------------------------------------------------------------------------

DoDamage = Callable[[Path, "Damage"], object]


@dataclass
class Damage:
    """What damage needs beside its file: randomness, another file of the kind, and one of another root."""

    chance: random.Random
    other: Path
    stranger: Path


def _change(change: Callable[[bytes, random.Random], bytes]) -> DoDamage:
    def do(path: Path, damage: Damage) -> None:
        path.write_bytes(change(path.read_bytes(), damage.chance))

    return do


def _flip(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"\1"
    changed = bytearray(data)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _zero(data: bytes, begin: int, end: int) -> bytes:
    return data[:begin] + bytes(len(data[begin:end])) + data[end:]


def _zero_block(data: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(max(1, len(data)))
    return _zero(data, begin, begin + 512)


def _replace(make: Callable[[Path], Any]) -> DoDamage:
    def do(path: Path, damage: Damage) -> None:
        path.unlink()
        make(path)

    return do


def _swap(path: Path, damage: Damage) -> None:
    if path != damage.other:
        path.rename(path.with_name("swap"))
        damage.other.rename(path)
        path.with_name("swap").rename(damage.other)


def _copy(path: Path, damage: Damage) -> None:
    number = damage.chance.randrange(1, 300)
    name = segment_name(number) if path.suffix == ".jsonl" else f"copy-{path.name}"
    if not path.with_name(name).exists():
        shutil.copy(path, path.with_name(name))


def _renumber(path: Path, damage: Damage) -> None:
    number = damage.chance.randrange(1, 300)
    name = segment_name(number) if path.suffix == ".jsonl" else f"renamed-{path.name}"
    if not path.with_name(name).exists():
        path.rename(path.with_name(name))


DAMAGES: dict[str, DoDamage] = {
    "emptied": _change(lambda data, chance: b""),
    "cut in the middle": _change(lambda data, chance: data[: len(data) // 2]),
    "one byte short": _change(lambda data, chance: data[:-1]),
    "cut anywhere": _change(lambda data, chance: data[: chance.randrange(len(data) + 1)]),
    "a block of NULs": _change(_zero_block),
    "NULs at the end": _change(lambda data, chance: _zero(data, len(data) * 3 // 4, len(data))),
    "all NULs": _change(lambda data, chance: bytes(len(data))),
    "a bit flipped": _change(_flip),
    "garbage": _change(lambda data, chance: chance.randbytes(len(data))),
    "garbage behind it": _change(lambda data, chance: data + chance.randbytes(700)),
    "gone": lambda path, damage: path.unlink(),
    "swapped": _swap,
    "copied": _copy,
    "renamed": _renumber,
    "another root's": lambda path, damage: path.write_bytes(damage.stranger.read_bytes()),
    "a directory": _replace(Path.mkdir),
    "a link": _replace(lambda path: path.symlink_to("nowhere")),
    "a pipe": _replace(os.mkfifo),
    "not readable": lambda path, damage: None,
}


#: The daemon does not start, and says what to put back: a store of another root, a lock that may be locked.
REFUSED = {("database", "another root's"), ("checkpoint", "another root's"), ("lock", "not readable")}
#: Taking a message's file away takes the message away: docs/storage.md, "By hand".
REMOVED = ("gone", "renamed", "another root's", "a directory", "a link", "a pipe")


# --- and then ---------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What was found after damage: keys by what became of their messages, and records by their positions."""

    delivered: dict[str, str] = field(default_factory=dict)
    lost_bodies: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    records: dict[int, str] = field(default_factory=dict)
    started: bool = True
    degraded: bool = False
    new_id: int = 0


def try_one(
    victim: Victim, stranger: Victim, scratch: Path, kind: str, how: str, seed: int, without_store: bool = False
) -> Outcome:
    """Copy the root, damage one file, open it and check it. Raises ``AssertionError`` if a promise is broken."""
    chance = random.Random(seed)
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(victim.path, scratch)
    paths = targets(victim)[kind]
    path = scratch / chance.choice(paths)
    strangers = targets(stranger).get(kind) or targets(stranger)["first segment"]
    damage = Damage(chance, scratch / chance.choice(paths), stranger.path / chance.choice(strangers))
    DAMAGES[how](path, damage)
    bench = victim.bench(scratch, first=10**6)
    if without_store:
        bench.lose_store()
        if victim.backend == "hybrid":
            bench.config.settings.hybrid_payload_root.mkdir(exist_ok=True)
    before = _bytes_of(scratch / "journal")
    hidden = path.stat().st_ino if how == "not readable" else 0
    intact = set(_intact(scratch / "journal", victim, hidden))
    with patch("tests.conformance.bench.CountedIds", OwnRoots), _unreadable(bench, hidden):
        try:
            bench.open()
        except StartError as error:
            assert (kind, how) in REFUSED, f"it does not start: {error}"
            return Outcome(started=False)
        outcome = Outcome()
        try:
            _look(bench, outcome)
        except StoreDamaged:  # as the service does
            bench.close()
            bench.open(refold=True)
            _look(bench, outcome)
        outcome.records = records(bench)
        outcome.degraded |= bench.do("health")["status"] == "degraded"
        bench.close()
        again = bench.open()
        assert records(again) == outcome.records
        assert again.do("health")["status"] in ("ok", "degraded")
        new = again.publish("new", "afterwards")
        outcome.new_id = again.live.journal.last_id
        assert again.do("consume_next", queue="new")["message"]["messageKey"] == new
        again.close()
    by_hand = {victim.key_of(path)} if kind == "message" and how in REMOVED else set()
    _judge(victim, outcome, intact - by_hand, by_hand, without_store, kind)
    _judge_log(victim, outcome, is_whole=kind == "log")
    kept = _bytes_of(scratch / "journal") + _bytes_of(scratch / "quarantine")
    if not hidden:
        for line in before.split(b"\n"):
            assert line in kept, f"bytes of the journal are gone: {line[:100]!r}"
    return outcome


def _bytes_of(directory: Path) -> bytes:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    no_lines = ("reserve", "end", "recent")
    return b"\n".join(path.read_bytes() for path in files if "postroomd" not in path.name and path.name not in no_lines)


class _unreadable:
    """The disk does not give the file of an inode, 0 for none."""

    def __init__(self, bench: Bench, inode: int) -> None:
        self._inode = inode
        self._files = bench.files
        self._real = os.open
        self._patch = patch("os.open", self._open)

    def _open(self, path: Any, *arguments: Any, **options: Any) -> int:
        fd = self._real(path, *arguments, **options)
        if os.fstat(fd).st_ino == self._inode:
            os.close(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return fd

    def __enter__(self) -> None:
        if self._inode:
            self._patch.start()
            self._files.open = self._open

    def __exit__(self, *why: object) -> None:
        if self._inode:
            self._patch.stop()
            self._files.open = self._real


def _intact(journal: Path, victim: Victim, hidden: int) -> Iterator[str]:
    """The keys whose publishing stands intact in the journal, with all of its request."""
    events: dict[int, Event] = {}
    own = {line for _, path in list_segments(victim.path / "journal") for line in path.read_bytes().splitlines(True)}
    for _, path in list_segments(journal):
        if path.stat().st_ino != hidden:
            events |= {event["id"]: event for event in map(decode_event, own & {*path.read_bytes().splitlines(True)})}
    for event in events.values():
        last = events.get(event["req"])
        if event["type"] == "published" and last:
            ids = range(last["id"] - last.get("n", 1) + 1, last["id"] + 1)
            if all(number in events for number in ids):
                yield event["key"]


def _look(bench: Bench, outcome: Outcome) -> None:
    for _ in range(2):  # leases are over, and then the delays behind them
        bench.clocks.pass_ms(40_000)
        bench.run()
    for queue in QUEUES:
        while True:
            asked = [bench.make("consume_next", queue=queue) for _ in range(40)]
            bench.run(*asked)
            refused = [sent.code for sent in asked if sent.code != "OK"]
            found = [data for sent in asked if (data := sent.data_or_none()) and data["message"]]
            for data in found:
                outcome.delivered[data["message"]["messageKey"]] = data["message"]["payload"]
            if refused:  # the disk does not give a body: it is given up after a while
                assert set(refused) == {"ERR_STORAGE_FAILED"}
                bench.clocks.pass_ms(READS_MS)
            elif len(found) < len(asked):
                break
        letters = bench.send("list_dlq", queue=queue, limit=1000)
        for letter in (letters.data_or_none() or {}).get("messages", []):
            key = letter["messageKey"]
            (outcome.lost_bodies if letter["reasonCode"] == "BODY_LOST" else outcome.dead).add(key)
    outcome.degraded = bench.do("health")["status"] == "degraded"


def _judge(
    victim: Victim, outcome: Outcome, intact: set[str], by_hand: set[str], without_store: bool, kind: str
) -> None:
    for key, body in outcome.delivered.items():
        assert victim.bodies.get(key) == body, f"wrong bytes for {key}: {body!r}"
    missing = victim.alive - outcome.delivered.keys() - outcome.lost_bodies
    back = outcome.delivered.keys() & victim.acked
    assert not missing & intact, f"intact in the journal, and not delivered: {missing & intact}"
    if without_store and kind == "last segment":
        return  # nobody is left who knows how far it went
    assert outcome.degraded or missing <= by_hand, f"lost without a word: {missing}"
    assert outcome.degraded or not back, f"acknowledged, and back without a word: {back}"
    assert outcome.new_id > victim.last_id, "ids were given again"


def _judge_log(victim: Victim, outcome: Outcome, is_whole: bool) -> None:
    """``is_whole``: the journal is intact, and has everything."""
    assert outcome.records.items() <= victim.records.items(), "wrong records"
    missing = victim.records.keys() - outcome.records.keys()
    assert not missing or (outcome.degraded and not is_whole), f"records lost without a word: {sorted(missing)}"
