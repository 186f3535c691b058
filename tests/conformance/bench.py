"""A root that is opened in the process of the test, which controls its clocks, ids and file calls."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import orjson

from postroom_common.codec import Request as WireRequest
from postroom_common.events import Event, decode_event
from postroom_common.protocol import State
from postroom_daemon.broker.idempotency import request_key
from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox.codec import plain
from postroom_daemon.journal.journal import JournalRefused
from postroom_daemon.journal.segments import list_segments
from postroom_daemon.model.principal import Account, Principal
from postroom_daemon.model.request import Answer, Request
from postroom_daemon.observe.state import of_store, write_state
from postroom_daemon.platform.clock import Clock
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.ids import Ids
from postroom_daemon.root.open_root import OpenRoot, Sources, open_root
from postroom_daemon.stores.base import Store
from postroom_daemon.stores.log.records import records_of

#: All requests that a test runs together are one group.
ONE_GROUP = {"limits.groupRequests": "65536", "limits.groupBytes": str(2**30)}


@dataclass
class MachineClocks:
    """The clocks of the machine, set by the test."""

    boot_ms: int = 1_000_000
    wall_ms: int = 1_795_811_841_655
    boot_id: str = "first-boot"

    def pass_ms(self, milliseconds: int) -> None:
        """Advance both clocks."""
        self.boot_ms += milliseconds
        self.wall_ms += milliseconds

    def clock(self) -> Clock:
        return Clock(lambda: self.boot_ms, lambda: self.wall_ms, self.boot_id)


@dataclass
class Sent:
    """A request and its answers, in order."""

    request: Request
    answers: list[Answer] = field(default_factory=list)

    @property
    def answer(self) -> Answer:
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def code(self) -> str:
        return self.answer.error.code if self.answer.error else "OK"

    @property
    def data(self) -> dict[str, Any]:
        assert self.answer.error is None, self.answer.error
        return plain(self.answer.data or {})

    def data_or_none(self) -> dict[str, Any] | None:
        return None if self.answer.error else self.data


class CountedIds(Ids):
    """Ids from a counter: two benches assign the same."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def message(self, wall_ms: int) -> str:
        return f"message-{next(self._numbers)}"

    def lease(self) -> str:
        return f"lease-{next(self._numbers)}"

    def chance(self) -> float:
        return next(self._numbers) % 11 / 10

    def root(self) -> str:
        return "root-id"


class Bench:
    """One root. ``flags`` are settings by their keys; ``segment_bytes`` may be less than the configuration allows."""

    def __init__(self, root: Path, backend: str = "sqlite", segment_bytes: int = 2**24, **flags: str) -> None:
        self.path = root
        self.clocks = MachineClocks()
        self.files = Files()
        self.ids = itertools.count(1)
        self.requests = itertools.count(1)
        lean = {"traffic.enabled": "false", "storage.reserveBytes": "0"}
        if backend == "hybrid":
            lean["hybrid.inlineBelowBytes"] = "0"  # small messages have files, too
        config = load(root, None, {}, {"backend": backend, **lean, **ONE_GROUP, **flags})
        self.config = replace(config, settings=replace(config.settings, journal_segment_bytes=segment_bytes))
        self.root: OpenRoot | None = None

    # --- life -------------------------------------------------------------------------------------------------

    def open(self, rewrite_journal: bool = False, refold: bool = False, lead: int = 0) -> Bench:
        assert self.root is None
        sources = Sources(self.files, self.clocks.clock, CountedIds(self.ids))
        self.root = open_root(self.config, sources, rewrite_journal, refold, lead)
        return self

    def close(self) -> None:
        """Close it as a killed process does: nothing is written."""
        if self.root:
            self.root.close()
        self.root = None

    def reopen(self, without_store: bool = False) -> None:
        self.close()
        if without_store:
            self.lose_store()
        self.open()

    def lose_store(self) -> None:
        settings = self.config.settings
        for suffix in ("", "-wal", "-shm"):
            path = settings.sqlite_db_path
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        if settings.backend == "filesystem":
            shutil.rmtree(settings.filesystem_root)

    # --- requests ---------------------------------------------------------------------------------------------

    def make(self, command: str, client: str = "client", uid: int | None = None, **payload: Any) -> Sent:
        """A request that was not sent yet. Its bytes are its own: only ``again`` makes a repeat."""
        wire = WireRequest(f"request-{next(self.requests)}", client, command, 0, payload)
        return self._sent(wire, os.geteuid() if uid is None else uid)

    def again(self, sent: Sent) -> Sent:
        """The same request with the same bytes."""
        return self._sent(sent.request.wire, sent.request.who.account)

    def _sent(self, wire: WireRequest, uid: Account) -> Sent:
        answers: list[Answer] = []
        key = request_key(uid, f"{wire.client_id}/{wire.request_id}".encode())
        who = Principal(wire.client_id, uid)
        return Sent(Request(wire, who, key, self.clocks.wall_ms, answers.append), answers)

    def run(self, *sent: Sent) -> None:
        """Process these requests as one group, and finish all questions."""
        for one in sent:
            self.live.broker.submit(one.request)
        self.live.broker.run_group()
        while self.live.broker.has_work:
            self.live.broker.run_group()

    def stop(self) -> None:
        self.live.broker.stop()

    def send(self, command: str, **payload: Any) -> Sent:
        """Send one request in a group of its own."""
        sent = self.make(command, **payload)
        self.run(sent)
        return sent

    def do(self, command: str, **payload: Any) -> dict[str, Any]:
        """Send one request, which must succeed; the data of its answer."""
        return self.send(command, **payload).data

    def publish(self, queue: str = "q", message: Any = "body", **payload: Any) -> str:
        return str(self.do("publish", queue=queue, message=message, **payload)["messageKey"])

    def counts(self, queue: str = "q") -> dict[str, int]:
        """Messages of a queue by state, those without any left out."""
        metrics = self.do("status", queue=queue)["metrics"]
        return {state: count for state, count in metrics.items() if count}

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let the journal refuse all events: groups with events are rolled back, and their requests refused."""

        def refuse(*arguments: object) -> NoReturn:
            raise JournalRefused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

        journal = self.live.journal
        journal.append = refuse  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            del journal.append  # the method of the class again

    # --- what stands ------------------------------------------------------------------------------------------

    @property
    def live(self) -> OpenRoot:
        assert self.root is not None
        return self.root

    @property
    def store(self) -> Store:
        return self.live.store

    @property
    def journal_root(self) -> Path:
        return self.config.settings.journal_root

    def segments(self) -> list[Path]:
        return [path for _, path in list_segments(self.journal_root)]

    def events(self) -> list[Event]:
        """The events of the journal; every line must be intact."""
        return [decode_event(line) for path in self.segments() for line in path.read_bytes().splitlines(True)]

    def event_types(self) -> list[str]:
        return [event["type"] for event in self.events()]

    def body_files(self) -> list[Path]:
        """The files of bodies (hybrid), in the order of publishing. From then on bodies are read from them."""
        if self.root:
            self.store.disk.tidy()
        paths = self.config.settings.hybrid_payload_root.rglob("*")
        return sorted((path for path in paths if path.is_file()), key=lambda path: path.name)

    def quarantined(self) -> dict[str, bytes]:
        directory = self.path / "quarantine"
        return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.is_dir() else {}


def exported(bench: Bench) -> list[dict[str, Any]]:
    """The lines of a state file of this root, without its head, which contains backend and time."""
    file = BytesIO()
    write_state(of_store(bench.store, bench.live.clock.now()), file)
    lines = [orjson.loads(line) for line in file.getvalue().splitlines()[1:-1]]
    return [{name: value for name, value in line.items() if name != "crc"} for line in lines]


def picture(store: Store, keys: Sequence[str]) -> dict[str, Any]:
    """All that the contract of a store shows of these messages and of its queues."""
    queues = list(all_queues(store))
    return {
        "applied": store.applied,
        "entries": {key: entry for key in keys if (entry := store.get(key))},
        "bodies": {key: store.bodies.message(entry) for key in keys if (entry := store.get(key))},
        "queues": {name: store.queue(name) for name in queues},
        "dead": {name: [entry.key for entry in store.pages.dead(name, (-1, -1), 1000)] for name in queues},
        "done": {name: [entry.key for entry in store.pages.scan(name, State.DONE, (), 1000)[0]] for name in queues},
        "next": {name: getattr(store.next_ready(name, "c1"), "key", None) for name in queues},
        "oldest": {name: getattr(store.pages.oldest_ready(name), "key", None) for name in queues},
        "records": {name: list(all_records(store, name)) for name in queues},
        "facts": {name: store.facts.get(name) for name in ("epoch", "pins")},
    }


def seen_in(bench: Bench) -> dict[str, Any]:
    """All that the store of an open bench shows, after messages that are due were made ready (which is no event)."""
    store = bench.store
    store.begin()
    store.due.promote(bench.live.clock.now().engine, 1000)
    store.commit()
    return picture(store, sorted({event["key"] for event in bench.events() if "key" in event}))


def all_records(store: Store, name: str) -> Iterator[tuple[int, int, bytes]]:
    """Wall time, position and block of every record of a log."""
    record, after = store.queue(name), 0
    while record and record.log and (page := store.logs.read(record.log.created, after, 1000, 10**6)).records:
        yield from records_of(page.raw)
        after = page.last


def all_queues(store: Store) -> Iterator[str]:
    """Every queue's name, by pages."""
    after = ""
    while page := store.pages.queue_names(after, 2):
        yield from page
        after = page[-1]


def descriptors(folder: Path) -> set[tuple[str, str]]:
    """Number and target of the open descriptors that may belong to a server: files and directories below ``folder``,
    and inotify watches.

    Watches have no path. A thread of an earlier test may close one at any moment: so look for new descriptors only.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own, or one that a thread has closed
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith(f"{folder}/") or target == "anon_inode:inotify":
                found.add((number, target))
    return found
