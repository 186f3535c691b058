"""The outlets of the log: where records go, and how many of a kind.

A fault that repeats must neither fill the disk nor hide other records.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .handlers import JournaldHandler, StreamHandler, fill_standard_streams, is_journal
from .records import JsonFormatter, LineFormatter

#: Period (s) over which the records of a kind are counted.
WINDOW_S: Final = 60.0


@dataclass(slots=True)
class _Window:
    """The count of one kind of record since ``began``, how many of them were suppressed, and the last one of these."""

    began: float
    count: int = 0
    suppressed: int = 0
    last: logging.LogRecord | None = None


class Outlets(logging.Handler):
    """Passes records on to ``outlets``: at most ``per_minute`` (0: no limit) of each kind within ``WINDOW_S``.

    The kind of a record is the line of code that logs it. When the period is over, the last suppressed record is passed
    on, with the number of the others as its attribute ``suppressed``. Critical records are never suppressed.
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
            self._pass_on(record)
            return
        kind, now = (record.pathname, record.lineno), self._clock()
        window = self._windows.get(kind)
        if window is None or now - window.began >= WINDOW_S:
            self._end(kind)
            window = self._windows[kind] = _Window(now)
        window.count += 1
        if window.count <= self.per_minute:
            self._pass_on(record)
            return
        self.suppressed += 1
        window.suppressed += 1
        record.msg, record.args = record.getMessage(), None  # its arguments may change until it is written
        window.last = record

    def tick(self, everything: bool = False) -> None:
        """Pass on the last suppressed record of each kind whose period is over, or of every kind. The loop calls this
        once a second."""
        with self.lock:  # type: ignore[union-attr]  # a handler has one
            now = self._clock()
            for kind in [k for k, w in self._windows.items() if everything or now - w.began >= WINDOW_S]:
                self._end(kind)

    @property
    def lost(self) -> int:
        """Number of records that an outlet could not write."""
        return sum(getattr(outlet, "lost", 0) for outlet in self._outlets)

    def close(self) -> None:
        self.tick(everything=True)
        for outlet in self._outlets:
            outlet.close()
        super().close()

    def _end(self, kind: tuple[str, int]) -> None:
        window = self._windows.pop(kind, None)
        if window and window.last:
            window.last.suppressed = window.suppressed - 1
            self._pass_on(window.last)

    def _pass_on(self, record: logging.LogRecord) -> None:
        for outlet in self._outlets:
            outlet.handle(record)


def tick() -> None:
    """Call ``Outlets.tick`` of the installed log."""
    for outlets in installed():
        outlets.tick()


def figures() -> dict[str, Any]:
    """Counts since the start: ``records`` by level, ``suppressed``, and ``lost``."""
    records: Counter[str] = Counter()
    for outlets in installed():
        records.update(outlets.records)
    return {
        "records": dict(records),
        "suppressed": sum(outlets.suppressed for outlets in installed()),
        "lost": sum(outlets.lost for outlets in installed()),
    }


def installed() -> list[Outlets]:
    """The outlets of the root logger."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, Outlets)]


class LogSettings(Protocol):
    """The settings of the log."""

    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...
    @property
    def log_per_minute(self) -> int: ...


def set_up(settings: LogSettings, program: str, further: Iterable[logging.Handler] = ()) -> str:
    """Send records of ``log.level`` and above to standard error, in the form of ``log.format``, and to ``further``
    outlets. ``program`` is the name in systemd's journal. Returns the form: ``text``, ``json`` or ``journald``."""
    fill_standard_streams()
    form = settings.log_format
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "journald" if _leads_to_journal() else "json"
    _install(settings.log_level, Outlets([_first_outlet(form, program), *further], settings.log_per_minute))
    return form


def reload(settings: LogSettings) -> None:
    """Apply a new ``log.level`` and ``log.perMinute``."""
    logging.getLogger().setLevel(settings.log_level.upper())
    for outlets in installed():
        outlets.per_minute = settings.log_per_minute


def set_up_plain(level: str) -> None:
    """Send records of ``level`` and above to standard error as text, for a command that a person runs."""
    _install(level, _text())


def _first_outlet(form: str, program: str) -> logging.Handler:
    if form == "journald":
        return JournaldHandler(program)
    if form == "json":
        handler = StreamHandler()
        handler.setFormatter(JsonFormatter())
        return handler
    return _text()


def _text() -> logging.Handler:
    handler = StreamHandler()
    handler.setFormatter(LineFormatter(timed=not _leads_to_journal()))
    return handler


def _leads_to_journal() -> bool:
    """Whether standard error leads to systemd's journal, which adds its own time to each line."""
    if "JOURNAL_STREAM" not in os.environ:
        return False
    return is_journal(sys.stderr, os.environ)


def _install(level: str, handler: logging.Handler) -> None:
    logging.raiseExceptions = False  # a failure to log must neither stop the daemon nor be logged
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
