"""What a fault is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from ..device import MINUTE_MS, Device
from ..workload import Programs


class Fault(ABC):
    """A fault of one device: its name, in ``description`` what it is, and in ``facts`` what it has done.

    ``reports`` are the tables of the fleet's report in which it must show, ``also`` those in which it may. One without
    ``reports`` is handled by the product, and shows nowhere as trouble.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    reports: ClassVar[tuple[str, ...]]
    also: ClassVar[tuple[str, ...]] = ()

    def __init__(self, device: Device, programs: Programs) -> None:
        self.device = device
        self.programs = programs
        self.facts: dict[str, Any] = {}

    @abstractmethod
    def plan(self) -> None:
        """Put it on the device's agenda."""

    def wire(self) -> dict[str, Any]:
        """As the truth is written."""
        return {
            "name": self.name,
            "description": self.description,
            "reports": list(self.reports),
            "also": list(self.also),
            "happened": bool(self.facts),
            "facts": self.facts,
        }

    def when_on(self, moment: float, do: Callable[[], None]) -> None:
        """Do something at a moment, or as soon as the device is on after it."""

        def try_it() -> None:
            if self.device.is_on:
                do()
            else:
                self.device.after(MINUTE_MS, try_it)

        self.device.at(moment, try_it)
