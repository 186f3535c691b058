"""Helpers on files that both the mailbox and its exchanges use."""

import errno
import os

from ._compat import DIRECTORY, NO_FOLLOW, chmod_fd, close_fd, make_directory, open_fd, read_fd, stat, unlink
from ._protocol import REQUESTS_DIR
from .errors import MailboxError

_READ_BYTES = 65536


def make_box(box):
    """Make a client's box, open to the daemon's group. Raises ``OSError``."""
    make_directory(box, 0o770)
    fd = open_fd(box, os.O_RDONLY | DIRECTORY | NO_FOLLOW)
    try:
        chmod_fd(fd, 0o770)  # whatever the umask is: the daemon writes into it by its group
    finally:
        close_fd(fd)


def explain_missing(root, hint):
    """Why ``root`` is no mailbox, with ``hint`` or a better root; None when it is one or may not be looked at."""
    if _is_there(os.path.join(root, REQUESTS_DIR)):
        return None
    if not _is_there(root):
        return "%s does not exist%s" % (root, hint)
    inner = os.path.join(root, "ipc")
    if os.path.isdir(os.path.join(inner, REQUESTS_DIR)):
        return "%s is no mailbox, but %s is: did you mean that?" % (root, inner)
    return "%s is no mailbox: it has no directory %s%s" % (root, REQUESTS_DIR, hint)


def _is_there(path):
    try:
        stat(path)
    except (IOError, OSError) as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return True


def read_to_end(fd, limit_bytes):
    """All bytes of a regular file, or None when they are more than ``limit_bytes``."""
    chunks = []
    size = 0
    while True:
        chunk = read_fd(fd, _READ_BYTES)
        chunks.append(chunk)
        size += len(chunk)
        if size > limit_bytes:
            return None
        if len(chunk) < _READ_BYTES:
            return b"".join(chunks)


def unlink_if_possible(path):
    """Unlink ``path`` where that is possible."""
    try:
        unlink(path)
    except (IOError, OSError):
        pass  # gone, or not ours to remove: the daemon ages it out


def mailbox_error(what, path, error):
    """A ``MailboxError`` for people from an error of the system."""
    hints = {
        errno.EACCES: "this user may not; ask the device's owner for access",
        errno.EPERM: "this user may not; ask the device's owner for access",
        errno.ENOSPC: "free space on the device",
        errno.EDQUOT: "free space on the device",
        errno.ENOENT: "the mailbox is gone; is the ipc root right?",
    }
    hint = hints.get(error.errno)
    text = "%s at %s: %s" % (what, path, os.strerror(error.errno) if error.errno else error)
    return MailboxError(text + " (%s)" % hint if hint else text)
