"""What a broker and its attempts work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .access import Access
from .clock import Clock
from .dead_addresses import DeadAddresses
from .ids import Ids
from .journal import Journal
from .policies import Policies
from .quotas import Quotas
from .rates import Rates
from .repeats import Repeats
from .reserve import Reserve
from .stores.base import Store
from .unread import Unread
from .vitals import DaemonVitals
from .waiters import Waiters


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
