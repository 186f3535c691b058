"""Calls that wait for a message, by queue, oldest first."""

from __future__ import annotations

import heapq
from collections import Counter

from .principal import Account
from .request import Call


class Waiters:
    """The parked calls."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[int, Call]] = {}
        self._ends: list[tuple[int, int, Call]] = []
        self._numbers = 0
        self._users: Counter[Account] = Counter()
        self.count = 0

    def park(self, call: Call) -> None:
        """Let a call wait. One that was parked before gets its old place back."""
        if not call.number:
            self._numbers += 1
            call.number = self._numbers
        line = self._by_queue.setdefault(call.queue, {})
        behind = bool(line) and call.number < next(reversed(line))
        line[call.number] = call
        if behind:
            self._by_queue[call.queue] = dict(sorted(line.items()))
        self.count += 1
        self._users[call.who.account] += 1
        if len(self._ends) > 2 * self.count + 64:  # mostly calls that were served long before their end
            waiting = (one for line in self._by_queue.values() for one in line.values())
            self._ends = [(one.wait_until, one.number, one) for one in waiting]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (call.wait_until, call.number, call))

    def remove(self, call: Call) -> bool:
        """End a call's wait. Whether it was waiting."""
        line = self._by_queue.get(call.queue)
        if line is None or line.pop(call.number, None) is None:
            return False
        if not line:
            del self._by_queue[call.queue]
        self.count -= 1
        self._users[call.who.account] -= 1
        if not self._users[call.who.account]:
            del self._users[call.who.account]
        return True

    def of_account(self, account: Account) -> int:
        """How many requests of an account wait."""
        return self._users[account]

    def on(self, queue: str) -> list[Call]:
        """The calls that wait on a queue, oldest first."""
        return list(self._by_queue.get(queue, {}).values())

    def consumers(self, queue: str = "") -> Counter[tuple[str, str]]:
        """How many calls wait, by queue and the name of the consumer, on one queue or on all ('')."""
        lines = self._by_queue.items() if not queue else [(queue, self._by_queue.get(queue, {}))]
        return Counter(
            (name, call.request.payload.get("consumerId") or call.who.client_id)
            for name, line in lines
            for call in line.values()
        )

    def over(self, now: int) -> list[Call]:
        """The calls whose wait has ended by ``now``; they are no longer parked."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            call = heapq.heappop(self._ends)[2]
            if self.remove(call):
                ended.append(call)
        return ended

    def next_end(self) -> int | None:
        """When the next wait ends."""
        while self._ends:
            until, number, call = self._ends[0]
            if number in self._by_queue.get(call.queue, {}):
                return until
            heapq.heappop(self._ends)
        return None
