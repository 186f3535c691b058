"""Move a stopped root from one backend to another.

The new store is filled beside its place, compared with the old one message by message, and only then put in place. So
an interruption leaves a root that works with the old store or the new one, and the same command continues.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

import orjson

from postroom_common.events import EventType

from ..config.config import Config
from ..config.file import CONFIG_NAME, write_backend
from ..config.settings import BACKENDS, Settings
from ..journal.segments import read_requests
from ..observe.state import Head, State, StateError, can_go_on, load, of_store, steady
from ..platform.clock import Now
from ..platform.files import Files, remove_all
from ..platform.quarantine import Quarantine
from ..root.locks import lock_root, lock_store
from ..root.swap import replaced_name
from ..stores.backends import beside, layout_of, make_store_without_logs, opens, places
from ..stores.base import Store
from ..stores.errors import StoreError
from .connect import no_root
from .local import open_local

#: Ends the names of a store that is being filled.
UNFINISHED: Final = ".migrating"


@dataclass(frozen=True, slots=True)
class Migrated:
    """The result of a migration. ``kept`` are the new paths of the old store, and of what the new one replaced."""

    old: str
    new: str
    event: int
    messages: int
    lost: list[str]
    kept: list[Path]


def migrate(config: Config, backend: str, say: Callable[[str], None], files: Files | None = None) -> Migrated:
    """Move the messages of a root to ``backend``, and name it in the configuration file. Progress goes to ``say``.

    Raises ``StateError`` if the root cannot be migrated or the stores differ; ``StartError``, ``StoreError``,
    ``OSError``.
    """
    files = files or Files()
    old, new = config.settings.backend, BACKENDS[backend]
    _check(config, new)
    target = replace(config.settings, backend=new)
    with open_local(config, still=True) as local:
        head = steady(local.call).head
        say(f"filling a {new} store with the messages of {old}, as of event {head.event}")
        store = _open_unfinished(target, head, files, Quarantine(config.quarantine_root, files))
        try:
            lost = load(steady(local.call), store)
            say("comparing the two")
            found = of_store(store, Now(head.engine_ms, head.wall_ms))
            messages = _compare(steady(local.call), found, set(lost))
        finally:
            store.close()
    with lock_root(config, files), lock_store(files, *dict.fromkeys(places(config.settings) + places(target))):
        _check_unchanged(config.settings, head)
        kept = _switch(config, target, files)
    return Migrated(old, new, head.event, messages, lost, kept)


def _check(config: Config, new: str) -> None:
    old, source = config.settings.backend, config.sources["backend"]
    if why := no_root(config):
        raise StateError(why)
    if new == old:
        raise StateError(f"the backend of {config.root} is {new} already")
    if not all(layout_of(replace(config.settings, backend=backend)).is_persistent for backend in (old, new)):
        raise StateError("backend memory stores nothing: nothing can be migrated to it or from it")
    if source not in ("default", "file"):
        raise StateError(
            f"the backend is set by {source}: set it in {CONFIG_NAME} instead, where migrate can change it"
        )


def _open_unfinished(target: Settings, head: Head, files: Files, quarantine: Quarantine) -> Store:
    """Open the store that is being filled. One that was filled from another state is removed first."""
    unfinished = beside(target, UNFINISHED)
    store = make_store_without_logs(unfinished, files, quarantine)
    try:
        store.open()
        if can_go_on(store, head):
            return store
        store.close()
    except StoreError:  # if the disk is at fault, the next attempt raises again
        pass
    for place in places(unfinished):
        remove_all(place)
    store = make_store_without_logs(unfinished, files, quarantine)
    store.open()
    return store


def _compare(old: State, new: State, lost: set[str]) -> int:
    """Check that two states are equal except for the lost messages. Returns the number of messages."""
    queues = zip_longest((record.to_json() for record in old.queues), (record.to_json() for record in new.queues))
    for left, right in queues:
        if left != right and not lost:
            raise StateError(f"the new store differs: {left} became {right}; the old store stays in use")
    count = 0
    kept = (message for message in old.messages if message["key"] not in lost)
    for was, became in zip_longest(kept, new.messages):
        if orjson.dumps(was) != orjson.dumps(became):
            key = (was or became or {}).get("key")
            raise StateError(f"the new store differs in message {key}; the old store stays in use")
        count += 1
    return count


def _check_unchanged(settings: Settings, head: Head) -> None:
    """Check that nothing has happened since the state was read."""
    for request in read_requests(settings.journal_root, head.event + 1, lambda damage: None):
        if any(event["type"] != EventType.CLOCK_MARKED for event in request.events):
            raise StateError("a daemon has worked on the root meanwhile; stop it, then migrate again")


def _switch(config: Config, target: Settings, files: Files) -> list[Path]:
    """Put the new store in place and name it in the configuration. Returns the new paths of what was there before.

    RACE: an interruption in between. Until the configuration names the new store, the old one is used, which is
    elsewhere. Only ``sqlite`` and ``hybrid`` share a database; ``hybrid`` can use one of ``sqlite``, so it is named
    while the database may be of either.
    """
    concerned = places(config.settings) + places(target)
    name = replaced_name(time.time_ns() // 1_000_000, lambda name: any(_aside(it, name).exists() for it in concerned))
    path = config.file or config.root / CONFIG_NAME
    named_first = opens(target.backend, config.settings.backend)
    kept: list[Path] = []
    if named_first:
        write_backend(path, target.backend, files)
    for new, place in zip(places(beside(target, UNFINISHED)), places(target), strict=True):
        kept += _set_aside(place, name, files, replaced=new.exists())
        if new.exists():
            files.rename(new, place)
    for directory in {place.parent for place in places(target)}:
        files.sync_directory(directory)
    if not named_first:
        write_backend(path, target.backend, files)
    for place in places(config.settings):
        if place not in places(target):
            kept += _set_aside(place, name, files, replaced=False)
    return kept


def _aside(place: Path, name: str) -> Path:
    return place.with_name(f"{place.name}.{name}")


def _set_aside(place: Path, name: str, files: Files, replaced: bool) -> list[Path]:
    """Rename what is at a place. A file that will be replaced keeps its old name as well until then."""
    aside = _aside(place, name)
    if not place.exists():
        return []
    if replaced and place.is_file():
        os.link(place, aside)
    else:
        files.rename(place, aside)
    return [aside]
