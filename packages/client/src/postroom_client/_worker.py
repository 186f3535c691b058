"""A loop that works on a queue's messages, one after the other."""

import logging
import os
import signal
from collections import deque

from ._codec import encode_payload
from ._compat import monotonic, sleep
from ._keeping import Keeper
from ._methods import deliveries_of
from ._settling import reason_of, settle
from .errors import (
    AnswerLost,
    DeadlineExpired,
    InternalError,
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

#: Errors that pass by themselves, once the worker has begun.
_PASSING = (
    AnswerLost,
    DeadlineExpired,
    InternalError,
    LeaseExpired,
    MailboxError,
    NoAnswer,
    StorageFailed,
    StorageFull,
)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SLICE_S = 0.1


class Worker(object):
    """See ``Client.worker``. ``stop_signal`` is the signal that has asked it to stop, or None."""

    def __init__(self, client, queue, handler, options):
        self._client = client
        self._queue = queue
        self._handler = handler
        self._options = options
        self._keeper = Keeper(client)
        self._ahead = deque()
        self._pause_s = None  # until the daemon has answered once
        self._parent = None
        self.stop_signal = None
        self.count = 0

    def run(self, parent=None):
        """Work until it is stopped. How many messages were worked on. ``parent`` is a process whose end ends it."""
        self._parent = parent
        before = self._catch_signals()
        try:
            while not self.is_stopping() and self._left() > 0:
                if not self._ahead:
                    self._ahead.extend(self._fetch())
                    if not self._ahead and self._options.until_empty and not self._pause_s:
                        break
                    continue
                self._work(self._ahead.popleft())
        finally:
            self._give_back()
            self._keeper.close()
            for number, handler in before:
                signal.signal(number, handler)
        return self.count

    def is_stopping(self):
        """Whether it is to end once the message that it works on is settled."""
        asked = self._options.stop
        orphan = self._parent is not None and os.getppid() != self._parent
        return self.stop_signal is not None or orphan or bool(asked and asked())

    def _catch_signals(self):
        """Let the signals ask for the end. Those that were caught, with what they did before."""
        before = []
        for number in self._options.stop_signals or ():
            try:
                before.append((number, signal.signal(number, self._note_signal)))
            except ValueError:  # not the main thread: only that can catch signals
                break
        return [(number, handler) for number, handler in before if handler is not None]

    def _note_signal(self, number, frame):
        if self.stop_signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: it is not to finish its message
        self.stop_signal = number

    def _left(self):
        most = self._options.max_messages
        return self._options.prefetch if most is None else most - self.count

    def _fetch(self):
        """The next messages, their leases kept; none when there are none, or on an error that passes."""
        options = self._options
        most = min(options.prefetch, self._left())
        most = most if most > 1 else None
        wait_ms = 0 if options.until_empty else options.wait_ms
        fields = {
            "queue": self._queue,
            "consumer_id": options.consumer_id,
            "visibility_timeout_sec": options.visibility_timeout_sec,
            "wait_ms": wait_ms or None,
            "wait_lock": True if wait_ms else None,
            "payload_as": options.payload_as,
            "max": most,
        }
        timeout_s = self._client.timeout + wait_ms / 1000.0
        try:
            request = self._client.prepare("consume_next", encode_payload("consume_next", fields), timeout_s)
            found = deliveries_of(self._client.send(request, timeout_s, give_up=self.is_stopping), most)
        except RequestWithdrawn:
            return []
        except _PASSING as error:
            if self._pause_s is None:
                raise
            self._wait_out(error)
            return []
        self._pause_s = 0.0
        found = found if most else [found] if found is not None else []
        for delivery in found:
            self._keeper.hold(delivery)
        return found

    def _wait_out(self, error):
        self._pause_s = min(max(self._pause_s * 2, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        log.warning("queue %s: %s; trying again in %g s", self._queue, error, self._pause_s)
        until = monotonic() + self._pause_s
        while monotonic() < until and not self.is_stopping():
            sleep(_SLICE_S)

    def _work(self, delivery):
        if delivery.lease_lost:  # while it waited for its turn
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

    def _settle(self, delivery, error):
        try:
            settle(self._client, delivery, self._queue, error, self._options.requeue)
            if not delivery.settled:  # a dead letter on which the work failed
                self._keeper.drop(delivery)
        except PostroomError as trouble:
            self._keeper.drop(delivery)
            log.warning("%s is not settled, it may be delivered again: %s", delivery.message_key, trouble)

    def _give_back(self):
        """Release what was leased and not begun."""
        while self._ahead:
            delivery = self._ahead.popleft()
            try:
                self._client.release(delivery)
            except PostroomError as trouble:
                self._keeper.drop(delivery)
                log.warning("%s is not given back: %s", delivery.message_key, trouble)


class Options(object):
    """What ``Client.worker`` was given, with its defaults."""

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
        for name, value in given.items():
            setattr(self, name, value)
