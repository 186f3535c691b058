"""Devices whose snapshots tell some events again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .making import HOUR_MS, MORNING_MS, Device, replace_text, resealed, text_of

#: Names of devices whose second snapshot tells the end of the first one again, in the same words.
ALIKE = ("alike-0", "alike-1", "alike-2", "alike-3", "alike-4")


def twice(
    folder: Path, name: str, change: Callable[[Device], Any] = lambda _: None, *, wall_ms: int = MORNING_MS
) -> Device:
    """A device with two snapshots, of events 1 to 6 and 4 to 9; ``change`` is what happens to it in between."""
    device = Device(name, wall_ms=wall_ms)
    for number in range(6):
        device.publish(f"msg:{number}", attributes={"of": name}) if number % 2 else device.publish(f"msg:{number}")
    device.export(folder)
    change(device)
    device.wait(HOUR_MS)
    for number in range(3):
        device.lease(f"msg:{number}")
    device.export(folder, since=3)
    return device


def told_again(folder: Path) -> None:
    """Devices whose snapshots overlap: alike, and in each way in which it takes a closer look."""
    for name in ALIKE:
        twice(folder, name)
    twice(folder, "another-content", lambda device: device.events[4].update(queue="other"))
    twice(folder, "less-complete", lambda device: device.events[5].pop("attributes"))
    twice(folder, "more-complete", lambda device: device.events[4].update(payload="body"))
    twice(folder, "clock-never-set", wall_ms=1_000)
    twice(folder, "three-of-them").export(folder, since=3)
    gone = twice(folder, "with-a-gap")
    del gone.events[4]
    gone.export(folder, since=3)
    within = Device("one-within-another")
    for number in range(5):
        within.publish(f"msg:{number}")
    within.export(folder, since=3)
    within.publish("msg:5")
    within.export(folder, since=0)
    both = Device("two-with-the-same")
    both.publish("msg:0")
    for _ in range(2):
        both.export(folder, since=0)
    twice(folder, "in-other-words")
    path = folder / "in-other-words-2.jsonl.gz"
    *lines, _ = text_of(path).splitlines()
    spaced = (json.dumps(json.loads(line)).encode() if b'"kind":"event"' in line else line for line in lines)
    replace_text(path, resealed(spaced))
