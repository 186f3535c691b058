"""One request in the mailbox: kept there while its caller waits, withdrawn when it gives up."""

import errno
import os

from . import _lock
from ._compat import NO_FOLLOW, chmod_fd, close_fd, lstat, monotonic, open_fd, rename, unlink, write_all
from ._files import mailbox_error, unlink_if_possible
from ._protocol import TEMP_SUFFIX
from .errors import MailboxError, RequestRejected

#: How often a waiting call looks whether its box and its request are still there.
INSPECT_EVERY_S = 1.0
#: A request that vanished is sent again when its response has not come for so long.
RESEND_AFTER_S = 3.0


class Exchange(object):
    """A request in the mailbox, from its put to its answer."""

    def __init__(self, request, path):
        self._request = request
        self._path = path
        self._temp = path + TEMP_SUFFIX
        self._locked_fd = None
        self._missing_since = None
        self._waiting = False
        self.inspect_at = monotonic() + INSPECT_EVERY_S

    def put(self):
        """Write the request beside its place, then rename it into its place. Raises ``MailboxError``."""
        try:
            fd = self._create()
            try:
                chmod_fd(fd, 0o640)  # whatever the umask is: the daemon reads it by its group
                write_all(fd, self._request.data)
                if self._request.lock:
                    _lock.hold(fd)
                    self._locked_fd = fd
                self._waiting = True
                self._request.sent = True
                rename(self._temp, self._path)
            except BaseException:
                unlink_if_possible(self._temp)
                raise
            finally:
                if self._locked_fd != fd:
                    close_fd(fd)
        except (IOError, OSError) as error:
            raise mailbox_error("cannot put a request", self._path, error)

    def _create(self):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW
        try:
            return open_fd(self._temp, flags, 0o640)
        except (IOError, OSError) as error:
            if error.errno != errno.EEXIST:
                raise
        # The name is random: only an earlier, interrupted put of the same request can have left it.
        unlink(self._temp)
        return open_fd(self._temp, flags, 0o640)

    def inspect(self, find_reason):
        """Look after the request: one that vanished unanswered is put again, the same bytes under the same name."""
        now = monotonic()
        self.inspect_at = now + INSPECT_EVERY_S
        try:
            lstat(self._path)
            self._missing_since = None
            return
        except (IOError, OSError) as error:
            if error.errno != errno.ENOENT:
                return
        if self._missing_since is None:
            self._missing_since = now  # its answer may just have come
            return
        reason = find_reason(self._request.file_name)
        if reason:
            raise RequestRejected("the daemon set the request aside: " + reason, self._request)
        if now - self._missing_since < RESEND_AFTER_S - INSPECT_EVERY_S:
            return
        self._missing_since = None
        self.let_go()
        try:
            self.put()
        except MailboxError:
            pass  # the mailbox itself may be gone; the call's deadline decides

    def withdraw(self):
        """Take the request out of the mailbox: what has not begun is not done."""
        if self._waiting:
            self._waiting = False
            unlink_if_possible(self._path)

    def let_go(self):
        """Release the lock of a long poll."""
        fd, self._locked_fd = self._locked_fd, None
        if fd is not None:
            _lock.let_go(fd)
