"""The counts of all queues, read in pages and brought to the event of the last page by the events since.

A single page needs no fold: most devices have no more queues than fit into one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from postroom_common.events import COUNTED_TYPES, Event, EventType
from postroom_common.log_blocks import record_bytes

from .lines import Fields, of_queue

_COUNTS: Final = ("ready", "inflight", "delayed", "held", "dead")
_TOTALS: Final = frozenset(COUNTED_TYPES)
#: Events about a message that change no count.
_UNCOUNTED: Final = frozenset(
    {
        EventType.LEASE_EXTENDED,
        EventType.ACTIVATED,
        EventType.QUARANTINED,
        EventType.RETARGETED,
        EventType.RESCHEDULED,
        EventType.READER_MOVED,
        EventType.READER_DELETED,
    }
)
#: Fields of the line of a log.
_OF_LOG: Final = ("records", "recordBytes", "firstPosition", "lastPosition")


#: Totals of certain deaths and drops, by their reason code.
_ALSO_COUNTED: Final = {"MESSAGE_EXPIRED": "expired", "ABANDONED": "abandoned"}
#: What the line of a queue does not have once an event has changed it.
_UNKNOWN: Final = (
    "oldestReadyAgeMs",
    "oldestLeaseAgeMs",
    "oldestDeadAgeMs",
    "queueBytes",
    "reasons",
    "gathering",
    "drafting",
    "ordered",
    "tally",
)


class QueueFold:
    """The queues by name. ``was_dead`` returns whether a message was a dead letter just before an event."""

    def __init__(self, was_dead: Callable[[str, int], bool]) -> None:
        self._rows: dict[str, Fields] = {}
        self._was_dead = was_dead
        self._ends: list[str] = []  # the last name of each page but the last one
        self._as_of: list[int] = []
        self._engine_ms: list[int] = []
        self._known: dict[str, tuple[str, int]] = {}  # state of a message, and the engine time at which it is due

    def put_page(self, answer: Mapping[str, Any]) -> None:
        """Add a page. Call it in their order."""
        self._as_of.append(answer["asOfEvent"])
        self._engine_ms.append(answer["engineNowMs"])
        for entry in answer["queues"]:
            self._rows[entry["queue"]] = of_queue(entry)
        if answer.get("next"):
            self._ends.append(answer["next"])

    @property
    def is_one_page(self) -> bool:
        """Whether there is nothing to fold."""
        return len(self._as_of) == 1

    def _page_of(self, queue: str) -> int:
        return min(bisect_left(self._ends, queue), len(self._as_of) - 1)

    def take(self, event: Event) -> None:
        """Apply an event. Call it in their order, from before the pages: they show states of messages."""
        kind, queue = event["type"], event.get("queue")
        if type(queue) is not str:
            return
        if "key" in event and kind in _TOTALS:
            self._take_message(event, kind, queue)
        elif kind == EventType.PART_SET and "state" in event:  # a draft becomes ready
            self._count_message(event, kind, queue)
            self._row(event, queue)
        elif kind == EventType.QUEUE_DELETED:
            if self._counts(event, queue):
                self._rows.pop(queue, None)
        elif kind in (EventType.PAUSED, EventType.RESUMED):
            row = self._row(event, queue)
            if row:
                row["publishPaused" if event["operation"] == "publish" else "consumePaused"] = kind == EventType.PAUSED
        elif kind in (EventType.APPENDED, EventType.TRIMMED):
            self._take_log(event, kind, queue)
        elif kind not in _UNCOUNTED:
            row = self._row(event, queue)
            if row and kind == EventType.QUEUE_CREATED and event.get("kind") == "log":
                row |= dict.fromkeys(_OF_LOG, 0)

    def _take_log(self, event: Event, kind: str, queue: str) -> None:
        row = self._row(event, queue)
        if not row or row["records"] is None:
            return
        if kind == EventType.TRIMMED:
            row["records"] -= event["records"]
            row["recordBytes"] -= event["bytes"]
            row["firstPosition"] = event["before"]
            return
        row["records"] += 1
        row["recordBytes"] += record_bytes(event["record"])
        position = event.get("position") or event["id"]  # of its own, if it was imported
        row["firstPosition"] = row["firstPosition"] or position
        row["lastPosition"] = position
        row["totals"][kind] = row["totals"].get(kind, 0) + 1

    def _take_message(self, event: Event, kind: str, queue: str) -> None:
        if kind != EventType.PART_APPENDED:
            self._count_message(event, kind, queue)
        row = self._row(event, queue)
        if row and not event.get("ofDead"):
            totals = row["totals"]
            totals[kind] = totals.get(kind, 0) + 1
            also = _ALSO_COUNTED.get((event.get("failure") or {}).get("reasonCode", ""))
            if also:
                totals[also] = totals.get(also, 0) + 1

    def _count_message(self, event: Event, kind: str, queue: str) -> None:
        key = event["key"]
        before = self._before(event, kind)
        after, due = _after(event, kind, before)
        target = event.get("to", queue)
        if before:
            self._count(event, queue, before, -1)
        if after:
            self._count(event, target, after, 1)
            self._known[key] = (after, due)
        else:
            self._known.pop(key, None)

    def _before(self, event: Event, kind: str) -> str | None:
        if kind == EventType.PUBLISHED:
            return None
        known = self._known.get(event["key"])
        if known:
            return "ready" if known[0] == "delayed" and known[1] <= event["engineMs"] else known[0]
        if kind == EventType.LEASED and event.get("ofDead"):
            return "dead"
        if kind in (EventType.LEASED, EventType.HELD, EventType.MOVED):
            return "ready"
        if kind in (EventType.UNHELD, EventType.PART_SET):  # a draft counts as one that is on hold
            return "held"
        if kind in (EventType.DIED, EventType.DROPPED) and "state" in event:
            return str(event["state"])
        if kind == EventType.REPROCESSED or event.get("state") == "dead":
            return "dead"
        if kind in (EventType.ACKED, EventType.DROPPED) and self._was_dead(event["key"], event["id"]):
            return "dead"
        return "inflight" if event.get("lease") else "ready"

    def _counts(self, event: Event, queue: str) -> bool:
        return bool(event["id"] > self._as_of[self._page_of(queue)])

    def _row(self, event: Event, queue: str) -> Fields | None:
        """The row of a queue that an event changes; None if the queue's page reflects the event already."""
        if not self._counts(event, queue):
            return None
        row = self._rows.get(queue)
        if row is None:
            nothing = dict.fromkeys(("ready", "inflight", "delayed", "dlq"), 0)
            row = self._rows[queue] = of_queue({"queue": queue, **nothing})
        for name in _UNKNOWN:
            row[name] = None
        return row

    def _count(self, event: Event, queue: str, state: str, by: int) -> None:
        row = self._row(event, queue)
        if row:
            row[state] = (row[state] or 0) + by

    def rows(self) -> Iterator[Fields]:
        """The lines of all queues. One that an event changed behind its page has no ages, bytes and reasons."""
        now = self._engine_ms[-1]
        for name in sorted(self._rows):
            row = self._rows[name]
            later_ms = now - self._engine_ms[self._page_of(name)]
            for age in ("oldestReadyAgeMs", "oldestLeaseAgeMs", "oldestDeadAgeMs"):
                if row[age] is not None:
                    row[age] += later_ms
            for other in ("delayed", "held"):  # a message that has gone was counted as ready, but was in another state
                if row["ready"] < 0:
                    moved = min(-row["ready"], row[other])
                    row[other] -= moved
                    row["ready"] += moved
            yield row


def _after(event: Event, kind: str, before: str | None) -> tuple[str | None, int]:
    """The state of a message after an event, and the engine time at which it is due."""
    due = event.get("dueEngineMs", 0)
    if kind == EventType.ACKED and "keep" in event:
        return "done", 0
    if kind in (EventType.ACKED, EventType.DROPPED):
        return None, 0
    if kind == EventType.PUBLISHED and "drafting" in event:
        return "held", 0
    if kind == EventType.PUBLISHED:
        return ("delayed" if due > event["engineMs"] else "ready"), due
    if kind == EventType.LEASED:
        return ("dead" if event.get("ofDead") else "inflight"), 0
    if kind == EventType.RELEASED:
        return ("dead" if event.get("state") == "dead" else "ready"), 0
    if kind == EventType.RETRIED:
        return "delayed", due
    if kind == EventType.UNHELD:
        return ("delayed" if "dueEngineMs" in event else "ready"), due
    if kind == EventType.MOVED:
        return before, due
    return _STATES[kind], 0


#: The state of a message after other events.
_STATES: Final[dict[str, str]] = {
    EventType.DIED: "dead",
    EventType.REPROCESSED: "ready",
    EventType.HELD: "held",
    EventType.PART_SET: "ready",
}
