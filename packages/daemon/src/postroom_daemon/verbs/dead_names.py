"""The names that address dead letters, and whose letters they address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.policy import dlq_name

from ..context import Context
from ..records import dlq_fact
from .creation import DLQ_SUFFIX

_PAGE: Final = 500


def dead_letters_of(context: Context, name: str) -> list[str]:
    """The queues that a name means to a command about dead letters: the queue of that name, or those whose dead letters
    it addresses, in the order of their names."""
    return [name] if context.store.queue(name) is not None else addressed_by(context, name)


def addressed_by(context: Context, name: str) -> list[str]:
    """The queues whose policy addresses their dead letters by ``name``."""
    if name in context.policies.dlq_names or context.store.fact(dlq_fact(name)) is not None:
        return [queue for queue in _queues(context) if _name(context, queue) == name]
    queue = name.removesuffix(DLQ_SUFFIX)
    fits = queue != name and context.store.queue(queue) is not None and _name(context, queue) == name
    return [queue] if fits else []


def _name(context: Context, queue: str) -> str:
    return dlq_name(queue, context.policies.effective(queue, context.store.queue(queue)))


def _queues(context: Context) -> Iterator[str]:
    after = ""
    while page := context.store.queue_names(after, _PAGE):
        yield from page
        after = page[-1]
