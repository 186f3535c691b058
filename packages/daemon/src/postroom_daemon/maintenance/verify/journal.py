"""Check the journal as a part of a root, and repair it.

A damaged segment is rewritten without the bytes that have no effect, and goes to quarantine as a whole. Lost ids stay
lost: no event is invented for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...config.config import Config
from ...journal.audit import JournalAudit, JournalFinding, JournalFindingKind
from ...journal.journal import Journal
from ...journal.order import MOVED_SUFFIX
from ...journal.segments import read_lines, segment_name
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from .findings import Finding, Kind, Say

_KINDS: Final = {
    JournalFindingKind.UNREADABLE: Kind.JOURNAL_UNREADABLE,
    JournalFindingKind.NOT_A_FILE: Kind.JOURNAL_NOT_A_FILE,
    JournalFindingKind.DAMAGED: Kind.JOURNAL_DAMAGED,
    JournalFindingKind.INCOMPLETE_REQUEST: Kind.JOURNAL_INCOMPLETE,
    JournalFindingKind.GAP: Kind.EVENTS_NOTED,
    JournalFindingKind.DISORDER: Kind.JOURNAL_DISORDER,
    JournalFindingKind.MISNAMED: Kind.JOURNAL_MISNAMED,
    JournalFindingKind.FOREIGN: Kind.JOURNAL_FOREIGN,
    JournalFindingKind.EPOCH: Kind.JOURNAL_EPOCH,
    JournalFindingKind.FORMAT: Kind.JOURNAL_FORMAT,
    JournalFindingKind.UNKNOWN_TYPE: Kind.JOURNAL_FORMAT,
    JournalFindingKind.UNFINISHED: Kind.JOURNAL_UNFINISHED,
}  # a torn group is normal after a crash; missing events are reported by the caller, who knows which were accepted
#: While one of these exists, the journal's own events cannot be told from foreign ones.
_CONFUSING: Final = frozenset(
    {
        Kind.JOURNAL_NOT_A_FILE,
        Kind.JOURNAL_DISORDER,
        Kind.JOURNAL_MISNAMED,
        Kind.JOURNAL_FOREIGN,
        Kind.JOURNAL_EPOCH,
        Kind.JOURNAL_FORMAT,
        Kind.JOURNAL_UNREADABLE,
    }
)


class JournalCheck:
    """One pass over a journal. Afterwards ``in_order`` tells whether the store can be compared with it, and ``missing``
    the ranges of events that it lacks and no gap event declares."""

    def __init__(self, root: Path, running: bool) -> None:
        self.in_order = True
        self.missing: list[tuple[int, int]] = []
        self._running = running
        self._root = root
        self._audit = JournalAudit(root)

    def findings(self) -> Iterator[Finding]:
        """All findings. Raises ``OSError``."""
        for found in self._audit.findings():
            if found.kind is JournalFindingKind.MISSING:
                self.missing.append((found.first_id, found.last_id))
            kind = _KINDS.get(found.kind)
            if kind is None or (kind is Kind.JOURNAL_UNFINISHED and self._running):
                continue
            self.in_order &= kind not in _CONFUSING
            yield Finding(kind, _where(kind, found), found.text)

    def figures(self) -> dict[str, Any]:
        """Its size, ids, epoch and root, for the report."""
        summary = self._audit.summary
        return {
            "segments": summary.segments,
            "bytes": summary.bytes,
            "events": summary.events,
            "firstEvent": summary.first_id,
            "lastEvent": summary.last_id,
            "epoch": summary.epoch,
            "root": summary.root,
        }


def _where(kind: Kind, found: JournalFinding) -> str:
    if kind is Kind.EVENTS_NOTED:
        return f"{found.first_id}-{found.last_id}"
    place = f"{found.segment.name}"
    if found.length:
        place += f":{found.offset}+{found.length}"
    return place


#: Findings whose bytes have no effect.
_CUT: Final = frozenset(
    {JournalFindingKind.DAMAGED, JournalFindingKind.INCOMPLETE_REQUEST, JournalFindingKind.DISORDER}
)
#: Cutting a line may make its request incomplete, or a file's first event another one.
_ROUNDS: Final = 4


def repair_journal(config: Config, files: Files, quarantine: Quarantine, say: Say) -> None:
    """Repair the journal of a locked root. May be repeated after an interruption. Raises ``OSError``."""
    settings = config.settings
    for _ in range(_ROUNDS):
        journal = Journal(settings.journal_root, files, quarantine, settings.journal_segment_bytes)
        try:
            journal.open()
        finally:
            journal.close()
        found = list(JournalAudit(settings.journal_root).findings())
        cuts: dict[Path, list[JournalFinding]] = {}
        for one in found:
            if one.kind in _CUT and one.length:
                cuts.setdefault(one.segment, []).append(one)
        unreadable = [
            one for one in found if one.kind is JournalFindingKind.UNREADABLE and os.access(one.segment, os.R_OK)
        ]
        for one in unreadable:
            quarantine.move_in(one.segment, f"cannot be read: {one.text}")
        for path, spans in cuts.items():
            _rewrite(path, spans, settings.journal_root, files, quarantine)
            size = sum(span.length for span in spans)
            say(f"{path.name}: rewritten without {size} bytes that have no effect")
        if not cuts and not unreadable:
            return


def _rewrite(path: Path, spans: list[JournalFinding], root: Path, files: Files, quarantine: Quarantine) -> None:
    """Replace a segment by a file without some spans of it.

    The file is complete before the old one is moved away; after an interruption, opening the journal renames it.
    """
    ends = {span.offset: span.offset + span.length for span in spans}
    kept: list[bytes] = []
    first = skip = 0
    for line in read_lines(path):
        skip = max(skip, ends.get(line.offset, 0))
        if line.offset < skip:
            continue
        if line.event and not first:
            first = line.event["id"]
        kept.append(line.data)
    directory = files.open_directory(root)
    try:
        name = segment_name(first)
        if kept:
            files.put(directory, name + MOVED_SUFFIX, b"".join(kept), path.stat().st_mode & 0o777, durable=True)
        quarantine.move_in(path, "it was damaged, and rewritten without the damage")
        if kept:
            files.rename(name + MOVED_SUFFIX, name, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
    finally:
        files.close(directory)
