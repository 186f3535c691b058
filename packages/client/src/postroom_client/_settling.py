"""How work on a message ends: what becomes of it, and that this reaches the daemon."""

import re
import sys

from ._compat import monotonic, text_type
from ._delivery import Reject, Retry
from .errors import DeadlineExpired, NoAnswer, RequestRejected

#: Characters of a reason.
REASON_LIMIT = 500
#: Halves of characters, which cannot be sent: where text is made of such halves, those without their other half.
_HALVES = re.compile(
    u"[\ud800-\udfff]"
    if sys.maxunicode > 0xFFFF
    else u"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
)


class CannotWork(BaseException):
    """No message can be worked on: raised by a worker's handler, it gives this one back untried and ends the worker."""


#: Ends that are not the message's fault.
_UNTRIED = (CannotWork, GeneratorExit, KeyboardInterrupt)


def settle(client, delivery, queue, error=None, requeue=True):
    """Settle a delivery of ``queue`` after the work on it: acknowledged without an ``error``.

    ``Reject`` makes it a dead letter, ``KeyboardInterrupt`` gives it back untried, any other error is the reason for
    which it is tried again; without ``requeue``, for which it is a dead letter. What was a dead letter before keeps
    its lease then. Nothing is done where the work itself has settled it. Raises ``PostroomError``.
    """
    if delivery.settled:
        return
    if error is None:
        until_answered(client, delivery, lambda: client.ack(delivery))
    elif isinstance(error, _UNTRIED):
        until_answered(client, delivery, lambda: client.release(delivery))
    elif _is_dead_letter(delivery, queue):
        pass  # put back, it would come again at once, before all others: it comes again when its lease is over
    elif isinstance(error, Reject):
        until_answered(client, delivery, lambda: client.nack(delivery, reason=reason_of(error)))
    else:
        asked = isinstance(error, Retry)
        delay_ms = error.delay_ms if asked else None
        again = requeue or asked
        reason = reason_of(error)
        until_answered(client, delivery, lambda: client.nack(delivery, reason=reason, requeue=again, delay_ms=delay_ms))


def _is_dead_letter(delivery, queue):
    """Whether ``queue``, from which a delivery came, is a name of dead letters: they belong to the one they died in."""
    return delivery.queue != (queue.decode("utf-8") if isinstance(queue, bytes) else queue)


def until_answered(client, delivery, send):
    """Call ``send``; when no answer comes, the same request again, for as long as the lease may last.

    Raises what ``send`` raises.
    """
    begun = monotonic()
    try:
        return send()
    except RequestRejected:
        raise
    except NoAnswer as error:
        unanswered = error
    while monotonic() < begun + delivery.lease_length():
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
    """An exception as the reason of a failure: its class and its text, on one line, bounded."""
    try:
        text = text_type(error)
    except UnicodeError:  # bytes with more than ASCII, on Python 2.7
        text = bytes(error).decode("utf-8", "replace")
    if not isinstance(error, (Reject, Retry)):
        text = u"%s: %s" % (type(error).__name__, text) if text else text_type(type(error).__name__)
    return bounded(text)


def bounded(text):
    """``text`` on one line, without half characters, cut to the length of a reason."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = u" ".join(text.split())
    if len(text) > REASON_LIMIT:
        text = text[: REASON_LIMIT - 3] + u"..."
    return _HALVES.sub(u"?", text)
