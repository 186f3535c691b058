"""Requests: their bytes, their ids, the name of their file."""

import os
import sys
import time
from binascii import hexlify

from . import _codec
from ._compat import PY2, text_type
from ._protocol import REQUEST_SUFFIX
from .errors import InvalidArgument


class Request(object):
    """A request that can be sent any number of times: the daemon executes it once and repeats its first answer.

    To send it again after a crash of the application, store ``client_id``, ``request_id``, ``file_name`` and ``data``,
    and create it from them. ``lock``: a client that waits for its answer locks the file. ``sent``: it was sent before.
    ``header`` and ``body`` are what is sent over the lane.
    """

    __slots__ = ("body", "client_id", "file_name", "header", "lock", "request_id", "sent")

    def __init__(self, client_id, request_id, file_name, data, lock=False, sent=False, body=b""):
        self.client_id = _codec.check_id(client_id, "client id")
        self.request_id = _codec.check_id(request_id, "request id")
        self.file_name = file_name.encode("utf-8") if PY2 and isinstance(file_name, text_type) else str(file_name)
        self.header = data
        self.body = body
        self.lock = lock
        self.sent = sent

    @property
    def data(self):
        """The bytes of the request's file."""
        return _codec.join_body(self.header, self.body) if self.body else self.header

    def __repr__(self):
        return "<Request %s of %s>" % (self.request_id, self.client_id)


def create_request(client_id, command, payload, timeout_s, max_bytes, request_id=None, traceparent=None):
    """Return a ``Request`` whose deadline is ``timeout_s`` from now. Raises ``InvalidArgument``."""
    random_digits = random_hex(20)
    if request_id is None:
        request_id = random_digits[:32]
    now_s = time.time()
    now_ms = int(now_s * 1000)
    header, body = _codec.encode_request(
        request_id, client_id, command, now_ms, now_ms + int(timeout_s * 1000), payload, traceparent, random_digits[:32]
    )
    size_bytes = len(header) + (_codec.base64_length(body) if body else 0)
    if size_bytes > max_bytes:
        raise InvalidArgument(
            "the request has %d bytes, more than max_request_bytes (%d): send less, or refer to a file"
            % (size_bytes, max_bytes)
        )
    # Sorts by time, and no other user can guess it.
    file_name = "%017d-%s-%s%s" % (now_s * 1000000, random_digits[32:], request_id, REQUEST_SUFFIX)
    lock = bool(payload.get("waitMs") and payload.get("waitLock") is True)
    return Request(client_id, request_id, file_name, header, lock, body=body)


def check_timeout(timeout_s):
    """Return ``timeout_s`` if it is a number of seconds. Raises ``InvalidArgument``."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s < 1e9:
        raise InvalidArgument("timeout must be a number of seconds, not %r" % (timeout_s,))
    return timeout_s


def create_client_id():
    """Return ``<program>-<pid>-<random>``."""
    program = os.path.basename((getattr(sys, "argv", None) or [""])[0] or "python")
    safe = "".join(char if char.isalnum() and ord(char) < 128 else "-" for char in program[:40]).strip("-")
    return "%s-%d-%s" % (safe or "python", os.getpid(), random_hex(4))


def random_hex(count_bytes):
    """Return the hexadecimal digits of so many random bytes."""
    return str(hexlify(os.urandom(count_bytes)).decode("ascii"))
