"""Choosing the outlets of the log, once, at the start."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Protocol

from .lines import JsonFormatter, LineFormatter
from .outlets import Outlets, installed
from .stream import StreamHandler, fill_standard_streams


class LogSettings(Protocol):
    """The settings of the log."""

    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...
    @property
    def log_file_bytes(self) -> int: ...
    @property
    def log_files(self) -> int: ...
    @property
    def log_per_minute(self) -> int: ...
    @property
    def paths_log_root(self) -> str: ...


def set_up(settings: LogSettings) -> str:
    """Send records of ``log.level`` and above to standard error, in the form that ``log.format`` says, and to files
    where ``paths.logRoot`` is set. The form: ``text``, ``json`` or ``journald``."""
    fill_standard_streams()
    form = settings.log_format
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "journald" if _leads_to_journal() else "json"
    outlets = [_first_outlet(form)]
    if settings.paths_log_root:
        from .log_files import LogFiles

        outlets.append(LogFiles(Path(settings.paths_log_root), settings.log_file_bytes, settings.log_files))
    _install(settings.log_level, Outlets(outlets, settings.log_per_minute))
    return form


def reload(settings: LogSettings) -> None:
    """Log by another ``log.level`` and ``log.perMinute`` from now on."""
    logging.getLogger().setLevel(settings.log_level.upper())
    for outlets in installed():
        outlets.per_minute = settings.log_per_minute


def set_up_plain(level: str) -> None:
    """Send records of ``level`` and above to standard error as text, for a command that a person has given."""
    _install(level, _text())


def _first_outlet(form: str) -> logging.Handler:
    if form == "journald":
        from .journald import JournaldHandler

        return JournaldHandler()
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
    """Whether standard error does; systemd's journal adds its own time to each line."""
    if "JOURNAL_STREAM" not in os.environ:
        return False
    from .journald import is_journal

    return is_journal(sys.stderr, os.environ)


def _install(level: str, handler: logging.Handler) -> None:
    logging.raiseExceptions = False  # a standard error that nobody reads must not stop the daemon, nor fill itself
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
