"""Messages: publish, consume, settle."""

from ._methods import Methods, cut_wait, deliveries_of, key_and_lease, mark_settled


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
        traceparent=None,
        correlation_id=None,
        reply_to=None,
        ttl_ms=None,
        deliver_at=None,
        ordering_key=None,
        target_fallback_ms=None,
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
            traceparent=traceparent,
            correlation_id=correlation_id,
            reply_to=reply_to,
            ttl_ms=ttl_ms,
            deliver_at=deliver_at,
            ordering_key=ordering_key,
            target_fallback_ms=target_fallback_ms,
        )

    def consume_next(
        self,
        queue,
        consumer_id=None,
        visibility_timeout_sec=None,
        wait_ms=None,
        wait_lock=True,
        payload_as="value",
        max=None,
        timeout=None,
    ):
        """Lease the next message, waiting up to ``wait_ms`` for one; None when there is none. With ``max``, lease up to
        so many, without waiting for more than the first: a list, empty when there is none.

        Without ``timeout`` the call may last the client's timeout longer than the wait; with it, the wait is cut so
        that a tenth of the timeout is left for the answer.
        """
        wait_ms, timeout = cut_wait(self, wait_ms, timeout)
        data = self._send(
            "consume_next",
            timeout,
            queue=queue,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
            wait_ms=wait_ms,
            wait_lock=True if wait_ms and wait_lock else None,
            payload_as=payload_as,
            max=max,
        )
        return deliveries_of(data, max)

    def ack(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Settle a message as done. ``message_key`` is a ``Delivery``, or a key with ``lease_id``."""
        key, lease = key_and_lease(message_key, lease_id)
        data = self._send("ack", timeout, message_key, message_key=key, lease_id=lease, consumer_id=consumer_id)
        return mark_settled(message_key, data)

    def nack(
        self,
        message_key,
        lease_id=None,
        consumer_id=None,
        reason=None,
        requeue=None,
        delay_ms=None,
        timeout=None,
    ):
        """Settle a message as failed: retried by the queue's policy (or in ``delay_ms``) with ``requeue``, else a dead
        letter."""
        key, lease = key_and_lease(message_key, lease_id)
        data = self._send(
            "nack",
            timeout,
            message_key,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            reason=reason,
            requeue=requeue,
            delay_ms=delay_ms,
        )
        return mark_settled(message_key, data)

    def release(self, message_key, lease_id=None, consumer_id=None, timeout=None):
        """Give a message back untried: it is ready again and this delivery is not counted."""
        key, lease = key_and_lease(message_key, lease_id)
        data = self._send("release", timeout, message_key, message_key=key, lease_id=lease, consumer_id=consumer_id)
        return mark_settled(message_key, data)

    def extend_lease(
        self, message_key, lease_id=None, consumer_id=None, visibility_timeout_sec=None, timeout=None
    ):
        """Let the lease end ``visibility_timeout_sec`` from now (the queue's policy if None)."""
        key, lease = key_and_lease(message_key, lease_id)
        return self._send(
            "extend_lease",
            timeout,
            message_key,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec,
        )
