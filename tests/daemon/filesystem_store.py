"""A filesystem store on its own, or on a bench: its files, and what it should hold."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroom_common.protocol import State
from postroom_daemon.model.records import Entry, QueueRecord
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.filesystem.store import FilesystemStore
from tests.conformance.bench import Bench, seen_in
from tests.conformance.conftest import FOLDERS

MakeBench = Callable[..., Bench]


def make(directory: Path, files: Files | None = None) -> FilesystemStore:
    """A store that is not open yet, on files of its own unless others are given."""
    files = files or Files()
    return FilesystemStore(directory / "fs", files, Quarantine(directory / "quarantine", files), FOLDERS)


def files_of(root: Path) -> list[str]:
    """All files below a directory, in order."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def tree(bench: Bench) -> list[str]:
    """The message files of a bench, once all are written, without what follows the sequence number."""
    bench.store.disk.tidy()
    root = bench.config.settings.filesystem_root
    return [name.partition("-message")[0] for name in files_of(root) if not name.startswith("meta/")]


def fill(store: FilesystemStore, count: int, queue: str = "q") -> None:
    """Insert ready messages in one transaction."""
    store.begin()
    if store.queue(queue) is None:
        store.add_queue(QueueRecord(queue))
    for number in range(1, count + 1):
        store.insert(Entry(f"msg:{queue}:{number}", queue, State.READY, 0, number, 1, 1), b"{}")
    store.commit()


def work(bench: Bench) -> None:
    """A little of everything, in several groups. What is leased stays so, or ends in each way."""
    bench.do("set_policy", queue="q", policy={"retry": {"limit": 2, "initialDelaySec": 1}})
    bench.run(*(bench.make("publish", queue="q", message=f"body {n}", priority=n % 3) for n in range(6)))
    bench.publish("other", "x" * 5000, targetConsumerId="me", delayMs=1500)
    first, second, third, fourth = (
        bench.do("consume_next", queue="q", consumerId="c" * (9 + 60 * n))["lease"] for n in range(4)
    )
    bench.do("ack", messageKey=first["messageKey"], leaseId=first["leaseId"])
    bench.do("nack", messageKey=second["messageKey"], leaseId=second["leaseId"], requeue=True, reason="later")
    bench.do("nack", messageKey=third["messageKey"], leaseId=third["leaseId"], requeue=False, reason="never")
    bench.do("extend_lease", messageKey=fourth["messageKey"], leaseId=fourth["leaseId"], visibilityTimeoutSec=90)
    bench.clocks.pass_ms(2000)
    bench.run()
    again = bench.do("consume_next", queue="q", consumerId="d" * 300)["lease"]
    bench.do("release", messageKey=again["messageKey"], leaseId=again["leaseId"])
    bench.do("reprocess_dlq", messageKey=third["messageKey"])
    bench.do("pause", queue="other", operation="publish")


def keys_in(bench: Bench) -> list[str]:
    return sorted({event["key"] for event in bench.events() if "key" in event})


def expected_of(bench: Bench, make_bench: MakeBench) -> dict[str, Any]:
    """What a store in memory shows after it has folded the journal of a bench."""
    other = make_bench("memory")
    shutil.copytree(bench.journal_root, other.journal_root)
    other.clocks.boot_ms, other.clocks.wall_ms = bench.clocks.boot_ms, bench.clocks.wall_ms
    other.open()
    seen = seen_in(other)
    other.close()
    return seen


def bury(bench: Bench) -> str:
    """Make a dead letter; its key."""
    key = bench.publish()
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("nack", messageKey=key, leaseId=lease["leaseId"], requeue=False, reason="broken")
    return key
