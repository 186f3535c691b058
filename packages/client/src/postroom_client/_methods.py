"""What the methods of a client have in common, whichever file they stand in."""

from ._codec import encode_payload
from ._delivery import Delivery
from .errors import InvalidArgument


class Methods(object):
    """A part of ``Client``: one method for each command of an area."""

    def _send(self, command, timeout, **options):
        """Send a command with its options by their Python names. The reply's data."""
        return self.call(command, encode_payload(command, options), timeout)


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
