"""A consumed message together with its lease."""

from ._codec import decode_body
from ._compat import monotonic

_FROM_PART = (
    ("attributes", "attributes"),
    ("content_type", "contentType"),
    ("type", "type"),
    ("version", "version"),
    ("trace_id", "traceId"),
    ("traceparent", "traceparent"),
    ("correlation_id", "correlationId"),
    ("reply_to", "replyTo"),
    ("deduplication_key", "deduplicationKey"),
    ("timestamp", "timestamp"),
)
_FROM_MESSAGE = _FROM_PART + (
    ("name", "name"),
    ("message_id", "messageId"),
    ("message_key", "messageKey"),
    ("queue", "queue"),
    ("priority", "priority"),
    ("attempt", "attempt"),
    ("attempts_left", "attemptsLeft"),
    ("created_at", "createdAt"),
    ("target_consumer_id", "targetConsumerId"),
    ("failure", "failure"),
)
_FROM_LEASE = (
    ("lease_id", "leaseId"),
    ("consumer_id", "consumerId"),
    ("lease_until", "leaseUntil"),
    ("lease_until_engine_ms", "leaseUntilEngineMs"),
    ("phase", "phase"),
)
_IN_MESSAGE = dict(_FROM_MESSAGE)
_IN_LEASE = dict(_FROM_LEASE)


class Delivery(object):
    """A message that is leased to this consumer: settle it with ``ack``, ``nack`` or ``release`` before the lease ends.

    ``payload`` is the body: a JSON value, text, or ``Binary``. ``parts`` are the parts of a message that was gathered
    from several publishes, or drafted with named parts, each a ``Part``; of any other message it is the body alone.
    ``name`` is the one that the message was given. ``message`` and ``lease`` are the objects of the answer.
    Fields that the message does not have are None; ``lease_until`` is Unix milliseconds; ``phase`` is ``ordered`` until
    ``Client.activate``, if the lease begins so. ``settled`` is true once one
    of those three methods has succeeded, ``lease_lost`` once an attempt to extend the lease has shown that it is over.
    """

    __slots__ = (
        tuple(name for name, _ in _FROM_MESSAGE + _FROM_LEASE)
        + ("engine_now_ms", "lease", "lease_lost", "message", "payload", "received_at", "settled")
    )

    def __init__(self, data, engine_now_ms=None, received_at=None):
        self.message = message = data["message"]
        self.lease = lease = data.get("lease") or {}
        self.message_key, self.lease_id = message.get("messageKey"), lease.get("leaseId")
        self.engine_now_ms = data.get("engineNowMs") if engine_now_ms is None else engine_now_ms
        self.received_at = monotonic() if received_at is None else received_at
        self.settled = self.lease_lost = False
        self.payload = decode_body(message) if "encoding" in message else message.get("payload")

    def read(self, data):
        """Take over what an answer delivers."""
        for name in tuple(_IN_MESSAGE) + tuple(_IN_LEASE):
            try:
                delattr(self, name)
            except AttributeError:
                pass  # nobody has asked for it
        self.__init__(data)

    def __getattr__(self, name):
        """Read a field from the answer. Its slot has it from then on."""
        if name in _IN_MESSAGE:
            value = self.message.get(_IN_MESSAGE[name])
        elif name in _IN_LEASE:
            value = self.lease.get(_IN_LEASE[name])
        else:
            raise AttributeError("a Delivery has no attribute %s" % name)
        setattr(self, name, value)
        return value

    @property
    def parts(self):
        return [Part(one) for one in self.message.get("parts") or [self.message]]

    def lease_length(self):
        """Return the lease duration in seconds."""
        if self.lease_until_engine_ms is None or self.engine_now_ms is None:
            return 0.0
        return max(0, self.lease_until_engine_ms - self.engine_now_ms) / 1000.0

    def __repr__(self):
        return "<Delivery %s, attempt %s, lease %s>" % (self.message_key, self.attempt, self.lease_id)


class Part(object):
    """One part of a gathered message, as its publisher sent it, or a named part of a message that was drafted.

    ``name`` is its name, empty if it has none; ``payload`` is its body, as that of a ``Delivery``; ``fields`` is the
    object of the answer. Fields that the part does not have are None.
    """

    __slots__ = tuple(name for name, _ in _FROM_PART) + ("fields", "name", "payload")

    def __init__(self, fields):
        self.fields = fields
        self.name = fields.get("name") or ""
        for name, wire_name in _FROM_PART:
            setattr(self, name, fields.get(wire_name))
        self.payload = decode_body(fields)


class Reject(Exception):
    """Raised by a handler: the message can never be processed. It becomes a dead letter at once."""


class Retry(Exception):
    """Raised by a handler: deliver the message again, in ``delay_ms`` or by the queue's policy."""

    def __init__(self, reason=u"", delay_ms=None):
        Exception.__init__(self, reason)
        self.delay_ms = delay_ms


def deliveries_of(data, max_count):
    """Return what an answer to consume_next delivers: a ``Delivery`` or None, or a list if ``max_count`` is given."""
    if max_count is None:
        return Delivery(data) if data.get("message") else None
    now_ms, received_at = data.get("engineNowMs"), monotonic()
    return [Delivery(one, now_ms, received_at) for one in data.get("messages") or ()]


def activated(message, data):
    """Return the ``Delivery`` of an answer to activate: ``message`` if it is one, with what it has now."""
    if not isinstance(message, Delivery):
        return Delivery(data)
    message.read(data)
    return message


def split_lease(message, lease_id=None):
    """Return the message key and the lease id of a ``Delivery``, or the arguments as they are."""
    if not isinstance(message, Delivery):
        return message, lease_id
    return message.message_key, message.lease_id if lease_id is None else lease_id


def mark_settled(message, data):
    """Mark ``message`` as settled if it is a ``Delivery``. Return ``data``."""
    if isinstance(message, Delivery):
        message.settled = True
    return data
