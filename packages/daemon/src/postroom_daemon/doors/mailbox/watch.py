"""Wakes the loop when a file is renamed into a directory, and says which.

If more files have come than one read reports, the directory must be scanned. What the kernel has queued is dropped
before: the scan sees those files, and whatever comes after that wakes the loop again. A burst of a million files queues
as many events as the kernel allows (``fs.inotify.max_queued_events``, usually 16,384), which cost a few reads. The
system calls are watchdog's bindings, without its observer, which costs a thread and 90 us a file.
"""

from __future__ import annotations

import os
import sys
from struct import Struct
from typing import Any, Final

_IN_MOVED_TO: Final = 0x80
_IN_ONLYDIR: Final = 0x01000000
#: The beginning of an event: watch, mask, cookie, length of the name with its padding.
_EVENT: Final = Struct("iIII")
_READ_BYTES: Final = 65536
_ENCODING: Final = sys.getfilesystemencoding()
#: An event with the longest name.
_EVENT_BYTES: Final = 16 + 256


class Watch:
    """A watch on a directory. Raises ``OSError``, or ``ImportError`` if the platform has none."""

    def __init__(self) -> None:
        from watchdog.observers import inotify_c  # fails on import where there is no inotify

        self._calls: Any = inotify_c
        self._fd = inotify_c.inotify_init()
        if self._fd < 0:
            raise OSError("inotify is not available: its instances may be used up (fs.inotify.max_user_instances)")
        os.set_blocking(self._fd, False)
        os.set_inheritable(self._fd, False)
        self._watch = -1

    def fileno(self) -> int:
        """For a selector: readable once a file has come since ``arm``."""
        return self._fd

    def arm(self, directory: int) -> list[str] | None:
        """Be readable from the next file on that is renamed into the directory of this fd. Returns the names of those
        that were since it was last armed, the same name perhaps twice; None if they are not known.

        Raises ``OSError``.
        """
        arrived = self._arrived()
        if self._watch < 0:
            path = f"/proc/self/fd/{directory}".encode()
            watch = self._calls.inotify_add_watch(self._fd, path, _IN_MOVED_TO | _IN_ONLYDIR)
            if watch < 0:
                raise OSError("inotify refused the watch (fs.inotify.max_user_watches)")
            self._watch = watch
            return None
        return arrived

    def forget(self) -> None:
        """Forget the directory, which was replaced: the next ``arm`` watches another one."""
        if self._watch >= 0:
            self._calls.inotify_rm_watch(self._fd, self._watch)
        self._watch = -1

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def _arrived(self) -> list[str] | None:
        try:
            events = os.read(self._fd, _READ_BYTES)
            if len(events) <= _READ_BYTES - _EVENT_BYTES:
                return self._names(events)
            while len(os.read(self._fd, _READ_BYTES)) > _READ_BYTES - _EVENT_BYTES:
                pass
        except BlockingIOError:
            pass
        return None

    def _names(self, events: bytes) -> list[str] | None:
        names, place = [], 0
        while place < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, place)
            if watch != self._watch or mask != _IN_MOVED_TO:  # some were lost, or it was another directory
                return None
            place += _EVENT.size + length
            names.append(events[place - length : place].rstrip(b"\0").decode(_ENCODING, "surrogateescape"))
        return names
