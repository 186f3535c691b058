"""Requests with replies: each caller waits on a reply queue of its own."""

from ._compat import monotonic
from ._delivery import Delivery
from ._process_local import ProcessLocal
from ._request import check_timeout, random_hex
from .errors import InvalidArgument, NoReply

#: Seconds after which an unused reply queue is deleted, beyond the longest wait on it.
IDLE_S = 300
#: Default TTL of a reply in milliseconds.
REPLY_TTL_MS = 600000
_WAIT_MS_LIMIT = 3600000


class ReplyQueues(object):
    """The reply queues of one client. Each serves one request at a time and is used again."""

    def __init__(self, client):
        self._client = client
        self._idle = ProcessLocal(list)  # replies to a forked child must not reach its parent

    def request(self, queue, body, timeout_s, options):
        """See ``Client.request``."""
        check_timeout(timeout_s)
        idle = self._idle.get()
        try:
            reply_queue = idle.pop()  # atomic, as is append
        except IndexError:
            reply_queue = _ReplyQueue(self._client)
        try:
            return reply_queue.request(queue, body, timeout_s, options)
        finally:
            idle.append(reply_queue)


class _ReplyQueue(object):
    def __init__(self, client):
        self._client = client
        self.name = "reply.%s.%s" % (client.client_id, random_hex(8))
        self._idle_s = 0
        self._created_at = None

    def request(self, queue, body, timeout_s, options):
        deadline = monotonic() + timeout_s
        self._create(timeout_s)
        correlation_id = random_hex(8)
        left_s = max(0.001, deadline - monotonic())
        self._client.publish(
            queue,
            body,
            correlation_id=correlation_id,
            reply_to=self.name,
            ttl_ms=max(1, int(left_s * 1000)),
            timeout=left_s,
            **options
        )
        while True:
            left_ms = int((deadline - monotonic()) * 1000)
            if left_ms <= 0:
                raise NoReply("no reply from queue %s in %g s" % (queue, timeout_s))
            reply = self._client.consume_next(self.name, wait_ms=min(left_ms, _WAIT_MS_LIMIT))
            if reply is not None:
                self._client.ack(reply)
                if reply.correlation_id == correlation_id:
                    return reply
                # A late reply to an earlier request that has timed out.

    def _create(self, timeout_s):
        """Create the queue, or see that it still exists; it is deleted by itself when nobody uses it."""
        now = monotonic()
        idle_s = int(timeout_s) + IDLE_S
        if self._created_at is None or idle_s > self._idle_s or now - self._created_at > IDLE_S / 2.0:
            policy = {"expireAfterIdleSec": max(idle_s, self._idle_s), "ttlAction": "drop", "dlq": {"enabled": False}}
            self._client.set_policy(self.name, policy)
            self._idle_s = policy["expireAfterIdleSec"]
            self._created_at = now


def reply(client, message, body, options, ttl_ms):
    """See ``Client.reply``."""
    if not isinstance(message, Delivery):
        raise InvalidArgument("reply takes the Delivery to reply to, not %r" % (message,))
    if not message.reply_to:
        return False
    if not client.status(message.reply_to).get("exists", True):
        return False  # publishing would create a queue that nobody reads or deletes
    client.publish(
        message.reply_to,
        body,
        correlation_id=message.correlation_id,
        ttl_ms=REPLY_TTL_MS if ttl_ms is None else ttl_ms,
        **options
    )
    return True
