"""The header of a snapshot: which device and root it is of, which events it covers, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

from postroom_common.snapshot import FORMAT_MAJOR, FORMAT_MINOR

from .event_slice import EventSlice
from .folder import START, ExportPoint, ExportProgress
from .journal import JournalPosition
from .lines import Fields
from .request import ExportRequest, Since
from .state import DeviceState
from .traffic import TrafficPosition


class SnapshotOrigin(NamedTuple):
    """What a snapshot is of, and where its events begin. ``node`` is empty if the device is no cluster. ``last`` is how
    far the previous snapshot goes, None without one; ``trusted`` is how far that still holds. Without a readable
    journal there are no facts about events."""

    device: str
    node: str
    snapshot: str
    root: str
    epoch: int
    since: Since
    is_readable: bool
    last: ExportProgress | None = None
    trusted: ExportPoint = START
    behind: JournalPosition = JournalPosition(None, 0)

    @property
    def was_restored(self) -> bool:
        """Whether the journal differs from what the folder's snapshots have of it: it was put back, or lost events."""
        return self.last is not None and self.trusted[:2] != self.last.point[:2]

    @property
    def is_remembered(self) -> bool:
        """Whether the next snapshot is to continue behind this one."""
        return self.is_readable and self.since.is_last

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its folder."""
        return self.is_remembered and self.last is None

    def progress(self, events: EventSlice, traffic: TrafficPosition) -> ExportProgress:
        """How far the snapshots go with this one."""
        event = events.last
        point = ExportPoint(event["epoch"], event["id"], event["crc"], traffic) if event else self.trusted
        point = point._replace(traffic=traffic)
        return (
            self.last.followed(point, self.snapshot, self.trusted)
            if self.last
            else ExportProgress(point, self.snapshot)
        )


def header_of(source: SnapshotOrigin, state: DeviceState, events: EventSlice, request: ExportRequest) -> Fields:
    """The fields of the header."""
    last, health = source.last, state.health
    from_ms = source.trusted.traffic.wall_ms if last else source.since.wall_ms
    return {
        "major": FORMAT_MAJOR,
        "minor": FORMAT_MINOR,
        "root": source.root,
        "epoch": source.epoch,
        "daemonVersion": health.get("version"),
        "consoleVersion": version("postroom-console"),
        "backend": health.get("backend"),
        "durability": health.get("durability"),
        "node": source.node or None,
        "role": state.member.role.value if state.member else None,
        "status": health.get("status"),
        "draining": state.draining,
        "wallMs": state.wall_ms,
        "engineMs": state.engine_ms,
        "asOfEvent": state.as_of,
        "consistent": source.is_readable,
        "firstEvent": events.first["id"] if events.first else None,
        "lastEvent": events.last["id"] if events.last else None,
        "previousEvent": last.point.event if last else None,
        "since": source.since.text,
        **(_of_slice(source, state, events) if source.is_readable else {}),
        "holes": _holes(health, events) or None,
        "redaction": request.redaction.value,
        "hiddenAttributes": list(request.hidden) or None,
        "trafficFromMs": from_ms or None,
    }


def _of_slice(source: SnapshotOrigin, state: DeviceState, events: EventSlice) -> Fields:
    available, last = events.available_from, source.last.point.event if source.last else None
    is_continuous = last is not None and not source.was_restored and available <= last + 1 and last <= state.as_of
    if is_continuous and last and events.first and events.first["id"] <= last:  # ids were used again since a restore
        is_continuous = False
    return {"availableFrom": available, "continuous": is_continuous, "cut": events.is_cut}


def gaps_of(source: SnapshotOrigin, state: DeviceState, events: EventSlice) -> Iterator[str]:
    """What was asked for and is not in the snapshot, in sentences for people."""
    since, available = source.since, events.available_from
    wanted = since.event if since.event is not None else source.trusted.event + 1 if source.last else 0
    if since.event is not None and since.event > state.as_of:
        yield f"there is no event {since.event} yet: the last one is {state.as_of}"
    elif since.wall_ms is not None and since.wall_ms > state.wall_ms:
        yield f"{since.text} is in the future by the device's clock: no events"
    elif 0 < wanted < available and not source.was_restored:
        yield f"events {wanted} to {available - 1} are no longer in the journal"
    elif since.wall_ms is not None and available > 1 and events.first and events.first["id"] == available:
        yield f"the journal begins with event {available}: earlier events are no longer in it"
    if events.is_cut and events.last:
        later = "come with the next snapshot" if source.is_remembered else "are not in the file"
        yield f"--max-size ends the events at {events.last['id']}: those up to {state.as_of} {later}"


def _holes(health: Any, events: EventSlice) -> list[list[int]]:
    """The events that are missing or lost according to the daemon, and those that are missing in the slice."""
    check = (health.get("checks") or {}).get("journal") or {}
    reported = [pair for pair in check.get("missingEvents") or [] if len(pair) == 2]
    merged: list[list[int]] = []
    for first, last in sorted([*reported, *events.holes]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged
