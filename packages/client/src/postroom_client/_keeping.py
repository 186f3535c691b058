"""Leases that last while somebody works: a thread extends them."""

import os
import select
import threading

from ._compat import close_fd, monotonic, poll, read_fd, set_close_on_exec
from .errors import LeaseExpired, LeaseMismatch, MessageNotFound, PostroomError

_OVER = (LeaseExpired, LeaseMismatch, MessageNotFound)
#: A lease is extended when so much of it is gone, and after a failure again in so many seconds.
_PART = 1.0 / 3
_RETRY_S = 1.0
#: How long the end of a keeper waits for its thread, which may be in the middle of a request.
_JOIN_S = 2.0


class Keeper(object):
    """Extends the leases of the deliveries that it holds, each by its own length, in a thread of its own.

    A delivery whose lease turns out to be over gets ``lease_lost``. In a forked child a keeper does nothing.
    """

    def __init__(self, client):
        self._client = client
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held = []
        self._thread = None
        self._closed = False
        self._wake_fd = self._woken_fd = -1

    def hold(self, delivery):
        """Extend a delivery's lease from now on, until it is settled or dropped."""
        if os.getpid() != self._pid or not delivery.lease_length():
            return
        with self._lock:
            self._held.append(_Held(delivery))
        if self._thread is None:
            self._start()
        else:
            os.write(self._wake_fd, b"+")

    def drop(self, delivery):
        """Let a delivery's lease end when it does."""
        if os.getpid() == self._pid:
            with self._lock:
                self._held = [held for held in self._held if held.delivery is not delivery]

    def close(self):
        """Extend nothing more."""
        if os.getpid() != self._pid or self._thread is None:
            return
        self._closed = True
        os.write(self._wake_fd, b".")
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            close_fd(self._wake_fd)
            close_fd(self._woken_fd)
        self._thread = None

    def _start(self):
        # Not an Event: its wait with a timeout is a busy one on Python 2.7, and follows the wall clock on some others.
        self._woken_fd, self._wake_fd = os.pipe()
        for fd in (self._woken_fd, self._wake_fd):
            set_close_on_exec(fd)
        self._thread = threading.Thread(target=self._run, name="postroom-keeper")
        self._thread.daemon = True
        self._thread.start()

    def _run(self):
        poller = select.poll()
        poller.register(self._woken_fd, select.POLLIN)
        while not self._closed:
            now = monotonic()
            with self._lock:
                self._held = [held for held in self._held if held.is_wanted()]
                due = [held for held in self._held if held.next_at <= now]
                wait_s = min([held.next_at - now for held in self._held] or [3600.0])
            for held in due:
                if not self._closed:
                    self._extend(held)
            if not due:
                poll(poller, wait_s)
                if poller.poll(0):
                    read_fd(self._woken_fd, 64)

    def _extend(self, held):
        delivery = held.delivery
        left_s = held.ends_at - monotonic()
        if left_s <= 0:
            delivery.lease_lost = True
            return
        timeout_s = min(self._client.timeout, max(left_s, _RETRY_S))
        try:
            data = self._client.extend_lease(delivery, visibility_timeout_sec=held.length_s, timeout=timeout_s)
        except _OVER:
            delivery.lease_lost = not delivery.settled
        except PostroomError:
            held.next_at = monotonic() + _RETRY_S  # the daemon restarts, or its disk is full: the lease still runs
        else:
            delivery.lease_until = data.get("leaseUntil")
            held.begin()


class _Held(object):
    """A delivery, and when its lease is to be extended. Times are monotonic."""

    def __init__(self, delivery):
        self.delivery = delivery
        self.length_s = delivery.lease_length()
        self.begin(delivery.received_at)

    def begin(self, now=None):
        """The lease has its whole length from now on."""
        now = monotonic() if now is None else now
        self.next_at = now + self.length_s * _PART
        self.ends_at = now + self.length_s

    def is_wanted(self):
        """Whether the lease is still to be kept."""
        return not self.delivery.settled and not self.delivery.lease_lost
