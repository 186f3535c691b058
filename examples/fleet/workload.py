"""What the programs of a healthy device do all day."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from postroom_client import Delivery, ServerError

from .device import ALARMS, COMMANDS, HOUR_MS, MINUTE_MS, SECOND_MS, SELF_TEST, TELEMETRY, Device

#: A consumer looks at least this often, whatever it was told.
_LOOK_MS = 15 * MINUTE_MS


def rhythm(hour: float) -> float:
    """How busy people are at a time of day: 0.3 at night, 1 in the early afternoon."""
    return 0.65 - 0.35 * math.cos((hour - 2) / 24 * 2 * math.pi)


class Publisher:
    """Publishes ``size`` bodies at a time, about ``per_hour`` times an hour, which the consumer ``told`` hears of."""

    def __init__(
        self, device: Device, queue: str, per_hour: float, size: int, told: Consumer, rhythmic: bool = True
    ) -> None:
        self.program = f"{queue}-publisher"
        self.queue = queue
        self._device = device
        self._gap_ms = HOUR_MS / per_hour
        self._size = size
        self._told = told
        self._rhythmic = rhythmic
        self._numbers = itertools.count(1)
        device.after(device.random.uniform(MINUTE_MS, self._gap_ms), self._turn)

    def _turn(self) -> None:
        device = self._device
        if device.is_on:
            self.publish([self.body() for _ in range(self._size)])
        if self._rhythmic:
            gap_ms = device.random.expovariate(rhythm(device.hour)) * self._gap_ms
        else:
            gap_ms = self._gap_ms * device.random.uniform(0.95, 1.05)
        device.after(max(SECOND_MS, gap_ms), self._turn)

    def body(self) -> dict[str, Any]:
        """The next body: no two are alike."""
        number = next(self._numbers)
        return {"of": self._device.name, "number": number, "value": round(self._device.random.gauss(50, 8), 2)}

    def publish(self, bodies: list[Any], **fields: Any) -> list[str]:
        """Publish now; the keys."""
        keys = self._device.publish(self.program, self.queue, bodies, **fields)
        self._told.hear()
        return keys


class Consumer:
    """Takes up to ``most`` messages at a time and needs about ``work_ms`` for each. The attributes are for faults.

    ``refuses`` says why a body cannot be worked on now, or ''. ``slowness`` multiplies the work. One that is not
    ``alive`` does nothing; one that is ``hung`` keeps what it has, and goes on saying that it works on it.
    """

    def __init__(self, device: Device, queue: str, most: int, work_ms: float) -> None:
        self.program = f"{queue}-consumer"
        self.queue = queue
        self.alive = True
        self.hung = False
        self.slowness = 1.0
        self.refuses: list[Callable[[Any], str]] = []
        self.held: list[Delivery] = []
        self._device = device
        self._most = most
        self._work_ms = work_ms
        self._life = 0
        device.when_booted.append(self._begin)
        self._begin()

    def hear(self) -> None:
        """There is something to consume."""
        self._device.after(self._device.random.uniform(50, 1500), self._take)

    def _begin(self) -> None:
        self._life += 1
        self.held = []
        self._device.after(0, self._take)
        self._device.after(_LOOK_MS, partial(self._look, self._life))

    def _look(self, life: int) -> None:
        if life == self._life:
            self._take()
            self._device.after(_LOOK_MS, partial(self._look, life))

    def _take(self) -> None:
        device = self._device
        if self.held or self.hung or not self.alive or not device.is_on:
            return
        self.held = device.client(self.program).consume_next(self.queue, max=self._most)
        for one in self.held:
            device.ledger.leased(one.message_key, one.attempt, device.now, device.boots)
        if self.held and not self.hung:
            work_ms = sum(self._work_ms * self.slowness * device.random.lognormvariate(0, 0.4) for _ in self.held)
            device.after(max(1, work_ms), partial(self._finish, self._life))

    def _finish(self, life: int) -> None:
        device = self._device
        if life != self._life or not self.alive or self.hung or not device.is_on:
            return
        held, self.held = self.held, []
        good = [one for one in held if not self._reason(one)]
        if good:
            self._ack(good)
        for one in held:
            if one not in good:
                self._give_back(one)
        self._take()

    def _reason(self, one: Delivery) -> str:
        return next((reason for refuse in self.refuses if (reason := refuse(one.payload))), "")

    def _ack(self, deliveries: list[Delivery]) -> None:
        device = self._device
        results = device.client(self.program).ack_batch(deliveries)["results"]
        for one, result in zip(deliveries, results, strict=True):
            if "error" not in result:  # else its lease is over, and it comes again
                device.ledger.acked(one.message_key, device.now, device.boots)

    def _give_back(self, one: Delivery) -> None:
        device = self._device
        try:
            told = device.client(self.program).nack(one, reason=self._reason(one), requeue=True)
        except ServerError:
            return  # its lease is over
        device.ledger.failed(one.message_key, told["state"])
        if told["state"] == "delayed":
            device.after(told["availableAtEngineMs"] - told["engineNowMs"] + 20, self._take)

    def hang(self, every_ms: float) -> None:
        """Keep what it has, or takes next, and say each ``every_ms`` that it is being worked on."""
        device = self._device
        if not self.held and device.is_on:
            self._take()
        self.hung = bool(self.held)
        if not self.hung:
            device.after(MINUTE_MS, lambda: self.hang(every_ms))
            return
        device.after(every_ms, lambda: self._extend(every_ms))

    def _extend(self, every_ms: float) -> None:
        if self._device.is_on:
            for one in self.held:
                self._device.client(self.program).extend_lease(one)
        self._device.after(every_ms, lambda: self._extend(every_ms))


class Programs:
    """All programs of a device."""

    def __init__(self, device: Device, busy: float) -> None:
        """``busy`` is how much more than others it has to do: 1 is usual."""
        self.consumers = {
            TELEMETRY: Consumer(device, TELEMETRY, 10, 700),
            COMMANDS: Consumer(device, COMMANDS, 3, 4000),
            ALARMS: Consumer(device, ALARMS, 1, 1500),
        }
        self.publishers = {
            TELEMETRY: Publisher(device, TELEMETRY, 6 * busy, 4, self.consumers[TELEMETRY], rhythmic=False),
            COMMANDS: Publisher(device, COMMANDS, 5 * busy, 1, self.consumers[COMMANDS]),
            ALARMS: Publisher(device, ALARMS, 0.8 * busy, 1, self.consumers[ALARMS]),
        }
        device.after(5 * SECOND_MS, lambda: self._commission(device))

    def _commission(self, device: Device) -> None:
        """What a technician does first: some messages, looked at and removed."""
        device.publish("technician", SELF_TEST, [{"test": number} for number in range(5)])
        device.ledger.purged(SELF_TEST, device.client("technician").purge(SELF_TEST)["purged"])
