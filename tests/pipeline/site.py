"""A device that is followed step by step, and all that is taken of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from postroom_common.snapshot import Kind

from .making import HOUR_MS, Device, snapshot_id
from .silver import Lines

MINUTE_MS = 60_000
Takes = list[tuple[str, str, Lines]]


class Site(Device):
    """A device whose snapshots are kept as lines. It works as it should until a test makes it do otherwise."""

    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(name, **fields)
        self.takes: Takes = []
        self.asked: dict[str, int] = {}
        self._keys = 0
        self.mark("boot-1")

    def mark(self, boot: str, **fields: Any) -> None:
        self.event("clock_marked", bootId=boot, bootMs=self.engine_ms, **fields)

    def take(self, **header: Any) -> None:
        """A snapshot, as ``--since last`` writes it."""
        self.snapshots += 1
        lines = self.lines(header=header)
        for kind, fields in lines:
            if kind is Kind.QUEUE and not self.takes:
                fields["opening"] = 0
            if kind is Kind.CONSUMER:
                fields["askedEngineMs"] = self.asked.get(fields["consumer"])
            if kind is Kind.DEAD:
                fields.pop("phase", None)
        reported = [(kind, copy.deepcopy(fields)) for kind, fields in lines if kind is not Kind.METRIC]
        self.takes.append((self.name, snapshot_id(f"{self.name}/{self.epoch}/{self.snapshots}"), reported))

    def new(self, queue: str = "orders", **fields: Any) -> str:
        """Publish a message; its key."""
        self._keys += 1
        key = f"msg:{self.name}-{self.epoch}-{self._keys:04d}"
        self.publish(key, queue, **fields)
        return key

    def take_in(self, key: str, consumer: str = "worker-1") -> None:
        self.asked[consumer] = self.engine_ms
        self.lease(key, consumer)

    def finish(self, keys: Iterable[str]) -> None:
        """Messages that wait are worked on and done, a second each."""
        for key in keys:
            self.take_in(key)
            self.wait(1_000)
            self.ack(key)

    def work(self, messages: int = 6, queue: str = "orders", consumer: str = "worker-1") -> None:
        """Messages that are published, worked on and done, ten seconds each."""
        for _ in range(messages):
            key = self.new(queue)
            self.wait(1_000)
            self.take_in(key, consumer)
            self.wait(9_000)
            self.ack(key)

    def hours(self, count: int = 3, messages: int = 6) -> None:
        """Hours of ordinary work, each with a snapshot at its end."""
        for _ in range(count):
            self.work(messages)
            self.wait(HOUR_MS - messages * 10_000)
            self.take()
