"""Waiting for a file to appear in a directory: with inotify if possible, else with short, growing sleeps.

One request uses a watch at a time. ``wait`` may return early: the caller checks for the file each time.
"""

import errno
import os
import select
import sys

from ._compat import CLOSE_ON_EXEC, PY2, close_fd, poll, read_fd, set_close_on_exec, sleep

_NOTHING_TO_READ = (errno.EAGAIN, errno.EWOULDBLOCK)

_IN_MOVED_TO = 0x00000080
_IN_ONLYDIR = 0x01000000
_IN_DONT_FOLLOW = 0x02000000

_FIRST_SLEEP_S = 0.0005
_LONGEST_SLEEP_S = 0.05


class SleepingWatch(object):
    """Sleeps from 0.5 ms to 50 ms, each half as long again as the one before."""

    def __init__(self, identity=None):
        self.identity = identity
        self._sleep_s = _FIRST_SLEEP_S

    def begin(self):
        """Start with the shortest sleep: a new request waits now."""
        self._sleep_s = _FIRST_SLEEP_S

    def wait(self, timeout_s):
        """Wait for a new file, at most ``timeout_s``."""
        sleep(max(0.0, min(self._sleep_s, timeout_s)))
        self._sleep_s = min(self._sleep_s * 1.5, _LONGEST_SLEEP_S)

    def close(self):
        """Do nothing: there is no descriptor to close."""

    close_after_fork = close


class InotifyWatch(object):
    """Wakes when a file is renamed into ``directory``. Raises ``OSError`` if inotify is not available."""

    def __init__(self, directory, identity=None):
        self._fd = -1
        self.identity = identity
        libc, get_errno = _load_libc()
        # These two flags have the same values for inotify as for open.
        fd = libc.inotify_init1(os.O_NONBLOCK | CLOSE_ON_EXEC)
        if fd < 0:
            raise OSError(get_errno(), "inotify_init1")
        self._fd = fd
        set_close_on_exec(fd)
        path = directory if PY2 else os.fsencode(directory)
        if libc.inotify_add_watch(fd, path, _IN_MOVED_TO | _IN_ONLYDIR | _IN_DONT_FOLLOW) < 0:
            number = get_errno()
            self.close()
            raise OSError(number, "inotify_add_watch")
        self._poller = select.poll()
        self._poller.register(fd, select.POLLIN)

    def begin(self):
        """Do nothing: an event since the last wait ends the next wait at once, which costs less than a read here."""

    def wait(self, timeout_s):
        """Wait for a new file, at most ``timeout_s``."""
        poll(self._poller, timeout_s)
        self._drain()

    def _drain(self):
        try:
            # Events that are left over end the next wait at once.
            read_fd(self._fd, 4096)
        except (IOError, OSError) as error:
            if error.errno not in _NOTHING_TO_READ:
                raise

    def close(self):
        """Close the descriptor. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close_fd(fd)

    def close_after_fork(self):
        """Close a forked child's copy of the descriptor, unless the child has closed it and reused its number."""
        try:
            if not os.readlink("/proc/self/fd/%d" % self._fd).endswith("inotify"):
                self._fd = -1
        except (IOError, OSError):
            self._fd = -1
        self.close()

    def __del__(self):
        self.close()


def open_watch(directory, identity, polling):
    """Return an inotify watch on ``directory``; one that sleeps if inotify is not available, or with ``polling``."""
    if not polling and sys.platform.startswith("linux"):
        try:
            return InotifyWatch(directory, identity)
        except OSError:
            pass  # no inotify, no instance left for this user, or no permission to read the directory
    return SleepingWatch(identity)


_libc = []  # type: list


def _load_libc():
    """Return the C library with inotify, and ctypes' errno. Raises ``OSError`` if they are not available."""
    if not _libc:
        try:
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            libc.inotify_init1.argtypes = (ctypes.c_int,)
            libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        except (ImportError, AttributeError):
            raise OSError(errno.ENOSYS, "no ctypes, or no inotify in the C library")
        _libc.append((libc, ctypes.get_errno))
    return _libc[0]
