"""File locks: the daemon's liveness lock, which is only tested, and the lock on the request file of a long poll."""

import errno
import fcntl
import os

from ._compat import NO_FOLLOW, close_fd, lock_fd, open_fd, stat_fd
from ._process_local import ProcessLocal

LIVENESS_LOCK = "daemon.lock"

#: Locked descriptors of this process, each with the (device, inode) behind it. A forked child closes its copies: as
#: long as one is open, the daemon takes the parent for a client that still waits, even a dead one.
_locked = ProcessLocal(dict)


def is_daemon_running(ipc_root):
    """Return whether a daemon serves this mailbox, or None if this user may not test its liveness lock."""
    try:
        fd = open_fd(os.path.join(ipc_root, LIVENESS_LOCK), os.O_RDONLY | NO_FOLLOW)
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


def lock(fd):
    """Lock an open request file until ``unlock(fd)``. Raises ``OSError``."""
    lock_fd(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    close_inherited()
    status = stat_fd(fd)
    _locked.get()[fd] = (status.st_dev, status.st_ino)


def unlock(fd):
    """Close a descriptor that ``lock`` has locked."""
    close_inherited()
    if _locked.get().pop(fd, None) is not None:
        close_fd(fd)


def close_inherited():
    """In a forked child, close the copies of the parent's locked descriptors. Does nothing elsewhere."""
    for locked in _locked.pop_inherited():
        for fd, identity in locked.items():
            try:
                status = stat_fd(fd)
            except (IOError, OSError):
                continue
            if (status.st_dev, status.st_ino) == identity:
                close_fd(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_inherited)
