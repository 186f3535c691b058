"""What an open root has in memory, and what the broker works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..journal.journal import Journal
from ..journal.reserve import Reserve
from ..model.consumers import Consumers
from ..model.cursors import Cursors
from ..model.dlq_index import DlqIndex
from ..model.observer import Observers, Participant
from ..model.subscriptions import Subscriptions
from ..model.usage import Usage
from ..observe.vitals import DaemonVitals
from ..platform.clock import Clock
from ..platform.ids import Ids
from ..policy.access import Access
from ..policy.policies import Policies
from ..policy.quotas import Quotas
from ..policy.rates import Rates
from ..stores.base import Store
from .body_retry import BodyRetry
from .idempotency import Idempotency


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
    cursors: Cursors = field(default_factory=Cursors)
    rates: Rates = field(default_factory=Rates)
    body_retry: BodyRetry = field(default_factory=BodyRetry)
    observers: Observers = field(init=False)
    #: Memory that each transaction changes together with the store.
    participants: Sequence[Participant] = field(init=False)

    def __post_init__(self) -> None:
        usage = [self.usage] if self.usage else []
        self.observers = Observers([self.consumers, self.rates, self.dlq_index, *usage])
        self.participants = (self.consumers, self.rates, self.dlq_index, self.subscriptions, self.cursors, *usage)
