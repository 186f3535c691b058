"""Files in, files out: puts requests into the mailbox and takes responses from it."""

import errno
import os
import stat as modes

from . import _lock
from ._compat import NO_FOLLOW, close_fd, lstat, monotonic, open_fd, remove_directory, sleep, stat, stat_fd
from ._exchange import Exchange
from ._files import explain_missing, mailbox_error, make_box, read_to_end, unlink_if_possible
from ._per_process import PerProcess
from ._protocol import DEAD_DIR, REQUEST_SUFFIX, REQUESTS_DIR, RESPONSES_DIR
from ._watch import open_watch
from .errors import BadResponse, DaemonNotRunning, MailboxError, RequestRejected, RequestTimeout, RequestWithdrawn

#: The largest response that is read into memory.
RESPONSE_BYTES_LIMIT = 128 * 1024 * 1024
_REASON_BYTES_LIMIT = 64 * 1024
#: A request that is withdrawn may be in the middle of being executed: its answer is waited for so long.
_LATE_S = 0.2


class Mailbox(object):
    """One mailbox directory. Any number of threads may exchange at once, each with its own request."""

    def __init__(self, root, polling):
        self.root = root
        self._polling = polling
        self._requests = os.path.join(root, REQUESTS_DIR)
        self._responses = os.path.join(root, RESPONSES_DIR)
        self._idle_watches = PerProcess(list)
        self._closed = False

    def exchange(self, request, timeout_s, keep, give_up=None):
        """Put ``request`` and return the bytes of its response, within ``timeout_s``.

        Unless ``keep``, a request that was given up leaves the mailbox, so that it is not executed later; ``give_up``
        is asked each second at least. Raises ``RequestWithdrawn``, ``RequestTimeout``, ``DaemonNotRunning``,
        ``RequestRejected``, ``BadResponse`` or ``MailboxError``.
        """
        self._leave_parent()
        deadline = monotonic() + timeout_s
        identity = self._prepare(request, deadline)
        response = os.sep.join((self._responses, request.client_id, request.request_id + REQUEST_SUFFIX))
        if request.sent:  # the answer may have come after its caller gave up
            data = self._take(response)
            if data is not None:
                return data
        watch = self._borrow_watch(request, identity)
        exchange = Exchange(request, self._requests + os.sep + request.file_name)
        answered = False
        try:
            exchange.put()
            while True:
                now = monotonic()
                watch.wait(min(deadline, exchange.inspect_at) - now)
                data = self._take(response)
                if data is None and monotonic() >= deadline:
                    if not keep:
                        exchange.withdraw()
                    data = self._take(response)
                    if data is None:
                        raise self._failure(request, exchange, timeout_s)
                if data is not None:
                    answered = True
                    return data
                if give_up is not None and give_up():
                    exchange.withdraw()
                    data = self._take_late(response, watch)
                    if data is None:
                        raise RequestWithdrawn("the request was withdrawn before it was answered", request)
                    answered = True
                    return data
                if monotonic() >= exchange.inspect_at:
                    exchange.inspect(self._reason)
                    watch = self._renew_watch(request, watch)
        finally:
            if not answered and not keep:
                exchange.withdraw()
            exchange.let_go()
            self._return_watch(watch)

    def _prepare(self, request, deadline):
        """Wait until the mailbox is there, make the client's box; returns what identifies the box."""
        pause_s = 0.005
        while True:
            try:
                return self._identify_box(request.client_id)
            except (IOError, OSError) as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise mailbox_error("cannot use the mailbox", self.root, error)
            left_s = deadline - monotonic()
            if left_s <= 0:
                hint = "; start postroomd, or correct the ipc root"
                why = explain_missing(self.root, hint) or "%s has no directory %s" % (self.root, RESPONSES_DIR)
                raise DaemonNotRunning(why, request)
            sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, 0.25)

    def _identify_box(self, client_id):
        box = self._responses + os.sep + client_id
        try:
            status = lstat(box)
        except (IOError, OSError) as error:
            if error.errno != errno.ENOENT:
                raise
            stat(self._requests)
            try:
                make_box(box)
            except (IOError, OSError) as refusal:
                if refusal.errno in (errno.EACCES, errno.EPERM):
                    # The daemon makes boxes for its own user only: waiting for it would be in vain.
                    raise MailboxError(
                        "cannot make the box %s: %s; ask the device's owner to make it for this user, mode 0770"
                        % (box, os.strerror(refusal.errno))
                    )
                if refusal.errno != errno.EEXIST:  # RACE: another process of this client id
                    raise
            status = lstat(box)
        if not modes.S_ISDIR(status.st_mode):
            raise MailboxError("%s is no directory: remove it, or use another client id" % box)
        if status.st_uid not in (0, os.geteuid()) and status.st_uid != stat(self._requests).st_uid:
            raise MailboxError("%s belongs to uid %d: use a client id of your own" % (box, status.st_uid))
        return (status.st_dev, status.st_ino)

    def _take(self, path):
        """Read and unlink a response; None while it is not there."""
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
                raise BadResponse("%s is no regular file" % path)
            if status.st_uid != os.geteuid() and status.st_uid != stat(self._requests).st_uid:
                raise BadResponse("%s was written by uid %d, not by the daemon" % (path, status.st_uid))
            data = read_to_end(fd, RESPONSE_BYTES_LIMIT)
        finally:
            close_fd(fd)
        if data is None:
            raise BadResponse("%s is larger than %d bytes" % (path, RESPONSE_BYTES_LIMIT))
        unlink_if_possible(path)
        return data

    def _take_late(self, path, watch):
        """The response to a request that was withdrawn, which the daemon may just have been about to answer."""
        until = monotonic() + _LATE_S
        while True:
            data = self._take(path)
            if data is not None or monotonic() >= until:
                return data
            watch.wait(until - monotonic())

    def _reason(self, file_name):
        """Why the daemon set a request aside, or None when it did not or that may not be read."""
        try:
            fd = open_fd(
                os.path.join(self.root, DEAD_DIR, file_name + ".reason"), os.O_RDONLY | NO_FOLLOW | os.O_NONBLOCK
            )
        except (IOError, OSError):
            return None
        try:
            data = read_to_end(fd, _REASON_BYTES_LIMIT)
        except (IOError, OSError):
            return None
        finally:
            close_fd(fd)
        return data.decode("utf-8", "replace") if data else None

    def _failure(self, request, exchange, timeout_s):
        reason = self._reason(request.file_name)
        if reason:
            return RequestRejected("the daemon set the request aside: " + reason, request)
        if _lock.is_daemon_running(self.root) is False:
            return DaemonNotRunning(
                "no answer in %g s, and no daemon serves %s: start postroomd" % (timeout_s, self.root), request
            )
        return RequestTimeout(
            "no answer in %g s; whether the request was executed is unknown: send it again to learn it" % timeout_s,
            request,
        )

    def _borrow_watch(self, request, identity):
        while True:
            try:
                watch = self._idle_watches.get().pop()  # atomic: no lock that a fork could leave locked
            except IndexError:
                box = os.path.join(self._responses, request.client_id)
                return open_watch(box, identity, self._polling)
            if watch.identity == identity:
                watch.begin()
                return watch
            watch.close()

    def _renew_watch(self, request, watch):
        """``watch``, or another one when the box is not the one that it watches."""
        try:
            identity = self._identify_box(request.client_id)
        except (IOError, OSError):
            return watch  # the whole mailbox is gone; it may come back
        if identity == watch.identity:
            return watch
        self._return_watch(watch)
        return self._borrow_watch(request, identity)

    def _return_watch(self, watch):
        if self._closed:
            watch.close()
        else:
            self._idle_watches.get().append(watch)

    def _leave_parent(self):
        _lock.forget_parent()
        for watches in self._idle_watches.take_from_parents():
            for watch in watches:
                watch.close_after_fork()

    def remove_box(self, client_id):
        """Remove a client's box if it is empty and its own."""
        try:
            remove_directory(os.path.join(self._responses, client_id))
        except (IOError, OSError):
            pass  # not empty, not there, or not ours: the daemon ages it out

    def close(self):
        """Give back the watches; calls that still run give back theirs at their end."""
        self._leave_parent()
        self._closed = True
        watches = self._idle_watches.get()
        while True:
            try:
                watches.pop().close()
            except IndexError:
                return
