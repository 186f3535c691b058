"""The lane's door: its connections, what can be read from them, and what is to be sent to them."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from selectors import EVENT_READ, BaseSelector
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.lane import FrameTooLarge
from postroom_common.protocol import LANE_SOCKET, ErrorCode

from ...broker.broker import Broker
from ...config.settings import Settings
from ...model.request import Request
from ...platform.clock import Clock, Now
from ...platform.files import Files
from ..base import Door
from .codec import encode_error
from .connection import Connection, User
from .conversation import NAME, Conversation, is_cancel
from .limits import Limits
from .listener import Listener
from .senders import Senders

log = logging.getLogger(__name__)

#: The longest header of a cancel that is read whatever is in flight.
_CANCEL_BYTES: Final = 4096
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR


class _Turn:
    """What is read in one turn of the loop: requests, and how many more frames may be."""

    __slots__ = ("left", "requests")

    def __init__(self, left: int) -> None:
        self.left = left
        self.requests: list[Request] = []


class Lane(Door):
    """The socket ``lane.sock`` in ``ipc.root``. ``senders`` decides who sends a request. A client of a user for whom
    ``is_ready_for`` returns False waits. Raises ``OSError``."""

    name = NAME

    def __init__(
        self,
        settings: Settings,
        files: Files,
        broker: Broker,
        clock: Clock,
        senders: Senders,
        is_ready_for: Callable[[int], bool] = lambda uid: True,
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._clock = clock
        self._senders = senders
        self._limits = Limits(settings)
        self._conversation = Conversation(broker, senders, self._limits)
        self._is_ready_for = is_ready_for
        self._connections: dict[int, Connection] = {}
        self._users: dict[int, User] = {}
        self._unready: set[int] = set()  # connections whose users' permissions are being looked up
        self._full: set[int] = set()  # connections from which nothing is read for now
        self._unread: dict[int, Connection] = {}  # with frames that have arrived and are not requests yet
        self._changed: dict[int, Connection] = {}  # with something to send
        self._refused = self._dropped = 0
        self._clients_wall_ms = 0  # when the requests of this turn were read, by the clock that clients have
        self._epoll = select.epoll()
        try:
            self._listener = Listener(settings, files)
        except OSError:
            self._epoll.close()
            raise
        self._accepts = False
        self._resume_accepting()

    # --- Door -----------------------------------------------------------------------------------------------------

    def register(self, selector: BaseSelector) -> None:
        """See ``Door``."""
        selector.register(self._epoll.fileno(), EVENT_READ, self)

    @property
    def poll_s(self) -> float | None:
        """See ``Door``."""
        return None

    @property
    def has_backlog(self) -> bool:
        """See ``Door``."""
        return bool(self._unread)

    def collect(self, limit: int) -> list[Request]:
        """See ``Door``."""
        for fd, events in self._epoll.poll(0):
            if fd == self._listener.fd:
                self._accept()
                continue
            connection = self._connections.get(fd)
            if connection is None:
                continue
            if events & _OUT:
                self._changed[fd] = connection
            if events & _GONE:  # what it has sent and nobody has read is withdrawn
                self._end(connection)
            elif events & _IN:
                self._receive(connection)
        self._clients_wall_ms = self._clock.clients_wall_ms(self._clock.now())
        return self._read_in_turns(limit)

    def flush(self) -> None:
        """See ``Door``."""
        changed = [*self._changed.values()]
        self._changed.clear()
        now_s = time.monotonic()
        for connection in changed:
            if self._connections.get(connection.fd) is not connection:
                continue
            if not connection.flush(now_s) or (connection.ends and not connection.unsent_bytes):
                self._end(connection)
                continue
            if connection.fd in self._full and not self._limits.stops(connection):
                self._full.discard(connection.fd)
                self._unread[connection.fd] = connection  # frames may have arrived before
            self._watch(connection)

    def tick(self, now: Now, files_wall_ms: int) -> list[Request]:
        """See ``Door``."""
        now_s, patience_s = time.monotonic(), self._settings.lane_frame_ms / 1000
        for connection in list(self._connections.values()):
            if connection.fd in self._unready and self._is_ready_for(connection.uid):
                self._unready.discard(connection.fd)
                self._watch(connection)
            since = connection.frame_since_s
            if since is not None and now_s - since > patience_s:
                what = "a frame" if connection.client_id else "hello"
                text = f"{what} was not complete within {patience_s:g} s"
                self._refuse(connection, CommandError(ErrorCode.TIMEOUT, text))
            elif connection.unsent_bytes and now_s - connection.sent_at_s > patience_s:
                self._drop(connection)
        self._recheck_full()
        self.flush()
        self._senders.forget()
        self._renew()
        return []

    def _renew(self) -> None:
        """Put the socket back if its name is gone or another's, and accept again after a pause."""
        try:
            if self._listener.renew():
                self._accepts = False
                log.warning("lane: %s was removed or replaced: there is another one now", LANE_SOCKET)
        except OSError as error:
            log.error("lane: %s", error)
        self._resume_accepting()

    def reload(self, settings: Settings) -> None:
        """See ``Door``."""
        self._settings = self._limits.settings = settings
        self._senders.forget()

    def figures(self) -> dict[str, int]:
        """See ``Door``."""
        connections = self._connections.values()
        return {
            "connections": len(self._connections),
            "users": len(self._users),
            "inFlight": sum(len(one.requests) for one in connections),
            "heldBytes": sum(one.held_bytes for one in self._users.values()),
            "refused": self._refused,
            "dropped": self._dropped,
        }

    def close(self) -> None:
        """See ``Door``."""
        for connection in list(self._connections.values()):
            connection.flush(time.monotonic())
            connection.close()
        self._connections.clear()
        self._epoll.close()
        self._listener.close()

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            for peer, uid in self._listener.accept():
                user = self._users.setdefault(uid, User())
                limit_bytes = self._settings.limits_request_bytes
                connection = Connection(peer, uid, user, limit_bytes, time.monotonic(), self._changed)
                try:
                    self._epoll.register(connection.fd, 0)
                except OSError:
                    connection.close()
                    raise
                self._connections[connection.fd] = connection
                self._begin(connection)
        except OSError as error:  # no descriptors: those that are connected are served, the others wait until the tick
            log.error("lane: %s", error)
            self._epoll.unregister(self._listener.fd)
            self._accepts = False

    def _resume_accepting(self) -> None:
        if not self._accepts:
            self._epoll.register(self._listener.fd, _IN)
            self._accepts = True

    def _begin(self, connection: Connection) -> None:
        try:
            self._limits.check_new(connection, len(self._connections))
        except CommandError as error:
            self._refuse(connection, error)
            return
        if self._is_ready_for(connection.uid):
            self._watch(connection)
        else:
            self._unready.add(connection.fd)

    def _watch(self, connection: Connection) -> None:
        """Wait for what a connection can do next."""
        events = 0
        if not (connection.ends or connection.fd in self._full or connection.fd in self._unready):
            events |= _IN
        if connection.unsent_bytes:
            events |= _OUT
        if events != connection.events:
            connection.events = events
            self._epoll.modify(connection.fd, events)

    def _recheck_full(self) -> None:
        for fd in list(self._full):
            connection = self._connections[fd]
            if not self._limits.stops(connection):
                self._changed[fd] = connection

    def _receive(self, connection: Connection) -> None:
        try:
            stands = not connection.reader.missing_bytes() or connection.receive()
        except FrameTooLarge as error:
            self._refuse(connection, CommandError(ErrorCode.MESSAGE_TOO_LARGE, str(error)))
            return
        if not stands:
            self._end(connection)
            return
        self._unread[connection.fd] = connection

    def _end(self, connection: Connection) -> None:
        """A connection has ended: its waits end, and what it was sent and could not read goes back."""
        if self._connections.get(connection.fd) is not connection:
            return
        del self._connections[connection.fd]
        self._full.discard(connection.fd)
        self._unready.discard(connection.fd)
        self._epoll.unregister(connection.fd)
        connection.close()
        if not connection.user.connections:
            del self._users[connection.uid]
        self._broker.end_session(connection)
        for answer in connection.undelivered():
            self._broker.return_undelivered(answer)

    def _drop(self, connection: Connection) -> None:
        """End the connection of a client that does not read."""
        self._dropped += 1
        log.warning(
            "lane: the connection of %s (uid %d) is closed: it reads no answers", connection.client_id, connection.uid
        )
        self._end(connection)

    def _refuse(self, connection: Connection, error: CommandError) -> None:
        """Send an error of the connection, and end it."""
        self._refused += 1
        connection.ends = True
        connection.frame_since_s = None  # nothing more is read: only its end is waited for
        connection.put(encode_error(error), time.monotonic())

    def _read_in_turns(self, limit: int) -> list[Request]:
        """Read about ``limit`` frames: of each connection its share, then of those that have more. Those whose turn has
        not come are the first next time."""
        turn = _Turn(limit)
        waiting = [one for one in self._unread.values() if not one.is_closed]
        self._unread.clear()
        while waiting and turn.left > 0:
            share = max(1, turn.left // len(waiting))
            have_more: list[Connection] = []
            reached = 0
            for connection in waiting:
                if turn.left <= 0:
                    break
                reached += 1
                if self._read(connection, turn, min(share, turn.left)):
                    have_more.append(connection)
            waiting = waiting[reached:] + have_more
        self._unread |= {one.fd: one for one in waiting if not one.is_closed}
        return turn.requests

    def _read(self, connection: Connection, turn: _Turn, most: int) -> bool:
        """Make requests of the frames that have arrived, at most ``most``. Returns whether more can be read in this
        turn."""
        reader, limits, end = connection.reader, self._limits, turn.left - most
        while not connection.ends:
            try:
                is_near = limits.is_near(connection)
                if is_near and (
                    limits.is_full(connection) or (limits.has_enough(connection) and not self._may_cancel(connection))
                ):
                    self._full.add(connection.fd)
                    break
                if turn.left <= end:
                    return True
                if is_near and limits.expects_enough(connection):
                    self._unread[connection.fd] = connection
                    return False
                frame = connection.next_frame()
                if frame is None:
                    break
                turn.left -= 1
                request = self._conversation.read(connection, frame, self._clients_wall_ms)
            except FrameTooLarge as error:
                self._refuse(connection, CommandError(ErrorCode.MESSAGE_TOO_LARGE, str(error)))
                return False
            except CommandError as refused:
                self._refuse(connection, refused)
                return False
            if request:
                turn.requests.append(request)
                connection.expect(connection.answer_bytes)
                self._changed[connection.fd] = connection
        if connection.client_id and not connection.ends:
            if not reader.held_bytes or connection.fd in self._full:
                connection.frame_since_s = None
            elif connection.frame_since_s is None:
                connection.frame_since_s = time.monotonic()
        self._watch(connection)
        return False

    def _may_cancel(self, connection: Connection) -> bool:
        """Whether the next frame is a cancel, or has not arrived: that is read whatever is in flight."""
        header = connection.reader.peek()
        return header is None or (len(header) <= _CANCEL_BYTES and is_cancel(header))
