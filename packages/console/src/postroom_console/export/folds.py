"""Pages of leases and of dead letters, read one after the other, brought to one event by what the journal says since.

Each page is as of an event of its own. A message that no event names behind the first page's event is the same in all
of them, and stands in one; of the others the newest page counts, and the events behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson

from postroom_common.events import Event, EventType

from .lines import Fields, of_death, of_leased
from .spool import Spool

#: What ends a lease.
_ENDS: Final = frozenset(
    {
        EventType.ACKED,
        EventType.RELEASED,
        EventType.RETRIED,
        EventType.DIED,
        EventType.DROPPED,
        EventType.REPROCESSED,
    }
)
#: Fields of a letter that never change while it is there.
OF_BODY: Final = ("payloadBytes", "payloadDigest", "payloadShape", "payload", "contentType", "attributes")

_Change = tuple[int, Fields | None, bool]
"""Id of an event; what it sets of the line, None where the line is over; whether that is the whole line."""


class Pages:
    """The entries of a list's pages, on the disk, and the events about them."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._first = self._last = -1
        self._changes: dict[str, list[_Change]] = {}
        self._found: dict[str, tuple[int, Fields]] = {}  # of what has changed: the newest entry, and as of which event

    @property
    def first(self) -> int:
        """The event of the first page: events behind it are to be taken."""
        return self._first

    def begin_page(self, as_of: int) -> None:
        """A page follows, as of an event."""
        if self._first < 0:
            self._first = as_of
        self._last = as_of

    def put(self, fields: Fields) -> None:
        """An entry of the page."""
        self._spool.put(orjson.dumps([self._last, fields["message"], fields]))

    def take(self, event: Event) -> None:
        """An event, in order."""
        raise NotImplementedError

    def _change(self, event: Event, fields: Fields | None, is_whole: bool) -> None:
        if event["id"] <= self._first:
            return
        changes = self._changes.setdefault(event["key"], [])
        if fields is None and changes and changes[0][0] > self._last and changes[0][2] and changes[0][1] is not None:
            del self._changes[event["key"]]  # it began behind the last page, and is over: no page has it
        else:
            changes.append((event["id"], fields, is_whole))

    def entries(self) -> Iterator[Fields]:
        """All entries as of the last event that was taken."""
        for line in self._spool.lines():
            as_of, key, fields = orjson.loads(line)
            if key not in self._changes:
                yield fields
            elif key not in self._found or self._found[key][0] < as_of:
                self._found[key] = (as_of, fields)
        for key, changes in self._changes.items():
            as_of, told = self._found.get(key, (-1, None))
            for event, fields, is_whole in changes:
                if event > as_of:
                    told = self._changed(told, fields, is_whole)
            if told is not None:
                yield told

    def was_there(self, key: str, event: int) -> bool:
        """Whether an entry was there just before an event. To be asked behind ``entries``."""
        as_of, told = self._found.get(key, (-1, None))
        for number, fields, is_whole in self._changes.get(key, ()):
            if as_of < number < event:
                told = self._changed(told, fields, is_whole)
        return told is not None

    def _changed(self, told: Fields | None, fields: Fields | None, is_whole: bool) -> Fields | None:
        if fields is None or is_whole or told is None:
            return fields
        return {**told, **fields}


class Leases(Pages):
    """The leases. Of one that no page has, and that was only extended, its end alone is known."""

    def take(self, event: Event) -> None:
        kind = event["type"]
        if kind == EventType.LEASED:
            self._change(event, of_leased(event), True)
        elif kind == EventType.LEASE_EXTENDED:
            told = {"queue": event["queue"], "message": event["key"], "lease": event["lease"]}
            self._change(event, {**told, "untilEngineMs": event["untilEngineMs"]}, False)
        elif kind in _ENDS:
            self._change(event, None, True)


class Letters(Pages):
    """The dead letters. Of one that no page has the body is not known."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool)
        self._alive: set[str] = set()  # messages that are leased, and no dead letters

    def take(self, event: Event) -> None:
        kind = event["type"]
        if kind == EventType.LEASED:
            if event.get("ofDead"):
                self._mark(event, {"leased": True})
            else:
                self._alive.add(event["key"])
        elif kind == EventType.DIED:
            self._alive.discard(event["key"])
            self._change(event, of_death(event), True)
        elif kind == EventType.RELEASED and event.get("state") == "dead":
            self._mark(event, {"leased": None})
        elif kind in (EventType.RELEASED, EventType.RETRIED):
            self._alive.discard(event["key"])
        elif kind == EventType.QUARANTINED:
            self._mark(event, {"quarantined": True if event["phase"] else None})
        elif kind == EventType.REPROCESSED:
            self._change(event, None, True)
        elif kind in (EventType.ACKED, EventType.DROPPED):
            if event["key"] in self._alive:
                self._alive.discard(event["key"])
            else:
                self._change(event, None, True)

    def _mark(self, event: Event, fields: Fields) -> None:
        self._change(event, {"queue": event["queue"], "message": event["key"], **fields}, False)

    def entries(self) -> Iterator[Fields]:
        for fields in super().entries():
            found = self._found.get(fields["message"])
            if found and "payloadBytes" not in fields:  # it has died again, and its body is as it was
                fields = {**fields, **{name: found[1][name] for name in OF_BODY if name in found[1]}}
            yield fields

    def is_late(self, letter: Fields) -> bool:
        """Whether an entry is that of a message that no page had."""
        return letter["message"] in self._changes and letter["message"] not in self._found
