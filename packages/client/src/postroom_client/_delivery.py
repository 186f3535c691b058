"""A consumed message together with its lease."""

from ._codec import decode_body

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
    ("deduplication_key", "deduplicationKey"),
    ("timestamp", "timestamp"),
    ("target_consumer_id", "targetConsumerId"),
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
    reply. Fields that the message does not have are None; ``lease_until`` is Unix milliseconds.
    """

    __slots__ = (
        tuple(name for name, _ in _FROM_MESSAGE + _FROM_LEASE)
        + ("engine_now_ms", "lease", "message", "payload")
    )

    def __init__(self, data):
        self.message = data["message"]
        self.lease = data.get("lease") or {}
        self.engine_now_ms = data.get("engineNowMs")
        for name, wire_name in _FROM_MESSAGE:
            setattr(self, name, self.message.get(wire_name))
        for name, wire_name in _FROM_LEASE:
            setattr(self, name, self.lease.get(wire_name))
        self.payload = decode_body(self.message)

    def __repr__(self):
        return "<Delivery %s, attempt %s, lease %s>" % (self.message_key, self.attempt, self.lease_id)
