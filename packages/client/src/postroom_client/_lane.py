"""The lane: requests and answers over a local socket; see docs/lane.md. Where it is missing, the mailbox is used."""

import os

from ._codec import encode_cancel
from ._compat import monotonic, sleep
from ._process_local import ProcessLocal
from ._protocol import LANE_SOCKET
from ._transport import LATE_ANSWER_S, ConnectionLost, Exchange, Transport
from .errors import DaemonNotRunning, RequestTimeout

#: The longest wait for the answer to hello: a daemon that is stopped accepts connections and says nothing.
_HELLO_S = 2.0
#: How long one wait lasts at most.
_CHECK_EVERY_S = 1.0


class Lane(Transport):
    """The lane of ``mailbox``. With ``only``, requests never go through the mailbox."""

    def __init__(self, mailbox, only=False):
        self._mailbox = mailbox
        self._only = only
        self._idle = ProcessLocal(list)
        self._closed = False

    def begin(self, request):
        """See ``Transport``."""
        for connections in self._idle.pop_inherited():  # a forked child must not read its parent's answers
            for connection in connections:
                connection.close()
        return LaneExchange(self, request, None if self._only else self._mailbox)

    def is_daemon_running(self):
        """See ``Transport``."""
        return self._mailbox.is_daemon_running()

    def explain_missing(self, hint):
        """See ``Mailbox.explain_missing``."""
        return self._mailbox.explain_missing(hint)

    def close(self, client_id):
        """See ``Transport``."""
        self._closed = True
        connections = self._idle.get()
        while connections:
            try:
                connections.pop().close()
            except IndexError:  # RACE: another thread has taken it
                break
        self._mailbox.close(client_id)

    @property
    def path(self):
        """The path of the socket."""
        return os.path.join(self._mailbox.root, LANE_SOCKET)

    def borrow(self, client_id, deadline):
        """Return an idle connection, or a new one. Raises ``ConnectionLost``."""
        idle = self._idle.get()
        while True:
            try:
                connection = idle.pop()  # atomic
            except IndexError:
                from ._lane_connection import Connection  # imports the library of sockets, which few programs need

                return Connection(self._mailbox, client_id, min(deadline, monotonic() + _HELLO_S))
            if connection.client_id == client_id and connection.is_idle():
                return connection
            connection.close()

    def give_back(self, connection):
        """Keep a connection, on which nothing is in flight, for the next request."""
        if self._closed:
            connection.close()
        else:
            self._idle.get().append(connection)


class LaneExchange(Exchange):
    """A request and its answer over the lane. If the lane fails, ``mailbox`` takes over; without one (None), the
    request is sent over another connection."""

    def __init__(self, lane, request, mailbox):
        self._lane = lane
        self._request = request
        self._mailbox = mailbox
        self._by_mailbox = None
        self._connection = None
        self._answered = False

    def submit(self, deadline):
        """See ``Exchange``."""
        pause_s = 0.005
        while True:
            try:
                self._send(deadline)
                return
            except ConnectionLost as lost:
                self._drop()
                if self._mailbox is not None:
                    self._by_mailbox = self._mailbox.begin(self._request)
                    self._by_mailbox.submit(deadline)
                    return
                if lost.error is not None:
                    raise lost.error
                if monotonic() + pause_s >= deadline:
                    raise DaemonNotRunning(
                        "no lane at %s: %s; start postroomd, or correct the path" % (self._lane.path, lost),
                        self._request,
                    )
                sleep(pause_s)
                pause_s = min(pause_s * 2, 0.25)

    def _send(self, deadline):
        request = self._request
        self._connection = self._lane.borrow(request.client_id, deadline)
        size_bytes = len(request.header) + len(request.body)
        if self._mailbox is not None and size_bytes > self._connection.request_bytes:
            raise ConnectionLost("the request is too large")  # the mailbox rejects it with a reason
        self._connection.send(request.header, request.body, deadline)
        request.sent = True

    def wait(self, deadline):
        """See ``Exchange``."""
        if self._by_mailbox is not None:
            return self._by_mailbox.wait(deadline)
        try:
            return self._receive(min(deadline, monotonic() + _CHECK_EVERY_S))
        except ConnectionLost:
            self._drop()
            self.submit(deadline)  # the same bytes: if the request was executed, its answer is repeated
            return None

    def _receive(self, until):
        answer = self._connection.receive(until)
        self._answered = answer is not None
        return answer

    def cancel(self, grace_s):
        """See ``Exchange``."""
        if self._by_mailbox is not None:
            return self._by_mailbox.cancel(grace_s)
        until = monotonic() + max(grace_s, LATE_ANSWER_S)  # a daemon that runs answers at once
        try:
            self._connection.send(encode_cancel(self._request.request_id), b"", until)
            return self._receive(until)
        except ConnectionLost:
            return None

    def explain(self, timeout_s):
        """See ``Exchange``."""
        if self._by_mailbox is not None:
            return self._by_mailbox.explain(timeout_s)
        return RequestTimeout(
            "no answer in %g s; the request may have been executed: send it again to get its answer" % timeout_s,
            self._request,
        )

    def close(self, withdraw):
        """See ``Exchange``."""
        if self._by_mailbox is not None:
            self._by_mailbox.close(withdraw)
        connection, self._connection = self._connection, None
        if connection is not None and self._answered:
            self._lane.give_back(connection)
        elif connection is not None:
            connection.close()  # which ends a wait

    def _drop(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
