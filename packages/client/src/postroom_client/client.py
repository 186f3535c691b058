"""The client: one method for each command."""

import os
import sys
import time
from binascii import hexlify

from . import _codec, _lock
from ._compat import native_path
from ._delivery import Delivery
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


class Client(object):
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
        self.timeout = _check_timeout(timeout)
        self.max_request_bytes = max_request_bytes
        self._given_id = _codec.check_id(client_id, "client id") if client_id is not None else None
        self._own_id = None
        self._own_pid = None
        self._own_box_used = False
        self._answer_may_come = False
        self._mailbox = Mailbox(self.ipc_root, polling)
        self._closed = False

    # -- commands

    def publish(
        self,
        queue,
        message,
        attributes=None,
        priority=None,
        delay_ms=None,
        target_consumer_id=None,
        encoding=None,
        content_type=None,
        type=None,
        version=None,
        trace_id=None,
        deduplication_key=None,
        timestamp=None,
        timeout=None,
    ):
        """Store ``message``: text, ``Binary``, or any value that JSON can hold. Returns messageId and messageKey."""
        return self._send(
            "publish",
            timeout,
            queue=queue,
            message=message,
            attributes=attributes,
            priority=priority,
            delay_ms=delay_ms,
            target_consumer_id=target_consumer_id,
            encoding=encoding,
            content_type=content_type,
            type=type,
            version=version,
            trace_id=trace_id,
            deduplication_key=deduplication_key,
            timestamp=timestamp,
        )

    def consume_next(
        self,
        queue,
        consumer_id=None,
        visibility_timeout_sec=None,
        wait_ms=None,
        wait_lock=True,
        payload_as="value",
        timeout=None,
    ):
        """Lease the next message, waiting up to ``wait_ms`` for one; None when there is none.

        Without ``timeout`` the call may last the client's timeout longer than the wait; with it, the wait is cut so
        that a tenth of the timeout is left for the answer.
        """
        if wait_ms is not None:
            _codec.check_kind("integer", wait_ms, "wait_ms")
        if wait_ms and timeout is None:
            timeout = self.timeout + wait_ms / 1000.0
        elif wait_ms:
            wait_ms = min(wait_ms, int(_check_timeout(timeout) * 900))
        data = self._send(
            "consume_next",
            timeout,
            queue=queue,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
            wait_ms=wait_ms,
            wait_lock=True if wait_ms and wait_lock else None,
            payload_as=payload_as,
        )
        return Delivery(data) if data.get("message") else None

    def ack(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Settle a message as done. ``message_key`` is a ``Delivery``, or a key with ``lease_id``."""
        key, lease = _key_and_lease(message_key, lease_id)
        return self._send("ack", timeout, message_key=key, lease_id=lease, consumer_id=consumer_id)

    def nack(self, message_key, lease_id=None, consumer_id=None, reason=None, requeue=None, timeout=None):
        """Settle a message as failed: retried by the queue's policy with ``requeue``, else a dead letter."""
        key, lease = _key_and_lease(message_key, lease_id)
        return self._send(
            "nack",
            timeout,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            reason=reason,
            requeue=requeue,
        )

    def release(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Give a message back untried: it is ready again and this delivery is not counted."""
        key, lease = _key_and_lease(message_key, lease_id)
        return self._send("release", timeout, message_key=key, lease_id=lease, consumer_id=consumer_id)

    def extend_lease(
        self, message_key, lease_id=None, consumer_id=None, visibility_timeout_sec=None, timeout=None
    ):
        """Let the lease end ``visibility_timeout_sec`` from now (the queue's policy if None)."""
        key, lease = _key_and_lease(message_key, lease_id)
        return self._send(
            "extend_lease",
            timeout,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
        )

    def status(self, queue, timeout=None):
        """Depths, policy and pauses of one queue."""
        return self._send("status", timeout, queue=queue)

    def health(self, timeout=None):
        """Whether the daemon's journal, store and disk work."""
        return self._send("health", timeout)

    def metrics(self, timeout=None):
        """The daemon's counters and rates."""
        return self._send("metrics", timeout)

    def list_queues(self, limit=None, after=None, timeout=None):
        """A page of the queues by name, each with its depths."""
        return self._send("list_queues", timeout, limit=limit, after=after)

    def list_dlq(self, queue, limit=None, after=None, preview_bytes=None, timeout=None):
        """A page of a queue's dead letters, each with its reason."""
        return self._send(
            "list_dlq", timeout, queue=queue, limit=limit, after=after, preview_bytes=preview_bytes
        )

    def reprocess_dlq(self, message_key, timeout=None):
        """Make a dead letter ready again, its attempts counted from zero."""
        return self._send("reprocess_dlq", timeout, message_key=_key_and_lease(message_key, None)[0])

    def pause(self, queue, operation=None, timeout=None):
        """Stop consuming from a queue (``operation`` "publish": publishing to it) until ``resume``."""
        return self._send("pause", timeout, queue=queue, operation=operation)

    def resume(self, queue, operation=None, timeout=None):
        """Undo ``pause``."""
        return self._send("resume", timeout, queue=queue, operation=operation)

    def set_policy(self, queue, policy, timeout=None):
        """Set keys of a queue's policy over the daemon's configuration; ``{}`` takes them all back."""
        return self._send("set_policy", timeout, queue=queue, policy=policy)

    def get_policy(self, queue, timeout=None):
        """A queue's policy in effect, and what was set by ``set_policy``."""
        return self._send("get_policy", timeout, queue=queue)

    def read_state(self, part=None, after=None, limit=None, timeout=None):
        """A page of all that the daemon knows; for the user that it runs as, and for root."""
        return self._send("read_state", timeout, part=part, after=after, limit=limit)

    def import_state(self, engine_ms, wall_ms, queues=None, messages=None, timeout=None):
        """Take over queues and messages as another daemon's ``read_state`` gave them; for the same users."""
        return self._send(
            "import_state", timeout, engine_ms=engine_ms, wall_ms=wall_ms, queues=queues, messages=messages
        )

    # -- below the commands

    @property
    def client_id(self):
        """The id in the requests. One that was not given is made for each process: a forked child has its own."""
        if self._given_id is not None:
            return self._given_id
        if self._own_pid != os.getpid():
            self._own_pid = os.getpid()
            self._own_id = _make_client_id()
            self._own_box_used = self._answer_may_come = False
        return self._own_id

    def call(self, command, payload=None, timeout=None, request_id=None, keep=False):
        """Send any command with a payload of the wire's own field names. Returns the reply's data."""
        return self.send(self.prepare(command, payload, timeout, request_id), timeout, keep)

    def prepare(self, command, payload=None, timeout=None, request_id=None):
        """A ``Request`` whose deadline is ``timeout`` seconds from now. Nothing is written."""
        payload = {} if payload is None else payload
        timeout_s = self.timeout if timeout is None else _check_timeout(timeout)
        client_id = self.client_id
        randomness = _random_hex(20)
        if request_id is None:
            request_id = randomness[:32]
        now_s = time.time()
        now_ms = int(now_s * 1000)
        data = _codec.encode_request(
            request_id, client_id, command, now_ms, now_ms + int(timeout_s * 1000), payload
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

    def send(self, request, timeout=None, keep=False):
        """Send a ``Request``, for the first time or again, and return the reply's data.

        A request that gets no answer in time is withdrawn, so that it is not executed later, unless ``keep``.
        """
        if self._closed:
            raise InvalidArgument("this client is closed")
        timeout_s = self.timeout if timeout is None else _check_timeout(timeout)
        if request.client_id == self._own_id:
            self._own_box_used = True
        try:
            answer = self._mailbox.exchange(request, timeout_s, keep)
        except NoAnswer:
            self._answer_may_come = True
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
        if self._own_box_used and not self._answer_may_come and self._own_pid == os.getpid():
            self._mailbox.remove_box(self._own_id)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        return "<Client %s at %s>" % (self.client_id, self.ipc_root)

    def _send(self, command, timeout, **options):
        return self.call(command, _codec.encode_payload(command, options), timeout)


def _check_timeout(timeout_s):
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s < 1e9:
        raise InvalidArgument("timeout must be a number of seconds, not %r" % (timeout_s,))
    return timeout_s


def _key_and_lease(message, lease_id):
    if not isinstance(message, Delivery):
        return message, lease_id
    return message.message_key, message.lease_id if lease_id is None else lease_id


def _random_hex(size_bytes):
    return str(hexlify(os.urandom(size_bytes)).decode("ascii"))


def _make_client_id():
    """``<program>-<pid>-<random>``."""
    program = os.path.basename((getattr(sys, "argv", None) or [""])[0] or "python")
    safe = "".join(char if char.isalnum() and ord(char) < 128 else "-" for char in program[:40]).strip("-")
    return "%s-%d-%s" % (safe or "python", os.getpid(), _random_hex(4))
