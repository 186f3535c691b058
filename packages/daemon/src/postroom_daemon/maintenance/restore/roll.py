"""Roll a store forward: the events that came behind a backup, folded as the daemon folded them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...engine.fold import apply, apply_without_message
from ...journal.segments import read_requests
from ...model.lifecycle import IllegalTransition
from ...model.records import BodyReference, Entry
from ...observe.state.changes import Body
from ...stores.base import NotStored, Store

log = logging.getLogger(__name__)

#: Requests that are folded in one transaction.
_BATCH: Final = 1000


@dataclass(slots=True)
class Roll:
    """``body`` reads the bodies that events only refer to. ``lost`` are the messages that are left out, since there is
    none."""

    store: Store
    body: Body
    lost: dict[str, None] = field(default_factory=dict)

    def fold(self, journal: Path, last_id: int) -> None:
        """Fold the events up to ``last_id``, which are known to be all there. Raises ``OSError``, ``StoreError``."""
        requests = read_requests(journal, self.store.applied + 1, lambda damage: None)
        self.store.begin()
        for number, request in enumerate(requests, 1):
            for event in request.events:
                self._fold(event)
            if self.store.applied >= last_id:
                break
            if number % _BATCH == 0:
                self._commit()
                self.store.begin()
        self._commit()

    def _commit(self) -> None:
        self.store.bodies.sync()
        self.store.commit()

    def _fold(self, event: Event) -> None:
        try:
            apply(self._with_body(event) if event["type"] == EventType.PUBLISHED else event, self.store)
        except (NotStored, IllegalTransition) as error:
            # Of a message that is left out; or the daemon has passed over it as well.
            log.info("event %d is not folded: %s", event["id"], error)
            if event.get("key") in self.lost:
                apply_without_message(event, self.store)
            else:
                self.store.applied = event["id"]
        if event["type"] in (EventType.ACKED, EventType.DROPPED):
            self.lost.pop(event["key"], None)

    def _with_body(self, event: Event) -> Event:
        """The event as it were if this store had been the daemon's. Raises ``NotStored`` when the body is lost."""
        number, queue, key = event["id"], event["queue"], event["key"]
        if "message" in event:
            body: bytes | None = raw_json(event["message"])
        else:
            place = Entry(key=key, queue=queue, state=State.READY, priority=0, seq=number, created_wall=0, created=0)
            body = self.body(place, BodyReference.from_json(event["body"]))
        if body is None:
            self.lost[key] = None
            raise NotStored(f"the body of {key} is lost")
        reference = self.store.bodies.keep(number, queue, key, body)
        rest = {name: value for name, value in event.items() if name not in ("message", "body")}
        return rest | ({"body": reference.to_json()} if reference else {"message": orjson.Fragment(body)})
