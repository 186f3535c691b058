"""Requests that wait for messages, and who of them is offered one."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .principal import Account
from .request import Request


@dataclass(slots=True, eq=False)
class Subscription:
    """What a waiting request waits for: at most ``credit`` messages of ``queue``, or of every queue that ``matches``
    (then ``queue`` is empty), until ``until`` (engine ms). ``number`` says who has waited longest."""

    request: Request
    queue: str
    until: int
    credit: int = 1
    matches: Callable[[str], bool] | None = None
    number: int = 0


Matches = Callable[[str], bool]


def choose(
    waiting: Iterable[Subscription], by_pattern: Mapping[Matches, Mapping[int, Subscription]], queue: str
) -> list[Subscription]:
    """Who is offered the messages of a queue, in this order: who has waited longest comes first. ``waiting`` are those
    who wait for this queue, ``by_pattern`` those who wait for the queues that a function matches; it is called once for
    all of them."""
    chosen = [*waiting]
    for matches, others in by_pattern.items():
        if matches(queue):
            chosen += others.values()
    return sorted(chosen, key=lambda one: one.number)


class Subscriptions:
    """The waiting requests. A participant of transactions."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[int, Subscription]] = {}
        self._by_request: dict[Request, Subscription] = {}
        self.count = 0
        """How many requests wait."""
        self._patterns: dict[Matches, dict[int, Subscription]] = {}
        self._ends: list[tuple[int, int, Subscription]] = []
        self._numbers = 0
        self._accounts: Counter[Account] = Counter()
        self._added: list[Subscription] = []
        self._taken: list[Subscription] = []

    def queues(self) -> list[str]:
        """The names for which somebody waits, without those by pattern."""
        return list(self._by_queue)

    def of_account(self, account: Account) -> int:
        """How many requests of an account wait."""
        return self._accounts[account]

    def add(self, subscription: Subscription) -> None:
        """Let a request wait."""
        self._numbers += 1
        subscription.number = self._numbers
        self._put(subscription)
        self._added.append(subscription)

    def take(self, subscription: Subscription) -> None:
        """End a wait because the request is answered; a rollback continues it, in its old place."""
        self._remove(subscription)
        self._taken.append(subscription)

    def remove(self, request: Request) -> bool:
        """End the wait of a request for good. Whether it was waiting."""
        subscription = self._by_request.get(request)
        if subscription:
            self._remove(subscription)
        return subscription is not None

    def end(self, request: Request) -> bool:
        """Let the wait of a request end now. Whether it was waiting."""
        subscription = self._by_request.get(request)
        if subscription:
            subscription.until = 0
            heapq.heappush(self._ends, (0, subscription.number, subscription))
        return subscription is not None

    def of_session(self, session: object) -> list[Request]:
        """The waiting requests of a session."""
        return [request for request in self._by_request if request.session is session]

    def on(self, queue: str) -> list[Subscription]:
        """Who is offered the messages of a queue, in this order."""
        waiting = self._by_queue.get(queue)
        if self._patterns:
            return choose((waiting or {}).values(), self._patterns, queue)
        return list(waiting.values()) if waiting else []

    def by_pattern(self, queue: str) -> list[Subscription]:
        """Those by pattern: all, or those whose pattern matches a queue."""
        waiting = [others for matches, others in self._patterns.items() if not queue or matches(queue)]
        return [one for others in waiting for one in others.values()]

    def take_ended(self, now: int) -> list[Subscription]:
        """Take those whose wait has ended by ``now`` (engine ms)."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            subscription = heapq.heappop(self._ends)[2]
            if self._waits(subscription):
                self.take(subscription)
                ended.append(subscription)
        return ended

    def next_end(self) -> int | None:
        """When the next wait ends (engine ms); None if nobody waits."""
        while self._ends:
            until, _, subscription = self._ends[0]
            if self._waits(subscription):
                return until
            heapq.heappop(self._ends)
        return None

    def commit(self) -> None:
        """See ``Participant``."""
        self._added.clear()
        self._taken.clear()

    def rollback(self) -> None:
        """See ``Participant``."""
        for subscription in self._taken:
            self._put(subscription)
        for subscription in self._added:  # also those that were taken since
            if self._waits(subscription):
                self._remove(subscription)
        self.commit()

    def _waits(self, subscription: Subscription) -> bool:
        return self._by_request.get(subscription.request) is subscription

    def _put(self, subscription: Subscription) -> None:
        self._by_request[subscription.request] = subscription
        self.count = len(self._by_request)
        self._accounts[subscription.request.who.account] += 1
        if subscription.matches:
            self._patterns.setdefault(subscription.matches, {})[subscription.number] = subscription
        else:
            waiting = self._by_queue.setdefault(subscription.queue, {})
            in_front = bool(waiting) and subscription.number < next(reversed(waiting))
            waiting[subscription.number] = subscription
            if in_front:
                self._by_queue[subscription.queue] = dict(sorted(waiting.items()))
        if len(self._ends) > 2 * self.count + 64:  # mostly requests that were answered long before their end
            self._ends = [(one.until, one.number, one) for one in self._by_request.values()]
            heapq.heapify(self._ends)
        else:
            heapq.heappush(self._ends, (subscription.until, subscription.number, subscription))

    def _remove(self, subscription: Subscription) -> None:
        del self._by_request[subscription.request]
        self.count = len(self._by_request)
        account = subscription.request.who.account
        self._accounts[account] -= 1
        if not self._accounts[account]:
            del self._accounts[account]
        if subscription.matches:
            others = self._patterns[subscription.matches]
            del others[subscription.number]
            if not others:
                del self._patterns[subscription.matches]
            return
        waiting = self._by_queue[subscription.queue]
        del waiting[subscription.number]
        if not waiting:
            del self._by_queue[subscription.queue]
