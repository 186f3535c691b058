"""Import a data directory of smss: it becomes events of the journal, from which the store and the logs are folded.

The events are one segment in a directory of its own, and synced. Renaming that segment commits the import: a failure
before it leaves the root without messages, as it was; after it, a start folds it. The data directory is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...config.config import Config
from ...platform.clock import Clock
from ...platform.ids import Ids
from ...platform.quarantine import Quarantine
from ...root.locks import lock_root
from ...root.open_root import Sources
from ..foreign_data import ImportRefused, set_aside
from ..idle_root import check_idle_root, check_process, commit_to_idle_root, fold_imported
from ..staged_journal import staged_journal
from .events import SmssEvents
from .files import SmssFiles

#: The name of the directory in the configuration that smss comes with (``store.path``).
_DIRECTORY = "data"


@dataclass(frozen=True, slots=True)
class SmssSettings:
    """What an import is to make of topics: how long they keep messages (0: for ever), when some of them end (Unix ms),
    and whether the rest is imported even if most messages cannot be used."""

    retention_hours: float = 0
    expire: Mapping[str, int] = field(default_factory=dict)
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class SmssImport:
    """What an import did, or would do: the directory, how many topics and messages, and how many places cannot be used.
    ``last_id`` is the highest event id of smss, ``first_id`` the one with which its binlog begins (0: it has none).
    ``permanent``: topics that never end because nothing says when they should."""

    source: Path
    counts: dict[str, int]
    unusable: int
    first_id: int
    last_id: int
    permanent: list[str]


def check_smss(config: Config, given: Path, settings: SmssSettings) -> SmssImport:
    """What ``import_smss`` would do; changes nothing. Raises ``ImportRefused``, ``OSError``."""
    source, clock = _found(given), Clock()
    check_process(config)
    check_idle_root(config)
    before = source.state()
    events = _scanned(source, settings, clock, Ids())
    for _ in events.requests():
        pass
    _check(source, before, events, settings)
    return _import_of(source, events)


def import_smss(config: Config, given: Path, settings: SmssSettings, sources: Sources) -> SmssImport:
    """Import the data directory ``given``, or the one in it, into a root without messages.

    Raises ``ImportRefused``, ``RootBusy``, ``WrongOwner``, ``StoreError``, ``StartError``, ``OSError``.
    """
    source, files, clock = _found(given), sources.files, sources.clock()
    check_process(config)
    with lock_root(config, files):
        check_idle_root(config)
        before = source.state()
        events = _scanned(source, settings, clock, sources.ids)
        journal, root_id = config.settings.journal_root, sources.ids.root()
        reason, behind = f"imported from {source.root.name} of smss", events.last_id
        with staged_journal(journal, events.requests(), reason, root_id, clock, files, behind=behind) as staging:
            _check(source, before, events, settings)
            quarantine = Quarantine(config.quarantine_root, files)
            set_aside(events.unusable, quarantine, source.root.name, "smss")
            commit_to_idle_root(config, staging, quarantine, files)
    fold_imported(config, sources)
    return _import_of(source, events)


def _found(given: Path) -> SmssFiles:
    """The data directory, which may be named by the directory of smss. Raises ``ImportRefused``."""
    given = given.absolute()
    for path in (given, given / _DIRECTORY):
        if (path / "topic").is_dir() or (path / "binlog").is_dir():
            return SmssFiles(path)
    raise ImportRefused(f"{given} has no directories topic and binlog: name the data directory of smss (store.path)")


def _scanned(source: SmssFiles, settings: SmssSettings, clock: Clock, ids: Ids) -> SmssEvents:
    events = SmssEvents(source, ids, settings.retention_hours, settings.expire)
    events.scan(clock)
    return events


def _check(source: SmssFiles, before: object, events: SmssEvents, settings: SmssSettings) -> None:
    """Raise ``ImportRefused`` if smss works meanwhile, or if most messages would be lost."""
    if source.state() != before:
        raise ImportRefused(f"{source.root} changes while it is read: stop smss")
    events.check_losses(source.root, settings.accept_loss, "")


def _import_of(source: SmssFiles, events: SmssEvents) -> SmssImport:
    counts, unusable = dict(events.counts), len(events.unusable)
    return SmssImport(source.root, counts, unusable, events.first_id, events.last_id, events.permanent)
