"""Snapshots of a fleet for ``scripts/bench pipeline``: made once by the product's own writer, kept between runs.

Each device is a small queue that is played through event by event, so what its snapshots tell fits together: no event
is missing, and the audit has nothing to find. A tenth of a slice is told by the snapshot before, too.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from postroom_common.snapshot import FORMAT_MAJOR, FORMAT_MINOR, Kind
from postroom_common.snapshot_writer import SnapshotWriter, file_name

#: In the name of the cache: another one is made when this is changed.
_VERSION: Final = 1
QUEUES: Final = 8
LEASES: Final = 6
DEAD: Final = 5
EVENTS: Final = 500
#: Of a slice, those that the snapshot before has told.
OVERLAP: Final = 50
#: Snapshots of one bundle, which comes to 1 MB.
BUNDLED: Final = 100
_READY: Final = 16
#: 26 November 2026, 00:00 UTC; the slices of a device are an hour each.
_BEGIN_MS: Final = 1_795_651_200_000
_EVENT_MS: Final = 8_000
_ATTEMPTS: Final = 2
_REASONS: Final = ("TIMEOUT", "REJECTED", "CONNECTION_REFUSED", "BAD_CHECKSUM")

_DAY_MS: Final = 86_400_000

Fields = dict[str, Any]
#: A directory, the number of a device, and how many snapshots it writes there.
Work = tuple[Path, int, int]
Writer = Callable[[Work], list[Path]]
#: The number of each device, and how many snapshots it writes.
Numbers = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet on the disk: the same snapshots as single files and as bundles."""

    snapshots: int
    singles: Path
    bundles: Path

    @property
    def lines(self) -> int:
        """Lines of all snapshots."""
        return self.snapshots * (2 + QUEUES + LEASES + DEAD + EVENTS)

    def bytes(self) -> int:
        """Of all single files."""
        return sum(path.stat().st_size for path in self.singles.rglob("*.gz"))


def fleet(cache: Path, devices: int, each: int) -> Fleet:
    """The snapshots of so many devices, from the cache or made now, by all cores."""
    place = cache / f"fleet-{_VERSION}-{devices}x{each}"
    return _cached(place, [(number, each) for number in range(devices)], _write_device)


def daily(cache: Path, devices: int, days: int) -> Fleet:
    """A snapshot of each day of so many devices, in a directory for each day; no event is in two of them."""
    numbers = [(number, days) for number in range(devices)]
    return _cached(cache / f"daily-{_VERSION}-{devices}x{days}", numbers, _write_days)


def skewed(cache: Path, devices: int, each: int) -> Fleet:
    """As many snapshots as ``fleet`` has, half of them of one device."""
    many = devices * each // 2
    numbers = [(0, many), *((number, each // 2) for number in range(1, devices + 1))]
    return _cached(cache / f"skewed-{_VERSION}-{devices}x{each}", numbers, _write_device)


def put_back(cache: Path, devices: int, each: int) -> Fleet:
    """As many snapshots as ``fleet`` has. Every device was set back by hand to its middle and went on otherwise: what
    happened then is reported in two ways."""
    place = cache / f"put-back-{_VERSION}-{devices}x{each}"
    return _cached(place, [(number, each) for number in range(devices)], _write_twice)


def _cached(place: Path, numbers: Numbers, write: Writer) -> Fleet:
    if not place.exists():
        part = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            _write(part, numbers, write)
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return Fleet(sum(each for _, each in numbers), place / "singles", place / "bundles")


def _write(place: Path, numbers: Numbers, write: Writer) -> None:
    landing = place / "singles" / "dt=2026-11-28"
    landing.mkdir(parents=True)
    (place / "bundles").mkdir()
    with multiprocessing.get_context("fork").Pool() as pool:
        work = [(landing, number, each) for number, each in numbers]
        devices = [*pool.imap(write, work)]
        # Left to the end of the block, the workers would be terminated in the midst of reading and tell it.
        pool.close()
        pool.join()
    # As they come in: each device brings one, then each its next one.
    turns = zip_longest(*devices)
    arriving = [path for turn in turns for path in turn if path]
    for first in range(0, len(arriving), BUNDLED):
        with (place / "bundles" / f"bundle-{first // BUNDLED:05d}.jsonl.gz").open("wb") as bundle:
            for path in arriving[first : first + BUNDLED]:
                bundle.write(path.read_bytes())


def _write_device(work: Work) -> list[Path]:
    landing, number, each = work
    device = _Device(number)
    return [device.write_snapshot(landing) for _ in range(each)]


def _write_days(work: Work) -> list[Path]:
    landing, number, each = work
    device = _Device(number, event_ms=_DAY_MS // EVENTS, overlap=0)
    paths = []
    for day in range(each):
        place = landing / f"day-{day:03}"
        place.mkdir(exist_ok=True)
        paths.append(device.write_snapshot(place))
    return paths


def _write_twice(work: Work) -> list[Path]:
    """Three quarters of the snapshots; then a quarter of what the device did after it was set back."""
    landing, number, each = work
    half, quarter = each // 2, each // 4
    device, again = _Device(number), _Device(number)
    paths = [device.write_snapshot(landing) for _ in range(half)]
    paths += [device.write_snapshot(landing) for _ in range(each - half - quarter)]
    with tempfile.TemporaryDirectory() as nowhere:
        for _ in range(half):
            again.write_snapshot(Path(nowhere))
    again.go_on_otherwise()
    return paths + [again.write_snapshot(landing) for _ in range(quarter)]


class _Device:
    def __init__(self, number: int, *, event_ms: int = _EVENT_MS, overlap: int = OVERLAP) -> None:
        self._event_ms = event_ms
        self._overlap = overlap
        self.name = f"press-{number:04d}"
        self._chance = random.Random(number)
        self._root = f"{self._hex(8)}-{self._hex(4)}-7{self._hex(3)}-8{self._hex(3)}-{self._hex(12)}"
        self._events: list[Fields] = []
        self._ready: deque[tuple[str, str, int]] = deque()
        self._leased: deque[Fields] = deque()
        self._dead: deque[Fields] = deque()
        self._totals: Counter[tuple[str, str]] = Counter()
        self._happens = self._play()
        self._later_ms = 0

    def go_on_otherwise(self) -> None:
        """From now on, another chance decides what happens, and the clock is a day later."""
        self._chance = random.Random(-1 - int(self.name.rpartition("-")[2]))
        self._later_ms = _DAY_MS

    def write_snapshot(self, landing: Path) -> Path:
        """The next one: what happened since the last, and the state at its end."""
        previous = len(self._events)
        first = max(1, previous - self._overlap + 1)
        while len(self._events) < first + EVENTS - 1:
            next(self._happens)
        last = len(self._events)
        wall_ms = self._events[-1]["wallMs"] + 500
        header = {
            "major": FORMAT_MAJOR,
            "minor": FORMAT_MINOR,
            "root": self._root,
            "epoch": 1,
            "daemonVersion": "0.1.0",
            "backend": "sqlite",
            "status": "ok",
            "wallMs": wall_ms,
            "engineMs": wall_ms - self._later_ms - _BEGIN_MS,
            "asOfEvent": last,
            "consistent": True,
            "firstEvent": first,
            "lastEvent": last,
            "previousEvent": previous or None,
            "since": str(first),
            "availableFrom": 1,
            "redaction": "payload",
        }
        name = file_name(self.name, self._root, last, wall_ms)
        with SnapshotWriter(landing, name, self.name, self._hex(32)) as file:
            file.put(Kind.HEADER, header)
            for kind, fields in self._state(is_first=not previous):
                file.put(kind, fields)
            for event in self._events[first - 1 :]:
                file.put(Kind.EVENT, event)
            return file.finish(first, last)

    def _state(self, *, is_first: bool) -> Iterator[tuple[Kind, Fields]]:
        for queue in map(_queue, range(QUEUES)):
            counts = {
                "ready": sum(one[1] == queue for one in self._ready),
                "inflight": sum(one["queue"] == queue for one in self._leased),
                "delayed": 0,
                "held": 0,
                "dead": sum(one["queue"] == queue for one in self._dead),
            }
            totals = {type_: count for (name, type_), count in self._totals.items() if name == queue}
            yield Kind.QUEUE, {"queue": queue, **counts, "totals": totals, "opening": 0 if is_first else None}
        for lease in self._leased:
            yield Kind.LEASE, lease
        for letter in self._dead:
            yield Kind.DEAD, letter

    def _play(self) -> Iterator[None]:
        """One event for each turn: publish, lease, and end of the oldest lease; the sixth dead letter is dropped."""
        count = 0
        while True:
            if len(self._dead) > DEAD:
                letter = self._dead.popleft()
                self._happen("dropped", letter["queue"], letter["message"], reasonCode="PURGED")
            elif len(self._ready) < _READY:
                count += 1
                self._publish(count)
            elif len(self._leased) < LEASES:
                self._lease()
            else:
                self._end()
            yield

    def _publish(self, count: int) -> None:
        queue = _queue(self._chance.randrange(QUEUES))
        key = f"msg:{queue}:{0x1A2000000000 + count * 40_000:012x}-7{self._hex(3)}-8{self._hex(15)}"
        told = {
            "priority": 5,
            "payloadBytes": 180 + self._chance.randrange(400),
            "payloadDigest": blake2b(key.encode(), digest_size=16).hexdigest(),
            "payloadShape": '{"machine":"string","order":"number"}',
            "client": "line-control",
            "uid": 1000,
        }
        if count % 4 == 0:
            told["attributes"] = {"shift": "late", "line": queue}
        self._happen("published", queue, key, **told)
        self._ready.append((key, queue, 0))

    def _lease(self) -> None:
        key, queue, attempt = self._ready.popleft()
        consumer = f"worker-{self._chance.randrange(4)}"
        event = self._happen(
            "leased",
            queue,
            key,
            consumer=consumer,
            attempt=attempt + 1,
            untilEngineMs=len(self._events) * self._event_ms + 60_000,
        )
        lease = {"queue": queue, "message": key, "consumer": consumer, "uid": 1000, "attempt": attempt + 1}
        self._leased.append(lease | {"leasedEngineMs": event["engineMs"], "untilEngineMs": event["untilEngineMs"]})

    def _end(self) -> None:
        lease = self._leased.popleft()
        queue, key, attempt = lease["queue"], lease["message"], lease["attempt"]
        chance = self._chance.random()
        reason = self._chance.choice(_REASONS)
        if chance < 0.85:
            held_ms = len(self._events) * self._event_ms - lease["leasedEngineMs"]
            self._happen("acked", queue, key, consumer=lease["consumer"], attempt=attempt, heldMs=held_ms)
        elif attempt < _ATTEMPTS:
            self._happen("retried", queue, key, attempt=attempt, reasonCode=reason, reasonMessage="it did not work")
            self._ready.append((key, queue, attempt))
        else:
            told = {
                "attempt": attempt,
                "reasonCode": "MAX_ATTEMPTS",
                "reasonMessage": f"{_ATTEMPTS} attempts",
                "cause": reason,
            }
            event = self._happen("died", queue, key, **told)
            self._dead.append({"queue": queue, "message": key, **told, "diedMs": event["wallMs"]})

    def _happen(self, type_: str, queue: str, key: str, **fields: Any) -> Fields:
        number = len(self._events) + 1
        engine_ms = (number - 1) * self._event_ms + self._chance.randrange(1000)
        event = {
            "root": self._root,
            "epoch": 1,
            "event": number,
            "type": type_,
            "engineMs": engine_ms,
            "wallMs": _BEGIN_MS + self._later_ms + engine_ms,
            "requestEnd": number,
            "queue": queue,
            "message": key,
            **fields,
        }
        self._totals[queue, type_] += 1
        self._events.append(event)
        return event

    def _hex(self, digits: int) -> str:
        return f"{self._chance.getrandbits(4 * digits):0{digits}x}"


def _queue(number: int) -> str:
    return f"line-{number}.orders"
