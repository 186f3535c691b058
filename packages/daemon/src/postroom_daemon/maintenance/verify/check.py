"""verify: report all that is wrong with a root, stopped or running, without changing it.

Memory does not grow with the number of messages: the journal is folded into a database in the workspace, and compared
with the store page by page. (The filesystem store itself keeps an index of its names, as it does in the daemon.)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from postroom_common.errors import CommandError, DamagedRecord, PostroomError

from ...config.config import Config
from ...config.settings import Settings
from ...journal.end_mark import END_MARK_NAME, read_end_mark
from ...journal.recent import find_lacking
from ...model.facts import FACT_DAMAGE, FACT_EPOCH, FACT_LOSSES, damage_text
from ...observe.state import State, StateError, bodies_in, capture
from ...platform.clock import Clock
from ...platform.files import LOST_ERRNOS, Files
from ...platform.quarantine import file_sizes
from ...root.cpp_data import places_of, to_import
from ...root.locks import RootBusy, lock_root
from ...root.swap import check_no_swap
from ...stores.backends import layout_of
from ...stores.base import Store
from ...stores.errors import StoreDamaged, StoreError
from ..connect import NotReached, no_root, reach
from .compare import MALFORMED, Comparison, StoreComparison
from .findings import Finding, Kind, OnFinding, Report
from .journal import JournalCheck
from .leftovers import file_findings, rows_beside
from .logs import log_findings
from .readonly_store import (
    COPY_NAME,
    FOLDED_NAME,
    PAYLOADS_NAME,
    ReadonlyStore,
    copied,
    dry_run,
    is_of_cpp,
    open_readonly,
    with_payloads,
)
from .rebuilt import Rebuilt, lies_in


class NotVerified(PostroomError):
    """The root could not be verified; the text says why."""


class Verification:
    """One check of a root. Each finding goes to ``on_finding`` as it is found.

    ``deep``: SQLite checks its pages as well. ``workspace`` is a directory with space for temporary files: the
    store, and an index of the journal.
    """

    def __init__(
        self,
        config: Config,
        workspace: Path | None = None,
        deep: bool = False,
        on_finding: OnFinding = lambda finding: None,
        clock: Callable[[], Clock] = Clock,
    ) -> None:
        self._config = config
        self._settings = config.settings
        self._workspace = workspace or default_workspace()
        self._deep = deep
        self._on_finding = on_finding
        self._clock = clock
        self._missing: list[tuple[int, int]] = []
        self._report = Report(str(config.root), config.settings.backend, running=False)

    def run(self) -> Report:
        """Check everything. Raises ``NotVerified``."""
        self._check_there()
        try:
            with tempfile.TemporaryDirectory(prefix="postroom-verify-", dir=self._workspace) as directory:
                self._run(Path(directory))
        except (OSError, StateError, CommandError, NotReached) as error:
            raise NotVerified(f"{self._config.root} could not be verified: {error}") from error
        for first, last in self._missing:  # nobody has accepted their loss
            self._add(Kind.EVENTS_MISSING, f"{first}-{last}", f"{last - first + 1} events are not in the journal")
        kept = list(file_sizes(self._config.quarantine_root))
        self._report.quarantine = {"files": len(kept), "bytes": sum(kept)}
        return self._report

    def _check_there(self) -> None:
        root = self._config.root
        if not root.is_dir():
            raise NotVerified(f"{root} does not exist: there is nothing to verify")
        if why := no_root(self._config):
            raise NotVerified(why)

    def _run(self, workspace: Path) -> None:
        if not self._settings.journal_root.is_dir():  # locking would create it, and no daemon can run without it
            check_no_swap(self._config.root)
            self._stopped(workspace)
            return
        try:
            with lock_root(self._config, Files(), writing=False):
                self._stopped(workspace)
        except RootBusy:
            self._report.running = True
            self._beside_daemon(workspace)

    def _add(self, kind: Kind, where: str, text: str) -> None:
        self._take(Finding(kind, where, text))

    def _take(self, finding: Finding) -> None:
        self._report.add(finding)
        self._on_finding(finding)

    def _check_journal(self, running: bool) -> bool:
        root = self._settings.journal_root
        check = JournalCheck(root, running)
        if root.is_dir():
            for finding in check.findings():
                self._take(finding)
        self._report.journal = check.figures()
        self._missing = check.missing
        return check.in_order

    def _lacks_recent(self) -> bool:
        """Report what the next start will write to the last segment."""
        root = self._settings.journal_root
        found = find_lacking(root) if root.is_dir() else None
        if found is None or found.out_of_date:
            return False
        text = f"the next start writes them to {found.segment.name}"
        self._add(Kind.JOURNAL_RECENT, f"{found.first_id}-{found.last_id}", text)
        return True

    # --- beside a running daemon ------------------------------------------------------------------------------

    def _beside_daemon(self, workspace: Path) -> None:
        in_order = self._check_journal(running=True)
        bodies = bodies_in(self._settings.hybrid_payload_root)
        with reach(self._config) as reached:
            checks = reached.ask("health", {})["checks"]
            if not checks["journal"]["ok"]:
                self._lost(checks["journal"].get("missingEvents", []))
            self._damaged(checks["store"].get("damage", []))
            with capture(reached.ask, self._settings.journal_root, bodies, workspace) as state:
                head = state.head
                self._report.as_of_event = self._report.applied = head.event
                if not in_order:
                    self._not_compared()
                elif rebuilt := self._fold(workspace, head.event, head.event):
                    with closing(rebuilt):
                        self._report_missing(rebuilt, [])
                        comparison = Comparison(
                            state, rebuilt, head.event, head.event, head.engine_ms, [], shifting=True
                        )
                        self._compare(comparison, state)

    # --- a stopped root ---------------------------------------------------------------------------------------

    def _stopped(self, workspace: Path) -> None:
        in_order = self._check_journal(running=False) and not self._lacks_recent()
        last = self._report.as_of_event = self._report.journal["lastEvent"]
        layout = layout_of(self._settings)
        if not layout.is_persistent:
            return  # it stores nothing while stopped
        if not layout.exists():
            if last:
                self._add(Kind.STORE_MISSING, self._settings.backend, f"the journal has events up to {last}")
                self._check_dry_run(with_payloads(self._settings, workspace), workspace, in_order, damaged=False)
            elif data := to_import(self._settings):
                self._add(Kind.STORE_OF_CPP, self._settings.backend, str(data.path))
            elif layout.has_bodies():
                self._add(
                    Kind.STORE_MISSING, self._settings.backend, "there are bodies, and neither database nor journal"
                )
            return
        try:
            settings = copied(self._settings, workspace)
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            self._add(Kind.STORE_DAMAGED, self._settings.backend, str(error))
            self._check_dry_run(with_payloads(self._settings, workspace), workspace, in_order, damaged=False)
            return
        damage = self._damage_of_store(settings, workspace, in_order)
        if damage:
            self._add(Kind.STORE_DAMAGED, self._settings.backend, damage)
            self._check_dry_run(settings, workspace, in_order, damaged=True)

    def _damage_of_store(self, settings: Settings, workspace: Path, in_order: bool) -> str:
        """Check the store that ``settings`` name. Returns why it cannot be read; "" if it can."""
        try:
            if is_of_cpp(settings):
                self._add(Kind.STORE_OF_CPP, self._settings.backend, str(places_of(self._settings)[0].path))
                return ""
            for finding in rows_beside(settings, self._deep):
                self._take(finding)
            with open_readonly(self._config.quarantine_root, settings) as seen:
                self._store(seen, workspace, in_order)
        except StoreDamaged as error:
            return self._named(error, workspace)
        except StoreError as error:
            self._add(Kind.STORE_REFUSED, self._settings.backend, self._named(error, workspace))
        except OSError as error:
            if error.errno not in LOST_ERRNOS:
                raise
            return self._named(error, workspace)
        except MALFORMED as error:
            return f"not of the form that it should have: {error!r}"
        return ""

    def _check_dry_run(self, settings: Settings, workspace: Path, in_order: bool, damaged: bool) -> None:
        """Report what a store made from scratch will lack, which nobody knows while the journal needs repair."""
        if not in_order:
            self._not_compared()
            return
        try:
            with dry_run(self._config.quarantine_root, settings, workspace, damaged) as seen:
                self._store(seen, workspace, in_order)
        except StoreError as error:
            self._add(Kind.STORE_REFUSED, self._settings.backend, self._named(error, workspace))

    def _named(self, error: Exception, workspace: Path) -> str:
        """The text of an error, with paths of the root in place of those of copies in the workspace."""
        text, settings = str(error), self._settings
        for name in (COPY_NAME, FOLDED_NAME):
            text = text.replace(str(workspace / name), str(settings.sqlite_db_path))
        return text.replace(str(workspace / PAYLOADS_NAME), str(settings.hybrid_payload_root))

    def _store(self, seen: ReadonlyStore, workspace: Path, in_order: bool) -> None:
        store, journal = seen.store, self._report.journal
        self._report.applied = store.applied
        known = store.facts.get(FACT_EPOCH)
        shown = store.audit.newest_event()
        if shown and not journal["segments"]:
            text = f"the store has folded event {shown}, and {self._settings.journal_root} has no events"
            self._add(Kind.JOURNAL_MISSING, "journal", text)
        if known and known["epoch"] == journal["epoch"] and known["root"] != journal["root"] != "":
            text = f"the store is of root {known['root']}, the journal of root {journal['root']}"
            self._add(Kind.STORE_FOREIGN, self._settings.backend, text)
        elif not in_order:
            self._not_compared()
        elif rebuilt := self._fold(workspace, 2**63, store.applied):
            with closing(rebuilt):
                self._report_extent(rebuilt, store)
                if known:  # else it is empty, and the next start folds everything
                    self._compare_store(store, rebuilt)
                clean = rebuilt.clean and not rebuilt.behind
                for finding in file_findings(seen, rebuilt.last, clean):
                    self._take(finding)
                for finding in log_findings(self._settings, self._config.quarantine_root, store):
                    self._take(finding)

    def _report_extent(self, rebuilt: Rebuilt, store: Store) -> None:
        """Report how far store and journal have come, and what neither of them has."""
        applied, shown = store.applied, store.audit.newest_event()
        losses: list[list[int]] = store.facts.get(FACT_LOSSES) or []
        if applied < rebuilt.first - 1:
            losses = [*losses, [applied + 1, rebuilt.first - 1]]
        losses += [[first, last] for first, last in rebuilt.missing if first > applied]
        losses += store.audit.unfolded(max(applied, rebuilt.last))
        ends, marked = max(shown, rebuilt.last), self._end_mark(store, rebuilt)
        if marked > ends:
            losses.append([ends + 1, marked])
        self._lost(losses)
        self._damaged(store.facts.get(FACT_DAMAGE) or [])
        self._report_missing(rebuilt, [(first, last) for first, last in losses])
        if rebuilt.behind:
            text = f"{rebuilt.behind} events will be folded at the next start"
            self._add(Kind.STORE_BEHIND, f"{applied + 1}-{rebuilt.last}", text)
        if rebuilt.unfoldable and not store.body_files.separate:
            text = f"{rebuilt.unfoldable} is to be folded, and its body is in a file of backend hybrid: see migrate"
            self._add(Kind.STORE_REFUSED, self._settings.backend, text)
        if shown > rebuilt.last > 0:
            text = "the journal has lost them: the next start goes on behind them"
            self._add(Kind.STORE_AHEAD, f"{rebuilt.last + 1}-{shown}", text)

    def _end_mark(self, store: Store, rebuilt: Rebuilt) -> int:
        """The last event of this root by the mark of the journal's end; 0 if that does not say."""
        try:
            mark = read_end_mark(self._settings.journal_root)
        except DamagedRecord as error:
            if not rebuilt.clean:
                self._add(Kind.EVENTS_LOST, END_MARK_NAME, f"{error}: whether the journal is complete is unknown")
            return 0
        known = store.facts.get(FACT_EPOCH) or self._report.journal
        return mark.event if mark and mark.root == known["root"] and mark.epoch >= known["epoch"] else 0

    def _compare_store(self, store: Store, rebuilt: Rebuilt) -> None:
        compared = StoreComparison(store, rebuilt, self._clock())
        self._compare(compared.comparison, compared.state)
        for difference in compared.facts():
            self._take(difference.finding)

    # --- common to both ---------------------------------------------------------------------------------------

    def _fold(self, workspace: Path, up_to: int, at: int) -> Rebuilt | None:
        rebuilt = Rebuilt(workspace / "rebuilt.db", at)
        rebuilt.open()
        try:
            rebuilt.read(self._settings.journal_root, up_to)
        except MALFORMED as error:
            rebuilt.close()
            self._add(Kind.JOURNAL_FORMAT, "journal", f"an event is not of the form that it should have: {error!r}")
            return None
        return rebuilt

    def _compare(self, comparison: Comparison, state: State) -> None:
        for difference in comparison.run():
            self._take(difference.finding)
        self._report.messages, self._report.only_in_store = comparison.messages, comparison.only_in_store
        self._report.queues = len(state.queues)

    def _report_missing(self, rebuilt: Rebuilt, lost: list[tuple[int, int]]) -> None:
        """Report the events that the journal lacks, except for those reported as lost."""
        missing, self._missing = self._missing, []
        for span in missing:
            if not lies_in(span, lost):
                kind = Kind.EVENTS_NOTED if rebuilt.is_noted(span) else Kind.EVENTS_MISSING
                text = f"{span[1] - span[0] + 1} events are not in the journal"
                self._add(kind, f"{span[0]}-{span[1]}", text)

    def _not_compared(self) -> None:
        self._add(Kind.NOT_COMPARED, "journal", "the journal must be brought into order first")

    def _lost(self, ranges: list[list[int]]) -> None:
        for first, last in ranges:
            self._add(
                Kind.EVENTS_LOST, f"{first}-{last}", f"{last - first + 1} events are in neither journal nor store"
            )

    def _damaged(self, damage: list[dict[str, Any]]) -> None:
        for one in damage:
            self._add(Kind.EVENTS_LOST, self._settings.backend, damage_text(one))


def default_workspace() -> Path:
    """The default directory for temporary files: ``TMPDIR``, else ``/var/tmp``, which is on a disk."""
    large = Path("/var/tmp")
    return large if not os.environ.get("TMPDIR") and os.access(large, os.W_OK) else Path(tempfile.gettempdir())
