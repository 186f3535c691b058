"""Whose requests are next when several principals have more pending than one group takes: each has its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, MutableMapping, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

from ..model.principal import Account
from ..model.request import Request

#: The part of a group's bytes that one account may have in a turn.
BYTES_OF_A_TURN: Final = 0.25


@dataclass(slots=True)
class Budget:
    """How many more requests fit, and how many bytes; the last one may exceed them."""

    requests: int
    bytes: int

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more fits."""
        return self.requests <= 0 or self.bytes <= 0

    def use(self, size: int) -> None:
        """Take a request of ``size`` bytes."""
        self.requests -= 1
        self.bytes -= size


K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Sized)


def in_turns(order: deque[K], queues: MutableMapping[K, Q], budget: Budget, turn: Callable[[Q], None]) -> None:
    """Give each queue its turn, in ``order``, until the budget is used up. Queues that are empty then are removed, the
    others come last. Raises as ``turn``."""
    for _ in range(len(order)):
        if budget.is_used_up:
            return
        key = order.popleft()
        queue = queues[key]
        try:
            turn(queue)
        finally:
            if queue:
                order.append(key)
            else:
                del queues[key]


class FairScheduler:
    """The pending requests of all doors. A group that cannot take all of them takes a turn of each account."""

    def __init__(self, turn_requests: int) -> None:
        self._turn_requests = turn_requests
        self._arrived: list[Request] = []  # in no queue yet
        self._bytes = 0
        self._queues: dict[Account, deque[Request]] = {}
        self._order: deque[Account] = deque()

    @property
    def count(self) -> int:
        """How many requests are pending."""
        return len(self._arrived) + (sum(map(len, self._queues.values())) if self._queues else 0)

    def of_door(self, door: str) -> int:
        """How many requests of a door are pending."""
        if not self._arrived and not self._queues:
            return 0
        return sum(request.door == door for request in chain(self._arrived, *self._queues.values()))

    def add(self, requests: Collection[Request]) -> None:
        """Requests have arrived."""
        for request in requests:
            self._bytes += request.bytes
        self._arrived.extend(requests)

    def put_back(self, requests: Collection[Request]) -> None:
        """Requests that were taken and not processed come before those of their accounts that are pending."""
        if not self._queues:
            self._bytes += sum(request.bytes for request in requests)
            self._arrived[:0] = requests
            return
        for request in reversed([*requests]):
            account = request.who.account
            if account not in self._queues:
                self._queues[account] = deque()
                self._order.appendleft(account)
            self._queues[account].appendleft(request)

    def take(self, requests: int, size: int) -> list[Request]:
        """The next requests, at most so many of about so many bytes, in the order of their arrival."""
        if not self._queues and len(self._arrived) <= requests and self._bytes <= size:
            everything, self._arrived, self._bytes = self._arrived, [], 0
            return everything
        self._queue_up()
        taken: list[Request] = []
        budget = Budget(requests, size)

        def turn(queue: deque[Request]) -> None:
            of_turn = Budget(self._turn_requests, int(size * BYTES_OF_A_TURN))
            while queue and not (of_turn.is_used_up or budget.is_used_up):
                request = queue.popleft()
                of_turn.use(request.bytes)
                budget.use(request.bytes)
                taken.append(request)

        while self._queues and not budget.is_used_up:
            in_turns(self._order, self._queues, budget, turn)
        taken.sort(key=lambda one: one.started_ns)
        return taken

    def remove(self, request: Request) -> None:
        """Forget a pending request."""
        self._queue_up()
        queue = self._queues.get(request.who.account)
        if queue and request in queue:
            queue.remove(request)
            if not queue:
                del self._queues[request.who.account]
                self._order.remove(request.who.account)

    def _queue_up(self) -> None:
        for request in self._arrived:
            account = request.who.account
            if account not in self._queues:
                self._queues[account] = deque()
                self._order.append(account)
            self._queues[account].append(request)
        self._arrived, self._bytes = [], 0
