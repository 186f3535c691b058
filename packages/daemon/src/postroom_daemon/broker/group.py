"""The events of one group, on their way into the journal and the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom_common.events import Event, EventType, encode_event, raw_json

from ..engine.context import Draft
from ..engine.fold import apply_new
from ..model.observer import UNOBSERVED, Observers
from ..platform.clock import Now
from ..stores.base import Store


class Group:
    """The open group. Its caller begins and ends the store's transaction.

    ``lead`` is what every segment begins with: it goes before the first event. ``unfolded`` are events that the store
    does not show before ``fold``: it folds those of many requests together.
    """

    def __init__(
        self,
        store: Store,
        now: Now,
        epoch: int,
        last_id: int,
        lead: Draft | None = None,
        observers: Observers = UNOBSERVED,
    ) -> None:
        self.events: list[Event] = []
        self.unfolded: list[Event] = []
        self.by_request: dict[bytes, list[Event]] = {}
        self.last_id = last_id
        self._store = store
        self._observers = observers
        #: What all events of the group begin with, in the order in which the journal has it.
        self._common: Event = {"id": 0, "epoch": epoch, "req": 0, "grp": 0, "engineMs": now.engine, "wallMs": now.wall}
        self._lead = lead

    def record(
        self,
        drafts: list[Draft],
        by: dict[str, Any] | None = None,
        key: bytes | None = None,
        reply: Draft | None = None,
        more: Callable[[], list[Draft]] | None = None,
        later: bool = False,
    ) -> list[Event]:
        """Give a request's drafts their ids and fold them, then those that ``more`` returns. Returns its events.

        ``by`` is who made the request, ``key`` its idempotency key, and ``reply`` what the last event says of the
        answer (``replies``). With ``later`` they stay ``unfolded``. Raises what ``fold.apply`` raises: the whole group
        must then be rolled back.
        """
        if self._lead:
            lead, self._lead = self._lead, None
            self.record([lead])
        events: list[Event] = []
        common, has_files = self._common, self._store.body_files.separate
        while drafts:
            last_id = self.last_id
            common["req"] = self.last_id = last_id + len(drafts)
            new = [common | draft for draft in drafts]
            for event in new:
                event["id"] = last_id = last_id + 1
                if has_files and event["type"] == EventType.PUBLISHED:
                    self._extract_body(event)
            self.unfolded += new
            events += new
            if not later:
                self.fold()
            drafts = more() if more else []
        self.events += events
        last_id = self.last_id
        if events[0]["req"] != last_id:
            for event in events:
                event["req"] = last_id
        last = events[-1]
        if reply:
            last["reply"] = reply
        if len(events) > 1:
            last["n"] = len(events)
        if by:
            last["by"] = by
        if key is not None:
            self.by_request[key] = events
        return events

    def fold(self) -> None:
        """Fold what is ``unfolded``. Raises as ``record``."""
        unfolded, self.unfolded = self.unfolded, []
        apply_new(unfolded, self._store, self._observers)

    def _extract_body(self, event: Event) -> None:
        """Let the store put a new body into a file, if it wants to: the event then only refers to it."""
        reference = self._store.body_files.keep(event["id"], event["queue"], event["key"], raw_json(event["message"]))
        if reference:
            del event["message"]
            event["body"] = reference.to_json()

    def encode(self) -> list[bytes]:
        """The group's journal lines, one for each event."""
        last_id = self.last_id
        for event in self.events:
            event["grp"] = last_id
        if len(self.events) > 1:
            self.events[-1]["gn"] = len(self.events)
        return [encode_event(event) for event in self.events]
