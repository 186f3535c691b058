"""The root that a backup is made of: random work on it, its backups, and the states that its journal leads to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from postroom_common.events import Event
from postroom_common.protocol import State
from postroom_daemon.config.settings import Settings
from postroom_daemon.engine.fold import apply
from postroom_daemon.maintenance.backup import Manifest, make_backup
from postroom_daemon.maintenance.restore import Restored, RestorePoint, RestoreRequest, restore
from postroom_daemon.model.records import BodyReference, Entry
from postroom_daemon.observe.state import of_store
from postroom_daemon.platform.clock import Now
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.root.open_root import Sources
from postroom_daemon.stores.backends import make_store
from postroom_daemon.stores.base import BodyFiles, Store
from postroom_daemon.stores.memory import MemoryStore
from tests.conformance.bench import Bench

STORES = ("sqlite", "filesystem", "hybrid")
on_every_store = pytest.mark.parametrize("backend", STORES)
DAY_MS = 24 * 3600 * 1000
THE_BACKUP = RestorePoint()


@dataclass
class Origin:
    """A bench whose clocks are ahead of the machine's, so that no time passes when a tool opens its root."""

    bench: Bench
    random: Random
    bodies: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def begin(cls, bench: Bench, seed: int = 1) -> Origin:
        bench.clocks.wall_ms = time.time_ns() // 1_000_000 + DAY_MS
        return cls(bench.open(), Random(seed))

    @property
    def settings(self) -> Settings:
        return self.bench.config.settings

    def publish(self, queue: str = "q", message: Any = "body", **payload: Any) -> str:
        key = self.bench.publish(queue, message, **payload)
        self.remember()
        return key

    def work(self, groups: int) -> None:
        """Do random groups that change the state."""
        for _ in range(groups):
            self._some_work()
            self.remember()

    def _some_work(self) -> None:
        bench, random = self.bench, self.random
        bench.clocks.pass_ms(random.choice([1, 500, 40_000]))
        queue = random.choice(["a", "b"])
        match random.randrange(10):
            case 0 | 1 | 2:
                delay = random.choice([0, 900])
                bench.publish(queue, random.randbytes(9).hex(), priority=random.randrange(3), delayMs=delay)
            case 3 | 4:
                bench.send("consume_next", queue=queue)
            case 5 | 6:
                held = [entry for entry in bench.store.pages.entries("", 1000) if entry.lease_id]
                for entry in held[:1]:
                    name = random.choice(["ack", "release", "nack"])
                    more = {"requeue": random.random() < 0.6, "reason": "told"} if name == "nack" else {}
                    bench.send(name, messageKey=entry.key, leaseId=entry.lease_id, **more)
            case 7:
                bench.send("set_policy", queue=queue, policy={"retry": {"limit": random.randrange(1, 4)}})
            case 8:
                mode = random.choice(["window", "while-present"])
                bench.do("set_policy", queue=queue, policy={"deduplication": {"mode": mode, "windowSec": 60}})
                bench.do("publish", queue=queue, message="fact", deduplicationKey=random.choice("xyz"))
            case 9:
                bench.send("set_schedule", name=random.choice("st"), queue=queue, cron="0 0 1 1 *")
                bench.send("delete_schedule", name="s")

    def remember(self) -> None:
        """Keep the bodies that are in files now: the journal only has their digests."""
        for path in self.settings.hybrid_payload_root.rglob("*.json"):
            body = path.read_bytes()
            self.bodies[BodyReference.of(body).digest] = body

    def end(self) -> list[Event]:
        """Close it as a killed process does; all events of its journal."""
        self.bench.close()
        return self.bench.events()

    def back_up(self, to: Path, with_journal: bool = True) -> Manifest:
        """Close it, and back up the stopped root."""
        self.bench.close()
        return make_backup(self.bench.config, str(to), with_journal, {"postroomd": "test"})

    def state_at(self, events: list[Event], event_id: int) -> dict[str, Any]:
        """The state at an event, folded from the journal alone."""
        store = MemoryStore()
        store.body_files = _Known(store, self.bodies)
        for event in events:
            if event["id"] <= event_id:
                apply(event, store)
        store.commit()
        return shown(store)


class _Known(BodyFiles):
    def __init__(self, store: Store, bodies: dict[str, bytes]) -> None:
        self._store = store
        self._bodies = bodies

    def insert(self, entry: Entry, reference: BodyReference) -> None:
        self._store.insert(entry, self._bodies[reference.digest])


def stored_state(settings: Settings) -> dict[str, Any]:
    """The state in the store of a stopped root."""
    store = make_store(settings, Files(), Quarantine(settings.journal_root.parent / "quarantine", Files()))
    store.open()
    try:
        return shown(store)
    finally:
        store.close()


def shown(store: Any) -> dict[str, Any]:
    """Queues, messages and facts of a store. Those that wait for a time count as ready: no event tells when it came."""
    state = of_store(store, Now(0, 0))
    messages = [orjson.loads(orjson.dumps(message)) for message in state.messages]
    for message in messages:
        if message["state"] in (State.DELAYED, State.GATHERING):
            message["state"] = State.READY.value
    queues = [record.to_json() for record in state.queues]
    for queue in queues:
        counts = queue["counts"]
        counts |= {"ready": counts["ready"] + counts["delayed"] + counts["gathering"], "delayed": 0, "gathering": 0}
        queue.pop("gathering", None)
    return {"queues": queues, "messages": messages, "facts": state.facts}


def restored(
    bench: Bench, backup: Path, point: RestorePoint = THE_BACKUP, files: Files | None = None, **how: Any
) -> Restored:
    """Restore the root of a closed bench."""
    sources = Sources(files=files or Files(), clock=bench.clocks.clock)
    return restore(bench.config, RestoreRequest(backup, point, **how), sources)


MakeBench = Callable[..., Bench]


def picture_of(root: Path) -> dict[str, bytes]:
    """All files below a directory, without those that every tool touches."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in ("postroomd.lock", "reserve")
    }


def messages(origin: Origin) -> int:
    return len(stored_state(origin.settings)["messages"])
