"""Dead letters."""

from ._codec import encode_payload
from ._methods import Methods, key_and_lease
from ._paging import check_rate, pages


class DeadLetterMethods(Methods):
    def list_dlq(self, queue, limit=None, after=None, preview_bytes=None, filter=None, full_bodies=None, timeout=None):
        """A page of the dead letters of a queue, or of those that a name of dead letters addresses."""
        return self._send(
            "list_dlq",
            timeout,
            queue=queue,
            limit=limit,
            after=after,
            preview_bytes=preview_bytes,
            filter=filter,
            full_bodies=full_bodies,
        )

    def count_dlq(self, queue, timeout=None):
        """How many dead letters there are, by reason."""
        return self._send("count_dlq", timeout, queue=queue)

    def reprocess_dlq(
        self,
        message_key=None,
        queue=None,
        filter=None,
        limit=None,
        after=None,
        to=None,
        dry_run=None,
        timeout=None,
    ):
        """Make a dead letter ready again, or a page of them, their attempts counted from zero."""
        return self._send(
            "reprocess_dlq",
            timeout,
            message_key=key_and_lease(message_key, None)[0],
            queue=queue,
            filter=filter,
            limit=limit,
            after=after,
            to=to,
            dry_run=dry_run,
        )

    def reprocess_all(self, queue, filter=None, to=None, rate=None, dry_run=None, timeout=None):
        """Make all dead letters ready again that a filter means, at most ``rate`` a second, page after page: yields how
        many it were so far, after each. Those that die meanwhile are not among them."""
        return self._all("reprocess_dlq", timeout, rate, queue=queue, filter=filter, to=to, dry_run=dry_run)

    def drop_dlq(self, message_key=None, queue=None, filter=None, limit=None, after=None, dry_run=None, timeout=None):
        """Remove a dead letter, or a page of them."""
        return self._send(
            "drop_dlq",
            timeout,
            message_key=key_and_lease(message_key, None)[0],
            queue=queue,
            filter=filter,
            limit=limit,
            after=after,
            dry_run=dry_run,
        )

    def drop_all(self, queue, filter=None, rate=None, dry_run=None, timeout=None):
        """Remove all dead letters that a filter means: as ``reprocess_all``."""
        return self._all("drop_dlq", timeout, rate, queue=queue, filter=filter, dry_run=dry_run)

    def quarantine_dlq(self, message_key, reason=None, quarantined=None, timeout=None):
        """Set a dead letter apart, so that only its own key brings it back; or take that back."""
        return self._send(
            "quarantine_dlq",
            timeout,
            message_key=key_and_lease(message_key, None)[0],
            reason=reason,
            quarantined=quarantined,
        )

    def _all(self, command, timeout, rate, **options):
        payload = encode_payload(command, options)
        every = pages(lambda fields: self.call(command, fields, timeout), command, payload, check_rate(rate))
        return (count for _, count in every)
