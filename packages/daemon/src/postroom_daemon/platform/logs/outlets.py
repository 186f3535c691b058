"""Where records go, and how many of a kind: a fault that repeats must not fill the disk, nor hide what else happens."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

#: Time (s) over which records of a kind are counted.
WINDOW_S: Final = 60.0


@dataclass(slots=True)
class _Window:
    """One kind of record: since when it is counted, how often it came, how many were left out, and the last of them."""

    began: float
    count: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None


class Outlets(logging.Handler):
    """Hands records on to ``outlets``: of each kind at most ``per_minute`` (0: any number) within ``WINDOW_S``.

    A kind is the place in the code that makes it. The last of those that were left out is handed on when its time is
    over, with their number as its attribute ``suppressed``. Critical records are never left out.
    """

    def __init__(
        self, outlets: list[logging.Handler], per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.records: Counter[str] = Counter()
        self.suppressed = 0
        self._outlets = outlets
        self.per_minute = per_minute
        self._clock = clock
        self._windows: dict[tuple[str, int], _Window] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.records[record.levelname.lower()] += 1
        if not self.per_minute or record.levelno >= logging.CRITICAL:
            self._hand_on(record)
            return
        kind, now = (record.pathname, record.lineno), self._clock()
        window = self._windows.get(kind)
        if window is None or now - window.began >= WINDOW_S:
            self._end(kind)
            window = self._windows[kind] = _Window(now)
        window.count += 1
        if window.count <= self.per_minute:
            self._hand_on(record)
            return
        self.suppressed += 1
        window.left_out += 1
        record.msg, record.args = record.getMessage(), None  # what it refers to may change until it is told
        window.last = record

    def tick(self, all_of_them: bool = False) -> None:
        """Once a second: tell of what was left out, if its time is over."""
        with self.lock:  # type: ignore[union-attr]  # a handler has one
            now = self._clock()
            for kind in [k for k, w in self._windows.items() if all_of_them or now - w.began >= WINDOW_S]:
                self._end(kind)

    @property
    def lost(self) -> int:
        """Records that an outlet could not take."""
        return sum(getattr(outlet, "lost", 0) for outlet in self._outlets)

    def close(self) -> None:
        self.tick(all_of_them=True)
        for outlet in self._outlets:
            outlet.close()
        super().close()

    def _end(self, kind: tuple[str, int]) -> None:
        window = self._windows.pop(kind, None)
        if window and window.last:
            window.last.suppressed = window.left_out - 1
            self._hand_on(window.last)

    def _hand_on(self, record: logging.LogRecord) -> None:
        for outlet in self._outlets:
            outlet.handle(record)


def tick() -> None:
    """Once a second: see ``Outlets.care``."""
    for outlets in installed():
        outlets.tick()


def figures() -> dict[str, Any]:
    """``records`` by level, how many were ``suppressed``, and how many were ``lost``, since the start."""
    records: Counter[str] = Counter()
    for outlets in installed():
        records.update(outlets.records)
    return {
        "records": dict(records),
        "suppressed": sum(outlets.suppressed for outlets in installed()),
        "lost": sum(outlets.lost for outlets in installed()),
    }


def installed() -> list[Outlets]:
    """Those that records go to now."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, Outlets)]
