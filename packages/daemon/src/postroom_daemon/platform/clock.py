"""Engine time: milliseconds that only go forward, whatever the wall clock does.

While the machine runs, engine time follows CLOCK_BOOTTIME, which also counts time in suspend. It stays exact across a
restart of the daemon in the same boot. Across a reboot it advances by as much as the wall clock did, if that is from 0
to 30 days, and otherwise not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from selectors import BaseSelector, SelectorKey
from typing import Any, Final, NamedTuple

from postroom_common.events import JOURNAL_FORMAT, EventType

#: If the wall clock has advanced by more since the last event, it was set, and does not count.
LONGEST_GAP_MS: Final = 30 * 24 * 3600 * 1000


class Now(NamedTuple):
    """One reading of both clocks: ``engine`` (ms) for every deadline, ``wall`` (Unix ms) only to be shown."""

    engine: int
    wall: int


class Mark(NamedTuple):
    """What the clocks showed at the same moment, at some event."""

    boot_id: str
    boot_ms: int
    engine: int
    wall: int


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def read_boot_id() -> str:
    """The kernel's id of this boot; empty if it cannot be read, which counts as another boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Clock:
    """Engine time for one run of the daemon, and everything else that it times or waits for.

    ``boot_ms`` and ``wall_ms`` are the sources; tests pass their own. ``wall_ms()`` reads the wall clock alone.
    """

    #: Whether another program drives the time (see ``simulated_clock``).
    is_driven = False
    #: Interval (s) of what the daemon does once a second.
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
        """A clock stopped at this moment, so that nothing becomes due."""
        boot, wall = _boot_ms(), _wall_ms()
        return cls(lambda: boot, lambda: wall)

    def resume(self, mark: Mark | None, last: Now) -> None:
        """Continue the journal's engine time. ``mark`` is its last clock mark, ``last`` the time of its last event."""
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
        """Seconds since an arbitrary moment, for the daemon's own timers."""
        return time.monotonic()

    def clients_wall_ms(self, now: Now) -> int:
        """The wall time of ``now`` that clients use for deadlines, and file systems for timestamps of files."""
        return now.wall

    def wait(self, selector: BaseSelector, timeout_s: float) -> list[tuple[SelectorKey, int]]:
        """Wait until a descriptor is ready or the timeout is over. Returns the ready descriptors."""
        return selector.select(timeout_s)

    def mark(self, now: Now, root_id: str) -> dict[str, Any]:
        """A clock_marked event for ``now``. It also names the root and the format of the journal, because every segment
        begins with one."""
        return {
            "type": EventType.CLOCK_MARKED,
            "format": JOURNAL_FORMAT,
            "root": root_id,
            "bootId": self.boot_id,
            "bootMs": now.engine - self._offset,
        }
