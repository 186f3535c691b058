"""The journal brought into order: files under their right names, the end cut, and nothing in them but what counts.

A file with damage is written anew without the bytes that count for nothing, and goes to quarantine as a whole. Numbers
that are lost stay lost: no event is made up for them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ...config.config import Config
from ...journal.audit import JournalAudit, JournalFinding, JournalFindingKind
from ...journal.journal import Journal
from ...journal.order import MOVED_SUFFIX
from ...journal.segments import read_lines, segment_name
from ...platform.files import Files
from ...platform.quarantine import Quarantine
from .report import Say

#: Findings whose bytes count for nothing.
_CUT: Final = frozenset(
    {JournalFindingKind.DAMAGED, JournalFindingKind.INCOMPLETE_REQUEST, JournalFindingKind.DISORDER}
)
#: Cutting a line may leave the rest of its request without it, or a file with another first event.
_ROUNDS: Final = 4


def repair_journal(config: Config, files: Files, quarantine: Quarantine, say: Say) -> None:
    """Do it. The root must be locked. Doing it again after a stop at any moment ends the same. Raises ``OSError``."""
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
            quarantine.keep_file(one.segment, f"cannot be read: {one.text}")
        for path, spans in cuts.items():
            _write_anew(path, spans, settings.journal_root, files, quarantine)
            size = sum(span.length for span in spans)
            say(f"{path.name}: written anew without {size} bytes that count for nothing")
        if not cuts and not unreadable:
            return


def _write_anew(path: Path, spans: list[JournalFinding], root: Path, files: Files, quarantine: Quarantine) -> None:
    """Put a file in the place of a segment that lacks some spans of it.

    It is complete before the old one is moved away; after a stop in between, opening the journal gives it its name.
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
        quarantine.keep_file(path, "it had damage, and was written anew without it")
        if kept:
            files.rename(name + MOVED_SUFFIX, name, src_dir_fd=directory, dst_dir_fd=directory)
            files.fsync(directory)
    finally:
        files.close(directory)
