"""The daemon's log: that of every service of Postroom, and beside it files, if ``paths.logRoot`` is set."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Protocol

from postroom_common import logs
from postroom_common.logs import about, figures, outlets, reload, set_up_plain, tick
from postroom_common.logs.records import json_line

from .files import Files
from .rotated import RotatedFiles

__all__ = ["LogFiles", "about", "figures", "reload", "set_up", "set_up_plain", "tick"]

#: Prefix of the names of log files.
PREFIX: Final = "postroomd-"


class LogFiles(logging.Handler):
    """Writes records to rotated files ``postroomd-<number, 20 digits>.jsonl`` in ``root``, as JSON lines. ``lost``
    counts those that the disk did not accept."""

    def __init__(self, root: Path, file_bytes: int, keep_files: int) -> None:
        super().__init__()
        self.lost = 0
        self._out = RotatedFiles(root, Files(), file_bytes, keep_files, PREFIX, appends=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._out.write(json_line(record) + b"\n")
        except OSError:
            self.lost += 1

    def close(self) -> None:
        self._out.close()
        super().close()


class LogSettings(outlets.LogSettings, Protocol):
    """The settings of the log."""

    @property
    def log_file_bytes(self) -> int: ...
    @property
    def log_files(self) -> int: ...
    @property
    def paths_log_root(self) -> str: ...


def set_up(settings: LogSettings) -> str:
    """Send records of ``log.level`` and above to standard error, in the form of ``log.format``, and to files if
    ``paths.logRoot`` is set. Returns the form: ``text``, ``json`` or ``journald``."""
    files = []
    if settings.paths_log_root:
        files.append(LogFiles(Path(settings.paths_log_root), settings.log_file_bytes, settings.log_files))
    return logs.set_up(settings, "postroomd", files)
