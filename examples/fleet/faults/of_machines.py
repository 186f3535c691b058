"""Faults of the machine: power, clock, disk, and hands."""

from __future__ import annotations

import copy
import shutil
from functools import partial

from ..device import BEGIN_WALL_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from .base import Fault

#: What a copy of the data directory has.
_KEPT = ("data", "journal")


class PowerCuts(Fault):
    name = "power-cuts"
    description = "The power is cut some times; the clock is buffered and right. What is in work is delivered again."
    reports = ("clock_trouble",)
    also = ("device_health", "latency_daily")

    def plan(self) -> None:
        self.facts["redelivered"] = []
        self.facts["cuts"] = self.device.off
        for number in range(3):
            moment = self.device.part(0.2 + 0.22 * number + self.device.random.uniform(0, 0.15))
            length_ms = min(self.device.random.uniform(0.5, 20) * MINUTE_MS, self.device.part(0.05))
            self.when_on(moment, partial(self._cut, length_ms, 600))

    def _cut(self, length_ms: float, patience_s: int) -> None:
        """Cut it while a consumer has something, if that comes about soon."""
        held = [one.message_key for consumer in self.programs.consumers.values() for one in consumer.held]
        if held or not patience_s:
            self.facts["redelivered"] += held
            self.device.cut_power(length_ms)
        else:
            self.device.after(SECOND_MS, lambda: self._cut(length_ms, patience_s - 1))


class NoClock(Fault):
    name = "no-clock"
    description = "After a power cut the device has no time until the network is there: it is 1970 for some minutes."
    reports = ("clock_trouble",)
    also = ("device_health", "latency_daily")

    def plan(self) -> None:
        moment = self.device.part(self.device.random.uniform(0.4, 0.7))
        self.when_on(moment, self._cut)

    def _cut(self) -> None:
        device = self.device
        off_ms, wrong_ms = 3 * MINUTE_MS, device.random.uniform(5, 15) * MINUTE_MS
        self.facts |= {"cutMs": device.now, "wrongFromMs": device.now + off_ms, "wallMs": 20 * SECOND_MS}
        self.facts["rightAgainMs"] = int(device.now + off_ms + wrong_ms)
        device.cut_power(off_ms, lambda: 20 * SECOND_MS)
        self.when_on(device.now + off_ms + wrong_ms, lambda: device.machine.set_wall(device.wall_ms))


class ClockSteps(Fault):
    name = "clock-steps"
    description = (
        "Somebody sets the clock wrong while the device runs, and later right again: three days ahead, then back."
    )
    reports = ("clock_trouble",)

    def plan(self) -> None:
        moment = self.device.part(self.device.random.uniform(0.3, 0.6))
        self.when_on(moment, self._step)

    def _step(self) -> None:
        device, ahead_ms = self.device, 3 * 24 * HOUR_MS
        length_ms = min(2 * HOUR_MS, device.part(0.2))
        device.machine.set_wall(device.wall_ms + ahead_ms)
        self.facts |= {"fromMs": device.now, "untilMs": device.now + length_ms, "aheadMs": ahead_ms}
        self.when_on(device.now + length_ms, lambda: device.machine.set_wall(device.wall_ms))


class LostSegment(Fault):
    name = "lost-segment"
    description = "A file of the journal is lost while the daemon is stopped, before it was ever exported."
    reports = ("journal_gaps", "audit")
    also = ("audit_messages", "device_health")

    def plan(self) -> None:
        self.when_on(self.device.part(self.device.random.uniform(0.5, 0.7)), self._lose)

    def _lose(self) -> None:
        device = self.device
        segments = sorted((device.root / "journal").glob("*.jsonl"))
        exported = self._exported()
        # Neither the first nor the last one, and nothing of it in a snapshot.
        found = [one for one in range(1, len(segments) - 1) if int(segments[one].stem) > exported]
        if not found:
            device.after(10 * MINUTE_MS, self._lose)
            return
        lost, behind = segments[found[0]], segments[found[0] + 1]
        self.facts |= {"atMs": device.now, "firstEvent": int(lost.stem), "lastEvent": int(behind.stem) - 1}
        device.restart(lost.unlink)

    def _exported(self) -> int:
        """The last event that a snapshot can have."""
        snapshots = self.device.snapshots
        return int(snapshots[-1].name.split("-")[-2]) if snapshots else 0


class PutBack(Fault):
    name = "put-back"
    description = (
        "A copy of the data directory is put back hours later, as cp does it: what happened meanwhile is forgotten,"
        " and its event numbers are given out again."
    )
    reports = ("conflicts", "device_health")
    also = ("audit", "audit_messages", "clock_trouble", "latency_daily")

    def plan(self) -> None:
        begin = self.device.part(self.device.random.uniform(0.35, 0.45))
        self.when_on(begin, self._copy)
        self.when_on(begin + self.device.part(0.2), self._put_back)

    def _copy(self) -> None:
        device = self.device
        self.facts["copiedMs"] = device.now
        self._ledger = copy.deepcopy(device.ledger)
        device.restart(self._keep)

    def _keep(self) -> None:
        for name in _KEPT:
            shutil.copytree(self.device.root / name, self.device.directory / f"{name}.copy")

    def _replace(self) -> None:
        for name in _KEPT:
            shutil.rmtree(self.device.root / name)
            shutil.move(self.device.directory / f"{name}.copy", self.device.root / name)

    def _put_back(self) -> None:
        device = self.device
        device.export()  # what is about to be forgotten has been told
        forgotten = {queue: dict(counts - self._ledger.counts[queue]) for queue, counts in device.ledger.counts.items()}
        self.facts |= {"putBackMs": device.now, "forgotten": forgotten}
        device.ledger = self._ledger
        device.restart(self._replace)
        device.export()  # else the numbers might be given out again before anybody looks


class Silent(Fault):
    name = "silent"
    description = "The device is switched off, and nobody knows: there are no more snapshots of it."
    reports = ("device_health",)

    def plan(self) -> None:
        self.when_on(self.device.part(self.device.random.uniform(0.5, 0.6)), self._go_silent)

    def _go_silent(self) -> None:
        self.facts["fromMs"] = self.device.now
        self.facts["lastWallMs"] = BEGIN_WALL_MS + self.device.now
        self.device.ask_ends()
        self.device.machine.stop()
        self.device.off.append([self.device.now, self.device.length_ms])
