"""The mailbox transport: requests and responses are files in the directory ``ipc_root``."""

import errno
import os
import stat as modes

from . import _lock
from ._compat import (
    DIRECTORY,
    NO_FOLLOW,
    chmod_fd,
    close_fd,
    lstat,
    make_directory,
    monotonic,
    open_fd,
    remove_directory,
    sleep,
    stat,
    utf8_name,
)
from ._mailbox_exchange import MailboxExchange, mailbox_error
from ._process_local import ProcessLocal
from ._protocol import DEAD_DIR, REQUESTS_DIR, RESPONSES_DIR
from ._transport import Transport
from ._watch import open_watch
from .errors import DaemonNotRunning, MailboxError


class Mailbox(Transport):
    """The mailbox at ``root``. ``polling`` turns inotify off. The others are names of directories in ``root``."""

    def __init__(self, root, polling=False, requests_dir=REQUESTS_DIR, responses_dir=RESPONSES_DIR, dead_dir=DEAD_DIR):
        self.root = root
        self.requests_dir = os.path.join(root, requests_dir)
        self.responses_dir = os.path.join(root, responses_dir)
        self.dead_dir = os.path.join(root, dead_dir)
        self._polling = polling
        self._idle_watches = ProcessLocal(list)
        self._used_ids = ProcessLocal(dict)  # client ids, and whether an answer may still come
        self._closed = False

    def begin(self, request):
        """See ``Transport``."""
        self._close_inherited()
        return MailboxExchange(self, request)

    def is_daemon_running(self):
        """See ``Transport``."""
        return _lock.is_daemon_running(self.root)

    def close(self, client_id):
        """Close the idle watches; requests that are pending close theirs. Remove the response directory of
        ``client_id`` if this process has used it and no answer is due: a late one would be logged as a fault."""
        self._close_inherited()
        self._closed = True
        watches = self._idle_watches.get()
        while True:
            try:
                watches.pop().close()
            except IndexError:
                break
        if self._used_ids.get().get(client_id) is False:
            try:
                remove_directory(self._response_dir(client_id))
            except (IOError, OSError):
                pass  # not empty, removed, or not ours: the daemon's sweeper removes it

    def note_outcome(self, client_id, answer_may_come):
        """Remember that an id was used, and whether one of its requests ended without an answer."""
        used_ids = self._used_ids.get()
        if answer_may_come:
            used_ids[client_id] = True
        else:
            used_ids.setdefault(client_id, False)  # atomic: another thread may be in the line above

    def explain_missing(self, hint):
        """Return why there is no mailbox, with ``hint`` or a better root; None if there is one or it cannot be read."""
        if _exists(self.requests_dir):
            return None
        if not _exists(self.root):
            return "%s does not exist%s" % (self.root, hint)
        name = os.path.basename(self.requests_dir)
        inner = os.path.join(self.root, "ipc")
        if os.path.isdir(os.path.join(inner, name)):
            return "%s is not a mailbox, but %s is: did you mean that?" % (self.root, inner)
        return "%s is not a mailbox: it has no directory %s%s" % (self.root, name, hint)

    def open_response_dir(self, request, deadline):
        """Wait until ``deadline`` for the mailbox to exist. Return what ``identify_response_dir`` returns."""
        pause_s = 0.005
        while True:
            try:
                return self.identify_response_dir(request.client_id)
            except (IOError, OSError) as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise mailbox_error("cannot use the mailbox", self.root, error)
            left_s = deadline - monotonic()
            if left_s <= 0:
                hint = "; start postroomd, or correct the path"
                why = self.explain_missing(hint) or "there is no directory %s" % self.responses_dir
                raise DaemonNotRunning(why, request)
            sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, 0.25)

    def identify_response_dir(self, client_id):
        """Return (device, inode) of a client's response directory; create the directory if there is none.

        Raises ``OSError`` if the mailbox does not exist, ``MailboxError`` if the directory cannot be used.
        """
        path = self._response_dir(client_id)
        try:
            status = lstat(path)
        except (IOError, OSError) as error:
            if error.errno != errno.ENOENT:
                raise
            stat(self.requests_dir)
            try:
                _make_response_dir(path)
            except (IOError, OSError) as refusal:
                if refusal.errno in (errno.EACCES, errno.EPERM):
                    # The daemon creates directories for its own user only: waiting would be in vain.
                    raise MailboxError(
                        "cannot create the response directory %s: %s; ask the device's owner to create it for this "
                        "user, mode 0770" % (path, os.strerror(refusal.errno))
                    )
                if refusal.errno != errno.EEXIST:  # RACE: another process of this client id
                    raise
            status = lstat(path)
        if not modes.S_ISDIR(status.st_mode):
            raise MailboxError("%s is not a directory: remove it, or use another client id" % path)
        if status.st_uid not in (0, os.geteuid()) and status.st_uid != stat(self.requests_dir).st_uid:
            raise MailboxError("%s belongs to uid %d: use a client id of your own" % (path, status.st_uid))
        return (status.st_dev, status.st_ino)

    def _response_dir(self, client_id):
        return self.responses_dir + os.sep + utf8_name(client_id)

    def borrow_watch(self, client_id, identity):
        """Return a watch on a client's response directory; give it back with ``return_watch``."""
        while True:
            try:
                watch = self._idle_watches.get().pop()  # atomic: a lock could stay locked in a forked child
            except IndexError:
                return open_watch(self._response_dir(client_id), identity, self._polling)
            if watch.identity == identity:
                watch.begin()
                return watch
            watch.close()

    def return_watch(self, watch):
        """Give a borrowed watch back, for the next request."""
        if self._closed:
            watch.close()
        else:
            self._idle_watches.get().append(watch)

    def _close_inherited(self):
        _lock.close_inherited()
        for watches in self._idle_watches.pop_inherited():
            for watch in watches:
                watch.close_after_fork()


def _exists(path):
    try:
        stat(path)
    except (IOError, OSError) as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return True


def _make_response_dir(path):
    """Create a response directory into which the daemon's group may write. Raises ``OSError``."""
    make_directory(path, 0o770)
    fd = open_fd(path, os.O_RDONLY | DIRECTORY | NO_FOLLOW)
    try:
        chmod_fd(fd, 0o770)  # the umask may have removed the group's rights
    finally:
        close_fd(fd)
