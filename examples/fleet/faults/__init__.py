"""Faults by their names, and which of them can be on one device."""

from __future__ import annotations

from .base import Fault
from .of_machines import ClockSteps, LostSegment, NoClock, PowerCuts, PutBack, Silent
from .of_programs import (
    DeadConsumer,
    Duplicates,
    DuplicatesRefused,
    HungConsumer,
    Poison,
    RetryStorm,
    SlowConsumer,
)

__all__ = ["ALONE", "FAULTS", "Fault", "go_together"]

FAULTS: dict[str, type[Fault]] = {
    fault.name: fault
    for fault in (
        Poison,
        DeadConsumer,
        HungConsumer,
        SlowConsumer,
        RetryStorm,
        Duplicates,
        DuplicatesRefused,
        PowerCuts,
        NoClock,
        ClockSteps,
        LostSegment,
        PutBack,
        Silent,
    )
}
#: Faults of one kind would hide each other on one device.
_KINDS = (
    {"dead-consumer", "hung-consumer", "slow-consumer", "retry-storm", "duplicates", "duplicates-refused"},
    {"power-cuts", "no-clock", "clock-steps", "lost-segment", "put-back", "silent"},
)
#: What makes a device forget, or fall silent.
ALONE = frozenset({"put-back", "silent", "lost-segment"})


def go_together(names: list[str]) -> bool:
    """Whether faults can be on one device: one of a kind, and some only alone."""
    if len(names) > 1 and ALONE.intersection(names):
        return False
    return all(len(kind.intersection(names)) < 2 for kind in _KINDS)
