"""Looking into queues, and what an operator does with them and their messages."""

from ._methods import Methods, key_and_lease


class OperationMethods(Methods):
    def browse(
        self,
        queue,
        state=None,
        limit=None,
        after=None,
        preview_bytes=None,
        filter=None,
        full_bodies=None,
        timeout=None,
    ):
        """A page of the messages of a queue in one state (ready), without taking them."""
        return self._send(
            "browse",
            timeout,
            queue=queue,
            state=state,
            limit=limit,
            after=after,
            preview_bytes=preview_bytes,
            filter=filter,
            full_bodies=full_bodies,
        )

    def get_message(self, message_key, payload_as=None, events=None, timeout=None):
        """One message in whatever state; with ``events``, so many of the latest things that happened to it."""
        key = key_and_lease(message_key, None)[0]
        return self._send("get_message", timeout, message_key=key, payload_as=payload_as, events=events)

    def list_inflight(self, queue=None, limit=None, after=None, timeout=None):
        """A page of what is leased, by whom, until when."""
        return self._send("list_inflight", timeout, queue=queue, limit=limit, after=after)

    def list_consumers(self, queue=None, limit=None, after=None, timeout=None):
        """A page of those that consume, or hold messages."""
        return self._send("list_consumers", timeout, queue=queue, limit=limit, after=after)

    def hold(self, message_key, reason=None, timeout=None):
        """Keep one ready or delayed message from being delivered."""
        return self._send("hold", timeout, message_key=key_and_lease(message_key, None)[0], reason=reason)

    def unhold(self, message_key, timeout=None):
        """Undo ``hold``."""
        return self._send("unhold", timeout, message_key=key_and_lease(message_key, None)[0])

    def purge(
        self,
        queue,
        state=None,
        filter=None,
        limit=None,
        after=None,
        up_to_event=None,
        dry_run=None,
        timeout=None,
    ):
        """Remove messages from a queue: all that are there now and wait, or those that ``state`` and ``filter`` mean.

        It goes on page by page to the end, each with ``timeout``; with ``limit`` or ``after``, one page is removed.
        """
        return self._pages(
            "purge",
            "purged",
            timeout,
            queue=queue,
            state=state,
            filter=filter,
            limit=limit,
            after=after,
            up_to_event=up_to_event,
            dry_run=dry_run,
        )

    def move(
        self,
        to,
        message_key=None,
        queue=None,
        state=None,
        filter=None,
        limit=None,
        after=None,
        up_to_event=None,
        dry_run=None,
        timeout=None,
    ):
        """Bring a message to another queue, or those of a queue that ``state`` and ``filter`` mean: as ``purge``."""
        return self._pages(
            "move",
            "moved",
            timeout,
            to=to,
            message_key=key_and_lease(message_key, None)[0],
            queue=queue,
            state=state,
            filter=filter,
            limit=limit,
            after=after,
            up_to_event=up_to_event,
            dry_run=dry_run,
        )

    def delete_queue(self, queue, purge=False, timeout=None):
        """Delete a queue that holds nothing, its policy and pauses with it. ``purge``: remove before what is in it,
        dead letters too; what is in flight still keeps it."""
        if purge:
            self.purge(queue, timeout=timeout)
            self.purge(queue, "dead", timeout=timeout)
        return self._send("delete_queue", timeout, queue=queue)

    def drain(self, draining=None, timeout=None):
        """Take no new messages in any queue, while consuming goes on; ``draining`` False ends it."""
        return self._send("drain", timeout, draining=draining)

    def _pages(self, command, counted, timeout, **options):
        """One page if it was asked for by ``limit`` or ``after``, else all: the last reply, with the sum of all."""
        one_page = options["limit"] is not None or options["after"] is not None
        if not one_page:
            options["limit"] = 1000
        count = 0
        while True:
            data = self._send(command, timeout, **options)
            count += data.get(counted) or 0
            if one_page or not data.get("next"):
                return dict(data, **{counted: count})
            options["after"], options["up_to_event"] = data["next"], data["upToEvent"]
