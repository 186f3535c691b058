"""Messages: publish, consume, settle."""

from ._codec import check_kind
from ._delivery import Delivery
from ._methods import Methods, check_timeout, key_and_lease


class MessageMethods(Methods):
    def publish(
        self,
        queue,
        message,
        attributes=None,
        priority=None,
        delay_ms=None,
        target_consumer_id=None,
        encoding=None,
        content_type=None,
        type=None,
        version=None,
        trace_id=None,
        deduplication_key=None,
        timestamp=None,
        timeout=None,
    ):
        """Store ``message``: text, ``Binary``, or any value that JSON can hold. Returns messageId and messageKey."""
        return self._send(
            "publish",
            timeout,
            queue=queue,
            message=message,
            attributes=attributes,
            priority=priority,
            delay_ms=delay_ms,
            target_consumer_id=target_consumer_id,
            encoding=encoding,
            content_type=content_type,
            type=type,
            version=version,
            trace_id=trace_id,
            deduplication_key=deduplication_key,
            timestamp=timestamp,
        )

    def consume_next(
        self,
        queue,
        consumer_id=None,
        visibility_timeout_sec=None,
        wait_ms=None,
        wait_lock=True,
        payload_as="value",
        timeout=None,
    ):
        """Lease the next message, waiting up to ``wait_ms`` for one; None when there is none.

        Without ``timeout`` the call may last the client's timeout longer than the wait; with it, the wait is cut so
        that a tenth of the timeout is left for the answer.
        """
        if wait_ms is not None:
            check_kind("integer", wait_ms, "wait_ms")
        if wait_ms and timeout is None:
            timeout = self.timeout + wait_ms / 1000.0
        elif wait_ms:
            wait_ms = min(wait_ms, int(check_timeout(timeout) * 900))
        data = self._send(
            "consume_next",
            timeout,
            queue=queue,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
            wait_ms=wait_ms,
            wait_lock=True if wait_ms and wait_lock else None,
            payload_as=payload_as,
        )
        return Delivery(data) if data.get("message") else None

    def ack(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Settle a message as done. ``message_key`` is a ``Delivery``, or a key with ``lease_id``."""
        key, lease = key_and_lease(message_key, lease_id)
        return self._send("ack", timeout, message_key=key, lease_id=lease, consumer_id=consumer_id)

    def nack(self, message_key, lease_id=None, consumer_id=None, reason=None, requeue=None, timeout=None):
        """Settle a message as failed: retried by the queue's policy with ``requeue``, else a dead letter."""
        key, lease = key_and_lease(message_key, lease_id)
        return self._send(
            "nack",
            timeout,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            reason=reason,
            requeue=requeue,
        )

    def release(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Give a message back untried: it is ready again and this delivery is not counted."""
        key, lease = key_and_lease(message_key, lease_id)
        return self._send("release", timeout, message_key=key, lease_id=lease, consumer_id=consumer_id)

    def extend_lease(
        self, message_key, lease_id=None, consumer_id=None, visibility_timeout_sec=None, timeout=None
    ):
        """Let the lease end ``visibility_timeout_sec`` from now (the queue's policy if None)."""
        key, lease = key_and_lease(message_key, lease_id)
        return self._send(
            "extend_lease",
            timeout,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
        )
