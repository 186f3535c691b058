"""A root with messages in every state, stopped cleanly; access to its store and its files."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from postroom_common.events import decode_line, encode_line
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.backends import make_store
from tests.conformance.bench import Bench


class Keys(NamedTuple):
    """Keys of messages, by state; ``ended`` are keys of messages that were acknowledged."""

    ready: list[str]
    delayed: str
    leased: str
    dead: str
    ended: list[str]
    once: str = ""


def populate(bench: Bench) -> Keys:
    """Make messages in every state on an open bench, over several segments, then stop it cleanly."""
    dead, acked, leased, *ready = [bench.publish("work", f"body {number} " + "x" * 150) for number in range(10)]
    bench.do("set_policy", queue="work", policy={"retry": {"limit": 2}, "dlq": {"queue": "graveyard"}})
    delayed = bench.publish("work", "later", delayMs=10_000_000)
    other = bench.publish("other", "kept")
    bench.do("nack", **take(bench), requeue=False, reason="broken")
    bench.do("ack", **take(bench))
    bench.do("consume_next", queue="work", visibilityTimeoutSec=40_000)
    bench.do("pause", queue="other", operation="publish")
    ended = bench.publish("work", "gone", priority=9)
    bench.do("ack", **take(bench))
    bench.do("set_policy", queue="once", policy={"deduplication": {"mode": "window", "windowSec": 10**6}})
    bench.publish("once", deduplicationKey="told")
    bench.do("ack", **take(bench, "once"))
    bench.do("set_policy", queue="once", policy={"deduplication": {"mode": "while-present"}})
    once = bench.publish("once", deduplicationKey="there")
    bench.do("set_schedule", name="yearly", queue="once", cron="0 0 1 1 *")
    for draining in (True, False):
        bench.do("drain", draining=draining)
    stop(bench)
    return Keys([*ready, other], delayed, leased, dead, [acked, ended], once)


def take(bench: Bench, queue: str = "work") -> dict[str, str]:
    lease = bench.do("consume_next", queue=queue)["lease"]
    return {name: lease[name] for name in ("messageKey", "leaseId")}


def stop(bench: Bench) -> None:
    bench.stop()
    assert bench.store.disk.checkpoint() == bench.live.journal.last_id
    bench.close()


@contextmanager
def opened(bench: Bench) -> Any:
    """The store of a stopped root in one transaction, which may change anything in it."""
    store = make_store(bench.config.settings, bench.files, Quarantine(bench.path / "quarantine", bench.files))
    store.open()
    store.recovery.finish_replay(True)
    try:
        store.begin()
        yield store
        store.commit()
        if bench.config.settings.backend == "filesystem":
            store.applied += 1  # a checkpoint is made of what is new
        store.disk.checkpoint()
    finally:
        store.close()
    if bench.config.settings.backend == "filesystem":
        _name_checkpoint_back(bench)


def _name_checkpoint_back(bench: Bench) -> None:
    """Rename the newest checkpoint, so that it is as of the event before."""
    meta = bench.config.settings.filesystem_root / "meta"
    newest = sorted(meta.iterdir())[-1]
    data = decode_line(newest.read_bytes())
    data.pop("crc")
    newest.unlink()
    data["id"] -= 1
    (meta / f"checkpoint-{data['id']:020d}.json").write_bytes(encode_line(data))


def files_below(root: Path) -> dict[str, bytes]:
    """All files with their content, and all directories and links with their modes; without the locks."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.name == "postroomd.lock":
            continue
        name = str(path.relative_to(root))
        found[name] = path.read_bytes() if path.is_file() else os.fsencode(str(path.stat().st_mode))
    return found
