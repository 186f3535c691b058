"""How requests reach the daemon and answers come back: what a transport must do, and the one way to use it."""

from ._compat import monotonic
from .errors import RequestWithdrawn

#: Seconds to wait for the answer to a request that is withdrawn: the daemon may just be executing it.
LATE_ANSWER_S = 0.2


class ConnectionLost(Exception):
    """A connection is of no more use. ``error``: the ``ServerError`` with which the daemon has ended it, or None."""

    def __init__(self, why, error=None):
        Exception.__init__(self, why)
        self.error = error


class Transport(object):
    """A way to one daemon. Any number of threads may use it at the same time, and so may a forked child."""

    def begin(self, request):
        """Return an ``Exchange`` for a ``Request``. Nothing is sent yet."""
        raise NotImplementedError

    def is_daemon_running(self):
        """Return whether a daemon serves this transport, or None if that cannot be learned."""
        raise NotImplementedError

    def close(self, client_id):
        """Free all resources, also what was created for ``client_id``, an id that nobody will use again."""
        raise NotImplementedError


class Exchange(object):
    """One request and its answer. For one thread. ``deadline`` is monotonic."""

    def submit(self, deadline):
        """Send the request. Waits until the deadline for the daemon's side to exist.

        Raises ``DaemonNotRunning`` or ``MailboxError``.
        """
        raise NotImplementedError

    def wait(self, deadline):
        """Wait for the answer and return it, or None if it has not come yet: the bytes of its JSON, and those of its
        bodies (None: they are in the JSON).

        Returns at the deadline, and at least once a second. Raises ``RequestRejected``, ``BadResponse`` or
        ``MailboxError``.
        """
        raise NotImplementedError

    def cancel(self, grace_s):
        """Withdraw the request, so that it is not executed later. Return the answer, as ``wait`` does, if it comes
        within ``grace_s``, else None."""
        raise NotImplementedError

    def explain(self, timeout_s):
        """Return the ``NoAnswer`` that says why no answer came within ``timeout_s``."""
        raise NotImplementedError

    def close(self, withdraw):
        """Free the resources of this exchange; first ``withdraw`` the request if it is still pending."""
        raise NotImplementedError


def send(transport, request, timeout_s, keep=False, give_up=None):
    """Send a request and return its answer, as ``Exchange.wait`` does.

    A request without an answer after ``timeout_s`` is withdrawn, unless ``keep``. It is also withdrawn as soon as
    ``give_up()`` is true, which is called at least once a second: raises ``RequestWithdrawn`` then. Raises what the
    methods of ``Exchange`` raise.
    """
    deadline = monotonic() + timeout_s
    exchange = transport.begin(request)
    answer = None
    try:
        exchange.submit(deadline)
        while True:
            answer = exchange.wait(deadline)
            if answer is not None:
                return answer
            if monotonic() >= deadline:
                if not keep:
                    answer = exchange.cancel(0)
                if answer is None:
                    raise exchange.explain(timeout_s)
                return answer
            if give_up is not None and give_up():
                answer = exchange.cancel(LATE_ANSWER_S)
                if answer is None:
                    raise RequestWithdrawn("the request was withdrawn before it was answered", request)
                return answer
    finally:
        exchange.close(withdraw=answer is None and not keep)
