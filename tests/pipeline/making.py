"""Devices that are told what happens on them, and write snapshots of it with the product's own writer.

Nothing in here is random and no clock is read: the same script makes the same bytes.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from postroom_common.snapshot import Kind
from postroom_common.snapshot_writer import SnapshotWriter

#: 28 November 2026, 10:00 UTC.
MORNING_MS = 1_795_860_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Fields = dict[str, Any]


@dataclass
class Message:
    """A message of a device, as its events have made it."""

    queue: str
    state: str = "ready"
    attempt: int = 0
    lease: str = ""
    consumer: str = ""
    leased_engine_ms: int = 0
    dead: Fields = field(default_factory=dict)


class Device:
    """One device with one data directory. Each method that names a message is one event; ``wait`` lets time go by."""

    def __init__(self, name: str, *, root: str = "", epoch: int = 1, wall_ms: int = MORNING_MS) -> None:
        self.name = name
        self.root = root or f"root-of-{name}"
        self.epoch = epoch
        self.wall_ms = wall_ms
        self.engine_ms = 1_000
        self.events: list[Fields] = []
        self.traffic: list[Fields] = []
        self.messages: dict[str, Message] = {}
        self.snapshots = 0
        self.exported = 0
        self._totals: dict[str, Counter[str]] = defaultdict(Counter)
        #: Of the next event; an event that is taken away leaves its number unused.
        self._next = 1

    def wait(self, ms: int) -> None:
        """Advance both clocks."""
        self.wall_ms += ms
        self.engine_ms += ms

    def set_clock(self, wall_ms: int) -> None:
        """The wall clock is set; engine time is not."""
        self.wall_ms = wall_ms

    def event(self, type_: str, **fields: Any) -> Fields:
        """Any event, 1 ms after the one before."""
        self.wait(1)
        made = {
            "root": self.root,
            "epoch": self.epoch,
            "event": self._next,
            "type": type_,
            "engineMs": self.engine_ms,
            "wallMs": self.wall_ms,
            "requestEnd": self._next,
            **fields,
        }
        self._next += 1
        self.events.append(made)
        if "queue" in fields:
            self._totals[fields["queue"]][type_] += 1
        return made

    def lose(self, count: int) -> None:
        """Skip ids that no journal has."""
        self._next += count

    def publish(self, key: str, queue: str = "orders", **fields: Any) -> None:
        body = f'{{"of":"{key}"}}'.encode()
        self.messages[key] = Message(queue)
        digest = blake2b(body, digest_size=16).hexdigest()
        reported = {"payloadBytes": len(body), "payloadDigest": digest, "payloadShape": '{"of":"string"}', **fields}
        self.event("published", queue=queue, message=key, priority=5, client="press", **reported)

    def lease(self, key: str, consumer: str = "worker-1", *, for_ms: int = 30_000) -> None:
        message = self.messages[key]
        message.state, message.consumer = "inflight", consumer
        message.attempt += 1
        message.lease = f"lease-{self._next}"
        message.leased_engine_ms = self.engine_ms + 1
        self._of(key, "leased", consumer=consumer, attempt=message.attempt, untilEngineMs=self.engine_ms + 1 + for_ms)

    def ack(self, key: str) -> None:
        message = self.messages[key]
        self._of(key, "acked", heldMs=self.engine_ms + 1 - message.leased_engine_ms)
        message.state = "acked"

    def retry(self, key: str, reason: str = "TIMEOUT") -> None:
        self._of(key, "retried", attempt=self.messages[key].attempt, **_failure(reason))
        self.messages[key].state = "ready"

    def die(self, key: str, reason: str = "MAX_ATTEMPTS", cause: str = "TIMEOUT") -> None:
        message = self.messages[key]
        self._of(key, "died", attempt=message.attempt, cause=cause, **_failure(reason))
        message.state = "dead"
        message.dead = {"cause": cause, "diedMs": self.wall_ms, "attempt": message.attempt, **_failure(reason)}

    def drop(self, key: str, reason: str = "EXPIRED") -> None:
        self._of(key, "dropped", **_failure(reason))
        self.messages[key].state = "dropped"

    def reprocess(self, key: str) -> None:
        self._of(key, "reprocessed")
        self.messages[key].state, self.messages[key].attempt = "ready", 0

    def move(self, key: str, to: str) -> None:
        self._of(key, "moved", to=to)
        self.messages[key].queue = to

    def request(self, command: str, code: str = "OK", **fields: Any) -> None:
        """A line of the traffic log."""
        made = {"root": self.root, "wallMs": self.wall_ms, "engineMs": self.engine_ms, "client": "press", "uid": 1000}
        self.traffic.append({**made, "command": command, "code": code, "ms": 0.5, "requestBytes": 200, **fields})

    def _of(self, key: str, type_: str, **fields: Any) -> None:
        message = self.messages[key]
        lease = {"lease": message.lease} if message.state == "inflight" else {}
        self.event(type_, queue=message.queue, message=key, **lease, **fields)

    def lines(self, *, since: int | None = None, header: Mapping[str, Any] | None = None) -> list[tuple[Kind, Fields]]:
        """A snapshot of now without its trailer: events behind ``since``, or behind those of the last one."""
        begin = self.exported if since is None else since
        slice_ = [event for event in self.events if event["event"] > begin]
        last = self._next - 1
        head: Fields = {
            "major": 2,
            "minor": 0,
            "root": self.root,
            "epoch": self.epoch,
            "daemonVersion": "0.1.0",
            "consoleVersion": "0.1.0",
            "backend": "sqlite",
            "durability": "commit",
            "status": "ok",
            "draining": False,
            "wallMs": self.wall_ms,
            "engineMs": self.engine_ms,
            "asOfEvent": last,
            "consistent": True,
            "firstEvent": slice_[0]["event"] if slice_ else None,
            "lastEvent": slice_[-1]["event"] if slice_ else None,
            "previousEvent": self.exported or None,
            "since": "last" if since is None else str(since),
            "continuous": (begin == self.exported) if self.exported else None,
            "redaction": "payload",
            **(header or {}),
        }
        lines: list[tuple[Kind, Fields]] = [(Kind.HEADER, head)]
        lines += [(Kind.QUEUE, self._queue(name)) for name in sorted({m.queue for m in self.messages.values()})]
        lines += [(Kind.LEASE, self._lease(key, m)) for key, m in self.messages.items() if m.state == "inflight"]
        lines += [
            (Kind.DEAD, {"queue": m.queue, "message": key, **m.dead})
            for key, m in self.messages.items()
            if m.state == "dead"
        ]
        holders = Counter((m.queue, m.consumer) for m in self.messages.values() if m.state == "inflight")
        for queue, consumer in sorted({(m.queue, m.consumer) for m in self.messages.values() if m.consumer}):
            held = holders[queue, consumer]
            lines.append((Kind.CONSUMER, {"queue": queue, "consumer": consumer, "inflight": held, "delivered": 1}))
        lines.append((Kind.METRIC, {"name": "events.last", "value": float(last)}))
        lines += [(Kind.EVENT, event) for event in slice_]
        lines += [(Kind.TRAFFIC, request) for request in self.traffic]
        self.exported = max(self.exported, slice_[-1]["event"] if slice_ else 0)
        self.traffic = []
        return lines

    def export(
        self, folder: Path, name: str = "", *, since: int | None = None, header: Mapping[str, Any] | None = None
    ) -> Path:
        """Write a snapshot of now; with ``since`` its slice begins behind that event, else where the last one ended."""
        self.snapshots += 1
        snapshot = snapshot_id(f"{self.name}/{self.root}/{self.snapshots}")
        folder.mkdir(parents=True, exist_ok=True)
        return write(
            folder, name or f"{self.name}-{self.snapshots}", self.name, snapshot, self.lines(since=since, header=header)
        )

    def _queue(self, name: str) -> Fields:
        states = Counter(m.state for m in self.messages.values() if m.queue == name)
        reasons = Counter(m.dead["reasonCode"] for m in self.messages.values() if m.queue == name and m.state == "dead")
        return {
            "queue": name,
            **{state: states[state] for state in ("ready", "inflight", "delayed", "held", "dead")},
            "publishPaused": False,
            "consumePaused": False,
            "reasons": dict(reasons),
            "totals": dict(self._totals[name]),
        }

    def _lease(self, key: str, message: Message) -> Fields:
        return {
            "queue": message.queue,
            "message": key,
            "lease": message.lease,
            "consumer": message.consumer,
            "attempt": message.attempt,
            "leasedEngineMs": message.leased_engine_ms,
            "untilEngineMs": message.leased_engine_ms + 30_000,
        }


def write(folder: Path, name: str, device: str, snapshot: str, lines: Iterable[tuple[Kind, Fields]]) -> Path:
    """Lines as a finished snapshot."""
    reported = list(lines)
    with SnapshotWriter(folder, f"{name}.jsonl.gz", device, snapshot) as writer:
        for kind, fields in reported:
            writer.put(kind, fields)
        return writer.finish(reported[0][1].get("firstEvent"), reported[0][1].get("lastEvent"))


def snapshot_id(of: str) -> str:
    """An id that the same text always has."""
    return sha256(of.encode()).hexdigest()[:32]


def bundle(target: Path, members: Iterable[Path]) -> Path:
    """What ``cat`` makes of snapshots."""
    target.write_bytes(b"".join(member.read_bytes() for member in members))
    return target


def text_of(path: Path) -> bytes:
    """What a snapshot holds, unpacked."""
    return gzip.decompress(path.read_bytes())


def replace_text(path: Path, text: bytes) -> Path:
    """Give a file other lines and leave the trailer as it was: a file that was tampered with, or damaged."""
    path.write_bytes(gzip.compress(text, mtime=0))
    return path


def resealed(lines: Iterable[bytes]) -> bytes:
    """Lines of one snapshot, without their trailer, with one that fits them: what a writer of another version made."""
    reported = list(lines)
    body = b"".join(line + b"\n" for line in reported)
    first = json.loads(reported[0])
    trailer = {
        "device": first["device"],
        "snapshot": first["snapshot"],
        "kind": "trailer",
        "lines": len(reported),
        "counts": dict(Counter(json.loads(line)["kind"] for line in reported)),
        "lineCrc": sum(map(crc32, reported)),
        "digest": sha256(body).hexdigest(),
    }
    return body + json.dumps(trailer, separators=(",", ":")).encode() + b"\n"


def fleet(folder: Path, devices: int = 3, *, start_ms: int = MORNING_MS) -> list[Path]:
    """Some devices' snapshots: two each an hour apart, with every common fate of a message in them."""
    made = []
    for number in range(devices):
        device = Device(f"press-{number:02d}", wall_ms=start_ms)
        for key in ("acked", "poison", "dropped", "waiting", "slow"):
            device.publish(f"msg:{key}-{number}")
        device.lease(f"msg:acked-{number}")
        device.request("publish")
        made.append(device.export(folder))
        device.wait(HOUR_MS)
        device.ack(f"msg:acked-{number}")
        for _ in range(2):
            device.lease(f"msg:poison-{number}", "worker-2")
            device.retry(f"msg:poison-{number}")
        device.lease(f"msg:poison-{number}", "worker-2")
        device.die(f"msg:poison-{number}")
        device.drop(f"msg:dropped-{number}")
        device.lease(f"msg:slow-{number}", "worker-3")
        device.request("ack", "LEASE_LOST", request=f"request-{number}")
        made.append(device.export(folder))
    return made


def _failure(reason: str) -> Fields:
    return {"reasonCode": reason, "reasonMessage": f"it was {reason}"}
