"""New queues, and the names that none may have."""

from __future__ import annotations

from postroom_common.errors import CommandError
from postroom_common.events import EventType
from postroom_common.protocol import ErrorCode

from ...model.records import dlq_fact
from ..context import Context, Draft

DLQ_SUFFIX = ".dlq"


def addresses_dead_letters(context: Context, name: str) -> bool:
    """Whether a name is kept for the dead letters of some queue: ``<queue>.dlq``, or what a policy says instead."""
    if name.endswith(DLQ_SUFFIX) or name in context.policies.dlq_names:
        return True
    return context.store.get_kv(dlq_fact(name)) is not None


def refuse_address(context: Context, queue: str) -> None:
    """Raise ``CommandError`` for a name that addresses dead letters."""
    if context.store.queue(queue) is None and addresses_dead_letters(context, queue):
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{queue!r} is the address of another queue's dead letters: choose a name for a queue of its own",
        )


def queue_created(context: Context, queue: str) -> Draft:
    """The event that makes a queue. Raises ``CommandError`` for a name that addresses dead letters."""
    refuse_address(context, queue)
    return {"type": EventType.QUEUE_CREATED, "queue": queue, "kind": "queue"}
