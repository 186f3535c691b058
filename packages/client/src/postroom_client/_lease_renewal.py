"""Leases that last as long as a message is processed: a thread extends them."""

import os
import select
import threading

from ._compat import close_fd, monotonic, poll, read_fd, set_close_on_exec
from .errors import LeaseExpired, LeaseMismatch, MessageNotFound, PostroomError

_LEASE_OVER = (LeaseExpired, LeaseMismatch, MessageNotFound)
#: A lease is extended after this part of its duration; after a failure it is tried again in so many seconds.
_RENEW_AFTER = 1.0 / 3
_RETRY_S = 1.0
#: Seconds that ``close`` waits for the thread, which may be in the middle of a request.
_JOIN_S = 2.0


class LeaseRenewer(object):
    """Extends the leases of deliveries, each by its own duration, in one thread.

    Sets ``lease_lost`` of a delivery whose lease turns out to be over. Does nothing in a forked child.
    """

    def __init__(self, client):
        self._client = client
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._leases = []
        self._thread = None
        self._closed = False
        self._wake_fd = self._woken_fd = -1

    def add(self, delivery):
        """Extend the lease of a delivery from now on, until it is settled or removed."""
        if os.getpid() != self._pid or not delivery.lease_length():
            return
        with self._lock:
            self._leases.append(_Lease(delivery))
        if self._thread is None:
            self._start()
        else:
            os.write(self._wake_fd, b"+")

    def remove(self, delivery):
        """Extend the lease of a delivery no more."""
        if os.getpid() == self._pid:
            with self._lock:
                self._leases = [lease for lease in self._leases if lease.delivery is not delivery]

    def close(self):
        """Stop the thread. Waits up to 2 s for a request that it is sending."""
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
        # A pipe, not an Event: an Event with a timeout busy-waits on Python 2.7, and elsewhere may use the wall clock.
        self._woken_fd, self._wake_fd = os.pipe()
        for fd in (self._woken_fd, self._wake_fd):
            set_close_on_exec(fd)
        self._thread = threading.Thread(target=self._run, name="postroom-lease-renewal")
        self._thread.daemon = True
        self._thread.start()

    def _run(self):
        poller = select.poll()
        poller.register(self._woken_fd, select.POLLIN)
        while not self._closed:
            now = monotonic()
            with self._lock:
                self._leases = [lease for lease in self._leases if lease.is_active()]
                due = [lease for lease in self._leases if lease.renew_at <= now]
                wait_s = min([lease.renew_at - now for lease in self._leases] or [3600.0])
            for lease in due:
                if not self._closed:
                    self._extend(lease)
            if not due:
                poll(poller, wait_s)
                if poller.poll(0):
                    read_fd(self._woken_fd, 64)

    def _extend(self, lease):
        delivery = lease.delivery
        left_s = lease.ends_at - monotonic()
        if left_s <= 0:
            delivery.lease_lost = True
            return
        timeout_s = min(self._client.timeout, max(left_s, _RETRY_S))
        try:
            data = self._client.extend_lease(delivery, visibility_timeout_sec=lease.duration_s, timeout=timeout_s)
        except _LEASE_OVER:
            delivery.lease_lost = not delivery.settled
        except PostroomError:
            lease.renew_at = monotonic() + _RETRY_S  # the daemon restarts, or its disk is full: the lease still runs
        else:
            delivery.lease_until = data.get("leaseUntil")
            lease.restart(monotonic())


class _Lease(object):
    """The lease of a delivery, and when to extend it. Times are monotonic."""

    def __init__(self, delivery):
        self.delivery = delivery
        self.duration_s = delivery.lease_length()
        self.restart(delivery.received_at)

    def restart(self, now):
        """The lease has its whole duration from ``now`` on."""
        self.renew_at = now + self.duration_s * _RENEW_AFTER
        self.ends_at = now + self.duration_s

    def is_active(self):
        """Return whether the lease still has to be extended."""
        return not self.delivery.settled and not self.delivery.lease_lost
