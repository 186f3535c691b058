"""Who holds how many messages of which queue, and since when: kept up by the fold while a root is open, in memory.

Leased dead letters are not counted. A transaction of the store that is taken back is taken back here as well.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from .principal import Account
from .records import Entry

#: Consumers that are known at a time, each once for each of its queues; those that hold nothing are forgotten first.
CONSUMERS_LIMIT: Final = 10_000


@dataclass(slots=True)
class Holder:
    """A consumer of one queue: how many messages it holds, how many it was given since the start, and when it last
    asked for one, and got one (engine ms; 0: not since the start)."""

    held: int = 0
    given: int = 0
    asked: int = 0
    given_at: int = 0


class InFlight:
    """The consumers by queue and name, and the leases of each queue, oldest first."""

    def __init__(self) -> None:
        self._holders: OrderedDict[tuple[str, str], Holder] = OrderedDict()
        self._leases: dict[str, dict[int, int]] = {}  # by queue: the number of the message, since when (engine ms)
        self._unsorted: set[str] = set()  # queues whose leases are not in the order in which they were given
        self._users: Counter[str] = Counter()  # leases by uid
        self._undo: list[tuple[Holder, int, str, int, int, str]] = []
        self._changed: set[tuple[str, str]] = set()

    def of(self, queue: str, consumer: str) -> int:
        """How many messages a consumer holds."""
        holder = self._holders.get((queue, consumer))
        return holder.held if holder else 0

    def of_account(self, account: Account) -> int:
        """How many messages an account has leased."""
        return self._users[str(account)]

    def consumers(self, queue: str = "") -> list[tuple[str, str, Holder]]:
        """Queue, name and facts of all that are known, of one queue or of all ('')."""
        return [(*key, holder) for key, holder in self._holders.items() if queue in ("", key[0])]

    def asks(self, queue: str, consumer: str, now: int) -> None:
        """A consumer asks for a message."""
        self._holder(queue, consumer).asked = now

    def oldest_lease(self, queue: str) -> int | None:
        """When the lease was given that is the oldest of a queue (engine ms); None without one."""
        leases = self._leases.get(queue)
        if not leases:
            return None
        if queue in self._unsorted:
            self._leases[queue] = leases = dict(sorted(leases.items(), key=itemgetter(1)))
            self._unsorted.discard(queue)
        return next(iter(leases.values()))

    def leases(self, entry: Entry) -> None:
        """A message is leased, as its entry says."""
        holder = self._holder(entry.queue, entry.consumer_id)
        holder.held += 1
        self._count_user(entry.holder_uid, 1)
        holder.given += 1
        holder.given_at = entry.leased_at
        self._leases.setdefault(entry.queue, {})[entry.seq] = entry.leased_at
        self._note(holder, 1, entry)

    def settles(self, entry: Entry) -> None:
        """A lease has ended; the entry still has it."""
        holder = self._holder(entry.queue, entry.consumer_id)
        holder.held -= 1
        self._count_user(entry.holder_uid, -1)
        self._end(entry.queue, entry.seq)
        self._note(holder, -1, entry)

    def holds(self, entries: list[Entry]) -> None:
        """Messages that are leased at the start."""
        for entry in entries:
            self._holder(entry.queue, entry.consumer_id).held += 1
            self._count_user(entry.holder_uid, 1)
            self._put_back(entry.queue, entry.seq, entry.leased_at)

    def begin(self) -> None:
        """What was counted before stays."""
        self._undo.clear()
        self._changed.clear()

    def rollback(self) -> None:
        """What was counted since ``begin`` has not happened."""
        for holder, count, queue, number, since, uid in reversed(self._undo):
            holder.held -= count
            self._count_user(uid, -count)
            holder.given -= max(count, 0)
            if count > 0:
                self._end(queue, number)
            else:
                self._put_back(queue, number, since)
        self.begin()

    def _count_user(self, uid: str, by: int) -> None:
        self._users[uid] += by
        if not self._users[uid]:
            del self._users[uid]

    def _end(self, queue: str, number: int) -> None:
        leases = self._leases.get(queue, {})
        leases.pop(number, None)
        if not leases:
            self._leases.pop(queue, None)
            self._unsorted.discard(queue)

    def _put_back(self, queue: str, number: int, since: int) -> None:
        self._leases.setdefault(queue, {})[number] = since
        self._unsorted.add(queue)

    def _note(self, holder: Holder, count: int, entry: Entry) -> None:
        self._undo.append((holder, count, entry.queue, entry.seq, entry.leased_at, entry.holder_uid))
        self._changed.add((entry.queue, entry.consumer_id))

    def _holder(self, queue: str, consumer: str) -> Holder:
        holder = self._holders.get((queue, consumer))
        if holder is None:
            if len(self._holders) >= CONSUMERS_LIMIT:
                self._forget_one()
            holder = self._holders[queue, consumer] = Holder()
        else:
            self._holders.move_to_end((queue, consumer))
        return holder

    def _forget_one(self) -> None:
        """Forget who was not heard of for longest and holds nothing, of a few that were not heard of for long."""
        for _ in range(100):
            key, holder = self._holders.popitem(last=False)
            if not holder.held and key not in self._changed:
                return
            self._holders[key] = holder
