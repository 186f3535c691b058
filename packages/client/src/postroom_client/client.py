"""The client. Its commands stand in the ``_methods_*`` beside this file; here is what carries them."""

import os
import sys
import time
from binascii import hexlify

from . import _codec, _lock
from ._compat import native_path
from ._methods import check_timeout
from ._methods_batches import BatchMethods
from ._methods_daemon import DaemonMethods
from ._methods_deadletters import DeadLetterMethods
from ._methods_messages import MessageMethods
from ._methods_operation import OperationMethods
from ._methods_queues import QueueMethods
from ._methods_schedules import ScheduleMethods
from ._methods_work import WorkMethods
from ._per_process import PerProcess
from ._protocol import REQUEST_BYTES_DEFAULT, REQUEST_SUFFIX
from ._transport import Mailbox
from .errors import InvalidArgument, NoAnswer


class Request(object):
    """A request that can be sent, and sent again: the daemon executes it once and repeats its first answer.

    To repeat it after a crash of the application, store ``client_id``, ``request_id``, ``file_name`` and ``data``, and
    build it anew from them. ``lock`` says that a waiting client holds a lock on the file; ``sent``, that it was put.
    """

    __slots__ = ("client_id", "data", "file_name", "lock", "request_id", "sent")

    def __init__(self, client_id, request_id, file_name, data, lock=False, sent=False):
        self.client_id = _codec.check_id(client_id, "client id")
        self.request_id = _codec.check_id(request_id, "request id")
        self.file_name = str(file_name)
        self.data = data
        self.lock = lock
        self.sent = sent

    def __repr__(self):
        return "<Request %s of %s>" % (self.request_id, self.client_id)


class Client(
    MessageMethods,
    BatchMethods,
    WorkMethods,
    QueueMethods,
    OperationMethods,
    DeadLetterMethods,
    ScheduleMethods,
    DaemonMethods,
):
    """A client of the daemon that serves the mailbox at ``ipc_root``.

    Every method is a command of the protocol, takes the fields of the command's payload by their Python names
    (``delayMs`` is ``delay_ms``) and ``timeout`` in seconds (the client's own where it is None), and returns the
    reply's data as a dict; ``consume_next`` returns a ``Delivery`` or None.

    Raises a subclass of ``ServerError`` when the daemon refuses, ``RequestTimeout`` or ``DaemonNotRunning`` when no
    answer came in time, ``InvalidArgument`` for what cannot be sent, ``MailboxError`` when the directory cannot be
    used. All of them are ``PostroomError``.

    One client may be used by several threads, and in a forked child. Making one touches no file. ``polling`` turns
    inotify off, for file systems that do not report changes.
    """

    def __init__(
        self, ipc_root="./ipc", client_id=None, timeout=30.0, polling=False, max_request_bytes=REQUEST_BYTES_DEFAULT
    ):
        self.ipc_root = native_path(ipc_root)
        self.timeout = check_timeout(timeout)
        self.max_request_bytes = max_request_bytes
        self._given_id = _codec.check_id(client_id, "client id") if client_id is not None else None
        self._own = PerProcess(_OwnBox)
        self._mailbox = Mailbox(self.ipc_root, polling)
        self._replies = None
        self._closed = False

    @property
    def client_id(self):
        """The id in the requests. One that was not given is made for each process: a forked child has its own."""
        if self._given_id is not None:
            return self._given_id
        return self._own.get().client_id

    def call(self, command, payload=None, timeout=None, request_id=None, keep=False, traceparent=None):
        """Send any command with a payload of the wire's own field names. Returns the reply's data."""
        return self.send(self.prepare(command, payload, timeout, request_id, traceparent), timeout, keep)

    def prepare(self, command, payload=None, timeout=None, request_id=None, traceparent=None):
        """A ``Request`` whose deadline is ``timeout`` seconds from now. Nothing is written. ``traceparent`` is the
        trace that it belongs to (W3C Trace Context)."""
        payload = {} if payload is None else payload
        timeout_s = self.timeout if timeout is None else check_timeout(timeout)
        client_id = self.client_id
        randomness = _random_hex(20)
        if request_id is None:
            request_id = randomness[:32]
        now_s = time.time()
        now_ms = int(now_s * 1000)
        data = _codec.encode_request(
            request_id, client_id, command, now_ms, now_ms + int(timeout_s * 1000), payload, traceparent
        )
        if len(data) > self.max_request_bytes:
            raise InvalidArgument(
                "the request has %d bytes, more than max_request_bytes (%d): send less, or refer to a file"
                % (len(data), self.max_request_bytes)
            )
        # Sorts by time; no other user can guess it.
        file_name = "%017d-%s-%s%s" % (now_s * 1000000, randomness[32:], request_id, REQUEST_SUFFIX)
        lock = bool(payload.get("waitMs") and payload.get("waitLock") is True)
        return Request(client_id, request_id, file_name, data, lock)

    def send(self, request, timeout=None, keep=False, give_up=None):
        """Send a ``Request``, for the first time or again, and return the reply's data.

        A request that gets no answer in time is withdrawn, so that it is not executed later, unless ``keep``. So it is
        once ``give_up()`` is true, which is asked each second: ``RequestWithdrawn`` is raised then.
        """
        if self._closed:
            raise InvalidArgument("this client is closed")
        timeout_s = self.timeout if timeout is None else check_timeout(timeout)
        own = self._own.get()
        if request.client_id == own.client_id:
            own.used = True
        try:
            answer = self._mailbox.exchange(request, timeout_s, keep, give_up)
        except NoAnswer:
            own.answer_may_come = True
            raise
        return _codec.decode_response(answer, request.request_id)

    def is_daemon_running(self):
        """Whether a daemon serves the mailbox now; None when this user may not look at its lock."""
        return _lock.is_daemon_running(self.ipc_root)

    def close(self):
        """Give back descriptors, and remove the box of an id that was made here."""
        if self._closed:
            return
        self._closed = True
        self._mailbox.close()
        # A box that is gone when a late answer comes would be reported as a fault.
        own = self._own.get()
        if own.used and not own.answer_may_come:
            self._mailbox.remove_box(own.client_id)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        return "<Client %s at %s>" % (self.client_id, self.ipc_root)


class _OwnBox(object):
    """The box of an id that was made here, and whether it can go with the client."""

    def __init__(self):
        self.client_id = _make_client_id()
        self.used = False
        self.answer_may_come = False


def _random_hex(size_bytes):
    return str(hexlify(os.urandom(size_bytes)).decode("ascii"))


def _make_client_id():
    """``<program>-<pid>-<random>``."""
    program = os.path.basename((getattr(sys, "argv", None) or [""])[0] or "python")
    safe = "".join(char if char.isalnum() and ord(char) < 128 else "-" for char in program[:40]).strip("-")
    return "%s-%d-%s" % (safe or "python", os.getpid(), _random_hex(4))
