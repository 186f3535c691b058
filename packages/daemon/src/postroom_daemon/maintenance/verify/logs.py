"""Check the files of logs, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...config.settings import Settings
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from ...stores.base import Store
from ...stores.log.logs import LogFiles
from .findings import Finding, Kind
from .readonly_store import ReadonlyFiles, RecordingQuarantine

#: Records of queues that are read at once.
_PAGE = 1000


def log_findings(settings: Settings, quarantine_root: Path, store: Store) -> Iterator[Finding]:
    """What is wrong with the files of logs, and where they differ from the records of a store. Changes nothing. Raises
    ``StoreError``, ``OSError``."""
    logs = LogFiles(settings.logs_root, ReadonlyFiles(), RecordingQuarantine(quarantine_root), reading=True)
    logs.open()
    try:
        for path, text in logs.damaged():
            yield Finding(Kind.LOG_DAMAGED, str(path), text)
        for path in logs.strangers():
            yield Finding(Kind.LOG_STRANGE, str(path), "it is no file of a log")
        yield from _differing(logs, store)
    finally:
        logs.close()


def _differing(logs: LogFiles, store: Store) -> Iterator[Finding]:
    facts, after = logs.facts(), ""
    while records := store.pages.queues(after, _PAGE):
        for record in records:
            log = record.log
            if log is None:
                continue
            found = facts.get(log.created)
            if found is None and log.records:
                yield Finding(Kind.LOG_WRONG, record.name, f"{log.records} records should be there, and no file is")
            elif found and found.last == log.last and (found.records, found.bytes) != (log.records, log.bytes):
                text = f"{found.records} records of {found.bytes} bytes, not {log.records} of {log.bytes} bytes"
                yield Finding(Kind.LOG_WRONG, record.name, text)
        after = records[-1].name


def note_damaged_logs(settings: Settings, quarantine: Quarantine, files: Files) -> list[Path]:
    """Note which segments of a locked root are damaged, so that the next start writes them again; move strange files
    to quarantine. Returns what was moved. Raises ``StoreError``, ``OSError``."""
    if not settings.logs_root.is_dir():
        return []
    logs = LogFiles(settings.logs_root, files, quarantine)
    logs.open()
    try:
        if any(True for _ in [*logs.damaged()]):
            logs.note_damage()
        strangers = logs.strangers()
    finally:
        logs.close()
    for path in strangers:
        name = str(path.relative_to(settings.logs_root)).replace("/", "~")
        quarantine.move_in(path, "no file of a log", name)
    return strangers
