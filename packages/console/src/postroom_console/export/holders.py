"""Consumers and policies, brought to one event by what the journal says behind the answers that told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from postroom_common.events import Event, EventType

from .lines import Fields, of_consumer


class Consumers:
    """Who consumes. What each holds is counted on the leases, as they are told."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[int, Fields]] = {}
        self._held: Counter[tuple[str, str]] = Counter()

    def put_page(self, answer: Mapping[str, Any]) -> None:
        """A page of ``list_consumers``."""
        for told in answer["consumers"]:
            self._rows[told["queue"], told["consumerId"]] = (answer["asOfEvent"], of_consumer(told))

    def take(self, event: Event) -> None:
        """An event, in order."""
        if event["type"] != EventType.LEASED or event.get("ofDead"):
            return
        who = (event["queue"], event["consumer"])
        as_of, row = self._rows.get(who, (-1, None))
        if row is None:
            row = {"queue": who[0], "consumer": who[1], "inflight": 0, "delivered": 0}
            self._rows[who] = (as_of, row)
        if event["id"] > as_of:
            row["delivered"] = (row["delivered"] or 0) + 1
            row["deliveredEngineMs"] = event["engineMs"]
            row["askedEngineMs"] = max(row.get("askedEngineMs") or 0, event["engineMs"])

    def count(self, lease: Fields) -> None:
        """A lease that is told."""
        if not lease.get("ofDead") and lease.get("consumer"):
            self._held[lease["queue"], lease["consumer"]] += 1

    def settled(self, counted: bool) -> Iterator[Fields]:
        """The lines of all; with what they hold as it was ``counted``, or as the pages had it."""
        if not counted:
            yield from (row for _, (_, row) in sorted(self._rows.items()))
            return
        for who in sorted({*self._rows, *self._held}):
            row = self._rows.get(who, (0, {"queue": who[0], "consumer": who[1]}))[1]
            yield {**row, "inflight": self._held[who]}


class Policies:
    """The policy in force, by queue."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, Any]] = {}

    def put(self, answer: Mapping[str, Any]) -> None:
        """An answer of ``get_policy``."""
        self._told[answer["queue"]] = (answer["asOfEvent"], answer["policy"])

    def take(self, event: Event) -> None:
        """An event, in order."""
        kind = event["type"]
        if kind not in (EventType.POLICY_SET, EventType.QUEUE_DELETED, EventType.QUEUE_CREATED):
            return
        if event["id"] > self._told.get(event["queue"], (-1, None))[0]:
            self._told[event["queue"]] = (event["id"], event.get("policy"))

    def of(self, queue: str) -> Any:
        """A queue's policy; None where it came to be while the snapshot was made."""
        return self._told.get(queue, (0, None))[1]
