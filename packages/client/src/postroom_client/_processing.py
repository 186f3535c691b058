"""Processing one message: its lease is extended meanwhile, and it is settled by the outcome."""

import os
import re
import sys

from ._compat import monotonic, text_type
from ._delivery import Reject, Retry
from ._lease_renewal import LeaseRenewer
from .errors import DeadlineExpired, NoAnswer, PostroomError, RequestRejected

#: The longest reason of a failure, in characters.
REASON_LIMIT = 500
#: Surrogates, which cannot be sent. On builds whose text is UTF-16: those without their other half.
_SURROGATES = re.compile(
    u"[\ud800-\udfff]"
    if sys.maxunicode > 0xFFFF
    else u"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
)


class CannotProcess(BaseException):
    """Raised by the handler of a worker: no message can be processed. Releases this one and ends the worker."""


#: Outcomes that are not the message's fault.
_NOT_TRIED = (CannotProcess, GeneratorExit, KeyboardInterrupt)


class ProcessingContext(object):
    """The context manager of ``Client.consume``. ``consume`` returns the next delivery or None."""

    def __init__(self, client, queue, requeue, consume, payload_as, visibility_timeout_sec):
        self._client = client
        self._queue = queue
        self._requeue = requeue
        self._consume = consume
        self._payload_as = payload_as
        self._visibility_timeout_sec = visibility_timeout_sec
        self._delivery = None
        self._renewer = None
        self._pid = None

    def __enter__(self):
        self._pid = os.getpid()
        self._delivery = self._consume()
        if self._delivery is not None:
            activate(self._client, self._delivery, self._payload_as, self._visibility_timeout_sec)
            self._renewer = LeaseRenewer(self._client)
            self._renewer.add(self._delivery)
        return self._delivery

    def __exit__(self, kind, error, trace):
        delivery, self._delivery = self._delivery, None
        if delivery is None or os.getpid() != self._pid:  # a forked child leaves the message to its parent
            return False
        try:
            if kind is None:
                settle(self._client, delivery, self._queue)
            else:
                self._fail(delivery, kind() if error is None else error)
        finally:
            self._renewer.close()
        return kind is not None and issubclass(kind, (Reject, Retry))

    def _fail(self, delivery, error):
        try:
            settle(self._client, delivery, self._queue, error, self._requeue)
        except PostroomError:
            pass  # the error of the body matters more; the message is delivered again when its lease is over


def activate(client, delivery, payload_as, visibility_timeout_sec):
    """Activate a delivery whose lease is in its first phase. Raises ``PostroomError``."""
    if delivery.phase is not None:
        client.activate(delivery, payload_as=payload_as, visibility_timeout_sec=visibility_timeout_sec)


def settle(client, delivery, queue, error=None, requeue=True):
    """Settle a delivery from ``queue`` after it was processed. Raises ``PostroomError``.

    Without ``error`` it is acknowledged. ``Reject`` makes it a dead letter, ``KeyboardInterrupt`` releases it, and any
    other error is the reason for which it is delivered again, or without ``requeue`` becomes a dead letter. A message
    that was a dead letter before keeps its lease instead. Does nothing if the handler has settled the delivery.
    """
    if delivery.settled:
        return
    if error is None:
        until_answered(client, delivery, lambda: client.ack(delivery))
    elif isinstance(error, _NOT_TRIED):
        until_answered(client, delivery, lambda: client.release(delivery))
    elif _is_dead_letter(delivery, queue):
        pass  # a nack would deliver it again at once, before all others: now it comes again when its lease is over
    elif isinstance(error, Reject):
        until_answered(client, delivery, lambda: client.nack(delivery, reason=reason_of(error)))
    else:
        is_retry = isinstance(error, Retry)
        delay_ms = error.delay_ms if is_retry else None
        reason = reason_of(error)
        until_answered(
            client,
            delivery,
            lambda: client.nack(delivery, reason=reason, requeue=requeue or is_retry, delay_ms=delay_ms),
        )


def _is_dead_letter(delivery, queue):
    """Return whether ``queue``, by which a message was consumed, is a dead-letter address: then it differs from the
    message's own."""
    return delivery.queue != (queue.decode("utf-8") if isinstance(queue, bytes) else queue)


def until_answered(client, delivery, send):
    """Call ``send`` to settle a delivery. If no answer comes, send the same request again until the lease is over.

    Raises what ``send`` raises.
    """
    started_at = monotonic()
    try:
        return send()
    except RequestRejected:
        raise
    except NoAnswer as error:
        unanswered = error
    while monotonic() < started_at + delivery.lease_length():
        try:
            data = client.send(unanswered.request)
        except RequestRejected:
            raise
        except NoAnswer as error:
            unanswered = error
        except DeadlineExpired:  # it was not executed
            return send()
        else:
            delivery.settled = True
            return data
    raise unanswered


def reason_of(error):
    """Return an exception as the reason of a failure: its class and its text, as ``shorten_reason`` returns it."""
    try:
        text = text_type(error)
    except UnicodeError:  # bytes that are not ASCII, on Python 2.7
        text = bytes(error).decode("utf-8", "replace")
    if not isinstance(error, (Reject, Retry)):
        text = u"%s: %s" % (type(error).__name__, text) if text else text_type(type(error).__name__)
    return shorten_reason(text)


def shorten_reason(text):
    """Return ``text`` on one line, without surrogates, at most ``REASON_LIMIT`` characters long."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = u" ".join(text.split())
    if len(text) > REASON_LIMIT:
        text = text[: REASON_LIMIT - 3] + u"..."
    return _SURROGATES.sub(u"?", text)
