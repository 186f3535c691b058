"""The log of the actions from this console: on the screen, and in a file that only its user can read."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from .times import unix_ms
from .updates import Outcome, Result

#: Entries that the screen shows.
LOG_ENTRIES: Final = 500


class LogEntry(NamedTuple):
    """An action and its result, which is None until the first outcome, and may be ``UNKNOWN`` or ``RUNNING`` before it
    ends."""

    wall_ms: int
    verb: str
    queue: str
    what: str
    result: Result | None
    changed: int
    text: str


class ActionLog:
    """Logs to a file at ``path``, created with mode 0600, unless ``path`` is None. If the file cannot be written,
    ``problem`` says why and the action continues."""

    def __init__(self, path: Path | None, wall_ms: Callable[[], int] = unix_ms) -> None:
        self.path = path
        self.problem = ""
        self._wall_ms = wall_ms
        self.entries: deque[LogEntry] = deque(maxlen=LOG_ENTRIES)
        self._running: dict[int, LogEntry] = {}
        self._is_broken = False  # whether the file ends with part of a line

    def begin(self, ticket: int, verb: str, queue: str, what: str) -> None:
        """Log an action that is sent."""
        entry = LogEntry(self._wall_ms(), verb, queue, what, None, 0, "")
        self._running[ticket] = entry
        self._write(entry)

    def end(self, outcome: Outcome) -> LogEntry | None:
        """Log an outcome; returns the entry, or None for an action that did not begin here."""
        begun = self._running.get(outcome.ticket)
        if begun is None:
            return None
        text = f"{outcome.code} {outcome.text}".strip()
        entry = begun._replace(wall_ms=self._wall_ms(), result=outcome.result, changed=outcome.count, text=text)
        if outcome.has_ended:
            del self._running[outcome.ticket]
            self.entries.append(entry)
        else:
            self._running[outcome.ticket] = entry
        if outcome.result is not Result.RUNNING:
            self._write(entry)
        return entry

    @property
    def running(self) -> list[LogEntry]:
        """The actions that have not ended."""
        return list(self._running.values())

    @property
    def running_tickets(self) -> list[int]:
        """Their tickets, in the same order."""
        return list(self._running)

    def _write(self, entry: LogEntry) -> None:
        if self.path is None:
            return
        line = {
            "wallMs": entry.wall_ms,
            "uid": os.geteuid(),
            "user": _variable("SUDO_USER") or _variable("USER"),
            "ssh": _variable("SSH_CLIENT"),
            "verb": entry.verb,
            "queue": entry.queue,
            "what": entry.what,
            "result": entry.result.value if entry.result else "begun",
            "count": entry.changed,
            "text": entry.text,
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                self._append(fd, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            finally:
                os.close(fd)
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}"

    def _append(self, fd: int, line: bytes) -> None:
        """Write a line. After a partial line it starts a new one. Raises ``OSError``, also if only part was written."""
        data = b"\n" + line if self._is_broken else line
        written = os.write(fd, data)
        self._is_broken = written < len(data)
        if self._is_broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _variable(name: str) -> str:
    """A variable of the environment as valid UTF-8."""
    return os.environ.get(name, "").encode("utf-8", "replace").decode()
