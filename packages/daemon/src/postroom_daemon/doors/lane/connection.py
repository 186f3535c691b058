"""One connection of the lane: what has arrived, what is in flight, and what its client has not read yet."""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice
from typing import Final

from postroom_common.lane import PREFIX_BYTES, Frame, FrameReader

from ...model.request import Answer, Request

_READ_BYTES: Final = 64 * 1024
_LARGEST_READ: Final = 1024 * 1024
_FRAMES_AT_ONCE: Final = 64
_FIRST_GUESS: Final = 64 * 1024


class User:
    """The connections of a uid, and the memory that they occupy."""

    __slots__ = ("completing", "connections", "expected_bytes", "held_bytes")

    def __init__(self) -> None:
        self.completing: Connection | None = None  # it may complete its frame though there is no memory for more
        self.connections = self.held_bytes = 0
        self.expected_bytes = 0  # of the answers to requests that were read in this turn


class Connection:
    """A connected client. The session of its requests. It is in ``changed``, by its descriptor, when it has something
    to send."""

    def __init__(
        self,
        peer: socket.socket,
        uid: int,
        user: User,
        limit_bytes: int,
        now_s: float,
        changed: dict[int, Connection],
    ) -> None:
        peer.setblocking(False)
        self.socket = peer
        self.fd = peer.fileno()
        self.uid = uid
        self.user = user
        user.connections += 1
        self.client_id = ""  # before hello
        self.door = ""  # of the gateway that the client is
        self.reader = FrameReader(limit_bytes)
        self.requests: dict[str, Request] = {}
        self.request_bytes = 0
        self.events = 0  # for which it is registered
        self.ends = False  # once its last answer is sent
        self.is_closed = False
        self._changed = changed
        self.frame_since_s: float | None = now_s  # when the incomplete frame, or the wait for hello, began
        self.sent_at_s = now_s
        self._out: deque[tuple[bytes, Answer | None]] = deque()
        self._offset = 0  # of what the kernel has of the first one
        self.unsent_bytes = 0
        self.answer_bytes = _FIRST_GUESS  # of the answer to one request, as expected
        self.expected_bytes = 0  # of the answers to requests that were read in this turn

    def receive(self) -> bool:
        """Read what has arrived, not much more than the next frame. Returns whether the connection still stands. Raises
        ``FrameTooLarge``."""
        wanted = min(max(self.reader.missing_bytes(), _READ_BYTES), _LARGEST_READ)
        try:
            data = self.socket.recv(wanted)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        self.reader.feed(data)
        self.user.held_bytes += len(data)
        return bool(data)

    def next_frame(self) -> Frame | None:
        """The next frame that has arrived. Raises ``FrameTooLarge``."""
        frame = self.reader.next()
        if frame:
            user = self.user
            user.held_bytes -= PREFIX_BYTES + len(frame.header) + len(frame.body)
            if user.completing is self:
                user.completing = None
        return frame

    def may_complete(self) -> bool:
        """Whether this is the one connection of its user that goes on with its frame though the user's memory is used
        up: if none did, incomplete frames might occupy all of it for ever."""
        if self.user.completing is None and self.reader.held_bytes:
            self.user.completing = self
        return self.user.completing is self

    def _has_completed(self) -> None:
        if self.user.completing is self:
            self.user.completing = None

    def begin(self, request: Request) -> None:
        """A request was read."""
        self.requests[request.wire.request_id] = request
        self.request_bytes += request.bytes
        self.user.held_bytes += request.bytes

    def expect(self, count_bytes: int) -> None:
        """Expect answers to the requests that were read, until ``flush``."""
        self.expected_bytes += count_bytes
        self.user.expected_bytes += count_bytes

    def end(self, request: Request) -> None:
        """A request is answered."""
        del self.requests[request.wire.request_id]
        self.request_bytes -= request.bytes
        self.user.held_bytes -= request.bytes

    def put(self, frame: bytes, now_s: float, answer: Answer | None = None) -> None:
        """Keep a frame until ``flush``."""
        self._changed[self.fd] = self
        if not self._out:
            self.sent_at_s = now_s
        self._out.append((frame, answer))
        self.unsent_bytes += len(frame)
        self.user.held_bytes += len(frame)
        self.answer_bytes = max(len(frame), self.answer_bytes // 2)

    def flush(self, now_s: float) -> bool:
        """Send what the kernel takes now. Returns whether the connection still stands."""
        self.expect(-self.expected_bytes)
        out = self._out
        while out:
            frames = [frame for frame, _ in islice(out, _FRAMES_AT_ONCE)]
            if self._offset:
                frames[0] = frames[0][self._offset :]
            try:
                sent = self.socket.sendmsg(frames)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                return False
            self.sent_at_s = now_s
            self.unsent_bytes -= sent
            self.user.held_bytes -= sent
            sent += self._offset
            while out and sent >= len(out[0][0]):
                sent -= len(out.popleft()[0])
            self._offset = sent
        return True

    def undelivered(self) -> list[Answer]:
        """The answers that the kernel does not have completely."""
        return [answer for _, answer in self._out if answer]

    def close(self) -> None:
        """Close the socket, and free what the client occupied."""
        self.socket.close()
        self.is_closed = True
        self.expect(-self.expected_bytes)
        self._has_completed()
        self.user.connections -= 1
        self.user.held_bytes -= self.reader.held_bytes + self.request_bytes + self.unsent_bytes
        self.requests.clear()
