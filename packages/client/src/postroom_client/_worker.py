"""The worker: a loop that processes the messages of a queue one after the other."""

import logging
import signal
from collections import deque

from ._codec import encode_payload
from ._compat import monotonic, sleep
from ._delivery import deliveries_of
from ._lease_renewal import LeaseRenewer
from ._processing import activate, reason_of, settle
from .errors import (
    AnswerLost,
    DeadlineExpired,
    InternalError,
    InvalidArgument,
    LeaseExpired,
    MailboxError,
    NoAnswer,
    PostroomError,
    RequestWithdrawn,
    StorageFailed,
    StorageFull,
)

log = logging.getLogger("postroom_client")
log.addHandler(logging.NullHandler())

#: Errors after which a worker that has had one answer continues.
_TEMPORARY = (
    AnswerLost,
    DeadlineExpired,
    InternalError,
    LeaseExpired,
    MailboxError,
    NoAnswer,
    StorageFailed,
    StorageFull,
)
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 30.0
_SLICE_S = 0.1


class Options(object):
    """The options of ``Client.worker`` with their defaults. Raises ``InvalidArgument`` for an unknown one."""

    consumer_id = None
    visibility_timeout_sec = None
    wait_ms = 20000
    payload_as = "value"
    prefetch = 1
    max_messages = None
    until_empty = False
    requeue = True
    stop = None
    stop_signals = (signal.SIGTERM, signal.SIGINT)
    processes = 1

    def __init__(self, given):
        unknown = set(given) - set(vars(Options))
        if unknown:
            raise InvalidArgument("worker has no option %s" % ", ".join(sorted(unknown)))
        for name, value in given.items():
            setattr(self, name, value)


def run_worker(client, queue, handler, options):
    """Run a worker in this process, or in as many as ``options`` say. Return the number of messages processed.

    Raises what the first request for a message raises, and ``WorkerFailed``.
    """
    if options.processes == 1:
        return Worker(client, queue, handler, options).run()
    from ._process_pool import ProcessPool

    def run(pool):
        return Worker(client, queue, handler, options).run(pool)

    return ProcessPool(options.processes, run, options.stop_signals, options.stop).run()


class Worker(object):
    """A worker of one process, see ``Client.worker``. ``stop_signal`` is the signal that stops it, or None."""

    def __init__(self, client, queue, handler, options):
        self._client = client
        self._queue = queue
        self._handler = handler
        self._options = options
        self._renewer = LeaseRenewer(client)
        self._prefetched = deque()
        self._backoff_s = None  # until the daemon has answered once
        self._pool = None
        self.stop_signal = None
        self.count = 0

    def run(self, pool=None):
        """Process messages until the worker is stopped, or the ``pool`` whose process this is. Return how many."""
        self._pool = pool
        previous = self._catch_signals()
        try:
            while not self.is_stopping() and self._remaining() > 0:
                if not self._prefetched:
                    self._prefetched.extend(self._fetch())
                    if not self._prefetched and self._options.until_empty and not self._backoff_s:
                        break
                    continue
                self._process(self._prefetched.popleft())
        finally:
            self._release_prefetched()
            self._renewer.close()
            for number, handler in previous:
                signal.signal(number, handler)
        return self.count

    def is_stopping(self):
        """Return whether the worker ends as soon as the message at hand is settled."""
        stop = self._options.stop
        is_over = self._pool is not None and self._pool.is_over()
        return self.stop_signal is not None or is_over or bool(stop and stop())

    def _catch_signals(self):
        """Let the stop signals stop the worker. Return them with their previous handlers."""
        previous = []
        for number in self._options.stop_signals or ():
            try:
                previous.append((number, signal.signal(number, self._note_signal)))
            except ValueError:  # only the main thread can catch signals
                break
        return [(number, handler) for number, handler in previous if handler is not None]

    def _note_signal(self, number, frame):
        if self.stop_signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second one interrupts the handler
        self.stop_signal = number

    def _remaining(self):
        limit = self._options.max_messages
        return self._options.prefetch if limit is None else limit - self.count

    def _fetch(self):
        """Return the next deliveries, whose leases are extended from now on. An empty list if there are none, or after
        a temporary error."""
        options = self._options
        count = min(options.prefetch, self._remaining())
        max_count = count if count > 1 else None
        wait_ms = 0 if options.until_empty else options.wait_ms
        fields = {
            "queue": self._queue,
            "consumer_id": options.consumer_id,
            "visibility_timeout_sec": options.visibility_timeout_sec,
            "wait_ms": wait_ms or None,
            "wait_lock": True if wait_ms else None,
            "payload_as": options.payload_as,
            "max": max_count,
        }
        timeout_s = self._client.timeout + wait_ms / 1000.0
        try:
            request = self._client.prepare("consume_next", encode_payload("consume_next", fields), timeout_s)
            fetched = deliveries_of(self._client.send(request, timeout_s, give_up=self.is_stopping), max_count)
        except RequestWithdrawn:
            return []
        except _TEMPORARY as error:
            if self._backoff_s is None:
                raise
            self._back_off(error)
            return []
        self._backoff_s = 0.0
        if max_count is None:
            fetched = [fetched] if fetched is not None else []
        for delivery in fetched:
            self._renewer.add(delivery)
        return fetched

    def _back_off(self, error):
        self._backoff_s = min(max(self._backoff_s * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
        log.warning("queue %s: %s; trying again in %g s", self._queue, error, self._backoff_s)
        until = monotonic() + self._backoff_s
        while monotonic() < until and not self.is_stopping():
            sleep(_SLICE_S)

    def _process(self, delivery):
        if delivery.lease_lost or not self._activate(delivery):  # while it waited for its turn
            return
        try:
            self._handler(delivery)
        except Exception as error:
            log.warning("%s failed: %s", delivery.message_key, reason_of(error), exc_info=True)
            self._settle(delivery, error)
        except BaseException as error:
            self._settle(delivery, error)
            raise
        else:
            self._settle(delivery, None)
        self.count += 1

    def _activate(self, delivery):
        """Begin to work on a delivery. Return whether its lease is active now."""
        if delivery.phase is None:
            return True
        self._renewer.remove(delivery)
        try:
            activate(self._client, delivery, self._options.payload_as, self._options.visibility_timeout_sec)
        except PostroomError as failure:
            log.warning("%s is not activated, it may be delivered again: %s", delivery.message_key, failure)
            return False
        self._renewer.add(delivery)
        return True

    def _settle(self, delivery, error):
        try:
            settle(self._client, delivery, self._queue, error, self._options.requeue)
            if not delivery.settled:  # a dead letter whose handler failed
                self._renewer.remove(delivery)
        except PostroomError as failure:
            self._renewer.remove(delivery)
            log.warning("%s is not settled, it may be delivered again: %s", delivery.message_key, failure)

    def _release_prefetched(self):
        """Release the messages that were leased and not processed."""
        while self._prefetched:
            delivery = self._prefetched.popleft()
            try:
                self._client.release(delivery)
            except PostroomError as failure:
                self._renewer.remove(delivery)
                log.warning("%s is not released: %s", delivery.message_key, failure)
