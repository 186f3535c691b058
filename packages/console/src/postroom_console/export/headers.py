"""The header of a snapshot: whose it is, what its slice covers, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

from postroom_common.snapshot import FORMAT_MAJOR, FORMAT_MINOR

from .journal import Place
from .lines import Fields
from .memory import START, Last, Point
from .reading import State
from .request import Request, Since
from .slices import EventSlice
from .traffic import Mark


class Source(NamedTuple):
    """Whose snapshot it is, and where its slice begins: ``last`` is up to where the one before went, None without one,
    and ``trusted`` up to where that still holds. Where the journal is not ``is_readable``, nothing is known of
    events."""

    device: str
    snapshot: str
    root: str
    epoch: int
    since: Since
    is_readable: bool
    last: Last | None = None
    trusted: Point = START
    behind: Place = Place(None, 0)

    @property
    def is_put_back(self) -> bool:
        """Whether the journal is not the one that earlier snapshots of the folder have told of, or not all of it."""
        return self.last is not None and self.trusted[:2] != self.last.point[:2]

    @property
    def is_kept(self) -> bool:
        """Whether the next snapshot is to go on behind this one."""
        return self.is_readable and self.since.is_last

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its folder."""
        return self.is_kept and self.last is None

    def reached(self, piece: EventSlice, traffic: Mark) -> Last:
        """Up to where it goes."""
        event = piece.last
        point = Point(event["epoch"], event["id"], event["crc"], traffic) if event else self.trusted
        point = point._replace(traffic=traffic)
        return self.last.followed(point, self.snapshot, self.trusted) if self.last else Last(point, self.snapshot)


def header_of(source: Source, state: State, piece: EventSlice, request: Request) -> Fields:
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
        "status": health.get("status"),
        "draining": state.draining,
        "wallMs": state.wall_ms,
        "engineMs": state.engine_ms,
        "asOfEvent": state.as_of,
        "consistent": source.is_readable,
        "firstEvent": piece.first["id"] if piece.first else None,
        "lastEvent": piece.last["id"] if piece.last else None,
        "previousEvent": last.point.event if last else None,
        "since": source.since.text,
        **(_of_slice(source, state, piece) if source.is_readable else {}),
        "holes": _holes(health, piece) or None,
        "redaction": request.redaction.value,
        "hiddenAttributes": list(request.hidden) or None,
        "trafficFromMs": from_ms or None,
    }


def _of_slice(source: Source, state: State, piece: EventSlice) -> Fields:
    available, last = piece.available_from, source.last.point.event if source.last else None
    is_continuous = last is not None and not source.is_put_back and available <= last + 1 and last <= state.as_of
    if is_continuous and last and piece.first and piece.first["id"] <= last:  # numbered anew since a restore
        is_continuous = False
    return {"availableFrom": available, "continuous": is_continuous, "cut": piece.is_cut}


def gaps_of(source: Source, state: State, piece: EventSlice) -> Iterator[str]:
    """What was asked for and is not in the slice, in sentences for people."""
    since, available = source.since, piece.available_from
    wanted = since.event if since.event is not None else source.trusted.event + 1 if source.last else 0
    if since.event is not None and since.event > state.as_of:
        yield f"there is no event {since.event} yet: the last one is {state.as_of}"
    elif since.wall_ms is not None and since.wall_ms > state.wall_ms:
        yield f"{since.text} is still to come, by the device's clock: no events"
    elif 0 < wanted < available and not source.is_put_back:
        yield f"events {wanted} to {available - 1} are not in the journal any more"
    elif since.wall_ms is not None and available > 1 and piece.first and piece.first["id"] == available:
        yield f"the journal begins with event {available}: what happened before is not in it any more"
    if piece.is_cut and piece.last:
        later = "come with the next snapshot" if source.is_kept else "are not in the file"
        yield f"by --max-size the events end with {piece.last['id']}: those up to {state.as_of} {later}"


def _holes(health: Any, piece: EventSlice) -> list[list[int]]:
    """What the daemon knows to be missing or lost, and what the slice found to be."""
    check = (health.get("checks") or {}).get("journal") or {}
    told = [pair for pair in check.get("missingEvents") or [] if len(pair) == 2]
    merged: list[list[int]] = []
    for first, last in sorted([*told, *piece.holes]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged
