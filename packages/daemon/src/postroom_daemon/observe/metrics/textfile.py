"""The figures in a file, for the textfile collector of node_exporter, which looks at it whenever it is asked."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from ...config.settings import Settings
from ...platform.files import Files
from .collect import stopped

log = logging.getLogger(__name__)

#: The collector is another user; what the file says is no secret of the device.
_MODE: Final = 0o644
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class MetricsFile:
    """Writes ``metrics.file`` every ``metrics.intervalSec`` seconds, whole or not at all: what ``collect`` comes to
    after some steps. Does nothing where the setting is empty.

    The directory must be there. A file that cannot be written is logged, and tried again after the interval.
    """

    def __init__(self, settings: Settings, collect: Callable[[], Generator[None, None, str]]) -> None:
        self._take(settings)
        self._collect = collect
        self._files = Files()
        self._next_s = 0.0
        self._work: Generator[None, None, str] | None = None

    def _take(self, settings: Settings) -> None:
        self._path = Path(settings.metrics_file) if settings.metrics_file else None
        self._interval_s = settings.metrics_interval_sec

    def reload(self, settings: Settings) -> None:
        """Work by other settings from now on. A file that is not written any more is removed: its figures would be
        taken for those of a daemon that hangs."""
        before = self._path
        self._take(settings)
        self._work, self._next_s = None, 0.0
        if before and before != self._path:
            try:
                before.unlink(missing_ok=True)
            except OSError as error:
                log.error("metrics: %s", error)

    @property
    def busy(self) -> bool:
        """Whether there are steps to be done: ``step`` does the next one."""
        return self._work is not None

    def tick(self, now_s: float) -> None:
        """To be called every second or so: begin, if it is time."""
        if self._path and now_s >= self._next_s and not self._work:
            self._next_s = now_s + self._interval_s
            self._work = self._collect()

    def step(self) -> None:
        """Do one step, if there is one. Raises ``StoreDamaged``, and ``StoreError`` where the store must be opened
        anew."""
        if not self._work or not self._path:
            return
        try:
            next(self._work)
        except StopIteration as ended:
            self._work = None
            self._write(self._path, ended.value)
        except OSError as error:
            self._work = None
            log.error("metrics: %s", error)

    def stop(self) -> None:
        """The daemon stops in order: the file says so, and nothing else any more."""
        self._work = None
        if self._path:
            self._write(self._path, stopped())

    def _write(self, path: Path, text: str) -> None:
        try:
            directory = self._files.open(path.parent, _DIRECTORY_FLAGS)
            try:
                self._files.put(directory, path.name, text.encode(), _MODE)
            finally:
                self._files.close(directory)
        except OSError as error:
            log.error("metrics: %s: %s", path, error)
