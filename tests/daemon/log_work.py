"""Events about logs, recorded without a command; what is in the logs of a bench then; kills and power cuts."""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroom_common.events import EventType
from postroom_common.log_blocks import block_of
from postroom_daemon.model.log_record import LogRecord
from postroom_daemon.platform.files import Files
from postroom_daemon.stores.log.records import records_of
from tests.conformance.bench import Bench


def record(bench: Bench, *drafts: dict[str, Any]) -> int:
    """Record events as one request. Returns the id of the last."""
    bench.live.broker._do_alone(lambda transaction: transaction.group.record([*drafts]))
    return bench.live.journal.last_id


def create(bench: Bench, name: str = "telemetry") -> int:
    return record(bench, {"type": EventType.QUEUE_CREATED, "queue": name, "kind": "log"})


def append(bench: Bench, log: int, *bodies: str, name: str = "telemetry") -> None:
    blocks = [b2a_base64(block_of({}, body.encode()), newline=False).decode() for body in bodies]
    record(bench, *({"type": EventType.APPENDED, "queue": name, "log": log, "record": text} for text in blocks))


def trim(bench: Bench, log: int, **what: Any) -> None:
    found = bench.store.logs.trimmable(log, **what)
    assert found
    record(bench, {"type": EventType.TRIMMED, "queue": "telemetry", "log": log, **found._asdict(), "reason": "age"})


def bodies(bench: Bench, log: int) -> list[str]:
    found: list[str] = []
    after = 0
    while (page := bench.store.logs.read(log, after, 3, 10_000)).records:
        found += [block[8:].decode() for _, _, block in records_of(page.raw)]
        after = page.last
    return found


def log_record(bench: Bench, name: str = "telemetry") -> LogRecord:
    """The log as its record has it, which must agree with the files."""
    queue = bench.store.queue(name)
    assert queue and queue.log
    facts = bench.store.logs.facts()[queue.log.created]
    assert facts == (name, queue.log.last, queue.log.records, queue.log.bytes)
    return queue.log


def segments(bench: Bench) -> list[Path]:
    return sorted(bench.config.settings.logs_root.glob("*/*.log"))


class Killed(BaseException):
    pass


class KillingFiles(Files):
    """Kills at the n-th call that changes something. ``synced`` has what a power cut leaves of files that were
    synced."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at
        self.synced: dict[str, bytes] = {}
        for name in ("fdatasync", "fsync"):
            setattr(self, name, self.noting(getattr(self, name)))
        for name in ("pwrite", "write", "rename", "fdatasync", "fsync", "mkdir", "ftruncate", "rmdir"):
            setattr(self, name, self.counted(getattr(self, name)))

    def noting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(fd: int) -> None:
            call(fd)
            path = os.readlink(f"/proc/self/fd/{fd}")
            if os.path.isfile(path):
                self.synced[path.removesuffix(".tmp")] = Path(path).read_bytes()

        return noting

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return call(*arguments, **options)

        return killing

    def cut_power(self, root: Path) -> None:
        """Leave of each segment and of the state what was synced; of the rest, nothing but its name."""
        for path in root.rglob("*"):
            if path.suffix in (".log", ".json", ".idx"):
                path.write_bytes(self.synced.get(str(path), b""))
        state = root / "state.json"
        if state.exists() and not state.read_bytes():
            state.unlink()
