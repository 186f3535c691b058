"""Faults of the programs that publish and consume."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..device import ALARMS, COMMANDS, HOUR_MS, MINUTE_MS, QUEUES, SECOND_MS, TELEMETRY
from .base import Fault


class Poison(Fault):
    name = "poison"
    description = "Some alarms cannot be read by their consumer: each is delivered up to the limit, and dies."
    reports = ("poison_messages", "dead_reasons_daily")
    also = ("anomalies", "latency_daily")

    def plan(self) -> None:
        self.facts |= {"queue": ALARMS, "messages": [], "attempts": QUEUES[ALARMS]["retry"]["limit"]}
        self.programs.consumers[ALARMS].refuses.append(
            lambda body: "cannot be read: field 'level' is missing" if "poison" in body else ""
        )
        for number in range(self.device.random.randint(4, 7)):
            moment = self.device.part(self.device.random.uniform(0.3, 0.85))
            bodies = [{"poison": number, "raw": f"{self.device.random.getrandbits(64):016x}"}]
            self.when_on(moment, partial(self._publish, bodies))

    def _publish(self, bodies: list[Any]) -> None:
        self.facts["messages"] += self.programs.publishers[ALARMS].publish(bodies)


class DeadConsumer(Fault):
    name = "dead-consumer"
    description = (
        "The consumer of telemetry dies, with messages in its hands, and is not started again: the queue grows."
    )
    reports = ("consumer_health", "depth_hourly")
    also = ("anomalies", "device_health")

    def plan(self) -> None:
        self.when_on(self.device.part(self.device.random.uniform(0.4, 0.55)), self._die)

    def _die(self) -> None:
        consumer = self.programs.consumers[TELEMETRY]
        if not consumer.held:  # it dies at its next work
            self.device.after(SECOND_MS, self._die)
            return
        consumer.alive = False
        self.facts |= {"queue": TELEMETRY, "consumer": consumer.program, "fromMs": self.device.now}
        self.facts["leased"] = [one.message_key for one in consumer.held]


class HungConsumer(Fault):
    name = "hung-consumer"
    description = (
        "The consumer of commands hangs, and a watchdog thread of it goes on extending its leases: they are stuck."
    )
    reports = ("stuck_leases", "depth_hourly")
    also = ("consumer_health", "dead_reasons_daily", "anomalies", "device_health")

    def plan(self) -> None:
        self.when_on(self.device.part(self.device.random.uniform(0.4, 0.55)), self._hang)

    def _hang(self) -> None:
        consumer = self.programs.consumers[COMMANDS]
        if not consumer.held:
            self.device.after(SECOND_MS, self._hang)
            return
        consumer.hang(MINUTE_MS)
        self.facts |= {"queue": COMMANDS, "consumer": consumer.program, "fromMs": self.device.now}
        self.facts["leased"] = [one.message_key for one in consumer.held]


class SlowConsumer(Fault):
    name = "slow-consumer"
    description = "The consumer of commands becomes ten times slower than it was, for the rest of the time."
    reports = ("latency_daily",)
    also = ("consumer_health", "depth_hourly", "anomalies")

    def plan(self) -> None:
        self.device.at(self.device.part(self.device.random.uniform(0.45, 0.55)), self._slow_down)

    def _slow_down(self) -> None:
        consumer = self.programs.consumers[COMMANDS]
        consumer.slowness = 10.0
        self.facts |= {"queue": COMMANDS, "consumer": consumer.program, "fromMs": self.device.now, "times": 10}


class RetryStorm(Fault):
    name = "retry-storm"
    description = "What commands are passed on to is away: each is given back at once and tried again, over and over."
    reports = ("retry_storms",)
    also = ("latency_daily", "depth_hourly", "consumer_health", "anomalies")

    def plan(self) -> None:
        self._messages: set[str] = set()
        begin = self.device.part(self.device.random.uniform(0.4, 0.6))
        self.when_on(begin, self._begin)

    def _begin(self) -> None:
        device, consumer = self.device, self.programs.consumers[COMMANDS]
        # A developer's quick remedy of long ago: retry for ever, each few seconds.
        retry = {"limit": 10_000, "backoff": "fixed", "initialDelaySec": 10}
        device.client("technician").set_policy(COMMANDS, {"retry": retry})
        consumer.refuses.append(self._refuse)
        length_ms = min(HOUR_MS, device.part(0.2))
        self.facts |= {"queue": COMMANDS, "fromMs": device.now, "untilMs": device.now + length_ms}
        self._failures = device.ledger.counts[COMMANDS]["failures"]
        self.programs.publishers[COMMANDS].publish([self.programs.publishers[COMMANDS].body() for _ in range(2)])
        device.after(length_ms, self._end)

    def _refuse(self, body: Any) -> str:
        return "connection refused by plc-3"

    def _end(self) -> None:
        self.programs.consumers[COMMANDS].refuses.remove(self._refuse)
        self.facts["failures"] = self.device.ledger.counts[COMMANDS]["failures"] - self._failures


class Duplicates(Fault):
    name = "duplicates"
    description = (
        "A publisher that gets no answer sends commands anew, in other requests without a key: each is there twice."
    )
    reports = ("duplicate_publishes",)

    def plan(self) -> None:
        pairs: list[list[str]] = []
        self.facts |= {"queue": COMMANDS, "pairs": pairs}
        publisher = self.programs.publishers[COMMANDS]

        def twice() -> None:
            body = publisher.body()
            pairs.append([*publisher.publish([body]), *publisher.publish([body])])

        for _ in range(self.device.random.randint(4, 8)):
            self.when_on(self.device.part(self.device.random.uniform(0.2, 0.9)), twice)


class DuplicatesRefused(Fault):
    name = "duplicates-refused"
    description = "A publisher sends commands twice, with the same deduplication key: the second one is refused."
    reports = ()

    def plan(self) -> None:
        keys: list[str] = []
        self.facts |= {"queue": COMMANDS, "messages": keys}
        publisher = self.programs.publishers[COMMANDS]

        def twice() -> None:
            body = publisher.body()
            for _ in range(2):
                keys.extend(publisher.publish([body], deduplication_key=f"command-{body['number']}"))

        for _ in range(self.device.random.randint(4, 8)):
            self.when_on(self.device.part(self.device.random.uniform(0.2, 0.9)), twice)
