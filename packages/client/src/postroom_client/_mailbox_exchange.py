"""One request in the mailbox: its file, the lock on it while a client waits, its response file."""

import errno
import os
import stat as modes

from . import _lock
from ._compat import (
    NO_FOLLOW,
    chmod_fd,
    close_fd,
    lstat,
    monotonic,
    open_fd,
    read_fd,
    rename,
    stat,
    stat_fd,
    unlink,
    utf8_name,
    write_all,
)
from ._protocol import REQUEST_SUFFIX, TEMP_SUFFIX
from ._transport import Exchange
from .errors import BadResponse, DaemonNotRunning, MailboxError, RequestRejected, RequestTimeout

#: How often a waiting client checks that its request file and its response directory still exist.
CHECK_EVERY_S = 1.0
#: A request file that disappeared is written again if no response has come for so long.
RESEND_AFTER_S = 3.0
#: The largest response that is read into memory.
RESPONSE_BYTES_LIMIT = 128 * 1024 * 1024
_REASON_BYTES_LIMIT = 64 * 1024
_READ_BYTES = 65536


class MailboxExchange(Exchange):
    """A request of ``mailbox`` from the moment its file is written until its response is read."""

    def __init__(self, mailbox, request):
        self._mailbox = mailbox
        self._request = request
        self._path = mailbox.requests_dir + os.sep + utf8_name(request.file_name)
        self._temp = self._path + TEMP_SUFFIX
        response_dir = mailbox.responses_dir + os.sep + utf8_name(request.client_id)
        self._response = response_dir + os.sep + utf8_name(request.request_id) + REQUEST_SUFFIX
        self._watch = None
        self._locked_fd = None
        self._submitted = self._pending = False
        self._answer = None
        self._missing_since = None
        self._check_at = monotonic() + CHECK_EVERY_S

    def submit(self, deadline):
        """See ``Exchange``."""
        identity = self._mailbox.open_response_dir(self._request, deadline)
        if self._request.sent:  # the answer may have come since
            self._answer = self._take()
        if self._answer is None:
            self._watch = self._mailbox.borrow_watch(self._request.client_id, identity)
            self._write()

    def wait(self, deadline):
        """See ``Exchange``."""
        if self._answer is None:
            self._watch.wait(min(deadline, self._check_at) - monotonic())
            self._answer = self._take()
            if self._answer is None and self._check_at <= monotonic() < deadline:
                self._check()
        return self._answer

    def cancel(self, grace_s):
        """See ``Exchange``."""
        self._withdraw()
        until = monotonic() + grace_s
        while True:
            self._answer = self._take()
            left_s = until - monotonic()
            if self._answer is not None or left_s <= 0:
                return self._answer
            self._watch.wait(left_s)

    def explain(self, timeout_s):
        """See ``Exchange``."""
        reason = self._rejection()
        if reason:
            return RequestRejected("the daemon rejected the request: " + reason, self._request)
        if self._mailbox.is_daemon_running() is False:
            return DaemonNotRunning(
                "no answer in %g s, and no daemon serves %s: start postroomd" % (timeout_s, self._mailbox.root),
                self._request,
            )
        return RequestTimeout(
            "no answer in %g s; the request may have been executed: send it again to get its answer" % timeout_s,
            self._request,
        )

    def close(self, withdraw):
        """See ``Exchange``."""
        self._mailbox.note_outcome(self._request.client_id, self._submitted and self._answer is None)
        if withdraw:
            self._withdraw()
        self._unlock()
        watch, self._watch = self._watch, None
        if watch is not None:
            self._mailbox.return_watch(watch)

    def _write(self):
        """Write the request to a temporary file and rename it. Raises ``MailboxError``."""
        try:
            fd = self._create()
            try:
                chmod_fd(fd, 0o640)  # the daemon reads it by its group, whatever the umask is
                write_all(fd, self._request.data)
                if self._request.lock:
                    _lock.lock(fd)
                    self._locked_fd = fd
                self._submitted = self._pending = True
                self._request.sent = True
                rename(self._temp, self._path)
            except BaseException:
                unlink_if_possible(self._temp)
                raise
            finally:
                if self._locked_fd != fd:
                    close_fd(fd)
        except (IOError, OSError) as error:
            raise mailbox_error("cannot write a request", self._path, error)

    def _create(self):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW
        try:
            return open_fd(self._temp, flags, 0o640)
        except (IOError, OSError) as error:
            if error.errno != errno.EEXIST:
                raise
        # The name is random: only an earlier, interrupted write of the same request can have left the file.
        unlink(self._temp)
        return open_fd(self._temp, flags, 0o640)

    def _check(self):
        """Check that the files of this request still exist. A request file that disappeared without a response is
        written again, with the same bytes and the same name."""
        now = monotonic()
        self._check_at = now + CHECK_EVERY_S
        self._check_request_file(now)
        try:
            identity = self._mailbox.identify_response_dir(self._request.client_id)
        except (IOError, OSError):
            return  # the whole mailbox was removed; it may come back
        if identity != self._watch.identity:
            self._mailbox.return_watch(self._watch)
            self._watch = self._mailbox.borrow_watch(self._request.client_id, identity)

    def _check_request_file(self, now):
        try:
            lstat(self._path)
            self._missing_since = None
            return
        except (IOError, OSError) as error:
            if error.errno != errno.ENOENT:
                return
        if self._missing_since is None:
            self._missing_since = now  # the response may just have been written
            return
        reason = self._rejection()
        if reason:
            raise RequestRejected("the daemon rejected the request: " + reason, self._request)
        if now - self._missing_since < RESEND_AFTER_S - CHECK_EVERY_S:
            return
        self._missing_since = None
        self._unlock()
        try:
            self._write()
        except MailboxError:
            pass  # the mailbox itself may have been removed; the deadline ends the wait

    def _rejection(self):
        """Return why the daemon rejected the request; None if it did not, or if the reason cannot be read."""
        path = os.path.join(self._mailbox.dead_dir, utf8_name(self._request.file_name) + ".reason")
        try:
            fd = open_fd(path, os.O_RDONLY | NO_FOLLOW | os.O_NONBLOCK)
        except (IOError, OSError):
            return None
        try:
            data = _read_all(fd, _REASON_BYTES_LIMIT)
        except (IOError, OSError):
            return None
        finally:
            close_fd(fd)
        return data.decode("utf-8", "replace") if data else None

    def _take(self):
        """Read and remove the response file. Return it as an answer, None if it does not exist."""
        path = self._response
        try:
            fd = open_fd(path, os.O_RDONLY | NO_FOLLOW | os.O_NONBLOCK)
        except (IOError, OSError) as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            if error.errno == errno.ELOOP:
                raise BadResponse("%s is a symbolic link" % path)
            raise mailbox_error("cannot read the response", path, error)
        try:
            status = stat_fd(fd)
            if not modes.S_ISREG(status.st_mode):
                raise BadResponse("%s is not a regular file" % path)
            if status.st_uid != os.geteuid() and status.st_uid != stat(self._mailbox.requests_dir).st_uid:
                raise BadResponse("%s was written by uid %d, not by the daemon" % (path, status.st_uid))
            data = _read_all(fd, RESPONSE_BYTES_LIMIT)
        finally:
            close_fd(fd)
        if data is None:
            raise BadResponse("%s is larger than %d bytes" % (path, RESPONSE_BYTES_LIMIT))
        unlink_if_possible(path)
        return data, None

    def _withdraw(self):
        """Remove the request file: a request that is not being executed yet never will be."""
        if self._pending:
            self._pending = False
            unlink_if_possible(self._path)

    def _unlock(self):
        fd, self._locked_fd = self._locked_fd, None
        if fd is not None:
            _lock.unlock(fd)


def unlink_if_possible(path):
    """Unlink ``path``; ignore a failure."""
    try:
        unlink(path)
    except (IOError, OSError):
        pass  # removed, or not ours: the daemon's sweeper removes it


def mailbox_error(what, path, error):
    """Return a ``MailboxError`` that explains an error of the system."""
    hints = {
        errno.EACCES: "this user has no permission; ask the device's owner for access",
        errno.EPERM: "this user has no permission; ask the device's owner for access",
        errno.ENOSPC: "free space on the device",
        errno.EDQUOT: "free space on the device",
        errno.ENOENT: "the mailbox was removed; check the path",
    }
    hint = hints.get(error.errno)
    text = "%s at %s: %s" % (what, path, os.strerror(error.errno) if error.errno else error)
    return MailboxError(text + " (%s)" % hint if hint else text)


def _read_all(fd, limit_bytes):
    """Return all bytes of a regular file, None if they are more than ``limit_bytes``."""
    chunks = []
    count_bytes = 0
    while True:
        chunk = read_fd(fd, _READ_BYTES)
        chunks.append(chunk)
        count_bytes += len(chunk)
        if count_bytes > limit_bytes:
            return None
        if len(chunk) < _READ_BYTES:
            return b"".join(chunks)
