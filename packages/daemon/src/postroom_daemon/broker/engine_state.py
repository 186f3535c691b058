"""What a broker and its attempts work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..journal.journal import Journal
from ..journal.reserve import Reserve
from ..model.dlq_index import DeadAddresses
from ..model.waiters import Waiters
from ..observe.vitals import DaemonVitals
from ..platform.clock import Clock
from ..platform.ids import Ids
from ..policy.access import Access
from ..policy.policies import Policies
from ..policy.quotas import Quotas
from ..policy.rates import Rates
from ..stores.base import Store
from .body_retry import Unread
from .idempotency import Repeats


@dataclass(slots=True)
class Parts:
    """The parts of one open root. Those with a default are no part of its state: they begin anew at each start."""

    store: Store
    journal: Journal
    clock: Clock
    policies: Policies
    vitals: DaemonVitals
    repeats: Repeats
    reserve: Reserve
    root_id: str
    epoch: int
    daemon_uid: int
    ids: Ids
    access: Access
    quotas: Quotas
    waiters: Waiters = field(default_factory=Waiters)
    addresses: DeadAddresses = field(default_factory=DeadAddresses)
    rounds: dict[str, Any] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    unread: Unread = field(default_factory=Unread)
