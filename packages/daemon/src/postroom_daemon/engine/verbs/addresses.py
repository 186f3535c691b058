"""Names of queues and dead-letter addresses: which queues an address means, and which names no queue may have.

Access depends on the queues: for a user, an address means those of its queues in which the user has the permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.policy import Layer, Policy, dlq_name
from postroom_common.protocol import ErrorCode, State

from ...model.dlq_index import Addressed
from ...model.facts import dlq_fact
from ...model.log_record import LOG
from ...model.records import NO_LAYER, QueueRecord
from ...policy.access_rules import Verb
from ..context import Context, Draft

DLQ_SUFFIX: Final = ".dlq"
_PAGE: Final = 500


def is_dead_letter_address(context: Context, name: str) -> bool:
    """Whether a name is reserved for dead letters: ``<queue>.dlq``, or the name that a policy sets."""
    if name.endswith(DLQ_SUFFIX) or name in context.policies.dlq_names:
        return True
    return context.store.facts.get(dlq_fact(name)) is not None


def refuse_address(context: Context, queue: str) -> None:
    """Raise ``CommandError`` for a dead-letter address."""
    if context.store.queue(queue) is None and is_dead_letter_address(context, queue):
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{queue!r} is the address of another queue's dead letters: choose a name for a queue of its own",
        )


def queue_created(context: Context, queue: str, created_with: Layer = NO_LAYER) -> Draft:
    """The event that creates a queue, or a log if its policy says so, with a layer of its policy. Raises
    ``CommandError`` for a dead-letter address."""
    refuse_address(context, queue)
    policy = policy_at_creation(context, queue, created_with)
    draft: Draft = {"type": EventType.QUEUE_CREATED, "queue": queue, "kind": policy.kind}
    if policy.kind == LOG:  # whatever another configuration would make of it
        created_with = created_with | {"kind": LOG}
    return draft | {"createdWith": created_with} if created_with else draft


def queue_deleted(record: QueueRecord, reason: str) -> Draft:
    """The event that deletes a queue or log."""
    draft: Draft = {"type": EventType.QUEUE_DELETED, "queue": record.name, "reason": reason}
    return draft | {"log": record.log.created} if record.log else draft


def policy_at_creation(context: Context, queue: str, created_with: Layer = NO_LAYER) -> Policy:
    """The policy of a queue that does not exist, if it were created with a layer."""
    return context.policies.effective(queue, QueueRecord(queue, created_with=created_with) if created_with else None)


def refuse_log(context: Context, queue: str, use: str) -> None:
    """Raise ``CommandError`` (ERR_WRONG_KIND) for a log, and for a name under which one would be created. ``use`` says
    what to do instead."""
    record = context.store.queue(queue)
    if (record.kind if record else policy_at_creation(context, queue).kind) == LOG:
        raise is_log(queue, use)


def is_log(queue: str, use: str) -> CommandError:
    """The error of a command for queues that meets a log; ``use`` says what to do instead."""
    return CommandError(ErrorCode.WRONG_KIND, f"{queue!r} is a log: {use}")


def queues_meant_by(context: Context, name: str, verb: Verb) -> list[str]:
    """The queues that a name means in a command about dead letters: the queue of that name, or those whose dead letters
    have it as address, in the order of their names. Raises ``CommandError`` (ERR_FORBIDDEN)."""
    if context.store.queue(name) is None:
        return queues_addressed_by(context, name, verb)
    context.require(verb, name)
    return [name]


def address_exists(context: Context, name: str) -> bool:
    """Whether a name is a queue, or a dead-letter address of some queue or policy."""
    return context.store.queue(name) is not None or _shared(context, name) is not None or bool(_own(context, name))


def queues_addressed_by(context: Context, name: str, verb: Verb | None) -> list[str]:
    """The queues whose dead letters have the address ``name``. Raises ``CommandError`` (ERR_FORBIDDEN) if the user has
    the permission in none of them; if there are none, unless the user has it in a queue of that name."""
    shared = _shared(context, name)
    queues = shared.queues if shared else _own(context, name)
    allowed = _allowed(context, queues, verb)
    if not allowed:
        if queues:
            raise context.access.refusal(context.who.account, verb, name)
        context.require(verb, name.removesuffix(DLQ_SUFFIX))
    return allowed


def queues_with_dead_letters(context: Context, name: str, verb: Verb, by_address: bool = False) -> list[str]:
    """The queues of ``queues_meant_by`` (with ``by_address`` of ``queues_addressed_by``) that may have dead letters.
    Raises ``CommandError`` (ERR_FORBIDDEN)."""
    if not by_address and context.store.queue(name) is not None:
        return queues_meant_by(context, name, verb)
    allowed, shared = queues_addressed_by(context, name, verb), _shared(context, name)
    return _allowed(context, shared.with_dead_letters(), verb) if shared else allowed


def _allowed(context: Context, queues: list[str], verb: Verb | None) -> list[str]:
    if context.access.is_open(verb):
        return queues
    return [queue for queue in queues if context.may(verb, queue)]


def _shared(context: Context, name: str) -> Addressed | None:
    """The queues that share an address set by a policy; None for any other name."""
    store = context.store
    if name not in context.policies.dlq_names and store.facts.get(dlq_fact(name)) is None:
        return None

    def has_dead_letters(queue: str) -> bool:
        record = store.queue(queue)
        return record is not None and record.counts[State.DEAD] > 0

    def find() -> Addressed:
        return Addressed([queue for queue in _queues(context) if _name(context, queue) == name], has_dead_letters)

    return context.dlq_index.of(name, find)


def _own(context: Context, name: str) -> list[str]:
    queue = name.removesuffix(DLQ_SUFFIX)
    matches = queue != name and context.store.queue(queue) is not None and _name(context, queue) == name
    return [queue] if matches else []


def _name(context: Context, queue: str) -> str:
    return dlq_name(queue, context.policies.effective(queue, context.store.queue(queue)))


def _queues(context: Context) -> Iterator[str]:
    after = ""
    while page := context.store.pages.queue_names(after, _PAGE):
        yield from page
        after = page[-1]
