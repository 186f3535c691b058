"""The event up to which a root is restored: the backup's, or a later one of the journal that continues it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from postroom_common.errors import PostroomError
from postroom_common.events import Event

from ...journal.ranges import event_at, segments_until
from ...journal.segments import list_segments, read_lines, read_requests
from ...journal.tail import examine_tail
from ..backup import Manifest


class RestoreError(PostroomError):
    """A restore is refused; the text says why and what to do."""


class RestorePoint(NamedTuple):
    """Up to where to restore: an event, a time (Unix ms), the journal's end; or, without any, the backup's event."""

    event: int | None = None
    wall_ms: int | None = None
    end: bool = False

    @property
    def is_backup(self) -> bool:
        """Whether it is the backup's event."""
        return self == RestorePoint()

    def ends_before(self, event: Event) -> bool:
        """Whether a request that ends with this event is too late."""
        if self.event is not None:
            return bool(event["id"] > self.event)
        return self.wall_ms is not None and bool(event["wallMs"] > self.wall_ms)


class Target(NamedTuple):
    """The last restored event, and its times."""

    event: int
    engine_ms: int
    wall_ms: int


def find_target(manifest: Manifest, journal: Path, point: RestorePoint) -> Target:
    """The event that a restore point means: the last one of the last request that had ended by then.

    Raises ``RestoreError`` for a point before the backup's event or behind the journal's end, for a journal that does
    not continue the backup, and for a gap in it; ``OSError``.
    """
    target = Target(manifest.event, manifest.engine_ms, manifest.event_wall_ms)
    if point.is_backup:
        return target
    _check_not_before(manifest, point)
    end = end_of(journal)
    if end is None:
        raise RestoreError(f"{journal} has no events: name the journal of the backup's root by --journal")
    if end["id"] < manifest.event:
        raise RestoreError(f"{journal} ends before the backup's event {manifest.event}: name its journal by --journal")
    if point.event == manifest.event:
        return target
    _check_goes_on(manifest, journal)
    _check_not_behind(end, journal, point)
    for request in read_requests(journal, manifest.event + 1, lambda damage: None):
        if request.events[0]["id"] != target.event + 1:
            break
        last = request.events[-1]
        if point.ends_before(last):
            return target
        target = Target(last["id"], last["engineMs"], last["wallMs"])
        if target.event in (end["id"], point.event):
            return target
    raise RestoreError(
        f"{journal}: event {target.event + 1} is missing: from this backup, the latest that can be restored is event"
        f" {target.event} of {moment(target.wall_ms)}"
    )


def end_of(journal: Path) -> Event | None:
    """The last event of a journal that a start would keep; None if it has none. Raises ``OSError``."""
    segments = list_segments(journal) if journal.is_dir() else []
    for _, path in reversed(segments):
        last_id = examine_tail(path).last_id
        if last_id:
            return event_at(journal, last_id)
    return None


def _check_not_before(manifest: Manifest, point: RestorePoint) -> None:
    earlier = point.event is not None and point.event < manifest.event
    if earlier or (point.wall_ms is not None and point.wall_ms < manifest.event_wall_ms):
        raise RestoreError(
            f"the backup is of event {manifest.event} of {moment(manifest.event_wall_ms)}: that is the earliest that"
            " can be restored from it; use an older backup, and name the journal that continues it by --journal"
        )


def _check_not_behind(end: Event, journal: Path, point: RestorePoint) -> None:
    later = point.event is not None and point.event > end["id"]
    if later or (point.wall_ms is not None and point.wall_ms > end["wallMs"]):
        raise RestoreError(
            f"{journal} ends with event {end['id']} of {moment(end['wallMs'])}: that is the latest that can be restored"
            " (--to-event last)"
        )


def _check_goes_on(manifest: Manifest, journal: Path) -> None:
    """Check that it is the journal of the backup's root, and continues behind the backup's event."""
    known = event_at(journal, manifest.event)
    if known and manifest.event_crc:
        fits = known["crc"] == manifest.event_crc
    else:
        following = known or event_at(journal, manifest.event + 1)
        if following is None:
            raise RestoreError(
                f"{journal}: event {manifest.event + 1} is missing, the next one behind the backup's: use a later"
                " backup, or name a journal that has it"
            )
        fits = following["epoch"] == manifest.epoch and _root_at(journal, following["id"]) == manifest.root
    if not fits:
        raise RestoreError(
            f"{journal} does not continue this backup: its event {manifest.event} is a different one. Name the journal"
            f" of root {manifest.root} by --journal"
        )


def _root_at(journal: Path, event_id: int) -> str:
    """The root named at the beginning of an event's segment."""
    segment = segments_until(journal, event_id)[-1]
    heads: Any = (line.event["root"] for line in read_lines(segment) if line.event and "root" in line.event)
    return str(next(heads, ""))


def moment(wall_ms: int) -> str:
    """Unix milliseconds as ISO 8601, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
