"""Import a database of WebSocket MQ: it becomes events of the journal, from which the store is folded.

The events are one segment in a directory of its own, and synced. Renaming that segment commits the import: a failure
before it leaves the root without messages, as it was; after it, a start folds it. The database is copied, and neither
opened nor changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...config.config import Config
from ...journal.end_mark import END_MARK_NAME
from ...journal.recent import RECENT_NAME
from ...journal.segments import list_segments
from ...platform.clock import Clock
from ...platform.quarantine import Quarantine
from ...policy.policies import Policies
from ...root.cpp_data import is_used, missing_import
from ...root.locks import lock_root
from ...root.open_root import Sources, open_root
from ...root.preflight import hindrance
from ...stores.backends import places
from ..foreign_data import ImportRefused, begin_time, check_backend, copied_database, set_aside
from ..staged_journal import staged_journal
from .database import MqDatabase
from .events import MqEvents

#: The name of the database in the directory of the server's data.
_FILE = "data.db"


@dataclass(frozen=True, slots=True)
class MqImport:
    """What an import did, or would do: the database, how many queues and messages by their old state, and how many rows
    cannot be used."""

    source: Path
    counts: dict[str, int]
    unusable: int


def check_websocket_mq(config: Config, given: Path, workspace: Path, accept_loss: bool = False) -> MqImport:
    """What ``import_websocket_mq`` would do; changes nothing. Raises ``ImportRefused``, ``StoreError``, ``OSError``."""
    path, clock = _found(given), Clock()
    _check_process(config)
    _check_root(config)
    with _opened(path, workspace) as source:
        events = _events(config, source, clock, Sources())
        for _ in events.requests():
            pass
    events.check_losses(path, accept_loss, "")
    return MqImport(path, dict(events.counts), len(events.unusable))


def import_websocket_mq(
    config: Config, given: Path, workspace: Path, sources: Sources, accept_loss: bool = False
) -> MqImport:
    """Import the database ``given``, or the one in that directory, into a root without messages. It is copied to
    ``workspace``. ``accept_loss``: even if most messages cannot be used.

    Raises ``ImportRefused``, ``RootBusy``, ``WrongOwner``, ``StoreError``, ``StartError``, ``OSError``.
    """
    path, files, clock = _found(given), sources.files, sources.clock()
    _check_process(config)
    with lock_root(config, files):
        _check_root(config)
        with _opened(path, workspace) as source:
            events = _events(config, source, clock, sources)
            journal, root_id = config.settings.journal_root, sources.ids.root()
            reason = f"imported from {path.name} of WebSocket MQ"
            with staged_journal(journal, events.requests(), reason, root_id, clock, files) as staging:
                events.check_losses(path, accept_loss, "")
                quarantine = Quarantine(config.quarantine_root, files)
                set_aside(events.unusable, quarantine, path.name, "WebSocket MQ")
                _set_idle_root_aside(config, quarantine)
                ((_, segment),) = list_segments(staging)
                files.rename(segment, journal / segment.name)
                files.sync_directory(journal)
                files.rmdir(staging)
    root = open_root(config, sources)
    try:
        root.broker.stop()
        root.store.disk.checkpoint()
    finally:
        root.close()
    return MqImport(path, dict(events.counts), len(events.unusable))


def _check_process(config: Config) -> None:
    """Raise ``ImportRefused`` unless this process can import messages into a root."""
    check_backend(config)
    problem = hindrance(config)
    if problem:
        raise ImportRefused(problem)


def _check_root(config: Config) -> None:
    """Raise ``ImportRefused`` if a root has messages, or data that must be imported first."""
    problem, journal = missing_import(config), config.settings.journal_root
    if problem:
        raise ImportRefused(problem)
    if is_used(journal):
        raise ImportRefused(
            f"the journal {journal} already has messages or settings of queues, perhaps those of an earlier import:"
            " import into a new root (--root), and move messages from one to the other with `postroomd export` and"
            " `postroomd import`"
        )
    strangers = _own_store(config)
    if strangers and not (journal.is_dir() and list_segments(journal)):
        raise ImportRefused(
            f"{strangers[0]} is a store whose journal is missing: put back the journal {journal}, or move the store"
            " away if it is not needed"
        )


def _set_idle_root_aside(config: Config, quarantine: Quarantine) -> None:
    """Move away what a daemon that was started here before, and did nothing, has left: in an order in which a start
    always finds a root without messages."""
    journal = config.settings.journal_root
    for path in _own_store(config):
        quarantine.move_in(path, "a store without messages, replaced by one of imported data")
    segments = (path for _, path in list_segments(journal))
    for path in (journal / END_MARK_NAME, journal / RECENT_NAME, *segments):
        quarantine.move_in(path, "of a journal without messages, replaced by that of imported data")


def _own_store(config: Config) -> list[Path]:
    """What the store of a root already has on the disk."""
    found = [path for path in places(config.settings) if os.path.lexists(path)]
    return [path for path in found if not path.is_dir() or any(path.iterdir())]


def _found(given: Path) -> Path:
    """The database, which may be named by its directory. Raises ``ImportRefused``."""
    path = given / _FILE if given.is_dir() else given
    if not path.is_file():
        raise ImportRefused(f"{path} does not exist: name the file {_FILE} of WebSocket MQ, or its directory (MQ_DATA)")
    return path


@contextmanager
def _opened(path: Path, workspace: Path) -> Iterator[MqDatabase]:
    """A copy of the database. Raises ``ImportRefused`` if somebody changes it meanwhile, or it is none."""
    before = _state(path)
    with copied_database(path, workspace) as copy:
        if _state(path) != before:
            raise ImportRefused(f"{path} changes while it is copied: stop the server of WebSocket MQ")
        source = MqDatabase(copy)
        try:
            source.check()
            yield source
        except ImportRefused as error:
            raise ImportRefused(f"{path}: {error}") from error
        finally:
            source.close()


def _state(path: Path) -> list[tuple[int, int, int]]:
    """What changes with a database, and with what is beside it."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")]
    found = [file.stat() for file in files if file.exists()]
    return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in found]


def _events(config: Config, source: MqDatabase, clock: Clock, sources: Sources) -> MqEvents:
    begin_time(clock, source.oldest())
    return MqEvents(source, clock.now(), Policies(config.defaults, config.queues, config.patterns), sources.ids)
