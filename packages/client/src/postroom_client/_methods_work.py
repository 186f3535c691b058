"""What is built on the commands: working on messages, requests with replies."""

from ._methods import Methods
from .errors import InvalidArgument


class WorkMethods(Methods):
    def consume(
        self, queue, consumer_id=None, visibility_timeout_sec=None, wait_ms=None, requeue=True, payload_as="value"
    ):
        """The next message, for the body of a ``with`` statement, or None: its lease lasts as long as the body runs.

        At the body's end the message is acknowledged. An exception is the reason for which it is tried again later, or
        is a dead letter without ``requeue``; it goes on from there, but for ``Reject`` (a dead letter) and ``Retry``.
        An interrupt from the keyboard gives the message back untried. Nothing is done where the body has settled it.
        """
        from ._consuming import Consuming

        def consume_next():
            return self.consume_next(queue, consumer_id, visibility_timeout_sec, wait_ms, payload_as=payload_as)

        return Consuming(self, queue, requeue, consume_next)

    def worker(self, queue, handler, **options):
        """Call ``handler(delivery)`` for each message of a queue, until SIGTERM or SIGINT. How many it were.

        What returns is acknowledged; what raises is tried again by the queue's policy, ``Reject`` is a dead letter. The
        lease lasts as long as the handler works. On a signal the message at hand is finished, and what was leased
        ahead is given back. Options:

        - ``consumer_id``, ``visibility_timeout_sec``, ``payload_as``: as of ``consume_next``
        - ``wait_ms`` (20000): how long one request waits for a message
        - ``prefetch`` (1): messages that are leased at a time, at most 1,000
        - ``max_messages``: end after so many, each process by itself
        - ``until_empty`` (False): end when there is no message
        - ``requeue`` (True): False makes what raises a dead letter
        - ``processes`` (1): this many, forked here
        - ``stop``: a function without arguments: true ends it, as a signal does
        - ``stop_signals``: caught in the main thread only; none where empty

        Raises what the first request for a message raises, and ``WorkerFailed``. Troubles that pass are logged under
        the name postroom_client.
        """
        from ._worker import Options, Worker

        unknown = set(options) - set(vars(Options))
        if unknown:
            raise InvalidArgument("worker has no option %s" % ", ".join(sorted(unknown)))
        chosen = Options(options)
        if chosen.processes == 1:
            return Worker(self, queue, handler, chosen).run()
        from ._processes import Processes

        def run(parent):
            return Worker(self, queue, handler, chosen).run(parent)

        return Processes(chosen.processes, run, chosen.stop_signals, chosen.stop).run()

    def request(self, queue, body, timeout=None, attributes=None, priority=None, type=None):
        """Publish a message and wait for the reply to it: its ``Delivery``, already settled.

        Raises ``NoReply`` when none came within ``timeout`` seconds: from then on the message is no longer wanted.
        """
        if self._replies is None:
            from ._replies import Replies

            self._replies = Replies(self)
        options = {"attributes": attributes, "priority": priority, "type": type}
        return self._replies.request(queue, body, self.timeout if timeout is None else timeout, options)

    def reply(self, message, body, attributes=None, type=None, ttl_ms=None):
        """Publish the reply to a consumed message. False when nobody waits for one (any more): nothing is published."""
        from ._replies import reply

        return reply(self, message, body, {"attributes": attributes, "type": type}, ttl_ms)
