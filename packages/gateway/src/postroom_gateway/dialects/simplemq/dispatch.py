"""Who consumes which topic now, and the pushing of messages to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from postroom_common.errors import CommandError

from ...contract import DaemonUnavailable, Principal, WaitEnded
from .messages import Delivered
from .strategies import Strategy, choose
from .topics import DeliveryOver, Topics, text_of

log = logging.getLogger(__name__)

#: A consumer gets nothing more while it has so many bytes that are not settled.
_UNSETTLED_BYTES: Final = 1 << 20
#: Most messages that are leased at once.
_AT_ONCE: Final = 32
#: Pause (s) before the daemon is asked again, when it could not be asked.
_PAUSE_S: Final = 1.0


class Sink(Protocol):
    """Where a consumer's messages go."""

    def push(self, delivered: Delivered) -> None:
        """Send a message."""

    def timed_out(self, delivered: Delivered) -> None:
        """The time of a delivery is over."""

    def dismiss(self, reason: str) -> None:
        """Close the connection, for a reason."""


class Consumer:
    """A connection that consumes a topic. ``principal`` is whom its messages are leased for."""

    def __init__(self, sink: Sink, principal: Principal, name: str, priority: tuple[int, int], capacity: int) -> None:
        self.sink = sink
        self.principal = principal
        self.name = name
        self.priority = priority
        self.capacity = capacity
        self.served = 0
        self.is_gone = False
        #: What it has that is not settled, by lease id, and what ends that in time.
        self.deliveries: dict[str, tuple[Delivered, asyncio.TimerHandle]] = {}
        self._bytes = 0

    @property
    def load(self) -> int:
        """As ``Candidate.load``."""
        return len(self.deliveries)

    @property
    def has_room(self) -> bool:
        """As ``Candidate.has_room``."""
        return not self.is_gone and self.load < self.capacity and self._bytes < _UNSETTLED_BYTES

    def take(self, delivered: Delivered, timer: asyncio.TimerHandle) -> None:
        """It gets a message."""
        self.deliveries[delivered.lease_id] = delivered, timer
        self._bytes += len(delivered.body)

    def give(self, lease_id: str) -> Delivered | None:
        """What it got by this delivery, which is over; None if it was before."""
        delivered, timer = self.deliveries.pop(lease_id, (None, None))
        if delivered is None or timer is None:
            return None
        timer.cancel()
        self._bytes -= len(delivered.body)
        return delivered


class Dispatcher:
    """Pushes the messages of one topic to its consumers, as long as there are any."""

    def __init__(self, name: str, topics: Topics, strategy: Strategy) -> None:
        self.name = name
        self.topics = topics
        self.consumers: list[Consumer] = []
        self._strategy = strategy
        self._served = 0
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._run_task: asyncio.Task[None] | None = None

    # --- consumers ----------------------------------------------------------------------------------------------------

    def enter(self, consumer: Consumer) -> None:
        """A consumer comes. It takes the place of a connection with its name, which its client has probably lost."""
        for other in list(self.consumers):
            if other.name == consumer.name and other.principal == consumer.principal:
                other.sink.dismiss("another connection has this consumerId and topic now")
                self.leave(other)
        self.consumers.append(consumer)
        self._changed.set()
        if self._run_task is None:
            self._run_task = self._loop.create_task(self._run())

    def leave(self, consumer: Consumer, has_failed: bool = True) -> None:
        """A consumer goes. What it has not settled goes to others at once. If the consumer ``has_failed``, the first of
        it, on which it most probably worked, counts as a failed delivery: otherwise a message that ends its consumers
        would come for ever."""
        if consumer.is_gone:
            return
        consumer.is_gone = True
        self.consumers.remove(consumer)
        for number, lease_id in enumerate(list(consumer.deliveries)):
            delivered = consumer.give(lease_id)
            assert delivered
            if number or not has_failed:
                self.run(self.topics.release(consumer.principal, delivered))
            else:
                self.run(self.topics.nack(consumer.principal, delivered, "the consumer has gone", delayMs=0))
        self._changed.set()

    def give(self, consumer: Consumer, lease_id: str) -> Delivered | None:
        """A delivery is over: what it was; None if it was over before."""
        self._changed.set()
        return consumer.give(lease_id)

    def prolong(self, consumer: Consumer, delivered: Delivered, seconds: float) -> None:
        """A delivery of a consumer has this time from now on."""
        if delivered.lease_id in consumer.deliveries:
            consumer.give(delivered.lease_id)
            self._take(consumer, delivered, seconds)

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work that outlives its connection. If it fails, the lease ends, and the message comes again."""
        task = self._loop.create_task(self._logged(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _logged(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except DeliveryOver:
            pass
        except (CommandError, DaemonUnavailable) as error:
            log.warning("a delivery of %s was not settled, and comes again when its time is over: %s", self.name, error)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self.consumers:
                self._changed.clear()
                consumer = choose(self._strategy, self.consumers)
                if consumer is None:
                    await self._changed.wait()
                    continue
                if not await self._serve(consumer):
                    return
        finally:
            self._run_task = None

    async def _serve(self, consumer: Consumer) -> bool:
        """Push the next messages, of which a consumer gets the first. False: the gateway stops."""
        try:
            leased = await self._lease(consumer)
        except CommandError as error:
            consumer.sink.dismiss(text_of(error))
            self.leave(consumer, has_failed=False)
        except DaemonUnavailable:
            await asyncio.sleep(_PAUSE_S)
        except WaitEnded:
            return False
        else:
            for delivered in leased:
                self._push(consumer, delivered)
        return True

    def _push(self, leased_for: Consumer, delivered: Delivered) -> None:
        """Push a message to the consumer that is next, of those of the same principal."""
        if delivered.shown.get("targetConsumerId"):
            consumer = None if leased_for.is_gone else leased_for
        else:
            consumer = choose(self._strategy, self._equals(leased_for))
        if consumer is None:
            self.run(self.topics.release(leased_for.principal, delivered))
            return
        self._served += 1
        consumer.served = self._served
        self._take(consumer, delivered, delivered.seconds)
        consumer.sink.push(delivered)

    def _equals(self, consumer: Consumer) -> list[Consumer]:
        return [one for one in self.consumers if one.principal == consumer.principal]

    async def _lease(self, consumer: Consumer) -> list[Delivered]:
        """Messages for a consumer, and others of the same principal; none if somebody else is to get the next."""
        room = sum(one.capacity - one.load for one in self._equals(consumer) if one.has_room)
        most = 1 if self._strategy is Strategy.ORDERED else min(room, _AT_ONCE)
        lease = self._loop.create_task(self.topics.lease(consumer.principal, self.name, consumer.name, most))
        try:
            while not lease.done():
                changed = self._loop.create_task(self._changed.wait())
                try:
                    await asyncio.wait((lease, changed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                self._changed.clear()
                chosen = choose(self._strategy, self.consumers)
                is_next = chosen and chosen.principal == consumer.principal and not consumer.is_gone
                if not lease.done() and not is_next:
                    return []
            return lease.result()
        finally:
            lease.cancel()  # a lease that comes nevertheless is returned

    def _take(self, consumer: Consumer, delivered: Delivered, seconds: float) -> None:
        consumer.take(delivered, self._loop.call_later(seconds, self._time_out, consumer, delivered))

    def _time_out(self, consumer: Consumer, delivered: Delivered) -> None:
        if self.give(consumer, delivered.lease_id):
            consumer.sink.timed_out(delivered)


class Dispatchers:
    """The topics that have consumers, by name."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._by_name: dict[str, Dispatcher] = {}

    def of(self, topic: str, strategy: Strategy) -> Dispatcher:
        """The dispatcher of a topic, which is made if there is none."""
        self._by_name = {name: one for name, one in self._by_name.items() if one.consumers}
        return self._by_name.setdefault(topic, Dispatcher(topic, self._topics, strategy))
