"""The root into which another system's data is imported: it has no messages, and perhaps was only started before."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.config import Config
from ..journal.end_mark import END_MARK_NAME
from ..journal.recent import RECENT_NAME
from ..journal.segments import list_segments
from ..platform.files import Files
from ..platform.quarantine import Quarantine
from ..root.cpp_data import is_used, missing_import
from ..root.open_root import Sources, open_root
from ..root.preflight import hindrance
from ..stores.backends import places
from .foreign_data import ImportRefused, check_backend


def check_process(config: Config) -> None:
    """Raise ``ImportRefused`` unless this process can import messages into a root."""
    check_backend(config)
    problem = hindrance(config)
    if problem:
        raise ImportRefused(problem)


def check_idle_root(config: Config) -> None:
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


def commit_to_idle_root(config: Config, staging: Path, quarantine: Quarantine, files: Files) -> None:
    """Let the one segment in ``staging`` be the journal of a locked root. Raises ``OSError``."""
    journal = config.settings.journal_root
    _set_idle_root_aside(config, quarantine)
    ((_, segment),) = list_segments(staging)
    files.rename(segment, journal / segment.name)
    files.sync_directory(journal)
    files.rmdir(staging)


def fold_imported(config: Config, sources: Sources) -> None:
    """Fold what was imported into the store. Raises ``StartError``, ``StoreError``, ``OSError``."""
    root = open_root(config, sources)
    try:
        root.broker.stop()
        root.store.disk.checkpoint()
    finally:
        root.close()


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
    """What the store and the logs of a root already have on the disk."""
    found = [path for path in (*places(config.settings), config.settings.logs_root) if os.path.lexists(path)]
    return [path for path in found if not path.is_dir() or any(path.iterdir())]
