"""Engine time: milliseconds that only go forward, whatever the wall clock does.

While the machine runs, engine time follows CLOCK_BOOTTIME (it counts suspend as well). Over a restart in the same boot
it stays exact; over a reboot it advances by the wall clock's gap if that lies between 0 and 30 days, else by nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from selectors import BaseSelector, SelectorKey
from typing import Any, Final, NamedTuple

from postroom_common.events import JOURNAL_FORMAT, EventType

#: A wall clock that has gone on by more since the last event was set: nothing has passed by it.
LONGEST_GAP_MS: Final = 30 * 24 * 3600 * 1000


class Now(NamedTuple):
    """One reading: ``engine`` for every deadline, ``wall`` (Unix ms) only to be shown."""

    engine: int
    wall: int


class Mark(NamedTuple):
    """The clocks as they stood together at some event."""

    boot_id: str
    boot_ms: int
    engine: int
    wall: int


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def read_boot_id() -> str:
    """The kernel's id of this boot; empty when it cannot be read, which counts as another boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Clock:
    """Engine time for one run of the daemon, and all else that the daemon does by a clock or waits for.

    ``boot_ms`` and ``wall_ms`` are the sources; tests pass their own. ``wall_ms`` reads the wall clock alone.
    """

    #: Whether a program drives the time (see ``driven``).
    is_driven = False
    #: What the daemon does each second, it does so often (s).
    tick_s = 1.0

    def __init__(
        self, boot_ms: Callable[[], int] = _boot_ms, wall_ms: Callable[[], int] = _wall_ms, boot_id: str | None = None
    ) -> None:
        self._boot_ms = boot_ms
        self.wall_ms = wall_ms
        self.boot_id = read_boot_id() if boot_id is None else boot_id
        self._offset = -boot_ms()  # a fresh root starts at engine time 0

    @classmethod
    def still(cls) -> Clock:
        """A clock that stands still at this moment: while it does, nothing becomes due."""
        boot, wall = _boot_ms(), _wall_ms()
        return cls(lambda: boot, lambda: wall)

    def resume(self, mark: Mark | None, last: Now) -> None:
        """Continue from the journal: ``mark`` is its last clock mark, ``last`` the time of its last event."""
        boot, wall = self._boot_ms(), self.wall_ms()
        if mark and mark.boot_id and mark.boot_id == self.boot_id and boot >= mark.boot_ms:
            engine = mark.engine + boot - mark.boot_ms
        else:
            gap = wall - last.wall
            engine = last.engine + (gap if 0 <= gap <= LONGEST_GAP_MS else 0)
        self._offset = max(engine, last.engine) - boot

    def now(self) -> Now:
        """Read both clocks."""
        return Now(self._boot_ms() + self._offset, self.wall_ms())

    def elapsed_s(self) -> float:
        """Seconds since some moment, for the daemon's own timers."""
        return time.monotonic()

    def clients_wall_ms(self, now: Now) -> int:
        """What the wall clock showed at ``now`` by which clients reckon deadlines and file systems stamp files."""
        return now.wall

    def wait(self, selector: BaseSelector, timeout_s: float) -> list[tuple[SelectorKey, int]]:
        """Wait until a descriptor is ready or so long has passed; which are."""
        return selector.select(timeout_s)

    def mark(self, now: Now, root_id: str) -> dict[str, Any]:
        """A clock_marked event taken at ``now``. It also says whose journal this is, and in which format: every segment
        begins with one."""
        return {
            "type": EventType.CLOCK_MARKED,
            "format": JOURNAL_FORMAT,
            "root": root_id,
            "bootId": self.boot_id,
            "bootMs": now.engine - self._offset,
        }
