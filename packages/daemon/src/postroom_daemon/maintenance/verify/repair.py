"""repair: fix on a stopped root what verify finds; the journal wins over the store.

Four steps, each of which may be repeated: repair the journal; open the root, which folds what the store lacks; fix
messages, bodies, queues and key-values; move files and rows that belong to no message to quarantine. Nothing is deleted
that somebody may miss.
"""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from postroom_common.errors import PostroomError

from ...config.config import Config
from ...journal.journal import JournalRefused, JournalUnknown
from ...model.facts import damage_text
from ...platform.clock import Clock
from ...platform.files import Files
from ...platform.ids import Ids
from ...platform.quarantine import Quarantine
from ...root.locks import RootBusy, lock_root, lock_store
from ...root.open_root import OpenRoot, Sources, StartError, open_root
from ...stores.backends import layout_of
from ...stores.errors import StoreError
from .check import Verification, default_workspace
from .compare import StoreComparison
from .findings import Finding, Kind, OnFinding, Report, Say
from .fixes import Fixer
from .journal import repair_journal
from .leftovers import orphan_rows
from .logs import note_damaged_logs
from .readonly_store import open_readonly
from .rebuilt import Rebuilt

#: A root with one of these is not touched.
_HOPELESS: Final = frozenset({Kind.JOURNAL_FORMAT, Kind.STORE_REFUSED, Kind.STORE_FOREIGN})
_RECORDS: Final = frozenset(
    {
        Kind.QUEUE_MISSING,
        Kind.QUEUE_COUNTS,
        Kind.QUEUE_WRONG,
        Kind.DLQ_NAME,
        Kind.CLAIM_WRONG,
        Kind.NAME_WRONG,
        Kind.SCHEDULE_WRONG,
        Kind.DRAIN_WRONG,
        Kind.POLICY_PATTERNS_WRONG,
        Kind.CLOCK_WRONG,
    }
)
#: Passes over the store: a fix may reveal another difference.
_PASSES: Final = 4
#: Ranges that one event may name.
_RANGES: Final = 1000
#: Characters of a key in the name of a file in quarantine.
_NAME_LIMIT: Final = 150

#: Modules whose log records are repairs. Other records of recovery are reported by the verification at the end.
_ROOT_LOGGER: Final = "postroom_daemon"
_DOERS: Final = tuple(
    f"{_ROOT_LOGGER}.{name}" for name in ("platform.quarantine", "journal.order", "root.open_root", "stores")
)


class NotRepaired(PostroomError):
    """Nothing, or not everything, was repaired; the text says why and what to do."""


@dataclass(slots=True)
class Repaired:
    """Reports before and after (None: nothing was done), and what was done."""

    before: Report
    done: list[str] = field(default_factory=list)
    after: Report | None = None


class Repair:
    """Repairs one root. Findings go to ``on_finding``, repairs to ``say``."""

    def __init__(
        self,
        config: Config,
        workspace: Path | None = None,
        on_finding: OnFinding = lambda finding: None,
        say: Say = lambda text: None,
        sources: Sources | None = None,
    ) -> None:
        self._config = config
        self._settings = config.settings
        self._workspace = workspace or default_workspace()
        self._on_finding = on_finding
        self._say = say
        self._sources = sources or Sources(Files(), Clock, Ids())
        self._files = self._sources.files
        self._quarantine = Quarantine(config.quarantine_root, self._files)
        self._done: list[str] = []

    def plan(self) -> Repaired:
        """Only check. Raises ``NotVerified``; ``NotRepaired`` if a daemon is running."""
        if self._settings.journal_root.is_dir():
            try:
                with lock_root(self._config, self._files):
                    pass
            except RootBusy as error:
                raise NotRepaired(str(error)) from error
        report = self._verify(self._on_finding)
        if report.running:
            raise NotRepaired(f"{self._config.root}: a daemon was started meanwhile; stop it first")
        return Repaired(report)

    def apply(self) -> Repaired:
        """Repair what can be repaired; a sound root is not touched. Raises ``NotVerified``, ``NotRepaired``."""
        before = self.plan().before
        if not before.faults:
            return Repaired(before)
        hopeless = [finding for finding in before.findings if finding.kind in _HOPELESS]
        if hopeless:
            why = hopeless[0]
            raise NotRepaired(f"{self._config.root}: nothing was done: {why.rule.meaning}: {why.where}: {why.text}")
        try:
            directories = tempfile.TemporaryDirectory(prefix="postroom-repair-", dir=self._workspace)
            with directories as directory, _logged_repairs(self._report):
                self._apply(before, Path(directory))
        except (OSError, StoreError, StartError, RootBusy, JournalRefused, JournalUnknown, sqlite3.Error) as error:
            raise NotRepaired(f"{self._config.root}: {error}; fix that, and repair again") from error
        return Repaired(before, self._done, self._verify(lambda finding: None))

    def _verify(self, on_finding: OnFinding) -> Report:
        return Verification(self._config, self._workspace, True, on_finding, self._sources.clock).run()

    def _report(self, text: str) -> None:
        self._done.append(text)
        self._say(text)

    def _apply(self, before: Report, workspace: Path) -> None:
        damaged = before.counts[Kind.STORE_DAMAGED] > 0
        with lock_root(self._config, self._files):
            repair_journal(self._config, self._files, self._quarantine, self._report)
            if not damaged:
                self._remove_rows()
            for path in note_damaged_logs(self._settings, self._quarantine, self._files):
                self._report(f"{path}: moved to quarantine")
        if not layout_of(self._settings).is_persistent:
            return
        root = open_root(self._config, self._sources, refold=damaged)
        if before.counts[Kind.STORE_MISSING]:
            self._report("the journal was folded into a new store")
        if before.counts[Kind.JOURNAL_MISSING]:
            self._report("a new journal was begun behind the store's last event")
        with closing(root):
            self._fix(root, workspace)
            root.broker.stop()
            root.store.disk.checkpoint()
        with lock_root(self._config, self._files):
            self._remove_rows()
            self._set_strangers_aside()

    def _fix(self, root: OpenRoot, workspace: Path) -> None:
        store = root.store
        for text in store.audit.restore_misplaced():
            self._report(text)
        for number in range(_PASSES):
            lost, changed = self._pass(root, workspace / f"rebuilt-{number}.db")
            if lost:
                root.broker.note_lost_bodies(list(lost))
                for key in lost:
                    self._report(f"{key}: nobody has its body: it is a dead letter now")
            if not lost and not changed:
                break
        store.audit.set_orphans_aside()
        for one in root.broker.damage():
            self._report(f"{damage_text(one)}: taken note of")
        for first, last in root.broker.accept_losses():
            self._report(f"events {first} to {last} are lost: taken note of")
        self._note_missing(root, workspace / "rebuilt-last.db")

    def _note_missing(self, root: OpenRoot, database: Path) -> None:
        with closing(Rebuilt(database, root.store.applied)) as rebuilt:
            rebuilt.open()
            rebuilt.read(self._settings.journal_root, root.store.applied)
            undeclared = [list(span) for span in rebuilt.undeclared if not rebuilt.is_noted(span)]
        for start in range(0, len(undeclared), _RANGES):
            root.broker.note_missing(undeclared[start : start + _RANGES])
        for first, last in undeclared:
            self._report(f"events {first} to {last} are missing from the journal: taken note of")

    def _pass(self, root: OpenRoot, database: Path) -> tuple[dict[str, Finding], bool]:
        """Fix messages or, if none needs it, queues and key-values. Returns messages whose body is lost, and whether
        anything was fixed."""
        with closing(Rebuilt(database, root.store.applied)) as rebuilt:
            rebuilt.open()
            rebuilt.read(self._settings.journal_root, root.store.applied)
            compared = StoreComparison(root.store, rebuilt, self._sources.clock())
            fixer = Fixer(root.store, rebuilt, self._settings, self._quarantine, self._done_to)
            records = []
            for difference in compared.comparison.run():
                if difference.finding.kind in _RECORDS:
                    records.append(difference)
                elif difference.finding.is_fault:
                    fixer.fix(difference)
            fixer.flush()
            if not fixer.changed:
                for difference in (*records, *compared.facts()):
                    fixer.fix_record(difference)
            return fixer.lost, fixer.changed

    def _done_to(self, finding: Finding, text: str) -> None:
        self._report(f"{finding.where}: {text}")

    def _set_strangers_aside(self) -> None:
        """Move unknown files out of the directories of the filesystem store."""
        root = layout_of(self._settings).messages
        if root is None or not root.is_dir():
            return
        with open_readonly(self._config.quarantine_root, self._settings) as seen:
            foreign = seen.store.audit.foreign_files()
        with lock_store(self._files, root):
            for path in foreign:
                name = str(path.relative_to(root)).replace("/", "~")[-_NAME_LIMIT:]
                self._quarantine.move_in(path, "no message's file", name)

    def _remove_rows(self) -> None:
        """Move rows that belong to no message from the database to quarantine."""
        if layout_of(self._settings).database is None:
            return
        rows = list(orphan_rows(self._settings))
        for row in rows:
            name = f"{quote(row.key, safe='')[:_NAME_LIMIT]}.row"
            self._quarantine.add(name, row.value.encode(), f"a row of kind {row.kind} that belongs to no message")
        if rows:
            with closing(sqlite3.connect(self._settings.sqlite_db_path)) as db, db:
                delete = f"DELETE FROM {self._settings.sqlite_kv_table} WHERE key = ?"
                db.executemany(delete, [(row.key,) for row in rows])
        for row in rows:
            self._report(f"{row.key}: removed; it is in quarantine")


class _RepairLog(logging.Handler):
    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._report = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_DOERS):
            self._report(record.getMessage())


@contextmanager
def _logged_repairs(say: Say) -> Iterator[None]:
    """Report what the daemon's own modules log about their repairs."""
    logger, handler = logging.getLogger(_ROOT_LOGGER), _RepairLog(say)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
