"""Which device has which faults; and one device's life, from its plan to its truth."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .device import BEGIN_WALL_MS, HOUR_MS, Device
from .faults import ALONE, FAULTS, go_together
from .workload import Programs


@dataclass(frozen=True)
class Plan:
    """A fleet. Of ``devices`` a quarter, and at least one, stays healthy."""

    devices: int
    hours: float
    every_hours: float
    seed: int
    faults: tuple[str, ...] = tuple(FAULTS)
    busy: float = 1.0
    speed: float = 0.0

    def deal(self) -> dict[str, list[str]]:
        """The faults of each device, the same for a seed. Faults for which there is no room are left out."""
        chance = random.Random(f"{self.seed}: which device has which faults")
        names = [f"device-{number:02d}" for number in range(1, self.devices + 1)]
        dealt: dict[str, list[str]] = {name: [] for name in names}
        faulty = chance.sample(names, self.devices - max(1, self.devices // 4))
        shuffled = chance.sample(self.faults, len(self.faults))
        for fault in sorted(shuffled, key=lambda one: one not in ALONE):
            room = [name for name in faulty if go_together([*dealt[name], fault])]
            if room:
                dealt[min(room, key=lambda name: len(dealt[name]))].append(fault)
        return dealt


def live(plan: Plan, name: str, faults: list[str], out: Path) -> dict[str, Any]:
    """Let a device live below ``out``; writes and gives its truth."""
    began = time.monotonic()
    directory = out / name
    directory.mkdir(parents=True)
    length_ms, every_ms = int(plan.hours * HOUR_MS), int(plan.every_hours * HOUR_MS)
    device = Device(name, directory, f"{plan.seed}: {name}", length_ms, every_ms, plan.speed)
    programs = Programs(device, plan.busy * device.random.uniform(0.8, 1.25))
    planned = [FAULTS[fault](device, programs) for fault in sorted(faults)]
    for fault in planned:
        fault.plan()
    device.run()
    was_on = device.is_on
    device.machine.stop()
    truth = {
        "device": name,
        "seed": plan.seed,
        "beginWallMs": BEGIN_WALL_MS,
        "lengthMs": length_ms,
        "onAtTheEnd": was_on,
        "boots": device.boots,
        "offMs": device.off,
        "faults": [fault.wire() for fault in planned],
        "queues": device.ledger.wire(device.ends),
        "snapshots": [path.name for path in device.snapshots],
    }
    (directory / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth | {"seconds": time.monotonic() - began}
