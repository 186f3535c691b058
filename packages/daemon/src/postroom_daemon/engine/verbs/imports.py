"""import_state: queues and messages of another root, with ids, attempts, delays, dead letters and policies;
deduplication claims, schedules, policy patterns, and whether it drains.

The state of the other root is written as ordinary events that lead to it: a message is published at its original time,
its failed attempts fail again, and so on. So the journal needs no new type of event, and its readers no new rule.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Layer
from postroom_common.protocol import ErrorCode, ReasonCode, State, birthplace, named_key

from ...model.facts import SCHEDULE, claim_fact, schedule_fact
from ...model.log_record import LOG
from ...model.records import NO_LAYER, Entry, QueueRecord
from ..context import Context, Decision, Draft
from ..fields import Fields
from .addresses import queue_created, refuse_address
from .exported import (
    Exported,
    ExportedClaim,
    ExportedDrain,
    ExportedPolicyPatterns,
    ExportedSchedule,
    exported_fact,
    exported_message,
    exported_queue,
    invalid,
)
from .gathering import EVERYONE
from .lookup import find_message
from .schedules import SCHEDULES_LIMIT

#: The failure of a dead letter that was exported without its history.
_UNKNOWN_FAILURE: Final = {
    "reasonCode": ReasonCode.REJECTED,
    "reasonMessage": "its history was not exported",
    "consumerId": "",
    "failedAtMs": 0,
    "attempt": 0,
}
#: States in which the due time of a message still matters.
_WAITING: Final = (State.DELAYED, State.GATHERING, State.HELD)


def import_state(context: Context, fields: Fields) -> Decision:
    """Import queues, messages and facts in the form of ``read_state``. Existing ones stay unchanged, and are counted.

    An existing queue keeps its policy and its pauses, and a root its policy patterns if it has any. A leased message
    becomes ready, because the lease belongs to the other root; a leased dead letter becomes an ordinary one.

    Raises ``CommandError``: ERR_STORAGE_FULL, ERR_INVALID_REQUEST for an invalid queue, message or fact, and for more
    schedules than a root may have.
    """
    if not context.vitals.has_space_to_publish():
        raise CommandError(ErrorCode.STORAGE_FULL, "the disk is too full to take other messages")
    writer = _EventWriter(context, fields["engineMs"], fields["wallMs"])
    for queue in _list(fields, "queues"):
        writer.add_queue(exported_queue(queue))
    facts = [exported_fact(fact) for fact in _list(fields, "facts")]
    writer.add_claims([fact for fact in facts if isinstance(fact, ExportedClaim)])
    for message in _list(fields, "messages"):
        writer.add_message(exported_message(message))
    writer.add_schedules([fact for fact in facts if isinstance(fact, ExportedSchedule)])
    for fact in facts:
        if isinstance(fact, ExportedPolicyPatterns):
            writer.add_policy_patterns(fact.patterns)
    if any(isinstance(fact, ExportedDrain) for fact in facts):
        writer.add_drain()
    done = {"queues": writer.queues, "messages": writer.messages, "skipped": writer.skipped}
    if fields["facts"] is not None:
        done["facts"] = writer.facts
    return Decision([*writer.drafts, {"type": EventType.IMPORTED, **done}])


def _list(fields: Fields, name: str) -> list[Any]:
    value = fields[name]
    if value is None:
        return []
    if type(value) is not list:
        raise CommandError(ErrorCode.PARSE_ERROR, f"{name} must be an array")
    return value


class _EventWriter:
    """Collects the events. ``engine`` and ``wall`` are the other root's times when its state was read."""

    def __init__(self, context: Context, engine: int, wall: int) -> None:
        self.drafts: list[Draft] = []
        self.queues = self.messages = self.skipped = self.facts = 0
        self._context = context
        now = context.now
        #: Added to an engine time of the other root, it gives the one of this root with the same wall time.
        self._shift = now.engine - now.wall + wall - engine
        self._made: set[str] = set()

    def add_queue(self, record: QueueRecord) -> None:
        """Add a new queue with its policy, its pauses and its tally."""
        name, context = record.name, self._context
        if name in self._made or context.store.queue(name):
            self.skipped += 1
            return
        self._make(name, record.created_with)
        self.queues += 1
        if record.override:
            policy = context.policies.resulting(name, record.override, record.created_with).to_wire()
            self._add(EventType.POLICY_SET, name, override=record.override, policy=policy)
        if any(record.tally.values()):
            self._add(EventType.TALLY_RESET, name, tally=record.tally)
        paused, pauses = {"publish": False, "consume": False}, (record.publish_paused, record.consume_paused)
        for operation in [o for o, is_paused in zip(paused, pauses, strict=True) if is_paused]:
            paused = paused | {operation: True}
            self._add(EventType.PAUSED, name, operation=operation, paused=paused)

    def add_claims(self, claims: list[ExportedClaim]) -> None:
        """Add claims that have not ended yet. Claims that last as long as a message are added with it."""
        valid: dict[tuple[str, str], list[Any]] = {}
        for claim in claims:
            until = self._here(claim.until)
            if not claim.until or until <= self._context.now.engine:
                continue
            if self._claimable(claim.queue, claim.name):
                valid[claim.queue, claim.name] = [claim.queue, claim.name, claim.key, until]
            else:
                self.skipped += 1
        self.facts += len(valid)
        if valid:
            self.drafts.append({"type": EventType.CLAIMED, "claims": [*valid.values()]})

    def add_schedules(self, schedules: list[ExportedSchedule]) -> None:
        """Add new schedules. Each of them says what happens to the runs that were missed meanwhile."""
        store = self._context.store
        new = {one.name: one for one in schedules if store.facts.get(schedule_fact(one.name)) is None}
        if new and len(store.facts.names(SCHEDULE, "", SCHEDULES_LIMIT)) + len(new) > SCHEDULES_LIMIT:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"there would be more than {SCHEDULES_LIMIT:,} schedules")
        for one in new.values():
            refuse_address(self._context, one.schedule["queue"])
            self.drafts.append({"type": EventType.SCHEDULE_SET, "name": one.name, "schedule": one.schedule})
        self.facts += len(new)
        self.skipped += len(schedules) - len(new)

    def add_policy_patterns(self, patterns: list[dict[str, Any]]) -> None:
        """Set the policy patterns of a root that has none."""
        if self._context.policies.policy_patterns:
            self.skipped += 1
            return
        self.drafts.append({"type": EventType.POLICY_PATTERNS_SET, "patterns": patterns})
        self.facts += 1

    def add_drain(self) -> None:
        """Drain this root, like the other one."""
        if self._context.draining:
            self.skipped += 1
            return
        self.drafts.append({"type": EventType.DRAIN_SET, "draining": True})
        self.facts += 1

    def add_message(self, message: Exported) -> None:
        """Add a new message and everything that happened to it."""
        entry = message.entry
        if entry.key in self._made or self._context.store.get(entry.key):
            self.skipped += 1
            return
        record = self._context.store.queue(entry.queue)
        if record and record.log:
            raise invalid(f"message {entry.key!r}", f"{entry.queue!r} is a log here")
        if entry.queue not in self._made and not record:
            self._make(entry.queue)
            self.queues += 1
        self._made.add(entry.key)
        self.messages += 1
        failures = message.history
        if not failures and entry.state is State.DEAD:
            failures = [
                _UNKNOWN_FAILURE | {"attempt": entry.attempt} | ({"reasonCode": entry.reason} if entry.reason else {})
            ]
        due = self._here(entry.due) if entry.state in _WAITING else 0
        waits = due > self._context.now.engine
        self._publish(message, due if waits and not failures and not message.named else 0)
        was_reprocessed = self._fail_all(entry, failures, due)
        counted = failures[-1]["attempt"] if failures and not was_reprocessed else 0
        if entry.state is State.DONE:
            at = self._here(entry.dead_at)
            lease = self._lease(entry, entry.attempt, entry.consumer_id, at)
            self._about(EventType.ACKED, entry, engineMs=at, lease=lease, heldMs=0, keep="message")
        elif entry.state is not State.DEAD and entry.attempt > counted:
            was_reprocessed = True
            at = self._here(entry.leased_at or entry.created)
            lease = self._lease(entry, entry.attempt + 1, entry.consumer_id, at)  # a released delivery does not count
            self._about(EventType.RELEASED, entry, engineMs=at, lease=lease, attempt=entry.attempt)
        if waits and (was_reprocessed or (message.named and not failures)):  # restore its delay
            self._about(EventType.HELD, entry)
            self._about(EventType.UNHELD, entry, dueEngineMs=due)
        if entry.state is State.HELD:
            self._about(EventType.HELD, entry)

    def _publish(self, message: Exported, due: int) -> None:
        """Publish it, to be ready at ``due`` (0: at once)."""
        entry = message.entry
        facts: Draft = {"engineMs": self._here(entry.created), "wallMs": entry.created_wall}
        if entry.name and not find_message(self._context, named_key(birthplace(entry.key), entry.name)):
            facts["name"] = entry.name  # else a message of this root has it
        options = {
            "priority": entry.priority,
            "dueEngineMs": due,
            "target": entry.target,
            "expiresEngineMs": self._end(entry.expires),
            "fallbackEngineMs": self._end(entry.fallback),
            "deliverAtMs": entry.due_wall,
            "orderingKey": entry.order_key,
            "retryLimit": entry.retry_limit,
        }
        facts |= {name: value for name, value in options.items() if value}
        if due and entry.state is State.GATHERING:
            facts["gathering"] = EVERYONE
        claim = {"claim": {"name": entry.claim}} if entry.claim and self._claimable(entry.queue, entry.claim) else {}
        if message.named:
            facts["drafting"] = len(message.named)
        elif claim:
            facts |= claim
        self._about(EventType.PUBLISHED, entry, **facts, message=orjson.Fragment(message.body))
        if message.named:
            self._set_parts(message, self._end(entry.expires), claim)

    def _set_parts(self, message: Exported, expires: int, claim: Draft) -> None:
        """Set the named parts of a message that have a value; it expires at a time if it is ready with the last."""
        entry, unset, size = message.entry, len(message.named), len(message.body)
        at = self._here(entry.created)
        for number, part in enumerate(message.named, 1):
            if part is None:
                continue
            unset, size = unset - 1, size + len(orjson.dumps(part))
            facts: Draft = {"part": number, "bytes": size, "unset": unset, "content": part}
            if not unset:
                facts |= claim | {"state": State.READY} | ({"expiresEngineMs": expires} if expires else {})
            self._about(EventType.PART_SET, entry, engineMs=at, **facts)

    def _claimable(self, queue: str, claim: str) -> bool:
        """Whether no message of this root has the claim."""
        stored = self._context.store.facts.get(claim_fact(queue, claim))
        return stored is None or 0 < stored["untilEngineMs"] <= self._context.now.engine

    def _fail_all(self, entry: Entry, failures: list[dict[str, Any]], due: int) -> bool:
        """Repeat its failed attempts. Returns whether it was reprocessed after the last one."""
        reprocessed = False
        following = [*(failure["attempt"] for failure in failures[1:]), entry.attempt]
        for number, (failure, after) in enumerate(zip(failures, following, strict=False), 1):
            last = number == len(failures)
            if last and entry.state is State.DEAD:
                at = self._here(entry.dead_at) if entry.dead_at else self._here_of_wall(failure["failedAtMs"])
                phase = {"phase": entry.phase} if entry.phase else {}
                self._fail(entry, failure, EventType.DIED, at, **phase)
                break
            at = self._here_of_wall(failure["failedAtMs"])
            reprocessed = after < failure["attempt"] or failure["attempt"] == 0  # the attempts start from scratch
            if reprocessed:
                self._fail(entry, failure, EventType.DIED, at)
                expires = self._end(entry.expires)
                self._about(EventType.REPROCESSED, entry, **({"expiresEngineMs": expires} if expires else {}))
            else:
                self._fail(entry, failure, EventType.RETRIED, at, dueEngineMs=max(at, due) if last else at)
        return reprocessed

    def _fail(self, entry: Entry, failure: dict[str, Any], type_: EventType, at: int, **facts: Any) -> None:
        """Fail a delivery, after leasing the message if there was one."""
        shown = {name: failure[name] for name in failure if name != "failedAtMs"}
        if failure["attempt"]:
            facts["lease"] = self._lease(entry, failure["attempt"], failure["consumerId"], at)
        self._about(type_, entry, engineMs=at, wallMs=failure["failedAtMs"], failure=shown, **facts)

    def _lease(self, entry: Entry, attempt: int, consumer: str, at: int) -> str:
        """Lease it, for a following event that ends the lease. Returns the lease."""
        lease = self._context.ids.lease()
        holder = consumer or entry.target or self._context.who.client_id
        facts: Draft = {"lease": lease, "consumer": holder, "untilEngineMs": at + 1, "attempt": attempt}
        self._about(EventType.LEASED, entry, engineMs=at, **facts)
        return lease

    def _here(self, engine: int) -> int:
        """An engine time of the other root as one of this root, at least 0."""
        return max(0, engine + self._shift)

    def _end(self, engine: int) -> int:
        """Like ``_here``, for a time of which 0 means never."""
        return max(1, self._here(engine)) if engine else 0

    def _here_of_wall(self, wall: int) -> int:
        now = self._context.now
        return min(max(0, now.engine - now.wall + wall), now.engine)

    def _make(self, queue: str, created_with: Layer = NO_LAYER) -> None:
        self._made.add(queue)
        created = queue_created(self._context, queue, created_with)
        if created["kind"] == LOG:
            raise invalid(f"queue {queue!r}", "the policy here makes it a log")
        self.drafts.append(created)

    def _about(self, type_: EventType, entry: Entry, **facts: Any) -> None:
        self._add(type_, entry.queue, key=entry.key, **facts)

    def _add(self, type_: EventType, queue: str, **facts: Any) -> None:
        self.drafts.append({"type": type_, "queue": queue, **facts})
