"""Requests with replies: each waits in a queue that nobody else reads."""

import os
from binascii import hexlify

from ._compat import monotonic
from ._delivery import Delivery
from ._methods import check_timeout
from ._per_process import PerProcess
from .errors import InvalidArgument, NoReply

#: A reply queue goes by itself when it was idle so much longer than the longest wait in it, in seconds.
IDLE_S = 300
#: Milliseconds that a reply is kept for whoever asked, where the replier does not say it.
REPLY_TTL_MS = 600000
_WAIT_MS_LIMIT = 3600000


class Replies(object):
    """The reply queues of one client. A call has one to itself; it is used again by calls after it."""

    def __init__(self, client):
        self._client = client
        self._idle = PerProcess(list)  # a forked child's replies must not reach its parent

    def request(self, queue, body, timeout_s, options):
        """See ``Client.request``."""
        check_timeout(timeout_s)
        idle = self._idle.get()
        try:
            mine = idle.pop()  # atomic, as is append
        except IndexError:
            mine = _ReplyQueue(self._client)
        try:
            return mine.request(queue, body, timeout_s, options)
        finally:
            idle.append(mine)


class _ReplyQueue(object):
    def __init__(self, client):
        self._client = client
        self.name = "reply.%s.%s" % (client.client_id, _random_hex())
        self._idle_s = 0
        self._made_at = None

    def request(self, queue, body, timeout_s, options):
        deadline = monotonic() + timeout_s
        self._make(timeout_s)
        correlation_id = _random_hex()
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
            found = self._client.consume_next(self.name, wait_ms=min(left_ms, _WAIT_MS_LIMIT))
            if found is not None:
                self._client.ack(found)
                if found.correlation_id == correlation_id:
                    return found
                # Late: it answers a call that has given up.

    def _make(self, timeout_s):
        """See that the queue is there, and goes by itself when it is used no more."""
        now = monotonic()
        idle_s = int(timeout_s) + IDLE_S
        if self._made_at is None or idle_s > self._idle_s or now - self._made_at > IDLE_S / 2.0:
            policy = {"expireAfterIdleSec": max(idle_s, self._idle_s), "ttlAction": "drop", "dlq": {"enabled": False}}
            self._client.set_policy(self.name, policy)
            self._idle_s = policy["expireAfterIdleSec"]
            self._made_at = now


def reply(client, message, body, options, ttl_ms):
    """See ``Client.reply``."""
    if not isinstance(message, Delivery):
        raise InvalidArgument("reply takes the Delivery that is replied to, not %r" % (message,))
    if not message.reply_to:
        return False
    if not client.status(message.reply_to).get("exists", True):
        return False  # publishing would make a queue that nobody reads and nothing removes
    client.publish(
        message.reply_to,
        body,
        correlation_id=message.correlation_id,
        ttl_ms=REPLY_TTL_MS if ttl_ms is None else ttl_ms,
        **options
    )
    return True


def _random_hex():
    return str(hexlify(os.urandom(8)).decode("ascii"))
