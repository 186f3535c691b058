"""What the methods of a client have in common, whichever file they stand in."""

from ._codec import check_kind, encode_payload
from ._delivery import Delivery
from .errors import InvalidArgument


class Methods(object):
    """A part of ``Client``: one method for each command of an area."""

    def _send(self, command, timeout, about=None, **options):
        """Send a command with its options by their Python names. The reply's data. What is done about a ``Delivery``
        belongs to the trace of its message."""
        trace = about.traceparent if isinstance(about, Delivery) else None
        return self.call(command, encode_payload(command, options), timeout, traceparent=trace)


def check_timeout(timeout_s):
    """``timeout_s`` if it is a number of seconds. Raises ``InvalidArgument``."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s < 1e9:
        raise InvalidArgument("timeout must be a number of seconds, not %r" % (timeout_s,))
    return timeout_s


def key_and_lease(message, lease_id):
    """The key and the lease that are meant by a ``Delivery``, or by a key with a lease."""
    if not isinstance(message, Delivery):
        return message, lease_id
    return message.message_key, message.lease_id if lease_id is None else lease_id


def mark_settled(message, data):
    """Note that a ``Delivery`` is settled: what consumed it need not do it again. ``data`` as it is."""
    if isinstance(message, Delivery):
        message.settled = True
    return data


def deliveries_of(data, most):
    """What a reply to consume_next brings: a ``Delivery`` or None; a list of them where ``most`` was given."""
    if most is None:
        return Delivery(data) if data.get("message") else None
    now_ms = data.get("engineNowMs")
    return [Delivery(dict(one, engineNowMs=now_ms)) for one in data.get("messages") or ()]


def cut_wait(client, wait_ms, timeout):
    """The wait and the timeout of a long poll: the one leaves time in the other for the answer."""
    if wait_ms is not None:
        check_kind("integer", wait_ms, "wait_ms")
    if wait_ms and timeout is None:
        return wait_ms, client.timeout + wait_ms / 1000.0
    if wait_ms:
        return min(wait_ms, int(check_timeout(timeout) * 900)), timeout
    return wait_ms, timeout
