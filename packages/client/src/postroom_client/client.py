"""The client: one method for each command of the protocol, and what is built on them."""

from . import _batches, _paging, _transport
from ._codec import check_id, check_kind, decode_response, encode_payload
from ._compat import native_name, native_path
from ._delivery import Delivery, activated, deliveries_of, mark_settled, split_lease
from ._lane import Lane
from ._mailbox import Mailbox
from ._process_local import ProcessLocal
from ._protocol import DEAD_DIR, REQUEST_BYTES_DEFAULT, REQUESTS_DIR, RESPONSES_DIR
from ._records import encode_records, tail, with_records
from ._request import check_timeout, create_client_id, create_request
from .errors import InvalidArgument, LeaseExpired, PostroomError


def _open_transport(mailbox, name):
    if name not in ("auto", "lane", "mailbox"):
        raise InvalidArgument("transport must be auto, lane or mailbox, not %r" % (name,))
    return mailbox if name == "mailbox" else Lane(mailbox, only=name == "lane")


class Client(object):
    """A client of the daemon that serves the mailbox at ``ipc_root``.

    A method that is named like a command sends it: it takes the fields of the command by their Python names
    (``delayMs`` is ``delay_ms``) and ``timeout`` in seconds (None: the client's), and returns the data of the answer
    as a dict. ``consume_next`` returns a ``Delivery`` or None.

    Raises a subclass of ``ServerError`` if the daemon refuses, ``RequestTimeout`` or ``DaemonNotRunning`` if no answer
    comes in time, ``InvalidArgument`` for a value that cannot be sent, and ``MailboxError`` if the mailbox cannot be
    used. All of them are ``PostroomError``.

    Threads may share a client, and it may be used in a forked child. Creating one touches no file. ``polling`` turns
    inotify off, for file systems that do not report changes. ``requests_dir``, ``responses_dir`` and ``dead_dir`` are
    the names of directories in ``ipc_root``, which the daemon's configuration may change.

    ``transport`` "auto" uses the daemon's socket (the lane) where it is, and files otherwise; "lane" and "mailbox" use
    nothing else. All of them promise the same.
    """

    def __init__(
        self, ipc_root="./ipc", client_id=None, timeout=30.0, polling=False, max_request_bytes=REQUEST_BYTES_DEFAULT,
        requests_dir=REQUESTS_DIR, responses_dir=RESPONSES_DIR, dead_dir=DEAD_DIR, transport="auto"
    ):
        self.ipc_root = native_path(ipc_root)
        self.timeout = check_timeout(timeout)
        self.max_request_bytes = max_request_bytes
        self._fixed_id = check_id(client_id, "client id") if client_id is not None else None
        self._generated_id = ProcessLocal(create_client_id)
        names = [native_name(name) for name in (requests_dir, responses_dir, dead_dir)]
        self._transport = _open_transport(Mailbox(self.ipc_root, polling, *names), transport)
        self._reply_queues = None
        self._closed = False

    @property
    def client_id(self):
        """The id in the requests. If none was given, every process generates its own, also a forked child."""
        return self._generated_id.get() if self._fixed_id is None else self._fixed_id

    def call(self, command, payload=None, timeout=None, request_id=None, keep=False, traceparent=None):
        """Send any command, with a payload that uses the wire's field names. Return the data of the answer."""
        return self.send(self.prepare(command, payload, timeout, request_id, traceparent), timeout, keep)

    def prepare(self, command, payload=None, timeout=None, request_id=None, traceparent=None):
        """Return a ``Request`` whose deadline is ``timeout`` seconds from now. Nothing is written. ``traceparent``
        names the trace to which it belongs (W3C Trace Context)."""
        payload = {} if payload is None else payload
        timeout_s = self.timeout if timeout is None else check_timeout(timeout)
        return create_request(
            self.client_id, command, payload, timeout_s, self.max_request_bytes, request_id, traceparent
        )

    def send(self, request, timeout=None, keep=False, give_up=None):
        """Send a ``Request``, for the first time or again. Return the data of the answer.

        A request that gets no answer in time is withdrawn, so that it is not executed later, unless ``keep``. It is
        also withdrawn once ``give_up()`` is true, which is called every second: raises ``RequestWithdrawn`` then.
        """
        if self._closed:
            raise InvalidArgument("this client is closed")
        timeout_s = self.timeout if timeout is None else check_timeout(timeout)
        data, body = _transport.send(self._transport, request, timeout_s, keep, give_up)
        return decode_response(data, request.request_id, body)

    def is_daemon_running(self):
        """Return whether a daemon serves the mailbox now, or None if this user may not test its liveness lock."""
        return self._transport.is_daemon_running()

    def close(self):
        """Close all descriptors, and remove the response directory of a generated client id."""
        if not self._closed:
            self._closed = True
            self._transport.close(self._generated_id.get())

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        return "<Client %s at %s>" % (self.client_id, self.ipc_root)

    def _send(self, command, timeout, about=None, **options):
        """Send a command with its options by their Python names. Return the data of the answer. If the command is
        ``about`` a ``Delivery``, the request belongs to the trace of that message."""
        trace = about.traceparent if isinstance(about, Delivery) else None
        return self.call(command, encode_payload(command, options), timeout, traceparent=trace)

    def _wait_within(self, wait_ms, timeout):
        """Return how long a request may wait, and its timeout, which leaves time for the answer."""
        if wait_ms is not None:
            check_kind("integer", wait_ms, "wait_ms")
        if wait_ms and timeout is None:
            timeout = self.timeout + wait_ms / 1000.0
        elif wait_ms:
            wait_ms = min(wait_ms, int(check_timeout(timeout) * 900))
        return wait_ms, timeout

    def _settle(self, command, message, lease_id, timeout, **options):
        """Send a command that ends the lease of ``message``: a ``Delivery``, a message key, or None with a lease id."""
        key, lease = split_lease(message, lease_id)
        data = self._send(command, timeout, message, message_key=key, lease_id=lease, **options)
        return mark_settled(message, data)

    def _run_pages(self, command, timeout, **options):
        payload = encode_payload(command, options)
        return _paging.run_pages(lambda page: self.call(command, page, timeout), command, payload)

    def _iterate_pages(self, command, timeout, rate, **options):
        payload = encode_payload(command, options)
        rate = _paging.check_rate(rate)
        answers = _paging.pages(lambda page: self.call(command, page, timeout), command, payload, rate)
        return (count for _, count in answers)

    # Messages: publish, consume, settle.

    def publish(
        self, queue, message, attributes=None, priority=None, delay_ms=None, target_consumer_id=None, encoding=None,
        content_type=None, type=None, version=None, trace_id=None, deduplication_key=None, timestamp=None,
        traceparent=None, correlation_id=None, reply_to=None, ttl_ms=None, deliver_at=None, ordering_key=None,
        target_fallback_ms=None, timeout=None, retry_limit=None, queue_pattern=None, create_with=None,
        no_priority=None
    ):
        """Publish ``message``: text, ``Binary``, or any value that JSON has. Returns messageId and messageKey.

        ``queue`` None with ``queue_pattern``, a regular expression, publishes to every queue in whose name it is
        found, and returns ``published`` and ``refused`` by queue. ``create_with`` is a policy for a new queue. With
        ``no_priority``, the message is below every priority.
        """
        return self._send(
            "publish", timeout, queue=queue, message=message, attributes=attributes, priority=priority,
            delay_ms=delay_ms, target_consumer_id=target_consumer_id, encoding=encoding, content_type=content_type,
            type=type, version=version, trace_id=trace_id, deduplication_key=deduplication_key, timestamp=timestamp,
            traceparent=traceparent, correlation_id=correlation_id, reply_to=reply_to, ttl_ms=ttl_ms,
            deliver_at=deliver_at, ordering_key=ordering_key, target_fallback_ms=target_fallback_ms,
            retry_limit=retry_limit, queue_pattern=queue_pattern, create_with=create_with, no_priority=no_priority
        )

    def draft(
        self, queue, parts, name=None, attributes=None, priority=None, no_priority=None, type=None, ttl_ms=None,
        ordering_key=None, target_consumer_id=None, create_with=None, must_exist=None, timeout=None
    ):
        """Store a message with named ``parts`` that have no value yet: it is ready once ``set`` has given each of them
        one. Returns messageId, messageKey, and ``name`` if it has one: a message key may have that, encoded, in place
        of the id."""
        return self._send(
            "draft", timeout, queue=queue, parts=parts, name=name, attributes=attributes, priority=priority,
            no_priority=no_priority, type=type, ttl_ms=ttl_ms, ordering_key=ordering_key,
            target_consumer_id=target_consumer_id, create_with=create_with, must_exist=must_exist
        )

    def set(
        self, message_key, message, part=None, lease_id=None, consumer_id=None, encoding=None, content_type=None,
        attributes=None, queue=None, timeout=None, any_holder=None
    ):
        """Give a ``part`` of a draft, or of a message that was drafted and is ready, a value. Without ``part``, replace
        the body of a leased message, and its attributes if some are given: ``message_key`` is a ``Delivery``, or a key
        with ``lease_id``. Returns messageKey and ``state``."""
        key, lease = (message_key, lease_id) if part else split_lease(message_key, lease_id)
        return self._send(
            "set", timeout, message_key, message_key=key, part=part, message=message, encoding=encoding,
            content_type=content_type, attributes=attributes, lease_id=lease, consumer_id=consumer_id, queue=queue,
            any_holder=any_holder
        )

    def consume_next(
        self, queue=None, consumer_id=None, visibility_timeout_sec=None, wait_ms=None, wait_lock=True,
        payload_as="value", max=None, timeout=None, queue_pattern=None, create_with=None, ordered_sec=None,
        must_exist=None
    ):
        """Lease the next message, waiting up to ``wait_ms`` for one. Returns None if there is none. With ``max``,
        lease up to that many without waiting for more than the first; returns a list, empty if there are none.

        ``queue_pattern``, a regular expression instead of ``queue``, means every queue in whose name it is found.
        ``create_with`` creates the queue, with this policy, if it does not exist; with ``must_exist`` that is an error.
        ``ordered_sec``: the lease is ``ordered`` for so long, and no counted delivery until ``activate``.

        Without ``timeout``, the call may last the client's timeout longer than the wait. With it, the wait is cut to
        nine tenths of the timeout, which leaves time for the answer.
        """
        wait_ms, timeout = self._wait_within(wait_ms, timeout)
        for is_last in (False, True):
            try:
                data = self._send(
                    "consume_next", timeout, queue=queue, consumer_id=consumer_id,
                    visibility_timeout_sec=visibility_timeout_sec, wait_ms=wait_ms,
                    wait_lock=True if wait_ms and wait_lock else None, payload_as=payload_as, max=max,
                    queue_pattern=queue_pattern, create_with=create_with, ordered_sec=ordered_sec,
                    must_exist=must_exist
                )
                break
            except LeaseExpired:  # the answer was lost with its connection, and the lease was returned
                if is_last:
                    raise
        return deliveries_of(data, max)

    def ack(self, message_key=None, lease_id=None, consumer_id=None, timeout=None, queue=None, any_holder=None):
        """Acknowledge a message: it is done. ``message_key`` is a ``Delivery``, or a key with ``lease_id``.

        Here and in ``nack``, ``release``, ``extend_lease`` and ``activate``, ``lease_id`` alone is enough; with
        ``queue``, the message must be in that queue; with ``any_holder``, whoever has its lease.
        """
        return self._settle(
            "ack", message_key, lease_id, timeout, consumer_id=consumer_id, queue=queue, any_holder=any_holder
        )

    def nack(
        self, message_key=None, lease_id=None, consumer_id=None, reason=None, requeue=None, delay_ms=None,
        timeout=None, queue=None, any_holder=None
    ):
        """Settle a message as failed. With ``requeue`` it is delivered again by the queue's policy, or after
        ``delay_ms``; without, it becomes a dead letter."""
        return self._settle(
            "nack", message_key, lease_id, timeout, consumer_id=consumer_id, reason=reason, requeue=requeue,
            delay_ms=delay_ms, queue=queue, any_holder=any_holder
        )

    def release(
        self, message_key=None, lease_id=None, consumer_id=None, timeout=None, queue=None, undelivered=None,
        any_holder=None
    ):
        """Return a message unprocessed: it is ready again, and this delivery is not counted as an attempt. With
        ``undelivered``, it goes to its old place also where returned messages go to the end."""
        return self._settle(
            "release", message_key, lease_id, timeout, consumer_id=consumer_id, queue=queue, undelivered=undelivered,
            any_holder=any_holder
        )

    def extend_lease(
        self, message_key=None, lease_id=None, consumer_id=None, visibility_timeout_sec=None, timeout=None, queue=None,
        any_holder=None
    ):
        """Let the lease end ``visibility_timeout_sec`` from now (None: the lease duration of the queue's policy)."""
        key, lease = split_lease(message_key, lease_id)
        return self._send(
            "extend_lease", timeout, message_key, message_key=key, lease_id=lease, consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec, queue=queue, any_holder=any_holder
        )

    def activate(
        self, message_key=None, lease_id=None, consumer_id=None, visibility_timeout_sec=None, timeout=None, queue=None,
        any_holder=None, payload_as="value"
    ):
        """Begin to work on a message whose lease is ``ordered``: from now on it is a counted delivery, and its lease
        lasts ``visibility_timeout_sec`` (None: by the queue's policy). Returns its ``Delivery``: the one that is given,
        or a new one. A lease that is active stays as it is."""
        key, lease = split_lease(message_key, lease_id)
        data = self._send(
            "activate", timeout, message_key, message_key=key, lease_id=lease, consumer_id=consumer_id,
            visibility_timeout_sec=visibility_timeout_sec, queue=queue, any_holder=any_holder, payload_as=payload_as
        )
        return activated(message_key, data)

    def abandon(self, message_key, lease_id=None, reason=None, timeout=None, if_state=None):
        """Give up a message in whatever state: it becomes a dead letter with the reason code ABANDONED. With
        ``lease_id``, it must be leased under it; with ``if_state``, it must be in this state, or its lease in this
        phase."""
        return self._settle("abandon", message_key, lease_id, timeout, reason=reason, if_state=if_state)

    def publish_batch(self, messages, queue=None, timeout=None):
        """Publish up to 1,000 messages, each on its own: dicts with the arguments of ``publish``; ``queue`` is for
        those without one. Returns ``results``: for each what ``publish`` returns, or an ``error``."""
        items = _batches.encode_messages(messages)
        if not items:
            return {"results": []}
        return self._send("publish_batch", timeout, queue=queue, messages=items)

    def publish_many(self, messages, queue=None, timeout=None):
        """Publish any number of messages in as few requests as the limits allow; ``timeout`` is for each request.

        Returns the results of all in order. If a request fails, its error has the results so far in ``results``.
        """
        results = []
        for items in _batches.split_messages(messages, self.max_request_bytes):
            try:
                results += self._send("publish_batch", timeout, queue=queue, messages=items)["results"]
            except PostroomError as error:
                error.results = results
                raise
        return results

    def ack_batch(self, items, consumer_id=None, timeout=None):
        """Acknowledge up to 1,000 messages, each on its own: deliveries, or dicts with the arguments of ``ack``.
        Returns ``results``: for each an empty dict, or an ``error``."""
        return _batches.settle_batch(
            lambda encoded: self._send("ack_batch", timeout, items=encoded, consumer_id=consumer_id), "ack", items
        )

    def nack_batch(self, items, consumer_id=None, timeout=None):
        """Settle up to 1,000 messages as failed, each on its own: deliveries, or dicts with the arguments of ``nack``.
        Returns ``results``: for each what ``nack`` returns, or an ``error``."""
        return _batches.settle_batch(
            lambda encoded: self._send("nack_batch", timeout, items=encoded, consumer_id=consumer_id), "nack", items
        )

    def ack_and_publish(
        self, message_key, messages, lease_id=None, consumer_id=None, timeout=None, queue=None, any_holder=None
    ):
        """Acknowledge a message and publish others, all or nothing: an error names the message that was refused.
        Returns ``results`` like ``publish_batch``."""
        items = _batches.encode_messages(messages, queue_required=True)
        return self._settle(
            "ack_and_publish", message_key, lease_id, timeout, consumer_id=consumer_id, messages=items,
            queue=queue, any_holder=any_holder
        )

    # Built on them: processing messages, requests with replies.

    def consume(
        self, queue, consumer_id=None, visibility_timeout_sec=None, wait_ms=None, requeue=True, payload_as="value"
    ):
        """Return a context manager for the next message, or None if there is none. The lease lasts as long as the body
        of the ``with`` statement runs.

        At the end of the body the message is acknowledged. If the body raises, the message is delivered again with the
        exception as the reason, or becomes a dead letter without ``requeue``; the exception is raised on, except for
        ``Reject`` (a dead letter) and ``Retry``. A ``KeyboardInterrupt`` releases the message. A message that the body
        has settled is left alone.
        """
        from ._processing import ProcessingContext

        def consume_next():
            return self.consume_next(queue, consumer_id, visibility_timeout_sec, wait_ms, payload_as=payload_as)

        return ProcessingContext(self, queue, requeue, consume_next, payload_as, visibility_timeout_sec)

    def worker(self, queue, handler, **options):
        """Call ``handler(delivery)`` for each message of a queue until SIGTERM or SIGINT. Returns how many.

        If the handler returns, the message is acknowledged; if it raises, the message is delivered again by the queue's
        policy, or becomes a dead letter with ``Reject``. The lease lasts as long as the handler runs. A signal lets the
        handler finish; messages that were prefetched are released. Options:

        - ``consumer_id``, ``visibility_timeout_sec``, ``payload_as``: as in ``consume_next``
        - ``wait_ms`` (20000): how long one request waits for a message
        - ``prefetch`` (1): how many messages to lease at a time, at most 1,000
        - ``max_messages``: stop after so many, in each process
        - ``until_empty`` (False): stop when there is no message
        - ``requeue`` (True): False makes a message whose handler raises a dead letter
        - ``processes`` (1): the number of processes to fork
        - ``stop``: a function without arguments; when it returns true, the worker stops as after a signal
        - ``stop_signals``: the signals that stop it; caught in the main thread only

        Raises what the first request for a message raises, and ``WorkerFailed``. Later errors that are temporary are
        logged under the name postroom_client.
        """
        from ._worker import Options, run_worker

        return run_worker(self, queue, handler, Options(options))

    def request(self, queue, body, timeout=None, attributes=None, priority=None, type=None):
        """Publish a message and wait for the reply to it. Returns the reply's ``Delivery``, already settled.

        Raises ``NoReply`` if none comes within ``timeout`` seconds; the message expires then.
        """
        if self._reply_queues is None:
            from ._request_reply import ReplyQueues

            self._reply_queues = ReplyQueues(self)
        options = {"attributes": attributes, "priority": priority, "type": type}
        return self._reply_queues.request(queue, body, self.timeout if timeout is None else timeout, options)

    def reply(self, message, body, attributes=None, type=None, ttl_ms=None):
        """Publish the reply to a consumed message. Returns False, and publishes nothing, if nobody waits for one."""
        from ._request_reply import reply

        return reply(self, message, body, {"attributes": attributes, "type": type}, ttl_ms)

    # Logs: records that stay, and many readers.

    def append(
        self, queue, message=None, attributes=None, encoding=None, content_type=None, messages=None, delay_ms=None,
        create_with=None, timeout=None
    ):
        """Append a record to a log: text, ``Binary``, or any value that JSON has; ``attributes`` is a dict of strings.
        ``messages`` instead appends several, all or none: dicts with these four arguments. Returns ``first`` and
        ``last``, their positions, and ``count``; with ``delay_ms``, they are appended later, and ``messageKeys`` are
        those of the delayed messages until then. ``create_with`` is a policy for a new log."""
        items = encode_records(messages)
        if items is None:
            return self._send(
                "append", timeout, queue=queue, message=message, attributes=attributes, encoding=encoding,
                content_type=content_type, delay_ms=delay_ms, create_with=create_with
            )
        return self._send("append", timeout, queue=queue, messages=items, delay_ms=delay_ms, create_with=create_with)

    def read(
        self, queue, after=None, reader=None, start=None, since_ms=None, max=None, max_bytes=None, exact=None,
        if_trimmed=None, wait_ms=None, wait_lock=True, payload_as="value", timeout=None
    ):
        """Return the next records of a log, ``max`` (100) at most, waiting up to ``wait_ms`` for one: after the
        position ``after``, that of a ``reader``, from the "oldest" or behind the "newest" (``start``), or from a Unix
        time on. ``records`` is a list of ``Record``; ``last`` is the position after which to continue. Nothing is
        changed: ``move_reader`` records what was processed.

        Raises ``PositionTrimmed`` if records after the position are no longer kept, unless ``if_trimmed`` is "skip".
        """
        wait_ms, timeout = self._wait_within(wait_ms, timeout)
        data = self._send(
            "read", timeout, queue=queue, after=after, reader=reader, start=start, since_ms=since_ms, max=max,
            max_bytes=max_bytes, exact=exact, if_trimmed=if_trimmed, wait_ms=wait_ms,
            wait_lock=True if wait_ms and wait_lock else None, payload_as=payload_as
        )
        return with_records(data)

    def tail(self, queue, reader=None, wait_ms=20000, **options):
        """Yield the records of a log without end, as ``read`` with these options begins and continues; with ``wait_ms``
        0 only those that there are. ``reader`` moves behind records once the next ones are asked for: what was not
        processed is read again by the next ``tail``."""
        return tail(self, queue, reader, dict(options, wait_ms=wait_ms))

    def move_reader(self, queue, reader, position, timeout=None):
        """Record that a reader of a log has processed all records up to ``position``. A new name makes a reader."""
        return self._send("move_reader", timeout, queue=queue, reader=reader, position=position)

    def delete_reader(self, queue, reader, timeout=None):
        """Delete a reader of a log."""
        return self._send("delete_reader", timeout, queue=queue, reader=reader)

    def list_readers(self, queue, timeout=None):
        """Return the readers of a log, each with its position."""
        return self._send("list_readers", timeout, queue=queue)

    # Queues and single messages: look, and operate.

    def create_queue(self, queue, create_with=None, must_be_new=None, timeout=None):
        """Create a queue with a policy; ``{"kind": "log"}`` makes it a log. Raises ``QueueExists`` if there is one,
        unless ``must_be_new`` is False."""
        return self._send("create_queue", timeout, queue=queue, create_with=create_with, must_be_new=must_be_new)

    def status(self, queue, timeout=None):
        """Return the backlog, the policy and the pauses of one queue."""
        return self._send("status", timeout, queue=queue)

    def list_queues(self, limit=None, after=None, timeout=None, policies=None):
        """Return a page of the queues by name, each with its backlog, and with ``policies`` its policy in force."""
        return self._send("list_queues", timeout, limit=limit, after=after, policies=policies)

    def queue_statistics(self, queue=None, limit=None, after=None, timeout=None):
        """Return how fast messages are published to a queue and delivered from it, and how long they wait: of one
        queue, or of a page of those with the policy ``statistics.enabled``."""
        return self._send("queue_statistics", timeout, queue=queue, limit=limit, after=after)

    def list_inflight(self, queue=None, limit=None, after=None, timeout=None):
        """Return a page of the leased messages: by whom, until when."""
        return self._send("list_inflight", timeout, queue=queue, limit=limit, after=after)

    def list_consumers(self, queue=None, limit=None, after=None, timeout=None):
        """Return a page of the consumers that have asked for messages, have some in flight, or wait by a pattern."""
        return self._send("list_consumers", timeout, queue=queue, limit=limit, after=after)

    def browse(
        self, queue, state=None, limit=None, after=None, preview_bytes=None, filter=None, full_bodies=None,
        timeout=None
    ):
        """Return a page of the messages of a queue in one ``state`` (ready), without leasing them."""
        return self._send(
            "browse", timeout, queue=queue, state=state, limit=limit, after=after, preview_bytes=preview_bytes,
            filter=filter, full_bodies=full_bodies
        )

    def get_message(self, message_key, payload_as=None, events=None, timeout=None):
        """Return one message in any state; ``events`` is how many of its latest events to return with it."""
        key, _ = split_lease(message_key)
        return self._send("get_message", timeout, message_key=key, payload_as=payload_as, events=events)

    def hold(self, message_key, reason=None, timeout=None):
        """Put one ready or delayed message on hold: it is not delivered until ``unhold``."""
        return self._send("hold", timeout, message_key=split_lease(message_key)[0], reason=reason)

    def unhold(self, message_key, timeout=None):
        """Undo ``hold``."""
        return self._send("unhold", timeout, message_key=split_lease(message_key)[0])

    def purge(
        self, queue, state=None, filter=None, limit=None, after=None, up_to_event=None, dry_run=None, timeout=None,
        reset_tally=None, message_key=None, if_state=None
    ):
        """Remove the backlog of a queue as it is now, or the messages that match ``state`` and ``filter``. The state
        "any" means all of them, also those in flight; ``message_key`` means only this one, whatever its state, or only
        if it is in ``if_state``. With ``reset_tally``, the tally of the queue then begins at 0.

        Continues page by page to the end, with ``timeout`` for each page; ``limit`` or ``after`` removes one page.
        """
        return self._run_pages(
            "purge", timeout, queue=queue, state=state, filter=filter, limit=limit, after=after,
            up_to_event=up_to_event, dry_run=dry_run, reset_tally=reset_tally, message_key=split_lease(message_key)[0],
            if_state=if_state
        )

    def move(
        self, to, message_key=None, queue=None, state=None, filter=None, limit=None, after=None, up_to_event=None,
        dry_run=None, timeout=None
    ):
        """Move a message, or the messages of a queue that match ``state`` and ``filter``, to another queue. Continues
        page by page like ``purge``."""
        return self._run_pages(
            "move", timeout, to=to, message_key=split_lease(message_key)[0], queue=queue, state=state, filter=filter,
            limit=limit, after=after, up_to_event=up_to_event, dry_run=dry_run
        )

    def delete_queue(self, queue, purge=False, discard=None, timeout=None):
        """Delete an empty queue with its policy and pauses. ``purge`` removes its messages first, also the dead
        letters and those that are done; messages in flight still prevent it. ``discard`` drops up to 1,000 messages in
        any state, also in flight: repeat it until ``deleted`` of the answer is true."""
        if purge:
            self.purge(queue, timeout=timeout)
            self.purge(queue, "dead", timeout=timeout)
            if self.status(queue, timeout)["metrics"].get("done"):
                self.purge(queue, "done", timeout=timeout)
        return self._send("delete_queue", timeout, queue=queue, discard=discard)

    def pause(self, queue, operation=None, timeout=None):
        """Stop consuming from a queue (with ``operation`` "publish": publishing to it) until ``resume``."""
        return self._send("pause", timeout, queue=queue, operation=operation)

    def resume(self, queue, operation=None, timeout=None):
        """Undo ``pause``."""
        return self._send("resume", timeout, queue=queue, operation=operation)

    def set_policy(self, queue, policy, timeout=None, create_with=None):
        """Set keys of a queue's policy, over the daemon's configuration. ``{}`` removes all keys that were set.
        ``create_with`` is a policy for a new queue."""
        return self._send("set_policy", timeout, queue=queue, policy=policy, create_with=create_with)

    def get_policy(self, queue, explain=None, timeout=None, create_with=None):
        """Return a queue's policy, and what ``set_policy`` has set; with ``explain``, where each key comes from. With
        ``create_with``, a queue that does not exist has the policy that it would have if it were created with it."""
        return self._send("get_policy", timeout, queue=queue, explain=explain, create_with=create_with)

    def set_policy_patterns(self, patterns, timeout=None):
        """Replace the policies by pattern: a list of dicts with ``pattern``, a regular expression, and ``policy``. The
        first that is found in a queue's name applies to it, over the daemon's configuration."""
        return self._send("set_policy_patterns", timeout, patterns=patterns)

    def get_policy_patterns(self, timeout=None):
        """Return the policies by pattern."""
        return self._send("get_policy_patterns", timeout)

    # Dead letters.

    def list_dlq(
        self, queue, limit=None, after=None, preview_bytes=None, filter=None, full_bodies=None, timeout=None
    ):
        """Return a page of the dead letters of a queue or of a dead-letter address."""
        return self._send(
            "list_dlq", timeout, queue=queue, limit=limit, after=after, preview_bytes=preview_bytes, filter=filter,
            full_bodies=full_bodies
        )

    def count_dlq(self, queue, timeout=None):
        """Return how many dead letters there are, by reason."""
        return self._send("count_dlq", timeout, queue=queue)

    def reprocess_dlq(
        self, message_key=None, queue=None, filter=None, limit=None, after=None, to=None, dry_run=None, timeout=None
    ):
        """Make a dead letter, or a page of them, ready again; their attempts are counted from zero."""
        return self._send(
            "reprocess_dlq", timeout, message_key=split_lease(message_key)[0], queue=queue, filter=filter,
            limit=limit, after=after, to=to, dry_run=dry_run
        )

    def reprocess_all(self, queue, filter=None, to=None, rate=None, dry_run=None, timeout=None):
        """Make all dead letters that match ``filter`` ready again, page by page, at most ``rate`` a second. Yields the
        count so far after each page. Messages that die meanwhile are not included."""
        return self._iterate_pages("reprocess_dlq", timeout, rate, queue=queue, filter=filter, to=to, dry_run=dry_run)

    def drop_dlq(self, message_key=None, queue=None, filter=None, limit=None, after=None, dry_run=None, timeout=None):
        """Remove a dead letter, or a page of them."""
        return self._send(
            "drop_dlq", timeout, message_key=split_lease(message_key)[0], queue=queue, filter=filter, limit=limit,
            after=after, dry_run=dry_run
        )

    def drop_all(self, queue, filter=None, rate=None, dry_run=None, timeout=None):
        """Remove all dead letters that match ``filter``, like ``reprocess_all``."""
        return self._iterate_pages("drop_dlq", timeout, rate, queue=queue, filter=filter, dry_run=dry_run)

    def quarantine_dlq(self, message_key, reason=None, quarantined=None, timeout=None):
        """Quarantine a dead letter: only its own key makes it ready again. ``quarantined`` False undoes that."""
        key, _ = split_lease(message_key)
        return self._send("quarantine_dlq", timeout, message_key=key, reason=reason, quarantined=quarantined)

    # Schedules.

    def set_schedule(
        self, name, queue, cron, timezone=None, missed=None, message=None, attributes=None, priority=None, ttl_ms=None,
        ordering_key=None, timeout=None
    ):
        """Publish a message at the times of ``cron`` (five fields, or "@every 5m"), until ``delete_schedule``."""
        return self._send(
            "set_schedule", timeout, name=name, queue=queue, cron=cron, timezone=timezone, missed=missed,
            message=message, attributes=attributes, priority=priority, ttl_ms=ttl_ms, ordering_key=ordering_key
        )

    def delete_schedule(self, name, timeout=None):
        """Delete a schedule. Messages that it has published stay."""
        return self._send("delete_schedule", timeout, name=name)

    def list_schedules(self, limit=None, after=None, timeout=None):
        """Return a page of the schedules by name, each with the times of its last and its next run."""
        return self._send("list_schedules", timeout, limit=limit, after=after)

    # The daemon.

    def health(self, timeout=None):
        """Return whether the daemon's journal, store and disk work."""
        return self._send("health", timeout)

    def metrics(self, timeout=None, format=None):
        """Return the daemon's counters and rates; with ``format="prometheus"``, all figures as ``text`` in the format
        of Prometheus."""
        return self._send("metrics", timeout, format=format)

    def drain(self, draining=None, timeout=None):
        """Refuse new messages in all queues, while consumers continue. ``draining`` False ends that."""
        return self._send("drain", timeout, draining=draining)

    def read_state(self, part=None, after=None, limit=None, timeout=None):
        """Return a page of the daemon's whole state. For the daemon's own user and root only."""
        return self._send("read_state", timeout, part=part, after=after, limit=limit)

    def import_state(self, engine_ms, wall_ms, queues=None, messages=None, facts=None, timeout=None):
        """Import queues, messages and facts as another daemon's ``read_state`` returned them. For the same users."""
        return self._send(
            "import_state", timeout, engine_ms=engine_ms, wall_ms=wall_ms, queues=queues, messages=messages,
            facts=facts
        )
