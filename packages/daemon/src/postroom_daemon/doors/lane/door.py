"""The lane's door: the socket, its connections, and what they may occupy."""

from __future__ import annotations

import logging
import os
import resource
import select
import socket
import stat
import time
from collections.abc import Callable
from importlib.metadata import version
from selectors import EVENT_READ, BaseSelector
from typing import Any, Final, Protocol

import orjson

from postroom_common.codec import Request as WireRequest
from postroom_common.codec import decode_request, strict_loads
from postroom_common.errors import CommandError, RequestRejected
from postroom_common.lane import Frame, FrameTooLarge, encode_frame
from postroom_common.protocol import LANE_SOCKET, LANE_VERSION, REQUEST_BYTES_DEFAULT, ErrorCode, is_id

from ...broker.idempotency import repeated_bytes, request_key
from ...config.settings import Settings
from ...model.request import Answer, Request
from ...platform.clock import Clock, Now
from ...platform.files import DIRECTORY_FLAGS, Files
from ..base import Door
from .codec import encode_answer, encode_error, read_body, take_bodies
from .connection import Connection, User, uid_of_peer
from .senders import Senders

log = logging.getLogger(__name__)

#: Descriptors for the rest of the daemon.
_RESERVED_DESCRIPTORS: Final = 160
#: Unread answers (bytes) of a connection beyond which nothing more is read from it; and beyond which no more messages
#: are delivered to it: one may be as large as a request.
_UNSENT_LIMIT: Final = 1024 * 1024
_UNDELIVERABLE: Final = 4 * REQUEST_BYTES_DEFAULT
_ACCEPTED_AT_ONCE: Final = 64
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR
_VERSION: Final = version("postroom-daemon")


class BrokerOfDoor(Protocol):
    """What a door with connections needs of the broker."""

    def end_session(self, session: object) -> None: ...

    def end_wait(self, request: Request) -> None: ...

    def return_undelivered(self, answer: Answer) -> None: ...


class Lane(Door):
    """The socket ``lane.sock`` in ``ipc.root``. ``senders`` decides who sends a request. A client of a user for whom
    ``is_ready_for`` returns False waits. Raises ``OSError``."""

    name = "lane"

    def __init__(
        self,
        settings: Settings,
        files: Files,
        broker: BrokerOfDoor,
        clock: Clock,
        senders: Senders,
        is_ready_for: Callable[[int], bool] = lambda uid: True,
    ) -> None:
        self._settings = settings
        self._files = files
        self._broker = broker
        self._clock = clock
        self._senders = senders
        self._is_ready_for = is_ready_for
        self._connections: dict[int, Connection] = {}
        self._users: dict[int, User] = {}
        self._unready: set[int] = set()  # connections whose users' permissions are being looked up
        self._full: set[int] = set()  # connections from which nothing is read for now
        self._unread: dict[int, Connection] = {}  # with frames that have arrived and are not requests yet
        self._changed: dict[int, Connection] = {}  # with something to send
        self._refused = self._dropped = 0
        self._clients_wall_ms = 0  # when the requests of this turn were read, by the clock that clients have
        self._directory = files.open(settings.ipc_root, DIRECTORY_FLAGS)
        self._epoll = select.epoll()
        try:
            self._socket = self._listen()
        except OSError:
            self._epoll.close()
            files.close(self._directory)
            raise
        self._epoll.register(self._socket.fileno(), _IN)

    def _listen(self) -> socket.socket:
        """The listening socket, which takes the place of one that another run has left."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        temporary = LANE_SOCKET + ".new"
        try:
            try:
                self._files.unlink(temporary, dir_fd=self._directory)
            except FileNotFoundError:
                pass
            listening.setblocking(False)
            # By way of the descriptor, because the path of a socket has at most 107 bytes.
            listening.bind(f"/proc/self/fd/{self._directory}/{temporary}")
            self._share(temporary)
            listening.listen(128)
            self._files.rename(temporary, LANE_SOCKET, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            listening.close()
            raise
        return listening

    def _share(self, name: str) -> None:
        """Let those connect who may write into ``requests/``."""
        requests = self._files.stat(self._settings.ipc_requests_dir, dir_fd=self._directory)
        path = f"/proc/self/fd/{self._directory}/{name}"
        mode = 0o600 | requests.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        try:
            os.chown(path, -1, requests.st_gid)
        except PermissionError:  # not a group of the daemon's: its members use files
            mode &= ~stat.S_IWGRP
        os.chmod(path, mode)

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
            if fd == self._socket.fileno():
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
        requests: list[Request] = []
        self._clients_wall_ms = self._clock.clients_wall_ms(self._clock.now())
        unread, self._unread = self._unread, {}
        for connection in unread.values():
            if self._connections.get(connection.fd) is connection:
                self._read(connection, limit, requests)
        return requests

    def flush(self) -> None:
        """See ``Door``."""
        changed, self._changed = self._changed, {}
        now_s = time.monotonic()
        for connection in changed.values():
            if self._connections.get(connection.fd) is not connection:
                continue
            if not connection.flush(now_s) or (connection.ends and not connection.unsent_bytes):
                self._end(connection)
                continue
            if connection.fd in self._full and not self._is_full(connection):
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
                self._refuse(connection, ErrorCode.TIMEOUT, f"{what} was not complete within {patience_s:g} s")
            elif connection.unsent_bytes and now_s - connection.sent_at_s > patience_s:
                self._drop(connection)
        self._recheck_full()
        self.flush()
        self._senders.forget()
        return []

    def reload(self, settings: Settings) -> None:
        """See ``Door``."""
        self._settings = settings

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
            connection.socket.close()
        self._connections.clear()
        self._epoll.close()
        self._socket.close()
        self._files.close(self._directory)

    # --- connections ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, _ = self._socket.accept()
            except ConnectionError:
                continue
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors: those that are connected are served all the same
                log.error("lane: %s", error)
                return
            try:
                uid = uid_of_peer(peer)
            except OSError:
                peer.close()
                continue
            user = self._users.setdefault(uid, User())
            connection = Connection(peer, uid, user, self._settings.limits_request_bytes, time.monotonic())
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, 0)
            if len(self._connections) > self._most_connections():
                self._refuse(connection, ErrorCode.QUOTA_EXCEEDED, "there are too many connections: try again later")
            elif user.connections > self._settings.lane_user_connections:
                text = f"uid {uid} has {self._settings.lane_user_connections} connections already: close some"
                self._refuse(connection, ErrorCode.QUOTA_EXCEEDED, text)
            elif self._is_ready_for(uid):
                self._watch(connection)
            else:
                self._unready.add(connection.fd)

    def _most_connections(self) -> int:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(1, min(self._settings.lane_connections, descriptors - _RESERVED_DESCRIPTORS))

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

    def _is_full(self, connection: Connection) -> bool:
        """Whether a connection, or its user, has so much in flight that nothing more is read from it."""
        return (
            len(connection.requests) >= self._settings.lane_requests
            or connection.request_bytes >= self._settings.limits_request_bytes
            or connection.unsent_bytes >= _UNSENT_LIMIT
            or (connection.user.held_bytes >= self._settings.lane_user_bytes and not connection.may_complete())
        )

    def _expects_enough(self, connection: Connection) -> bool:
        """Whether the answers to the requests of this turn may well be as many as a connection, or its user, may have
        unread."""
        return connection.expected_bytes > 0 and (
            connection.unsent_bytes + connection.expected_bytes >= _UNSENT_LIMIT
            or connection.user.held_bytes + connection.user.expected_bytes >= self._settings.lane_user_bytes
        )

    def _recheck_full(self) -> None:
        for fd in list(self._full):
            connection = self._connections[fd]
            if not self._is_full(connection):
                self._changed[fd] = connection

    def _receive(self, connection: Connection) -> None:
        try:
            stands = not connection.reader.missing_bytes() or connection.receive()
        except FrameTooLarge as error:
            self._refuse(connection, ErrorCode.MESSAGE_TOO_LARGE, str(error))
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

    def _refuse(self, connection: Connection, code: ErrorCode, text: str) -> None:
        """Send an error of the connection, and end it."""
        self._refused += 1
        connection.ends = True
        connection.frame_since_s = None  # nothing more is read: only its end is waited for
        self._put(connection, encode_error(CommandError(code, text)))

    def _put(self, connection: Connection, frame: bytes, answer: Answer | None = None) -> None:
        connection.put(frame, time.monotonic(), answer)
        self._changed[connection.fd] = connection

    # --- frames ---------------------------------------------------------------------------------------------------

    def _read(self, connection: Connection, limit: int, requests: list[Request]) -> None:
        """Make requests of the frames that have arrived."""
        reader = connection.reader
        while not connection.ends:
            if self._is_full(connection):
                self._full.add(connection.fd)
                break
            if len(requests) >= limit or self._expects_enough(connection):
                self._unread[connection.fd] = connection
                return
            try:
                frame = connection.next_frame()
            except FrameTooLarge as error:
                self._refuse(connection, ErrorCode.MESSAGE_TOO_LARGE, str(error))
                return
            if frame is None:
                break
            if connection.client_id:
                request = self._request_of(connection, frame)
                if request:
                    requests.append(request)
                    connection.expect(connection.answer_bytes)
                    self._changed[connection.fd] = connection
            else:
                self._greet(connection, frame)
        if connection.client_id and not connection.ends:
            if not reader.held_bytes or connection.fd in self._full:
                connection.frame_since_s = None
            elif connection.frame_since_s is None:
                connection.frame_since_s = time.monotonic()
        self._watch(connection)

    def _greet(self, connection: Connection, frame: Frame) -> None:
        try:
            header = strict_loads(frame.header)
        except (ValueError, RecursionError) as error:
            self._refuse(connection, ErrorCode.PARSE_ERROR, f"JSON parse error: {error}")
            return
        hello = header.get("hello") if type(header) is dict else None
        if type(hello) is not dict or frame.body:
            self._refuse(connection, ErrorCode.INVALID_REQUEST, "the first frame must be hello")
            return
        versions, client_id = hello.get("versions"), hello.get("clientId")
        if type(versions) is not list or LANE_VERSION not in versions:
            self._refuse(connection, ErrorCode.INVALID_REQUEST, f"this daemon has version {LANE_VERSION} of the lane")
        elif not is_id(client_id):
            self._refuse(connection, ErrorCode.INVALID_REQUEST, "missing or invalid clientId")
        elif problem := self._senders.greet(connection, client_id, hello.get("door")):
            self._refuse(connection, problem.code, problem.message)
        else:
            connection.frame_since_s = None
            answer = {
                "version": LANE_VERSION,
                "daemon": _VERSION,
                "requestBytes": self._settings.limits_request_bytes,
                "requests": self._settings.lane_requests,
            }
            if self._senders.is_gateway(connection):
                answer["gateway"] = True
            self._put(connection, encode_frame(orjson.dumps({"hello": answer})))

    def _request_of(self, connection: Connection, frame: Frame) -> Request | None:
        """The request of a frame; None if it is answered, or is none."""
        try:
            wire = decode_request(frame.header, connection.client_id)
        except RequestRejected as error:
            if not self._is_cancel(connection, frame.header):
                code = ErrorCode.PARSE_ERROR if error.reason.startswith("JSON") else ErrorCode.INVALID_REQUEST
                self._refuse(connection, code, error.reason)
            return None
        if wire.request_id in connection.requests:
            problem = CommandError(ErrorCode.INVALID_REQUEST, "a request with this requestId is in flight already")
            self._put(connection, encode_error(problem, wire.request_id))
            return None
        sender = self._senders.of(connection, wire)
        refused = sender.problem or wire.problem or take_bodies(wire.command, wire.payload, frame.body)
        if refused:
            wire = wire._replace(problem=refused)
        request = Request(
            wire=wire,
            who=sender.who,
            key=None if refused else request_key(sender.who.account, _repeated(wire, sender.who.client_id, frame)),
            arrived_wall=self._clients_wall_ms,
            on_answer=lambda answer: self._respond(connection, request, answer),
            read_body=read_body,
            bytes=frame.size,
            door=self.name,
            session=connection,
            gateway_door=sender.door,
            check_deliverable=lambda: self._check_deliverable(connection),
        )
        connection.begin(request)
        return request

    def _is_cancel(self, connection: Connection, header: bytes) -> bool:
        """Whether a header is that of a cancel, which is then done."""
        try:
            fields: Any = strict_loads(header)
        except (ValueError, RecursionError):
            return False
        if type(fields) is not dict or type(fields.get("cancel")) is not str:
            return False
        request = connection.requests.get(fields["cancel"])
        if request:
            self._broker.end_wait(request)
        return True

    def _check_deliverable(self, connection: Connection) -> None:
        """Raise ``CommandError`` if a client, or its user, has so much unread that nothing more is delivered."""
        unread, held = connection.unsent_bytes, connection.user.held_bytes
        if unread > _UNDELIVERABLE or held > self._settings.lane_user_bytes:
            text = f"{unread} bytes of answers are unread on this connection, {held} by this user: read them first"
            raise CommandError(ErrorCode.QUOTA_EXCEEDED, text)

    def _respond(self, connection: Connection, request: Request, answer: Answer) -> None:
        if self._connections.get(connection.fd) is not connection:
            self._broker.return_undelivered(answer)
            return
        if answer.leases:
            try:
                self._check_deliverable(connection)
            except CommandError as error:
                self._broker.return_undelivered(answer)
                answer = Answer(error=error)
        frame = encode_answer(request.wire.request_id, answer)  # first: if it fails, the broker sends an error instead
        connection.end(request)
        self._put(connection, frame, answer)


def _repeated(wire: WireRequest, client_id: str, frame: Frame) -> bytes:
    """The bytes by which a repeat of a request is recognised."""
    data = frame.header + frame.body if frame.body else frame.header
    if not wire.has_client_id:  # another client may have sent the same bytes
        data = b"%b\0%b" % (client_id.encode(), data)
    return repeated_bytes(wire, data)
