"""Takes the end off a journal, as a disk does that has not synced what it said."""

from __future__ import annotations

from pathlib import Path

from postroom_common.events import decode_event
from postroom_daemon.journal.recent import RECENT_NAME


def lose_end(journal: Path, groups: int, torn: int = 0) -> int:
    """Cut groups off the last segment of a journal that nobody has open, at most all but one, and so many bytes more;
    return the last event that is whole, or torn."""
    (journal / RECENT_NAME).unlink(missing_ok=True)
    path = max(journal.glob("*.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    events = [decode_event(line) for line in whole]
    ends = [at + 1 for at, event in enumerate(events) if event["id"] == event["grp"]]
    kept = ends[max(0, len(ends) - 1 - groups)]
    data = b"".join(whole[:kept])
    path.write_bytes(data[: len(data) - torn])
    return int(events[kept - 1]["id"])
