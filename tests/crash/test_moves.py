"""Messages that are on hold, wait for each other, end, and move between queues, folded into a store that dies at any
file operation: the result is what the journal says, and each body is in exactly one place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from postroom_common.events import Event, raw_json
from postroom_common.protocol import State
from postroom_daemon.engine.fold import apply
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.quarantine import Quarantine
from postroom_daemon.stores.base import Cursor, Store
from postroom_daemon.stores.filesystem.store import FilesystemStore
from postroom_daemon.stores.hybrid.store import HybridStore
from postroom_daemon.stores.memory import MemoryStore
from postroom_daemon.stores.sqlite.store import SqliteStore
from tests.conformance.bench import all_queues, picture
from tests.conformance.conftest import FOLDERS
from tests.crash.campaign import working_folder
from tests.crash.faults import FaultyFiles, Killed

LONG: Final = "k" * 180
FAR: Final = "far " + "away " * 50  # its directory does not tell its name
_FAILURE: Final = {"reasonCode": "MESSAGE_EXPIRED", "reasonMessage": "too late", "attempt": 1, "consumerId": "c"}
_Told = dict[str, Any]


def key(number: int) -> str:
    return f"msg:q:m{number}"


def publish(number: int, **facts: Any) -> _Told:
    return {"type": "published", "queue": "q", "key": key(number), **facts}


def about(type_: str, number: int, queue: str = "q", **facts: Any) -> _Told:
    return {"type": type_, "queue": queue, "key": key(number), **facts}


#: Groups of events. The number of a message is that of its key.
LIFE: Final[list[list[_Told]]] = [
    [{"type": "queue_created", "queue": "q", "kind": "queue"}],
    [publish(1, orderingKey="o"), publish(2, orderingKey="o", expiresEngineMs=900), publish(3, orderingKey=LONG)],
    [publish(4, target="t" * 200, orderingKey=LONG, claim={"name": "c" * 100}, fallbackEngineMs=500), publish(5)],
    [publish(6, dueEngineMs=90_000), publish(7, priority=3)],
    [about("held", 1), about("held", 6)],
    [about("leased", 7, lease="l7", consumer="c", untilEngineMs=50_000, attempt=1), about("held", 5)],
    [about("moved", 1, to="b"), about("moved", 4, to=FAR, expiresEngineMs=7000)],
    [about("unheld", 6, dueEngineMs=95_000), about("retargeted", 4, FAR), about("unheld", 5)],
    [about("died", 2, failure=_FAILURE), about("died", 5, failure=_FAILURE)],
    [about("leased", 5, lease="l5", consumer="c", untilEngineMs=60_000, attempt=1)],
    [about("moved", 4, FAR, to="c"), about("unheld", 1, "b")],
    [about("reprocessed", 5, to="b"), about("reprocessed", 2, expiresEngineMs=8000)],
    [about("moved", 1, "b", to="q"), about("acked", 7), about("moved", 3, to=FAR)],
    [about("leased", 5, "b", lease="l55", consumer="c" * 200, untilEngineMs=70_000, attempt=1)],
    [about("died", 5, "b", failure=_FAILURE), about("dropped", 3, FAR), {"type": "queue_deleted", "queue": FAR}],
    [about("moved", 2, to=FAR), about("dropped", 6)],
    [about("dropped", 4, "c"), {"type": "queue_deleted", "queue": "c"}],
]
#: After which groups a checkpoint is made.
CHECKPOINTS: Final = (3, 8, 13, len(LIFE) - 1)


def events() -> list[list[Event]]:
    """The events of the scenario as a journal has them."""
    number = 0
    groups: list[list[Event]] = []
    for group in LIFE:
        made: list[Event] = []
        for reported in group:
            number += 1
            body = {"message": orjson.Fragment(b'{"parts":[{"text":"body %d"}]}' % number)}
            event = {"id": number, "wallMs": 1_795_811_841_655 + number, "engineMs": number, **reported}
            made.append(event | body if reported["type"] == "published" else event)
        groups.append(made)
    return groups


def make(backend: str, directory: Path, files: Files) -> Store:
    quarantine = Quarantine(directory / "quarantine", Files())
    match backend:
        case "filesystem":
            return FilesystemStore(directory / "fs", files, quarantine, FOLDERS)
        case "hybrid":
            return HybridStore(directory / "store.db", files, directory / "payloads", 0, quarantine)
        case "sqlite":
            return SqliteStore(directory / "store.db")
        case _:
            return MemoryStore()


class Scenario:
    """A journal and the store that it is folded into. Bodies are kept apart once, as the daemon does when it decides:
    from then on, events contain their references."""

    def __init__(self, backend: str, directory: Path) -> None:
        self.backend = backend
        self.directory = directory
        self.groups = events()
        self.files = FaultyFiles()

    def run(self) -> Store:
        """Fold all groups into the store, with checkpoints."""
        store = make(self.backend, self.directory, self.files)
        store.open()
        try:
            for at, group in enumerate(self.groups):
                self.fold(store, at, group)
            store.recovery.finish_replay(False)
        except BaseException:
            with_no_faults(self.files, store)
            raise
        return store

    def fold(self, store: Store, at: int, group: list[Event]) -> None:
        if group[-1]["id"] <= store.applied:
            return
        store.begin()
        for event in group:
            if "message" in event:
                self._keep_body(store, event)
        store.body_files.sync()
        for event in group:
            apply(event, store)
        store.commit()
        if at in CHECKPOINTS:
            store.disk.checkpoint()

    def _keep_body(self, store: Store, event: Event) -> None:
        reference = store.body_files.keep(event["id"], event["queue"], event["key"], raw_json(event["message"]))
        if reference:
            del event["message"]
            event["body"] = reference.to_json()


def with_no_faults(files: FaultyFiles, store: Store) -> None:
    files.heal()
    store.close()


def seen(store: Store) -> dict[str, Any]:
    """The whole state of a store."""
    reported = picture(store, [key(number) for number in range(1, 8)])
    reported["pages"] = {
        (name, state): keys for name in all_queues(store) for state in State if (keys := page(store, name, state))
    }
    reported["claims"] = {name: store.facts.get(name) for name in store.facts.names("claim", "", 100)}
    return reported


def page(store: Store, queue: str, state: State) -> list[str]:
    found: list[str] = []
    after: Cursor = ()
    while True:
        entries, after = store.pages.scan(queue, state, after, 2)
        found += [entry.key for entry in entries]
        if not after:
            return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return seen(Scenario("memory", tmp_path_factory.mktemp("memory")).run())


@pytest.mark.parametrize("backend", ["filesystem", "hybrid", "sqlite"])
def test_a_store_survives_like_the_reference_store(backend: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    scenario = Scenario(backend, tmp_path)
    store = scenario.run()
    assert seen(store) == expected
    store.close()
    store = scenario.run()
    assert seen(store) == expected
    store.close()


@pytest.mark.parametrize("backend", ["filesystem", "hybrid"])
def test_killed_before_any_file_operation_the_result_is_the_same(backend: str, expected: dict[str, Any]) -> None:
    number = 1
    with working_folder() as folder:
        while is_killed_and_comes_to(expected, backend, folder / str(number), number):
            shutil.rmtree(folder / str(number))
            number += 1
    assert number > 30


def is_killed_and_comes_to(expected: dict[str, Any], backend: str, directory: Path, number: int) -> bool:
    """Whether the scenario has so many operations: it ends at that one, and goes on after a restart; and another."""
    directory.mkdir()
    scenario = Scenario(backend, directory)
    scenario.files.arm("KILL", number)
    try:
        with_no_faults(scenario.files, scenario.run())
    except Killed:
        scenario.files.heal()
    if not scenario.files.fired:
        return False
    for _ in range(2):
        store = scenario.run()
        assert seen(store) == expected, number
        store.close()
    if backend == "filesystem":
        assert bodies_in(directory / "fs") == len(expected["entries"]), number
    return True


def bodies_in(root: Path) -> int:
    """Files of messages that are there, whichever their queue."""
    return sum(1 for path in root.rglob("*.json") if path.parent.name not in ("meta", "archive"))
