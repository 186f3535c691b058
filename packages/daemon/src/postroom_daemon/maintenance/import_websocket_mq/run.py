"""Import a database of WebSocket MQ: it becomes events of the journal, from which the store is folded.

The events are one segment in a directory of its own, and synced. Renaming that segment commits the import: a failure
before it leaves the root without messages, as it was; after it, a start folds it. The database is copied, and neither
opened nor changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...config.config import Config
from ...platform.clock import Clock
from ...platform.quarantine import Quarantine
from ...policy.policies import Policies
from ...root.locks import lock_root
from ...root.open_root import Sources
from ..foreign_data import ImportRefused, begin_time, copied_database, set_aside
from ..idle_root import check_idle_root, check_process, commit_to_idle_root, fold_imported
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
    check_process(config)
    check_idle_root(config)
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
    check_process(config)
    with lock_root(config, files):
        check_idle_root(config)
        with _opened(path, workspace) as source:
            events = _events(config, source, clock, sources)
            journal, root_id = config.settings.journal_root, sources.ids.root()
            reason = f"imported from {path.name} of WebSocket MQ"
            with staged_journal(journal, events.requests(), reason, root_id, clock, files) as staging:
                events.check_losses(path, accept_loss, "")
                quarantine = Quarantine(config.quarantine_root, files)
                set_aside(events.unusable, quarantine, path.name, "WebSocket MQ")
                commit_to_idle_root(config, staging, quarantine, files)
    fold_imported(config, sources)
    return MqImport(path, dict(events.counts), len(events.unusable))


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
