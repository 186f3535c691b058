"""The metrics in a file, for the textfile collector of node_exporter."""

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

#: The collector is another user, and metrics are not secret on the device.
_MODE: Final = 0o644
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class MetricsFile:
    """Writes the result of ``collect`` to ``metrics.file`` every ``metrics.intervalSec`` seconds, atomically. Does
    nothing if the setting is empty.

    The directory must exist. If the file cannot be written, that is logged, and the next interval tries again.
    """

    def __init__(self, settings: Settings, collect: Callable[[], Generator[None, None, str]]) -> None:
        self._apply(settings)
        self._collect = collect
        self._files = Files()
        self._next_s = 0.0
        self._work: Generator[None, None, str] | None = None

    def _apply(self, settings: Settings) -> None:
        self._path = Path(settings.metrics_file) if settings.metrics_file else None
        self._interval_s = settings.metrics_interval_sec

    def reload(self, settings: Settings) -> None:
        """Apply other settings. Removes a file that is no longer written: its metrics would look like those of a daemon
        that hangs."""
        before = self._path
        self._apply(settings)
        self._work, self._next_s = None, 0.0
        if before and before != self._path:
            try:
                before.unlink(missing_ok=True)
            except OSError as error:
                log.error("metrics: %s", error)

    @property
    def busy(self) -> bool:
        """Whether steps are left for ``step``."""
        return self._work is not None

    def tick(self, now_s: float) -> None:
        """Start to collect if the interval is over. Called about once a second."""
        if self._path and now_s >= self._next_s and not self._work:
            self._next_s = now_s + self._interval_s
            self._work = self._collect()

    def step(self) -> None:
        """Do one step, if there is one. Raises ``StoreDamaged``, and ``StoreError`` if the store must be reopened."""
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
        """Write the metrics of a clean stop, and nothing else."""
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
