"""The tables that hold what devices said, each event and each snapshot once: ``ALL`` by name.

A module a table: ``SCHEMA``, ``KEY``, ``PARTITION`` as data, ``build(frames)`` that makes its rows.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from . import (
    conflicts,
    consumers,
    dead_letters,
    events,
    inventory,
    leases,
    messages,
    metrics,
    origins,
    queue_depth,
    rejects,
    snapshots,
    traffic,
)

ALL: Final[dict[str, ModuleType]] = {
    module.TABLE.name: module
    for module in (
        inventory,
        rejects,
        snapshots,
        origins,
        events,
        conflicts,
        messages,
        queue_depth,
        leases,
        dead_letters,
        consumers,
        metrics,
        traffic,
    )
}
