"""A store that is missing or damaged, made anew in the workspace as the next start would make it: so what is lost for
good is told before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...config.settings import Settings
from ...engine.fold import apply
from ...journal.segments import list_segments, read_requests
from ...model.lifecycle import IllegalTransition
from ...stores.backends import layout_of, make_store
from ...stores.base import NotStored, Store, StoreDamaged
from ...stores.sqlite.store import SqliteStore
from .readonly_store import Look, LookingFiles, NotedQuarantine

#: What the database is called that is folded from nothing.
FOLDED_NAME: Final = "folded.db"
#: Requests that are folded in one transaction.
_BATCH: Final = 2000


@contextmanager
def rehearsed(quarantine_root: Path, settings: Settings, workspace: Path, damaged: bool) -> Iterator[Look]:
    """The new store, to be looked at. ``damaged``: ``settings`` name a copy of a database, of which is kept what can
    still be read; else it begins with nothing. Raises ``StoreError`` where the start would be refused, ``OSError``."""
    files, quarantine = LookingFiles(), NotedQuarantine(quarantine_root)
    if layout_of(settings).database is None:  # nothing can be salvaged, and folded into a database it is the same
        settings, damaged = replace(settings, backend=SqliteStore.name), False
    if not damaged:
        settings = replace(settings, sqlite_db_path=workspace / FOLDED_NAME)
    store = make_store(settings, files, quarantine)
    try:
        _make(store, settings.journal_root, damaged)
    except StoreDamaged:  # what was salvaged is no better: it is done without
        store.close()
        _make(store, settings.journal_root, False)
    try:
        yield Look(store, settings, quarantine.noted, files.removed)
    finally:
        store.close()


def _make(store: Store, journal: Path, salvage: bool) -> None:
    if salvage:
        store.recovery.salvage(next((first for first, _ in list_segments(journal)), None) if journal.is_dir() else None)
    for path in store.disk.files():  # of the workspace
        path.unlink(missing_ok=True)
    store.open()
    try:
        _fold(store, journal)
    except BaseException:
        store.close()
        raise


def _fold(store: Store, journal: Path) -> None:
    store.begin()
    requests = read_requests(journal, store.applied + 1, lambda damage: None) if journal.is_dir() else ()
    for count, request in enumerate(requests, 1):
        for event in request.events:
            try:
                apply(event, store)
            except (NotStored, IllegalTransition):  # what it builds on is missing
                store.applied = event["id"]
        if count % _BATCH == 0:
            store.commit()
            store.begin()
    store.commit()
    store.recovery.finish_replay(clean=False)
