"""What a verb is given and what it comes to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom_common.policy import Policy
from postroom_common.protocol import State

from ..journal.history import MessageHistory
from ..model.consumers import Consumers
from ..model.cursors import Cursors
from ..model.dlq_index import DlqIndex
from ..model.principal import Principal
from ..model.records import Entry
from ..model.request import BodyReader, json_body
from ..model.subscriptions import Subscriptions
from ..model.usage import Usage
from ..platform.clock import Now
from ..platform.ids import Ids
from ..policy.access import Access
from ..policy.access_rules import Verb
from ..policy.policies import Policies
from ..policy.quotas import Quotas
from ..policy.rates import Rates
from ..stores.base import Store

Draft = dict[str, Any]
"""An event that has no id yet: its type and the fields of its type."""


Work = Generator[None, None, dict[str, Any]]
"""Steps of a few milliseconds each, and the answer's data at the end."""


def no_message(payload: dict[str, Any]) -> dict[str, Any]:
    """The answer to a consume_next that brings nothing."""
    return {"message": None} if payload.get("max") is None else {"messages": []}


class Vitals(Protocol):
    """What the daemon knows of itself: the answers to health and metrics, whether there is room to publish, and what
    the journal tells of a message."""

    def health(self, store: Store, now: Now) -> dict[str, Any]: ...

    def metrics(self, store: Store, now: Now) -> dict[str, Any]: ...

    def exposition(self, store: Store, now: Now, shows: Callable[[str], bool] = ...) -> Generator[None, None, str]: ...

    def has_space_to_publish(self) -> bool: ...

    def history(self, key: str, limit: int) -> Generator[None, None, MessageHistory]: ...


@dataclass(slots=True)
class Decision:
    """What a command comes to: events, or ``data`` for one that changes nothing, or a wish to wait until ``wait_until``
    (engine ms) for a message.

    The answer to events is built from the last of them, or from all as ``reply`` says, which that one carries:
    ``as`` names the way (``replies``). ``once``: a repeat is to get the same ``data`` again, also after a restart: an
    event without effect keeps it, as ``reply`` if that is given. ``refused``: all items were, which a repeat is told
    while the daemon runs, as of any refusal. ``more`` is asked, each time on the state that the drafts before it left,
    for those that follow in the same request, until it has none; it must not raise. ``work`` is a question that
    takes long: its steps are done between groups, the last one returns the ``data``; they may raise ``CommandError``
    and ``OSError``.
    """

    drafts: list[Draft] = field(default_factory=list)
    data: dict[str, Any] | None = None
    wait_until: int | None = None
    reply: Draft | None = None
    once: bool = False
    refused: bool = False
    more: Callable[[], list[Draft]] | None = None
    work: Work | None = None


@dataclass(slots=True)
class Pending:
    """What the drafts of the request that is being decided will change, so that its next item sees it: ``queues`` to be
    made, messages and bytes ``added`` to each queue (dead ones not counted), ``claims`` with the key that makes them,
    keys that are ``settled`` or dropped, and how many messages were ``published`` in each queue. ``ready`` has the
    oldest ready messages of a queue, in order (``asked``: how many the store was asked for), and ``fresh`` those of the
    request itself. ``dying`` are those that die; ``gave_way`` is how many stored letters go for them, the last of which
    died at ``gone_up_to``. ``open`` are queues that take any message, with their policies: nothing but ``queues``
    and ``stored``, the bytes that come to who asks, is noted of them."""

    queues: set[str] = field(default_factory=set)
    added: dict[str, tuple[int, int]] = field(default_factory=dict)
    claims: dict[tuple[str, str], str] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    dying: dict[str, deque[Entry]] = field(default_factory=dict)
    gave_way: dict[str, int] = field(default_factory=dict)
    gone_up_to: dict[str, tuple[int, int]] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    ready: dict[str, deque[Entry]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    fresh: dict[str, deque[Entry]] = field(default_factory=dict)
    open: dict[str, Policy] = field(default_factory=dict)
    stored: int = 0

    def add(self, queue: str, messages: int, size: int) -> None:
        """Note messages that come to a queue, or go if negative, and their bytes."""
        before = self.added.get(queue, (0, 0))
        self.added[queue] = (before[0] + messages, before[1] + size)

    def take(self, entry: Entry) -> None:
        """Note that a message goes."""
        self.settled.add(entry.key)
        if entry.state is not State.DEAD:
            self.add(entry.queue, -1, -entry.size)


@dataclass(slots=True)
class Context:
    """What a verb may look at. One is made for each request."""

    store: Store
    now: Now
    who: Principal
    policies: Policies
    vitals: Vitals
    ids: Ids
    access: Access
    quotas: Quotas
    consumers: Consumers = field(default_factory=Consumers)
    usage: Usage | None = None
    cursors: Cursors = field(default_factory=Cursors)
    pending: Pending = field(default_factory=Pending)
    draining: bool = False
    rates: Rates = field(default_factory=Rates)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    dlq_index: DlqIndex = field(default_factory=DlqIndex)
    read_body: BodyReader = json_body

    def may(self, verb: Verb | None, queue: str) -> bool:
        """Whether who asks may do something with a queue, or for None anything at all."""
        return self.access.may(self.who.account, verb, queue)

    def require(self, verb: Verb | None, queue: str) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) unless who asks ``may``."""
        self.access.require(self.who.account, verb, queue)
