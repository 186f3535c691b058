"""The events that lead to the state of each queue and message in data of the C++ system."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.events import EventType
from postroom_common.policy import read_layer, value_at
from postroom_common.protocol import DELAY_MS_LIMIT, VISIBILITY_MS_LIMIT, ReasonCode, queue_name_problem

from ...engine.context import Draft
from ...platform.clock import Now
from ...platform.ids import Ids
from ...policy.policies import Policies
from ..foreign_data import Taken, UnusableRow, at_wall, clamped
from .rows import CppMessage, CppSource

log = logging.getLogger(__name__)

_PRIORITIES: Final = (-(2**31), 2**31 - 1)


class CppEvents(Taken):
    """Events made from the messages of a source; the counts are complete when ``requests`` has ended."""

    def __init__(self, source: CppSource, now: Now, policies: Policies, ids: Ids) -> None:
        super().__init__()
        self._source = source
        self._now = now
        self._policies = policies
        self._ids = ids
        self._queues: set[str] = set()

    def requests(self) -> Iterator[list[Draft]]:
        """The events, those of one message or policy as one request. Raises ``StoreError``."""
        for row in self._source.messages():
            problem = queue_name_problem(row.queue) if isinstance(row, CppMessage) else None
            if isinstance(row, UnusableRow):
                self.unusable.append(row)
            elif problem:
                shown = {"message_key": row.key, "queue": row.queue, "state": row.state, "payload": row.payload}
                self.unusable.append(UnusableRow(f"queue: {problem}", json.dumps(shown).encode()))
            else:
                yield [*self._creation(row.queue), *self._life(row)]
                self.counts[f"messages {row.state}"] += 1
        for policy in self._source.policies():
            if isinstance(policy, UnusableRow):
                self.unusable.append(policy)
            else:
                drafts = self._policy(*policy)
                if drafts:
                    yield drafts

    def _creation(self, queue: str) -> list[Draft]:
        if queue in self._queues:
            return []
        self._queues.add(queue)
        self.counts["queues"] += 1
        return [{"type": EventType.QUEUE_CREATED, "queue": queue, "kind": "queue"}]

    def _policy(self, queue: str, tree: dict[str, Any]) -> list[Draft]:
        """Set the keys of a stored policy that differ from the configuration, which the C++ daemon stored as well."""
        problem = queue_name_problem(queue)
        try:
            layer = read_layer(tree, "policy", lambda text: log.warning("policy of queue %r: %s", queue, text))
        except ConfigurationError as error:
            problem, layer = str(error), {}
        if problem:
            row = json.dumps({"key": f"policy:{queue}", "value": tree}).encode()
            self.unusable.append(UnusableRow(problem, row, is_message=False))
            return []
        if layer.get("dlq.queue", "") in (self._queues | {queue, ""}):
            layer.pop("dlq.queue", None)  # the C++ system ignored it, and a queue cannot be a dead-letter address
        configured = self._policies.resulting(queue, {}).to_wire()
        override = {path: value for path, value in layer.items() if value_at(configured, path) != value}
        if not override:
            return []
        policy = self._policies.resulting(queue, override).to_wire()
        self.counts["policies"] += 1
        return [
            *self._creation(queue),
            {"type": EventType.POLICY_SET, "queue": queue, "override": override, "policy": policy},
        ]

    def _life(self, message: CppMessage) -> list[Draft]:
        """The events that lead to the state that a message has."""
        m, now = message, self._now
        due = now.engine + clamped(m.available_at - now.wall, DELAY_MS_LIMIT)
        waits = m.state in ("ready", "delayed") and due > now.engine
        events = [self._published(m, due if waits and not m.attempt else 0)]
        if m.attempt or m.state == "inflight":
            until = now.engine + (
                clamped(m.lease_until - now.wall, VISIBILITY_MS_LIMIT) if m.state == "inflight" else 0
            )
            events.append(
                {
                    **self._about(EventType.LEASED, m),
                    "lease": m.lease_id or self._ids.lease(),
                    "consumer": m.consumer,
                    "untilEngineMs": until,
                    "attempt": max(1, m.attempt),
                }
            )
        lease = events[-1].get("lease", "")
        if m.state == "dlq":
            events.append({**self._about(EventType.DIED, m), **self._at(m.dlq_at), "lease": lease, **_failure(m)})
        elif waits and m.attempt:
            events.append({**self._about(EventType.RETRIED, m), "lease": lease, "dueEngineMs": due, **_failure(m)})
        elif m.attempt and m.state != "inflight":
            events.append({**self._about(EventType.RELEASED, m), "lease": lease, "attempt": m.attempt})
        return events

    def _published(self, m: CppMessage, due: int) -> Draft:
        envelope: dict[str, Any] = {"parts": [{"text": m.payload}], **m.headers}
        if m.attributes != "{}":
            envelope["attributes"] = {"text": m.attributes}
        draft = {**self._about(EventType.PUBLISHED, m), **self._at(m.created_at)}
        if m.priority:
            draft["priority"] = min(max(m.priority, _PRIORITIES[0]), _PRIORITIES[1])
        if due:
            draft["dueEngineMs"] = due
        if m.target:
            draft["target"] = m.target
        return draft | {"message": envelope}

    def _about(self, type_: EventType, message: CppMessage) -> Draft:
        return {"type": type_, "queue": message.queue, "key": message.key}

    def _at(self, wall: int) -> Draft:
        """The engine and wall time of an event at a wall time."""
        return at_wall(self._now, wall)


def _failure(m: CppMessage) -> Draft:
    code = ReasonCode.LEASE_EXPIRED
    if m.state == "dlq":
        code = ReasonCode.RETRY_LIMIT if m.dlq_reason.startswith("retry limit") else ReasonCode.REJECTED
    failure = {"reasonCode": code, "reasonMessage": m.dlq_reason, "attempt": m.attempt, "consumerId": m.consumer}
    return {"failure": failure}
