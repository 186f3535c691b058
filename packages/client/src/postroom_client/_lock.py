"""Locks on files: the daemon's, which is only probed, and those that a waiting client holds on its request."""

import errno
import fcntl
import os

from ._compat import NO_FOLLOW, close_fd, lock_fd, open_fd, stat_fd
from ._per_process import PerProcess

DAEMON_LOCK = "daemon.lock"

#: Descriptors of locked requests of this process, with the (device, inode) behind each. A forked child closes its
#: copies: while it had them, the daemon would take its dead parent for a client that still waits.
_held = PerProcess(dict)


def is_daemon_running(ipc_root):
    """Whether a daemon serves this mailbox: it holds a lock while it does. None when that may not be looked at."""
    try:
        fd = open_fd(os.path.join(ipc_root, DAEMON_LOCK), os.O_RDONLY | NO_FOLLOW)
    except (IOError, OSError) as error:
        return False if error.errno in (errno.ENOENT, errno.ENOTDIR) else None
    try:
        lock_fd(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (IOError, OSError) as error:
        return True if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    else:
        return False
    finally:
        close_fd(fd)


def hold(fd):
    """Lock an open request file until ``let_go(fd)``."""
    lock_fd(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    forget_parent()
    status = stat_fd(fd)
    _held.get()[fd] = (status.st_dev, status.st_ino)


def let_go(fd):
    """Close a descriptor that ``hold`` locked."""
    forget_parent()
    if _held.get().pop(fd, None) is not None:
        close_fd(fd)


def forget_parent():
    """In a forked child, close the copies of the parent's locked requests; elsewhere do nothing."""
    for held in _held.take_from_parents():
        for fd, identity in held.items():
            try:
                status = stat_fd(fd)
            except (IOError, OSError):
                continue
            if (status.st_dev, status.st_ino) == identity:
                close_fd(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_parent)
