"""Dead letters."""

from ._methods import Methods, key_and_lease


class DeadLetterMethods(Methods):
    def list_dlq(self, queue, limit=None, after=None, preview_bytes=None, timeout=None):
        """A page of a queue's dead letters, each with its reason."""
        return self._send(
            "list_dlq", timeout, queue=queue, limit=limit, after=after, preview_bytes=preview_bytes
        )

    def reprocess_dlq(self, message_key, timeout=None):
        """Make a dead letter ready again, its attempts counted from zero."""
        return self._send("reprocess_dlq", timeout, message_key=key_and_lease(message_key, None)[0])
