"""One connection to the daemon that is made again whenever it breaks, and the requests that are in flight on it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

import orjson

from postroom_common.errors import CommandError, PostroomError
from postroom_common.lane import PREFIX_BYTES, Frame, FrameReader, FrameTooLarge, encode_frame
from postroom_common.protocol import LANE_VERSION, REQUEST_BYTES_CEILING, REQUEST_BYTES_DEFAULT, ErrorCode

from ..contract import DaemonUnavailable
from ..writing import JoinedWriter

log = logging.getLogger(__name__)

#: Time (s) for a connection to be made, hello included.
_CONNECT_S: Final = 5.0
#: Time (s) before the first attempt to connect again, and the longest; each is shortened at random.
_BACKOFF_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
#: A wait that is sent so soon (s) after it was asked for may last longer by that.
_SOON_S: Final = 2.0
#: Longest path of a UNIX socket, in bytes.
_PATH_LIMIT: Final = 107
#: Requests that a connection may have in flight, if the daemon says nothing else.
REQUESTS_DEFAULT: Final = 256
NO_GATEWAY: Final = "the daemon accepts no requests for others from this user: add it to the daemon's gateway.users"


class Waiter(Protocol):
    """What gets an answer or an error: a future, or what calls somebody."""

    def done(self) -> bool: ...
    def set_result(self, result: tuple[dict[str, Any], bytes], /) -> None: ...
    def set_exception(self, exception: PostroomError, /) -> None: ...


class Pending:
    """A request that has no answer yet, with the bytes that are sent again if the connection breaks."""

    #: When its wait for a message ends, by the loop's clock; 0: it does not wait.
    until_s = 0.0
    #: Until when its client waits, which may ask for several such waits; 0: it does not wait.
    waits_until_s = 0.0
    #: Nobody waits for the answer any more. It is awaited only because it may contain a lease.
    is_abandoned = False
    #: Whether the daemon may have got it, and whether once before.
    is_sent = False
    is_sent_again = False
    on_late: Callable[[dict[str, Any]], None] | None = None
    #: The header of an answer that has come after its wait was ended, and before who waited noticed it.
    missed: dict[str, Any] | None = None

    def __init__(self, request_id: str, frame: bytes, future: Waiter, now_s: float) -> None:
        self.request_id = request_id
        self.frame = frame
        self.future = future
        self.since_s = now_s


class Greeting:
    """What the daemon said in its hello."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.daemon = str(fields.get("daemon", ""))
        self.request_bytes = int(fields.get("requestBytes", REQUEST_BYTES_DEFAULT))
        self.requests = int(fields.get("requests", REQUESTS_DEFAULT))
        #: Whether the daemon accepts requests for others (``gateway.users``).
        self.is_gateway = fields.get("gateway") is True


class Link(asyncio.Protocol):
    """A connection to the socket at ``path``. ``on_answer`` gets the request, the header of its answer and the body."""

    def __init__(self, path: Path, client_id: str, on_answer: Callable[[Pending, dict[str, Any], bytes], None]) -> None:
        self._path = path
        self._client_id = client_id
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writer: JoinedWriter | None = None
        self._reader = FrameReader(REQUEST_BYTES_DEFAULT)
        self._greeted: asyncio.Future[Greeting] | None = None
        self._lost: asyncio.Future[None] | None = None
        self.in_flight: dict[str, Pending] = {}
        self.greeting: Greeting | None = None
        #: Why there is no connection: a sentence, empty if there is one.
        self.problem = "the connection has not been made yet"
        self.connections = 0
        #: When the connection was made or broke, by the loop's clock.
        self.changed_s = self._loop.time()
        self._is_renewed = False
        self._task = self._loop.create_task(self._keep_connected())

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self.greeting is not None

    def send(self, pending: Pending) -> None:
        """Send a request now, or as soon as there is a connection."""
        if not self.greeting or not self._writer:
            self.in_flight[pending.request_id] = pending
        elif _may_pass(pending, self.greeting):
            self.in_flight[pending.request_id] = pending
            pending.is_sent = True
            self._writer.write(pending.frame)

    def cancel(self, pending: Pending) -> None:
        """End the wait of a request."""
        if self.greeting and self._writer:
            self._writer.write(_cancel_frame(pending))

    def renew(self) -> None:
        """Connect again, to learn whether the daemon's answer to hello has changed, unless somebody waits for an
        answer."""
        if self._transport and all(pending.is_abandoned for pending in self.in_flight.values()):
            self._is_renewed = True
            self._close()

    async def close(self) -> None:
        """Close the connection, after what was written."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._close()

    def _close(self) -> None:
        if self._transport and self._writer:
            self._writer.flush()
            self._transport.close()

    # --- the connection -----------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        backoff_s = _BACKOFF_S
        while True:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    self.greeting = await self._connect()
            except OSError as error:
                self._note(_sentence(error, self._path))
                if self._transport:
                    self._transport.abort()
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(backoff_s * 2, _BACKOFF_LIMIT_S)
                continue
            if not self._is_renewed:
                self._note("")
                self.connections += 1
            self._is_renewed = False
            self._send_again()
            assert self._lost
            connected_s = self._loop.time()
            await self._lost
            if self._is_renewed:
                continue
            self._note("the connection to the daemon has broken")
            if self._loop.time() - connected_s > 1.0:
                backoff_s = _BACKOFF_S
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))

    async def _connect(self) -> Greeting:
        self._reader = FrameReader(2 * REQUEST_BYTES_CEILING)
        self._greeted, self._lost = self._loop.create_future(), self._loop.create_future()
        if len(os.fsencode(self._path)) <= _PATH_LIMIT:
            await self._loop.create_unix_connection(lambda: self, str(self._path))
        else:
            directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                path = f"/proc/self/fd/{directory}/{self._path.name}"
                await self._loop.create_unix_connection(lambda: self, path)
            finally:
                os.close(directory)
        assert self._writer
        hello = {"hello": {"versions": [LANE_VERSION], "clientId": self._client_id}}
        self._writer.write(encode_frame(orjson.dumps(hello)))
        return await self._greeted

    def _send_again(self) -> None:
        """Send what has no answer, in the same order. The daemon executes none of it twice."""
        assert self._writer
        assert self.greeting
        now_s = self.changed_s = self._loop.time()
        for pending in list(self.in_flight.values()):
            if not _may_pass(pending, self.greeting):
                del self.in_flight[pending.request_id]
                continue
            pending.is_sent, pending.is_sent_again = True, pending.is_sent
            self._writer.write(pending.frame)
            if pending.is_abandoned or 0 < pending.until_s <= now_s:
                self._writer.write(_cancel_frame(pending))
            elif pending.until_s and (pending.is_sent_again or now_s > pending.since_s + _SOON_S):
                # The daemon counts the wait from now on.
                self._loop.call_later(pending.until_s - now_s, self.cancel, pending)

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("no connection to the daemon: %s", problem)
        elif not problem:
            log.info("connected to the daemon at %s", self._path)
        self.problem = problem

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what loops make is none by its class
        self._writer = JoinedWriter(self._transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while frame := self._reader.next():
                self._take(frame)
        except (FrameTooLarge, ValueError, KeyError, TypeError) as error:
            log.error("the daemon sent what is no answer: %s", error)
            if self._transport:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._writer = None
        if self.greeting:
            self.changed_s = self._loop.time()
        self.greeting = None
        if self._greeted and not self._greeted.done():
            self._greeted.set_exception(ConnectionError("the daemon closed the connection"))
            self._greeted.exception()  # nobody may wait for it any more
        if self._lost and not self._lost.done():
            self._lost.set_result(None)

    def _take(self, frame: Frame) -> None:
        header = orjson.loads(frame.header)
        request_id = header.get("requestId")
        if request_id is not None:
            pending = self.in_flight.pop(request_id, None)
            if pending:
                self._on_answer(pending, header, frame.body)
        elif "hello" in header and self._greeted and not self._greeted.done():
            self._greeted.set_result(Greeting(header["hello"]))
        elif "error" in header:
            text = f"the daemon refused the connection: {header['error']['message']}"
            if self._greeted and not self._greeted.done():
                self._greeted.set_exception(ConnectionError(text))
            else:
                log.error("%s", text)


def _may_pass(pending: Pending, greeting: Greeting) -> bool:
    """Whether the daemon reads a request; if not, it gets its answer here. The daemon would end the connection for one
    that is too large, with all that others have in flight on it."""
    size = len(pending.frame) - PREFIX_BYTES
    error: PostroomError
    if not greeting.is_gateway:
        error = DaemonUnavailable(NO_GATEWAY)
    elif size > greeting.request_bytes:
        text = f"the request has {size:,} bytes; the daemon's limit (limits.requestBytes) is {greeting.request_bytes:,}"
        error = CommandError(ErrorCode.MESSAGE_TOO_LARGE, text)
    else:
        return True
    if not pending.future.done():
        pending.future.set_exception(error)
    return False


def _cancel_frame(pending: Pending) -> bytes:
    return encode_frame(orjson.dumps({"cancel": pending.request_id}))


def _sentence(error: BaseException, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no socket {path}: is the daemon running, and is its lane enabled?"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens at {path}: is the daemon running?"
    if isinstance(error, PermissionError):
        return f"no permission to connect to {path}: the gateway's user must be in the group of the mailbox"
    if isinstance(error, TimeoutError):
        return f"the daemon did not answer at {path} within {_CONNECT_S:.0f} s"
    return str(error)
