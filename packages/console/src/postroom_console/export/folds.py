"""Leases, dead letters, consumers, policies and readers of logs, brought to one event by the events behind the answers.

Each page of a list is as of an event of its own. A message without an event behind that of the first page is the same
in all pages, and is in one of them. For any other message the newest page counts, and the events after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from postroom_common.events import Event, EventType

from .lines import Fields, of_consumer, of_death, of_leased
from .spool import Spool

#: Events that end a lease.
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
#: Fields of a dead letter that never change.
OF_BODY: Final = ("payloadBytes", "payloadDigest", "payloadShape", "payload", "contentType", "attributes")

_Change = tuple[int, Fields | None, bool]
"""Id of an event; what it sets of the line, None where the line is over; whether that is the whole line."""


class EntryFold:
    """The entries of a list's pages, on the disk, and the events that change them."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._first = self._last = -1
        self._changes: dict[str, list[_Change]] = {}
        self._found: dict[
            str, tuple[int, Fields]
        ] = {}  # of changed messages: the newest entry, and the event it is as of

    @property
    def first(self) -> int:
        """The event of the first page: call ``take`` for the events behind it."""
        return self._first

    def begin_page(self, as_of: int) -> None:
        """Begin a page, which is as of an event."""
        if self._first < 0:
            self._first = as_of
        self._last = as_of

    def put(self, fields: Fields) -> None:
        """Add an entry of the page."""
        self._spool.put(orjson.dumps([self._last, fields["message"], fields]))

    def take(self, event: Event) -> None:
        """Apply an event. Call it in their order."""
        raise NotImplementedError

    def _change(self, event: Event, fields: Fields | None, is_whole: bool) -> None:
        if event["id"] <= self._first:
            return
        changes = self._changes.setdefault(event["key"], [])
        if fields is None and changes and changes[0][0] > self._last and changes[0][2] and changes[0][1] is not None:
            del self._changes[event["key"]]  # it began behind the last page and has ended: no page has it
        else:
            changes.append((event["id"], fields, is_whole))

    def entries(self) -> Iterator[Fields]:
        """All entries as of the last event."""
        for line in self._spool.lines():
            as_of, key, fields = orjson.loads(line)
            if key not in self._changes:
                yield fields
            elif key not in self._found or self._found[key][0] < as_of:
                self._found[key] = (as_of, fields)
        for key, changes in self._changes.items():
            as_of, entry = self._found.get(key, (-1, None))
            for event, fields, is_whole in changes:
                if event > as_of:
                    entry = self._changed(entry, fields, is_whole)
            if entry is not None:
                yield entry

    def existed_before(self, key: str, event: int) -> bool:
        """Whether an entry existed just before an event. Call it after ``entries``."""
        as_of, entry = self._found.get(key, (-1, None))
        for number, fields, is_whole in self._changes.get(key, ()):
            if as_of < number < event:
                entry = self._changed(entry, fields, is_whole)
        return entry is not None

    def _changed(self, entry: Fields | None, fields: Fields | None, is_whole: bool) -> Fields | None:
        if fields is None or is_whole or entry is None:
            return fields
        return {**entry, **fields}


class LeaseFold(EntryFold):
    """The leases. Of a lease that no page has, and that was only extended, nothing but its end is known."""

    def take(self, event: Event) -> None:
        kind = event["type"]
        if kind == EventType.LEASED:
            self._change(event, of_leased(event), True)
        elif kind == EventType.LEASE_EXTENDED:
            lease = {"queue": event["queue"], "message": event["key"], "lease": event["lease"]}
            self._change(event, {**lease, "untilEngineMs": event["untilEngineMs"]}, False)
        elif kind in _ENDS:
            self._change(event, None, True)


class DeadLetterFold(EntryFold):
    """The dead letters. The body of one that no page has is unknown."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool)
        self._alive: set[str] = set()  # messages that are leased, and are no dead letters

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
            if found and "payloadBytes" not in fields:  # it died again with the same body
                fields = {**fields, **{name: found[1][name] for name in OF_BODY if name in found[1]}}
            yield fields

    def is_late(self, letter: Fields) -> bool:
        """Whether an entry is that of a message that no page had."""
        return letter["message"] in self._changes and letter["message"] not in self._found


class ConsumerFold:
    """The consumers. The messages that each holds are counted from the leases."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[int, Fields]] = {}
        self._inflight: Counter[tuple[str, str]] = Counter()

    def put_page(self, answer: Mapping[str, Any]) -> None:
        """Add a page of ``list_consumers``."""
        for consumer in answer["consumers"]:
            self._rows[consumer["queue"], consumer["consumerId"]] = (answer["asOfEvent"], of_consumer(consumer))

    def take(self, event: Event) -> None:
        """Apply an event. Call it in their order."""
        if event["type"] != EventType.LEASED or event.get("ofDead"):
            return
        consumer = (event["queue"], event["consumer"])
        as_of, row = self._rows.get(consumer, (-1, None))
        if row is None:
            row = {"queue": consumer[0], "consumer": consumer[1], "inflight": 0, "delivered": 0}
            self._rows[consumer] = (as_of, row)
        if event["id"] > as_of:
            row["delivered"] = (row["delivered"] or 0) + 1
            row["deliveredEngineMs"] = event["engineMs"]
            row["askedEngineMs"] = max(row.get("askedEngineMs") or 0, event["engineMs"])

    def count(self, lease: Fields) -> None:
        """Count a lease for its consumer."""
        if not lease.get("ofDead") and lease.get("consumer"):
            self._inflight[lease["queue"], lease["consumer"]] += 1

    def rows(self, counted: bool) -> Iterator[Fields]:
        """The lines of all consumers, with the leases that were ``counted``, or else as the pages have them."""
        if not counted:
            yield from (row for _, (_, row) in sorted(self._rows.items()))
            return
        for consumer in sorted({*self._rows, *self._inflight}):
            row = self._rows.get(consumer, (0, {"queue": consumer[0], "consumer": consumer[1]}))[1]
            yield {**row, "inflight": self._inflight[consumer]}


class ReaderFold:
    """The positions of the named readers of each log."""

    def __init__(self) -> None:
        self._logs: dict[str, tuple[int, dict[str, int]]] = {}  # the event each is as of, and positions by reader

    def put(self, queue: str, answer: Mapping[str, Any]) -> None:
        """Add an answer of ``list_readers``."""
        self._logs[queue] = (answer["asOfEvent"], {one["reader"]: one["position"] for one in answer["readers"]})

    def take(self, event: Event) -> None:
        """Apply an event. Call it in their order."""
        kind = event["type"]
        if kind not in (EventType.READER_MOVED, EventType.READER_DELETED, EventType.QUEUE_DELETED):
            return
        as_of, readers = self._logs.get(event["queue"], (-1, {}))
        if event["id"] <= as_of:
            return
        if kind == EventType.QUEUE_DELETED:
            self._logs[event["queue"]] = (event["id"], {})
            return
        if kind == EventType.READER_MOVED:
            readers[event["reader"]] = event["position"]
        else:
            readers.pop(event["reader"], None)
        self._logs[event["queue"]] = (as_of, readers)

    def of(self, row: Fields) -> Fields:
        """The fields about readers for the line of a queue; none if it is not a log."""
        if row["records"] is None:
            return {}
        readers = self._logs.get(row["queue"], (0, {}))[1]
        return {"readers": readers, "lag": {name: max(0, row["lastPosition"] - at) for name, at in readers.items()}}


class PolicyFold:
    """The effective policy of each queue."""

    def __init__(self) -> None:
        self._policies: dict[str, tuple[int, Any]] = {}

    def put(self, answer: Mapping[str, Any]) -> None:
        """Add an answer of ``get_policy``."""
        self._policies[answer["queue"]] = (answer["asOfEvent"], answer["policy"])

    def take(self, event: Event) -> None:
        """Apply an event. Call it in their order."""
        kind = event["type"]
        if kind == EventType.POLICY_PATTERNS_SET:  # they may be other policies now
            self._policies |= {
                queue: (event["id"], None) for queue, (as_of, _) in self._policies.items() if as_of < event["id"]
            }
        if kind not in (EventType.POLICY_SET, EventType.QUEUE_DELETED, EventType.QUEUE_CREATED):
            return
        if event["id"] > self._policies.get(event["queue"], (-1, None))[0]:
            self._policies[event["queue"]] = (event["id"], event.get("policy"))

    def of(self, queue: str) -> Any:
        """A queue's policy; None for a queue that was created, or whose policy may have changed, while the snapshot was
        made."""
        return self._policies.get(queue, (0, None))[1]
