"""The input and the output of a command: its context, and the decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from postroom_common.errors import PostroomError
from postroom_common.policy import Layer, Policy

from ..journal.history import MessageHistory
from ..model.consumers import Consumers
from ..model.cursors import Cursors
from ..model.dlq_index import DlqIndex
from ..model.lease_index import LeaseIndex
from ..model.principal import Account, Principal
from ..model.records import Entry
from ..model.request import BodyReader, json_body
from ..model.statistics import Statistics
from ..model.subscriptions import Subscriptions
from ..model.usage import Usage
from ..platform.clock import Now
from ..platform.ids import Ids
from ..policy.access import Access
from ..policy.access_rules import Verb
from ..policy.policies import Policies
from ..policy.quotas import Quotas
from ..policy.rates import Rates
from ..stores.base import ENDED, Store
from ..stores.log.contract import Page
from .queue_patterns import QueuePatterns

Draft = dict[str, Any]
"""An event without an id: its type and the fields of that type."""


Work = Generator[None, None, dict[str, Any]]
"""A generator of steps of a few milliseconds each, which returns the data of the answer, or ``AGAIN``: the
request is to be decided again, because what it needs is there now."""


def no_message(payload: dict[str, Any]) -> dict[str, Any]:
    """The data of the answer to a consume_next without a message."""
    return {"message": None} if payload.get("max") is None else {"messages": []}


class Unfolded(PostroomError):
    """A request depends on an event that is not folded yet: fold it, and decide the request again."""


class Vitals(Protocol):
    """Health and metrics of the daemon, whether the disk has space to publish, and the history of a message."""

    def health(self, store: Store, now: Now) -> dict[str, Any]: ...

    def metrics(self, store: Store, now: Now) -> dict[str, Any]: ...

    def exposition(self, store: Store, now: Now, shows: Callable[[str], bool] = ...) -> Generator[None, None, str]: ...

    def has_space_to_publish(self) -> bool: ...

    def history(self, key: str, limit: int) -> Generator[None, None, MessageHistory]: ...


@dataclass(slots=True)
class Decision:
    """The result of a command: events, or ``data`` if it changes nothing, or to wait for a message or record until
    ``wait_until`` (engine ms); ``resume`` are fields that the request has from then on.

    The answer is built from the last event, or from all events as ``reply`` says, which the last event carries; its key
    ``as`` names the function in ``replies``. ``once``: a repeat gets the same ``data``, even after a restart, so an
    event without effect stores it (as ``reply``, if given). ``refused``: all items were refused, which is remembered
    only while the daemon runs, as for any refusal. ``more`` returns further events of the same request, based on the
    state after the previous ones, until it returns none; it must not raise. ``work`` is a long query whose steps run
    between groups; it returns the ``data`` and may raise ``CommandError`` and ``OSError``."""

    drafts: list[Draft] = field(default_factory=list)
    data: dict[str, Any] | None = None
    wait_until: int | None = None
    reply: Draft | None = None
    once: bool = False
    refused: bool = False
    more: Callable[[], list[Draft]] | None = None
    work: Work | None = None
    resume: dict[str, Any] | None = None


@dataclass(slots=True)
class Pending:
    """What the events of the current request will change, for its next items.

    ``queues`` to be created, with the layers of their policies; messages and bytes ``added`` to each queue, without
    dead ones; ``claims`` with the key of the message; keys that are ``settled`` or dropped; the number of messages
    ``published`` in each queue; ``stored`` bytes of the publisher. To make space: ``ready`` has the oldest ready
    messages of a queue in order (``asked``: how many were requested from the store), ``fresh`` those of the request
    itself. For dead letters: ``dying`` messages, and how many stored dead letters were ``evicted`` for them, up to the
    one that died at ``evicted_up_to``. ``open`` queues accept every message (by policy); only ``queues`` and ``stored``
    are recorded for them. ``gathering_entries`` are messages that gather, with the request's own parts, by
    queue and account."""

    queues: set[str] = field(default_factory=set)
    created_with: dict[str, Layer] = field(default_factory=dict)
    added: dict[str, tuple[int, int]] = field(default_factory=dict)
    claims: dict[tuple[str, str], str] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    dying: dict[str, deque[Entry]] = field(default_factory=dict)
    evicted: dict[str, int] = field(default_factory=dict)
    evicted_up_to: dict[str, tuple[int, int]] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    ready: dict[str, deque[Entry]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    fresh: dict[str, deque[Entry]] = field(default_factory=dict)
    open: dict[str, Policy] = field(default_factory=dict)
    stored: int = 0
    gathering_entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def add(self, queue: str, messages: int, size: int) -> None:
        """Record messages, and their bytes, that are added to a queue, or removed if negative."""
        before = self.added.get(queue, (0, 0))
        self.added[queue] = (before[0] + messages, before[1] + size)

    def take(self, entry: Entry) -> None:
        """Record that a message is removed."""
        self.settled.add(entry.key)
        if entry.state not in ENDED:
            self.add(entry.queue, -1, -entry.size)


@dataclass(slots=True)
class Context:
    """What a command may use. Requests use it one after the other, see ``begin``, and so do groups, see ``renew``."""

    store: Store
    now: Now
    who: Principal
    policies: Policies
    vitals: Vitals
    ids: Ids
    access: Access
    quotas: Quotas
    consumers: Consumers
    usage: Usage | None
    cursors: Cursors
    rates: Rates
    subscriptions: Subscriptions
    dlq_index: DlqIndex
    leases: LeaseIndex
    statistics: Statistics
    patterns: QueuePatterns
    draining: bool = False
    read_body: BodyReader = json_body
    #: The policies of queues that exist, and that accept every message of everyone. Valid as long as only messages
    #: change: whoever changes anything else needs another context.
    open_queues: dict[str, Policy] = field(default_factory=dict)
    #: In the same way, those of queues from which everyone may lease every ready message.
    free_queues: dict[str, Policy] = field(default_factory=dict)
    #: In the same way, by queue what the policy keeps of a message that was acknowledged.
    keeps: dict[str, str] = field(default_factory=dict)
    payload: dict[str, Any] = field(default_factory=dict)
    """What the request gives, unchecked; its fields are what it means. Whoever decides without ``begin`` sets it."""
    unfolded_bytes: dict[Account, int] = field(default_factory=dict)
    """Bytes that accounts have published and that ``usage`` does not show yet."""
    unfolded_keys: set[str] = field(default_factory=set)
    """Keys of messages that events change which are not folded yet."""
    page: tuple[tuple[int, ...], Page] | None = None
    """The records that were read last, by log, position and limits: many readers wait at the same place. They are those
    of before the group, whatever it appends."""
    _pending: Pending | None = None

    def renew(self, now: Now, draining: bool) -> None:
        """Begin the requests of another group."""
        self.now = now
        self.draining = draining
        self.open_queues.clear()
        self.free_queues.clear()
        self.keeps.clear()
        self.unfolded_bytes.clear()
        self.page = None

    def begin(self, who: Principal, read_body: BodyReader, payload: dict[str, Any]) -> None:
        """Begin the next request: nothing is pending."""
        self.who = who
        self.read_body = read_body
        self.payload = payload
        self._pending = None

    @property
    def pending(self) -> Pending:
        """What the events of the request will change. Most requests have one event, and no need to know."""
        if self._pending is None:
            self._pending = Pending()
        return self._pending

    def afresh(self) -> Context:
        """The same context with nothing pending: what was pending is folded."""
        return replace(self, _pending=None)

    def may(self, verb: Verb | None, queue: str) -> bool:
        """Whether the principal has a permission (None: any permission) in a queue."""
        return self.access.may(self.who.account, verb, queue)

    def require(self, verb: Verb | None, queue: str) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) unless the principal has a permission, see ``may``."""
        if verb not in self.access.free:
            self.access.require(self.who.account, verb, queue)
