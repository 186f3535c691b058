"""The lane: requests and answers over a local socket; see docs/lane.md. Where it is missing, the mailbox is used."""

import errno
import os
import socket
import struct

from ._codec import decode_hello, encode_cancel, encode_hello, error_of_connection
from ._compat import DIRECTORY, close_fd, monotonic, open_fd, set_close_on_exec, sleep, stat
from ._process_local import ProcessLocal
from ._transport import Exchange, Transport
from .errors import BadResponse, DaemonNotRunning, RequestTimeout

SOCKET_NAME = "lane.sock"
_LENGTHS = struct.Struct("<II")
_CREDENTIALS = struct.Struct("3i")
_SO_PEERCRED = getattr(socket, "SO_PEERCRED", 17)  # Python 2.7 has no name for it
_READ_BYTES = 65536
#: The longest wait for the answer to hello; a daemon that is stopped accepts connections and says nothing.
_HELLO_S = 2.0
#: How long one wait lasts at most.
_CHECK_EVERY_S = 1.0
#: The largest header and body of an answer that are read into memory.
_ANSWER_BYTES_LIMIT = 128 * 1024 * 1024
_LARGEST_READ = 1024 * 1024
_NOTHING_YET = (errno.EAGAIN, errno.EWOULDBLOCK)
_OF_A_REQUEST = b'{"requestId":'


class ConnectionLost(Exception):
    """The connection is of no more use; ``error`` is what the daemon said about it, if anything."""

    def __init__(self, why, error=None):
        Exception.__init__(self, why)
        self.error = error


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
        return os.path.join(self._mailbox.root, SOCKET_NAME)

    def borrow(self, client_id, deadline):
        """Return an idle connection, or a new one. Raises ``ConnectionLost``."""
        idle = self._idle.get()
        while True:
            try:
                connection = idle.pop()  # atomic
            except IndexError:
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
    """A request and its answer over the lane. If the lane fails, ``mailbox`` takes over; without one (None), the request
    is sent over another connection."""

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
        until = monotonic() + grace_s
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


class Connection(object):
    """A connection on which the daemon has greeted. One request at a time uses it."""

    def __init__(self, mailbox, client_id, deadline):
        self.client_id = client_id
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            set_close_on_exec(self._socket.fileno())
            self._connect(mailbox)
            self.send(encode_hello(client_id), b"", deadline)
            greeting = self.receive(deadline)
            if greeting is None:
                raise ConnectionLost("the daemon does not answer")
            self.request_bytes = decode_hello(greeting[0])
        except BaseException:
            self._socket.close()
            raise

    def _connect(self, mailbox):
        """Connect to a socket of the daemon that serves ``mailbox``. Its path may be longer than a socket's may be."""
        try:
            fd = open_fd(mailbox.root, os.O_RDONLY | DIRECTORY)
            try:
                self._socket.connect("/proc/self/fd/%d/%s" % (fd, SOCKET_NAME))
            finally:
                close_fd(fd)
            peer = self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size)
            uid = _CREDENTIALS.unpack(peer)[1]
            if uid not in (0, os.geteuid(), stat(mailbox.requests_dir).st_uid):
                raise ConnectionLost("%s belongs to uid %d, not to the daemon" % (SOCKET_NAME, uid))
        except (IOError, OSError) as error:
            raise ConnectionLost(os.strerror(error.errno) if error.errno else str(error))

    def is_idle(self):
        """Return whether nothing has come since the last answer, not even the end of the connection."""
        try:
            self._socket.setblocking(False)
            self._received += self._socket.recv(1)
        except (IOError, OSError) as error:
            return error.errno in _NOTHING_YET and not self._received
        return False

    def send(self, header, body, deadline):
        """Send a frame. Raises ``ConnectionLost``, also if the daemon does not take it before the deadline."""
        view = memoryview(_LENGTHS.pack(len(header), len(body)) + header + body)
        while len(view):
            sent = self._call(self._socket.send, view, deadline)
            if sent is None:
                raise ConnectionLost("the daemon takes nothing")
            view = view[sent:]

    def receive(self, deadline):
        """Return the next answer, its JSON and its bodies, or None if it is not complete at the deadline.

        Raises ``ConnectionLost``, also for an error of the connection.
        """
        while True:
            missing_bytes = self._missing_bytes()
            if not missing_bytes:
                return self._next_answer()
            data = self._call(self._socket.recv, min(max(missing_bytes, _READ_BYTES), _LARGEST_READ), deadline)
            if data is None:
                return None
            if not data:
                raise ConnectionLost("the daemon has closed it")
            self._received += data

    def _missing_bytes(self):
        """Return how many bytes the next frame lacks at least."""
        count = len(self._received)
        if count < _LENGTHS.size:
            return _LENGTHS.size - count
        frame_bytes = _LENGTHS.size + sum(_LENGTHS.unpack_from(self._received))
        if frame_bytes > _ANSWER_BYTES_LIMIT:
            raise BadResponse("an answer of %d bytes is announced" % frame_bytes)
        return max(0, frame_bytes - count)

    def _next_answer(self):
        header_bytes, body_bytes = _LENGTHS.unpack_from(self._received)
        middle = _LENGTHS.size + header_bytes
        header = bytes(self._received[_LENGTHS.size : middle])
        body = bytes(self._received[middle : middle + body_bytes])
        del self._received[: middle + body_bytes]
        if not header.startswith(_OF_A_REQUEST):
            error = error_of_connection(header)
            if error is not None:
                raise ConnectionLost(str(error), error)
        return header, body

    def _call(self, function, argument, deadline):
        """Call a function of the socket; return None if it would not return before the deadline."""
        while True:
            self._socket.settimeout(max(deadline - monotonic(), 0.0005))
            try:
                return function(argument)
            except socket.timeout:
                return None
            except (IOError, OSError) as error:
                if error.errno == errno.EINTR:  # Python 2.7
                    continue
                if error.errno in _NOTHING_YET:
                    return None
                raise ConnectionLost(os.strerror(error.errno))

    def close(self):
        """Close the socket."""
        self._socket.close()
