"""Wakes the loop when a file is renamed into a directory: once a group, not once a file.

The kernel's watch is one-shot: it fires once and is gone, so a burst of a million files queues two events. It is armed
again before each scan; whatever comes after that fires it. The system calls are watchdog's bindings, without its
observer, which costs a thread and 90 us a file.
"""

from __future__ import annotations

import os
import select
import struct
from typing import Any, Final

_EVENT: Final = struct.Struct("iIII")
_IN_MOVED_TO: Final = 0x80
_IN_IGNORED: Final = 0x8000
_IN_ONESHOT: Final = 0x80000000
_IN_ONLYDIR: Final = 0x01000000
#: A watch that fired reports IN_IGNORED right after its event; so long (ms) it is waited for.
_IGNORED_MS: Final = 100


class Watch:
    """A one-shot watch on a directory. Raises ``OSError``, or ``ImportError`` if the platform has none."""

    def __init__(self) -> None:
        from watchdog.observers import inotify_c  # fails on import where there is no inotify

        self._calls: Any = inotify_c
        self._fd = inotify_c.inotify_init()
        if self._fd < 0:
            raise OSError("inotify is not available: its instances may be used up (fs.inotify.max_user_instances)")
        os.set_blocking(self._fd, False)
        os.set_inheritable(self._fd, False)
        self._watch = -1
        self._fired = False

    def fileno(self) -> int:
        """For a selector: readable once the watch has fired."""
        return self._fd

    def arm(self, directory: int) -> None:
        """Watch for the next file that is renamed into the directory of this fd. Does nothing if the watch is armed.

        Raises ``OSError``.
        """
        self._drain()
        while self._fired and self._watch >= 0:
            # Until IN_IGNORED is read, the kernel may still be removing the fired watch, and a new one with it.
            if not select.select([self._fd], [], [], _IGNORED_MS / 1000)[0]:
                break
            self._drain()
        if self._watch >= 0 and not self._fired:
            return
        path = f"/proc/self/fd/{directory}".encode()
        watch = self._calls.inotify_add_watch(self._fd, path, _IN_MOVED_TO | _IN_ONESHOT | _IN_ONLYDIR)
        if watch < 0:
            raise OSError("inotify refused the watch (fs.inotify.max_user_watches)")
        self._watch = watch
        self._fired = False

    def forget(self) -> None:
        """Forget the directory, which was replaced: the next ``arm`` watches another one."""
        if self._watch >= 0:
            self._calls.inotify_rm_watch(self._fd, self._watch)
        self._watch = -1

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 4096)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size + length
                if watch == self._watch:
                    self._fired = True
                    if mask & _IN_IGNORED:
                        self._watch = -1
