"""A connection to the daemon's socket: frames go out and come in."""

import errno
import os
import socket
import struct

from ._codec import decode_hello, encode_hello, error_of_connection
from ._compat import DIRECTORY, close_fd, monotonic, open_fd, set_close_on_exec, stat
from ._protocol import LANE_SOCKET
from ._transport import ConnectionLost
from .errors import BadResponse

_LENGTHS = struct.Struct("<II")
_CREDENTIALS = struct.Struct("3i")
_SO_PEERCRED = getattr(socket, "SO_PEERCRED", 17)  # Python 2.7 has no name for it
_READ_BYTES = 65536
_LARGEST_READ = 1024 * 1024
#: The largest header and body of an answer that are read into memory.
_ANSWER_BYTES_LIMIT = 128 * 1024 * 1024
_NOTHING_YET = (errno.EAGAIN, errno.EWOULDBLOCK)
_OF_A_REQUEST = b'{"requestId":'


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
                self._socket.connect("/proc/self/fd/%d/%s" % (fd, LANE_SOCKET))
            finally:
                close_fd(fd)
            peer = self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size)
            uid = _CREDENTIALS.unpack(peer)[1]
            if uid not in (0, os.geteuid(), stat(mailbox.requests_dir).st_uid):
                raise ConnectionLost("%s belongs to uid %d, not to the daemon" % (LANE_SOCKET, uid))
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
        """Close the socket. May be called twice."""
        self._socket.close()

    def __del__(self):
        self.close()  # its client was not closed
