"""The names that address dead letters, and whose letters they address.

Access is that of the queues: to a user such a name means those of them with which he may do what he asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from postroom_common.policy import dlq_name
from postroom_common.protocol import State

from ...model.dlq_index import Addressed
from ...model.records import dlq_fact
from ...policy.access_rules import Verb
from ..context import Context
from .creation import DLQ_SUFFIX

_PAGE: Final = 500


def dead_letters_of(context: Context, name: str, verb: Verb) -> list[str]:
    """The queues that a name means to a command about dead letters: the queue of that name, or those whose dead letters
    it addresses, in the order of their names. Raises ``CommandError`` (ERR_FORBIDDEN)."""
    if context.store.queue(name) is None:
        return addressed_by(context, name, verb)
    context.require(verb, name)
    return [name]


def means_dead_letters(context: Context, name: str) -> bool:
    """Whether there is a queue of that name, or a policy or a queue whose dead letters have it."""
    return context.store.queue(name) is not None or _shared(context, name) is not None or bool(_own(context, name))


def addressed_by(context: Context, name: str, verb: Verb | None) -> list[str]:
    """The queues whose policy addresses their dead letters by ``name``. Raises ``CommandError`` (ERR_FORBIDDEN) when
    the user may do this with none of them; where there are none, when he may not do it with a queue of that name."""
    shared = _shared(context, name)
    queues = shared.queues if shared else _own(context, name)
    allowed = _allowed(context, queues, verb)
    if not allowed:
        if queues:
            raise context.access.refusal(context.who.account, verb, name)
        context.require(verb, name.removesuffix(DLQ_SUFFIX))
    return allowed


def queues_with_letters(context: Context, name: str, verb: Verb, by_address: bool = False) -> list[str]:
    """Those that have dead letters, of ``dead_letters_of`` or if ``by_address`` of ``addressed_by``. Raises as they."""
    if not by_address and context.store.queue(name) is not None:
        return dead_letters_of(context, name, verb)
    allowed, shared = addressed_by(context, name, verb), _shared(context, name)
    return _allowed(context, shared.with_dead_letters(), verb) if shared else allowed


def _allowed(context: Context, queues: list[str], verb: Verb | None) -> list[str]:
    if context.access.is_open(verb):
        return queues
    return [queue for queue in queues if context.may(verb, queue)]


def _shared(context: Context, name: str) -> Addressed | None:
    """The queues of a name that a policy gives; None for any other name."""
    store = context.store
    if name not in context.policies.dlq_names and store.get_kv(dlq_fact(name)) is None:
        return None

    def has_letters(queue: str) -> bool:
        record = store.queue(queue)
        return record is not None and record.counts[State.DEAD] > 0

    def find() -> Addressed:
        return Addressed([queue for queue in _queues(context) if _name(context, queue) == name], has_letters)

    return context.dlq_index.of(name, find)


def _own(context: Context, name: str) -> list[str]:
    queue = name.removesuffix(DLQ_SUFFIX)
    fits = queue != name and context.store.queue(queue) is not None and _name(context, queue) == name
    return [queue] if fits else []


def _name(context: Context, queue: str) -> str:
    return dlq_name(queue, context.policies.effective(queue, context.store.queue(queue)))


def _queues(context: Context) -> Iterator[str]:
    after = ""
    while page := context.store.pages.queue_names(after, _PAGE):
        yield from page
        after = page[-1]
