"""What a database of the C++ system tells: the events that lead to each queue's and message's state."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import orjson

from postroom_common.errors import ConfigurationError
from postroom_common.events import EventType
from postroom_common.policy import read_layer, value_at
from postroom_common.protocol import DELAY_MS_LIMIT, VISIBILITY_MS_LIMIT, ReasonCode, queue_name_problem

from ..engine.context import Draft
from ..platform.clock import Now
from ..platform.ids import Ids
from ..platform.quarantine import Quarantine
from ..policy.policies import Policies
from ..stores.sqlite.cpp import CppDatabase, CppMessage, OddRow

log = logging.getLogger(__name__)

#: Ages beyond this count as this (ms): what a clock says that was never set.
_LONGEST_AGE_MS: Final = 366 * 24 * 3600 * 1000
#: Rows that are set aside in one file (bytes).
_ASIDE_BYTES: Final = 1024 * 1024
_PRIORITIES: Final = (-(2**31), 2**31 - 1)


def age_of_all(wall: int, oldest: int | None) -> int:
    """How long ago (ms) the oldest thing in a database happened; 0 for an empty one."""
    return _clamped(wall - (wall if oldest is None else oldest), _LONGEST_AGE_MS)


class Teller:
    """What happened to queues and messages, told as events; and the rows that tell nothing."""

    def __init__(self, database: CppDatabase, now: Now, policies: Policies, ids: Ids) -> None:
        self.counts: Counter[str] = Counter()
        self.odd_count = 0
        self._database = database
        self._now = now
        self._policies = policies
        self._ids = ids
        self._queues: set[str] = set()
        self._odd: list[OddRow] = []

    def requests(self) -> Iterator[list[Draft]]:
        """Everything that is in the database, each message in one request."""
        for row in self._database.messages():
            problem = queue_name_problem(row.queue) if isinstance(row, CppMessage) else None
            if isinstance(row, OddRow):
                self._odd.append(row)
            elif problem:
                shown = {"message_key": row.key, "queue": row.queue, "state": row.state, "payload": row.payload}
                self._odd.append(OddRow(f"queue: {problem}", json.dumps(shown).encode()))
            else:
                yield [*self._creation(row.queue), *self._life(row)]
                self.counts[f"messages {row.state}"] += 1
        for policy in self._database.policies():
            if isinstance(policy, OddRow):
                self._odd.append(policy)
            else:
                drafts = self._policy(*policy)
                if drafts:
                    yield drafts

    def set_aside(self, quarantine: Quarantine, name: str) -> None:
        """Keep the rows that tell nothing, each with the reason. Raises ``OSError``."""
        self.odd_count = len(self._odd)
        lines: list[bytes] = []
        for odd in self._odd:
            lines.append(b'{"reason":%b,"row":%b}\n' % (orjson.dumps(odd.reason), odd.row))
            if sum(map(len, lines)) > _ASIDE_BYTES:
                quarantine.keep(f"{name}.rows", b"".join(lines), "rows of the C++ system that tell nothing")
                lines = []
        if lines:
            quarantine.keep(f"{name}.rows", b"".join(lines), "rows of the C++ system that tell nothing")

    def _creation(self, queue: str) -> list[Draft]:
        if queue in self._queues:
            return []
        self._queues.add(queue)
        self.counts["queues"] += 1
        return [{"type": EventType.QUEUE_CREATED, "queue": queue, "kind": "queue"}]

    def _policy(self, queue: str, tree: dict[str, Any]) -> list[Draft]:
        """A stored policy, as far as the configuration says something else: that daemon stored the configured ones."""
        problem = queue_name_problem(queue)
        try:
            layer = read_layer(tree, "policy", lambda text: log.warning("policy of queue %r: %s", queue, text))
        except ConfigurationError as error:
            problem, layer = str(error), {}
        if problem:
            self._odd.append(OddRow(problem, json.dumps({"key": f"policy:{queue}", "value": tree}).encode()))
            return []
        if layer.get("dlq.queue", "") in (self._queues | {queue, ""}):
            layer.pop("dlq.queue", None)  # it was never looked at there, and cannot address what is a queue
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
        due = now.engine + _clamped(m.available_at - now.wall, DELAY_MS_LIMIT)
        waits = m.state in ("ready", "delayed") and due > now.engine
        told = [self._published(m, due if waits and not m.attempt else 0)]
        if m.attempt or m.state == "inflight":
            until = now.engine + (
                _clamped(m.lease_until - now.wall, VISIBILITY_MS_LIMIT) if m.state == "inflight" else 0
            )
            told.append(
                {
                    **self._about(EventType.LEASED, m),
                    "lease": self._ids.lease(),
                    "consumer": "",  # that system did not write down who has it
                    "untilEngineMs": until,
                    "attempt": max(1, m.attempt),
                }
            )
        lease = told[-1].get("lease", "")
        if m.state == "dlq":
            told.append({**self._about(EventType.DIED, m), **self._at(m.dlq_at), "lease": lease, **_failure(m)})
        elif waits and m.attempt:
            told.append({**self._about(EventType.RETRIED, m), "lease": lease, "dueEngineMs": due, **_failure(m)})
        elif m.attempt and m.state != "inflight":
            told.append({**self._about(EventType.RELEASED, m), "lease": lease, "attempt": m.attempt})
        return told

    def _published(self, m: CppMessage, due: int) -> Draft:
        envelope: dict[str, Any] = {"parts": [{"text": m.payload}]}
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
        """The two times of something that happened then."""
        age = _clamped(self._now.wall - wall, min(self._now.engine, _LONGEST_AGE_MS))
        return {"engineMs": self._now.engine - age, "wallMs": wall}


def _failure(m: CppMessage) -> Draft:
    code = ReasonCode.LEASE_EXPIRED
    if m.state == "dlq":
        code = ReasonCode.RETRY_LIMIT if m.dlq_reason.startswith("retry limit") else ReasonCode.REJECTED
    failure = {"reasonCode": code, "reasonMessage": m.dlq_reason, "attempt": m.attempt, "consumerId": ""}
    return {"failure": failure}


def _clamped(value: int, high: int) -> int:
    return min(max(value, 0), high)
