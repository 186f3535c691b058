"""A consumed message together with its lease."""

from ._codec import decode_body
from ._compat import monotonic

_FROM_MESSAGE = (
    ("message_id", "messageId"),
    ("message_key", "messageKey"),
    ("queue", "queue"),
    ("attributes", "attributes"),
    ("priority", "priority"),
    ("attempt", "attempt"),
    ("created_at", "createdAt"),
    ("content_type", "contentType"),
    ("type", "type"),
    ("version", "version"),
    ("trace_id", "traceId"),
    ("traceparent", "traceparent"),
    ("correlation_id", "correlationId"),
    ("reply_to", "replyTo"),
    ("deduplication_key", "deduplicationKey"),
    ("timestamp", "timestamp"),
    ("target_consumer_id", "targetConsumerId"),
    ("failure", "failure"),
)
_FROM_LEASE = (
    ("lease_id", "leaseId"),
    ("consumer_id", "consumerId"),
    ("lease_until", "leaseUntil"),
    ("lease_until_engine_ms", "leaseUntilEngineMs"),
)


class Delivery(object):
    """A message that this consumer holds until its lease ends: settle it with ``ack``, ``nack`` or ``release``.

    ``payload`` is the body: a JSON value, text, or ``Binary``. ``message`` and ``lease`` are the whole objects of the
    reply. Fields that the message does not have are None; ``lease_until`` is Unix milliseconds. ``settled`` once one of
    those three has succeeded, ``lease_lost`` once a heartbeat has learned that the lease is over.
    """

    __slots__ = (
        tuple(name for name, _ in _FROM_MESSAGE + _FROM_LEASE)
        + ("engine_now_ms", "lease", "lease_lost", "message", "payload", "received_at", "settled")
    )

    def __init__(self, data):
        self.message = data["message"]
        self.lease = data.get("lease") or {}
        self.engine_now_ms = data.get("engineNowMs")
        self.received_at = monotonic()
        self.settled = self.lease_lost = False
        for name, wire_name in _FROM_MESSAGE:
            setattr(self, name, self.message.get(wire_name))
        for name, wire_name in _FROM_LEASE:
            setattr(self, name, self.lease.get(wire_name))
        self.payload = decode_body(self.message)

    def lease_length(self):
        """Seconds from the delivery to the end of its lease."""
        if self.lease_until_engine_ms is None or self.engine_now_ms is None:
            return 0.0
        return max(0, self.lease_until_engine_ms - self.engine_now_ms) / 1000.0

    def __repr__(self):
        return "<Delivery %s, attempt %s, lease %s>" % (self.message_key, self.attempt, self.lease_id)


class Reject(Exception):
    """Raised by whoever works on a message: it can never be worked on, so it is a dead letter at once."""


class Retry(Exception):
    """Raised by whoever works on a message: it is to be tried again, in ``delay_ms`` or by the queue's policy."""

    def __init__(self, reason=u"", delay_ms=None):
        Exception.__init__(self, reason)
        self.delay_ms = delay_ms
