"""What an open root has in memory, and what the broker works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..engine.context import Context
from ..engine.queue_patterns import QueuePatterns
from ..journal.journal import Journal
from ..journal.reserve import Reserve
from ..model.consumers import Consumers
from ..model.cursors import Cursors
from ..model.dlq_index import DlqIndex
from ..model.facts import FACT_DRAINING
from ..model.lease_index import LeaseIndex
from ..model.observer import Observers, Participant
from ..model.principal import Principal
from ..model.statistics import Statistics
from ..model.subscriptions import Subscriptions
from ..model.usage import Usage
from ..observe.vitals import DaemonVitals
from ..platform.clock import Clock, Now
from ..platform.ids import Ids
from ..policy.access import Access
from ..policy.policies import Policies, PolicyPatternsInForce
from ..policy.quotas import Quotas
from ..policy.rates import Rates
from ..stores.base import Store
from .idempotency import Idempotency

#: A message is given up after so many failed reads in a row,
READS: Final = 5
#: over so many milliseconds of engine time.
READS_MS: Final = 5000
#: Messages that are remembered; the oldest one is forgotten first.
_KEYS_LIMIT: Final = 1000


class BodyRetry:
    """The failed reads by message. A restart forgets them."""

    def __init__(self) -> None:
        self.failed: dict[str, tuple[int, int]] = {}
        """How many reads of a message have failed, and when the first did (engine ms)."""

    def note_failure(self, key: str, now: int) -> bool:
        """A read failed at ``now`` (engine ms). Whether the message is to be given up; it is then forgotten, so that a
        message that is brought back starts from nothing."""
        reads, since = self.failed.pop(key, (0, now))
        reads += 1
        if reads >= READS and now - since >= READS_MS:
            return True
        if len(self.failed) >= _KEYS_LIMIT:
            del self.failed[next(iter(self.failed))]
        self.failed[key] = (reads, since)
        return False

    def forget(self, key: str) -> None:
        """The body of a message was read."""
        self.failed.pop(key, None)


@dataclass(slots=True)
class EngineState:
    """One per open root. Everything with a default is derived from events, and begins from nothing at each start."""

    store: Store
    journal: Journal
    clock: Clock
    policies: Policies
    vitals: DaemonVitals
    idempotency: Idempotency
    reserve: Reserve
    root_id: str
    epoch: int
    daemon_uid: int
    ids: Ids
    access: Access
    quotas: Quotas
    consumers: Consumers
    usage: Usage | None = None
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    dlq_index: DlqIndex = field(default_factory=DlqIndex)
    patterns: QueuePatterns = field(default_factory=QueuePatterns)
    cursors: Cursors = field(default_factory=Cursors)
    rates: Rates = field(default_factory=Rates)
    body_retry: BodyRetry = field(default_factory=BodyRetry)
    is_draining: bool | None = None
    """Whether publishes are refused; None: the store says."""
    context: Context | None = None
    """That of the last requests, for the next ones."""
    policy_patterns: PolicyPatternsInForce = field(init=False)
    observers: Observers = field(init=False)
    leases: LeaseIndex = field(init=False)
    statistics: Statistics = field(init=False)
    #: Memory that each transaction changes together with the store.
    participants: Sequence[Participant] = field(init=False)
    commits: Sequence[Callable[[], None]] = field(init=False)
    """``commit`` of each of them, except where it does nothing: they are called for every group."""

    def __post_init__(self) -> None:
        usage = [self.usage] if self.usage else []
        self.policy_patterns = PolicyPatternsInForce(self.policies)
        self.observers = Observers([self.consumers, self.rates, self.dlq_index, self.policy_patterns, *usage])
        self.leases = LeaseIndex(self.observers)
        self.statistics = Statistics(self.observers, self.ids.chance)
        self.patterns.observers = self.observers
        changed: list[Participant] = [self.consumers, self.rates, self.policy_patterns]
        changed += [self.subscriptions, self.cursors, self.statistics, *usage]
        self.participants = (*changed, self.dlq_index, self.leases, self.patterns)
        self.commits = tuple(one.commit for one in changed)

    def use_policies(self, policies: Policies) -> None:
        """Apply other policies, and the policy patterns that are in force."""
        self.policy_patterns.use(policies)
        self.policies = policies
        self.context = None
        self.dlq_index.forget()
        self.patterns.forget()

    def new_context(self, who: Principal, now: Now) -> Context:
        """A context for what ``who`` does at ``now``."""
        return Context(
            self.store,
            now,
            who,
            self.policies,
            self.vitals,
            self.ids,
            self.access,
            self.quotas,
            self.consumers,
            self.usage,
            self.cursors,
            self.rates,
            self.subscriptions,
            self.dlq_index,
            self.leases,
            self.statistics,
            self.patterns,
            self._draining(),
        )

    def context_of_requests(self, who: Principal, now: Now) -> Context:
        """The context of the requests of a group that begins at ``now``; ``who`` makes the first one."""
        context = self.context
        if context is None:
            context = self.context = self.new_context(who, now)
        else:
            context.renew(now, self._draining())
        return context

    def _draining(self) -> bool:
        draining = self.is_draining
        if draining is None:
            draining = self.is_draining = bool(self.store.facts.get(FACT_DRAINING))
        return draining
