"""Which consumer has how many messages of which queue leased, and since when: an observer of the fold, in memory.

Leased dead letters are not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from .observer import Observer
from .principal import Account
from .records import Entry

#: Consumers that are remembered at a time, once for each of their queues; those without a lease are forgotten first.
CONSUMERS_LIMIT = 10_000


@dataclass(slots=True)
class Consumer:
    """A consumer of one queue: how many messages it has leased, how many were delivered to it since the start, and when
    it last asked for one and got one (engine ms; 0: not since the start)."""

    leased: int = 0
    delivered: int = 0
    asked: int = 0
    delivered_at: int = 0


class Consumers(Observer):
    """The consumers by queue and name, and the leases of each queue. A participant of transactions."""

    def __init__(self) -> None:
        self._consumers: OrderedDict[tuple[str, str], Consumer] = OrderedDict()
        self._leases: dict[str, dict[int, int]] = {}  # by queue: the number of the message, since when (engine ms)
        self._unsorted: set[str] = set()  # queues whose leases are not in the order in which they began
        self._accounts: dict[str, int] = {}  # leases by account
        self._ordered: dict[str, int] = {}  # by queue: leases in their first phase
        self._undo_ordered: list[tuple[str, int]] = []
        #: Leases that began (1) or ended (-1): the consumer, the queue and its name, the account, and of each message
        #: the number and since when.
        self._undo: list[tuple[int, Consumer, tuple[str, str], str, list[tuple[int, int]]]] = []

    def leases_of(self, queue: str, name: str) -> int:
        """How many messages of a queue a consumer has leased."""
        consumer = self._consumers.get((queue, name))
        return consumer.leased if consumer else 0

    def leases_of_account(self, account: Account) -> int:
        """How many messages an account has leased."""
        return self._accounts.get(str(account), 0)

    def ordered(self, queue: str) -> int:
        """How many leases of a queue are in the phase ``ORDERED``."""
        return self._ordered.get(queue, 0)

    def listed(self, queue: str = "") -> list[tuple[str, str, Consumer]]:
        """Queue, name and figures of all that are remembered, of one queue or of all ('')."""
        return [(*key, consumer) for key, consumer in self._consumers.items() if queue in ("", key[0])]

    def note_asked(self, queue: str, name: str, now: int) -> None:
        """A consumer asks a queue for messages at ``now`` (engine ms)."""
        self._consumer(queue, name).asked = now

    def oldest_lease(self, queue: str) -> int | None:
        """When the oldest lease of a queue began (engine ms); None without one."""
        leases = self._leases.get(queue)
        if not leases:
            return None
        if queue in self._unsorted:
            self._leases[queue] = leases = dict(sorted(leases.items(), key=itemgetter(1)))
            self._unsorted.discard(queue)
        return next(iter(leases.values()))

    def leased(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        queue = entries[0].queue
        leases = self._leases.get(queue)
        if leases is None:
            leases = self._leases[queue] = {}
        for entry in entries:
            leases[entry.seq] = entry.leased_at
            if entry.phase:
                self._note_ordered(queue, 1)
        for consumer, name, account, run in self._by_holder(entries):
            consumer.leased += len(run)
            consumer.delivered += len(run)
            consumer.delivered_at = run[-1].leased_at
            self._count_account(account, len(run))
            self._undo.append((1, consumer, (queue, name), account, [(entry.seq, entry.leased_at) for entry in run]))

    def activated(self, entry: Entry) -> None:
        """See ``Observer``."""
        self._note_ordered(entry.queue, -1)

    def lease_ended(self, entries: Sequence[Entry]) -> None:
        """See ``Observer``."""
        queue = entries[0].queue
        for consumer, name, account, run in self._by_holder(entries):
            consumer.leased -= len(run)
            self._count_account(account, -len(run))
            self._undo.append((-1, consumer, (queue, name), account, [(entry.seq, entry.leased_at) for entry in run]))
        self._end(queue, [entry.seq for entry in entries])
        for entry in entries:
            if entry.phase:
                self._note_ordered(queue, -1)

    def _by_holder(self, entries: Sequence[Entry]) -> Sequence[tuple[Consumer, str, str, Sequence[Entry]]]:
        """Messages of one queue in runs that one consumer and account has leased: these, and the messages."""
        first = entries[0]
        if len(entries) == 1:
            return ((self._consumer(first.queue, first.consumer_id), first.consumer_id, first.holder_uid, entries),)
        queue, begin, runs = first.queue, 0, []
        name, account = first.consumer_id, first.holder_uid
        for place, entry in enumerate(entries):
            if entry.consumer_id != name or entry.holder_uid != account:
                runs.append((self._consumer(queue, name), name, account, entries[begin:place]))
                begin, name, account = place, entry.consumer_id, entry.holder_uid
        runs.append((self._consumer(queue, name), name, account, entries[begin:]))
        return runs

    def add_leased(self, entries: list[Entry]) -> None:
        """Count messages that were leased before the start."""
        for entry in entries:
            self._consumer(entry.queue, entry.consumer_id).leased += 1
            self._count_account(entry.holder_uid, 1)
            self._add_again(entry.queue, entry.seq, entry.leased_at)
            if entry.phase:
                self._count_ordered(entry.queue, 1)

    def commit(self) -> None:
        """See ``Participant``."""
        self._undo.clear()
        if self._undo_ordered:
            self._undo_ordered.clear()

    def rollback(self) -> None:
        """See ``Participant``."""
        for sign, consumer, (queue, _), account, leases in reversed(self._undo):
            count = sign * len(leases)
            consumer.leased -= count
            consumer.delivered -= max(count, 0)
            self._count_account(account, -count)
            if sign > 0:
                self._end(queue, [number for number, _ in leases])
            else:
                for number, since in leases:
                    self._add_again(queue, number, since)
        for queue, by in self._undo_ordered:
            self._count_ordered(queue, -by)
        self.commit()

    def _note_ordered(self, queue: str, by: int) -> None:
        self._undo_ordered.append((queue, by))
        self._count_ordered(queue, by)

    def _count_ordered(self, queue: str, by: int) -> None:
        count = self._ordered.get(queue, 0) + by
        if count:
            self._ordered[queue] = count
        else:
            self._ordered.pop(queue, None)

    def _count_account(self, account: str, by: int) -> None:
        count = self._accounts.get(account, 0) + by
        if count:
            self._accounts[account] = count
        else:
            self._accounts.pop(account, None)

    def _end(self, queue: str, numbers: list[int]) -> None:
        leases = self._leases.get(queue)
        if leases:
            for number in numbers:
                leases.pop(number, None)
        if not leases:
            self._leases.pop(queue, None)
            self._unsorted.discard(queue)

    def _add_again(self, queue: str, number: int, since: int) -> None:
        self._leases.setdefault(queue, {})[number] = since
        self._unsorted.add(queue)

    def _consumer(self, queue: str, name: str) -> Consumer:
        key = (queue, name)
        consumer = self._consumers.get(key)
        if consumer is None:
            if len(self._consumers) >= CONSUMERS_LIMIT:
                self._forget_one()
            consumer = self._consumers[key] = Consumer()
        else:
            self._consumers.move_to_end(key)
        return consumer

    def _forget_one(self) -> None:
        """Forget one of the consumers that have been idle longest, if one of them has no lease, and none that a
        rollback could give back."""
        changed = {key for _, _, key, *_ in self._undo}
        for _ in range(100):
            key, consumer = self._consumers.popitem(last=False)
            if not consumer.leased and key not in changed:
                return
            self._consumers[key] = consumer
