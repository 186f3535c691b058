"""Requests to the daemon, for any principal: sent over a few connections, executed once, cancelled if nobody waits."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final

import orjson

from postroom_common.errors import CommandError, PostroomError
from postroom_common.lane import encode_frame
from postroom_common.protocol import WAIT_MS_LIMIT, Command, ErrorCode

from ..contract import Answer, DaemonUnavailable, Principal, WaitEnded
from .link import NO_GATEWAY, REQUESTS_DEFAULT, Link, Pending

log = logging.getLogger(__name__)

#: Requests that a connection has in flight beside as many as the daemon reads: cancels and settlements must pass.
_SPARE: Final = 8
#: How often (s) a daemon that does not accept the gateway is asked whether it does now.
_RENEW_S: Final = 2.0
#: Commands that may wait.
_WAITING: Final = (Command.CONSUME_NEXT, Command.READ)
#: A newer daemon may have more.
_CODES: Final = {code.value: code for code in ErrorCode}


class Lane:
    """The daemon behind the socket at ``path``. Make it in a running loop.

    A request waits at most ``patience_s`` for a connection, or as long as its own wait for a message; and ``answer_s``
    for an answer, beyond that wait. Waits have connections of their own, because a connection may have only so many
    requests in flight.
    """

    def __init__(self, path: Path, client_id: str, patience_s: float, answer_s: float, waiting_limit: int) -> None:
        self._path = path
        self._client_id = client_id
        self._patience_s = patience_s
        self._answer_s = answer_s
        self._loop = asyncio.get_running_loop()
        self._ids = count(1)
        self._prefix = f"gw-{os.urandom(6).hex()}-"
        self._first = self._link()
        self._for_waits: list[Link] = []
        self._waits: dict[str, tuple[Link, Pending]] = {}
        self._is_stopping = False
        #: How many requests may wait for a message.
        self.waiting_limit = waiting_limit
        self._renewed_s = 0.0
        self._link_requests = REQUESTS_DEFAULT
        self.requests = 0
        self.returned_leases = 0

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        bodies: Sequence[bytes] = (),
        *,
        door: str,
        wait_ms: int | None = 0,
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> Answer:
        """As ``Daemon.request``."""
        envelope: dict[str, Any] = {"command": command, "as": principal.account, "door": door, "payload": payload}
        if idempotency_key:
            envelope["idempotencyKey"] = idempotency_key
        if traceparent:
            envelope["traceparent"] = traceparent
        if wait_ms != 0:
            return await self._wait(envelope, wait_ms)
        return await self._exchange(self._first, self._pending(envelope, bodies), envelope)

    def ask(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        bodies: Sequence[bytes],
        then: Callable[[Answer | PostroomError], None],
        *,
        door: str,
    ) -> None:
        """As ``Daemon.ask``."""
        envelope = {"command": command, "as": principal.account, "door": door, "payload": payload}
        try:
            pending = self._pending(envelope, bodies, _Call(then))
        except CommandError as error:
            then(error)
        else:
            self._first.send(pending)

    def ask_waiting(
        self,
        principal: Principal,
        command: str,
        payload: dict[str, Any],
        then: Callable[[Answer | PostroomError], None],
        *,
        door: str,
    ) -> Callable[[], None]:
        """As ``Daemon.ask_waiting``."""
        envelope = {"command": command, "as": principal.account, "door": door}
        payload = {**payload, "waitMs": WAIT_MS_LIMIT}
        link, pending = self._first, _NOTHING

        def give_up() -> None:
            if self._waits.pop(pending.request_id, None):
                pending.future = _Call(_ignore)
                self._abandon(link, pending, envelope)

        def answered(outcome: Answer | PostroomError) -> None:
            del self._waits[pending.request_id]
            if isinstance(outcome, Answer):
                if outcome.data.get("message"):
                    then(outcome)
                else:
                    begin()
            elif isinstance(outcome, CommandError):
                # A repeated request whose lease was returned, because the first answer could not be delivered.
                if outcome.code == ErrorCode.LEASE_EXPIRED and pending.is_sent_again:
                    begin()
                else:
                    then(outcome)
            else:
                pending.future = _Call(_ignore)
                self._abandon(link, pending, envelope)
                then(WaitEnded("the gateway stops") if self._is_stopping else outcome)

        def begin() -> None:
            nonlocal link, pending
            if self._is_stopping:
                then(WaitEnded("the gateway stops"))
                return
            link = self._link_for_wait()
            pending = self._pending({**envelope, "payload": payload}, (), _Call(answered))
            pending.until_s = pending.since_s + WAIT_MS_LIMIT / 1000
            pending.waits_until_s = inf
            self._waits[pending.request_id] = (link, pending)
            link.send(pending)

        if len(self._waits) >= self.waiting_limit:
            then(self._too_many_waits())
        else:
            begin()
        return give_up

    def _too_many_waits(self) -> DaemonUnavailable:
        return DaemonUnavailable(f"{len(self._waits)} requests wait for a message already: try again later")

    async def _wait(self, envelope: dict[str, Any], wait_ms: int | None) -> Answer:
        """The answer to a request that may wait for a message (None: for ever), asked for in as many steps as the
        daemon's limit of one wait needs. While there is no daemon, it waits on for that."""
        if len(self._waits) >= self.waiting_limit:
            raise self._too_many_waits()
        left_ms = inf if wait_ms is None else wait_ms
        until_s = self._loop.time() + left_ms / 1000
        while True:
            if self._is_stopping:
                raise WaitEnded("the gateway stops")
            step_ms = int(min(left_ms, WAIT_MS_LIMIT))
            step = {**envelope, "payload": {**envelope["payload"], "waitMs": step_ms}}
            link = self._link_for_wait()
            pending = self._pending(step)
            pending.until_s = self._loop.time() + step_ms / 1000
            pending.waits_until_s = until_s
            self._waits[pending.request_id] = (link, pending)
            try:
                answer = await self._exchange(link, pending, step)
            except CommandError as error:
                # A repeated request whose lease was returned, because the first answer could not be delivered.
                if error.code != ErrorCode.LEASE_EXPIRED or not pending.is_sent_again:
                    raise
            except DaemonUnavailable:
                if self._is_stopping:
                    raise WaitEnded("the gateway stops") from None
                raise
            else:
                data = answer.data
                has_come = data.get("message") or data.get("messages") or data.get("count")
                if has_come or (step_ms == left_ms and not self._is_stopping):
                    return answer
            finally:
                self._waits.pop(pending.request_id, None)
            left_ms = max(0, round((until_s - self._loop.time()) * 1000)) if until_s < inf else inf

    def _pending(self, envelope: dict[str, Any], bodies: Sequence[bytes] = (), call: _Call | None = None) -> Pending:
        request_id = f"{self._prefix}{next(self._ids)}"
        try:
            header = orjson.dumps({"requestId": request_id, **envelope})
        except orjson.JSONEncodeError as error:  # such as an integer of more than 64 bits
            raise CommandError(ErrorCode.INVALID_REQUEST, f"a value cannot be sent to the daemon: {error}") from None
        frame = encode_frame(header, b"".join(bodies) if bodies else b"")
        self.requests += 1
        return Pending(request_id, frame, call or self._loop.create_future(), self._loop.time())

    async def _exchange(self, link: Link, pending: Pending, envelope: dict[str, Any]) -> Answer:
        link.send(pending)
        assert isinstance(pending.future, asyncio.Future)
        try:
            header, body = await pending.future
        except asyncio.CancelledError:
            self._abandon(link, pending, envelope)
            raise
        except DaemonUnavailable:
            link.in_flight.pop(pending.request_id, None)
            self._abandon(link, pending, envelope)
            raise
        outcome = _outcome(header, body)
        if isinstance(outcome, CommandError):
            raise outcome
        return outcome

    def _on_answer(self, pending: Pending, header: dict[str, Any], body: bytes) -> None:
        if pending.on_late:
            pending.on_late(header)
        elif type(pending.future) is _Call or not pending.future.done():
            pending.future.set_result((header, body))
        else:
            pending.missed = header

    # --- what nobody waits for any more -------------------------------------------------------------------------------

    def _abandon(self, link: Link, pending: Pending, envelope: dict[str, Any]) -> None:
        """Nobody waits for the answer any more: end the wait of the request, and return a lease that it gets, for which
        its answer is awaited once more as long as an answer may take. A ``read`` gets none."""
        if envelope["command"] not in _WAITING:
            return
        future = pending.future
        if isinstance(future, asyncio.Future) and future.done() and not future.cancelled() and not future.exception():
            pending.missed = future.result()[0]
        if pending.missed:
            self._return_undelivered(pending.missed, envelope)
            return
        if not pending.is_sent:
            link.in_flight.pop(pending.request_id, None)
            return
        link.in_flight[pending.request_id] = pending
        pending.is_abandoned = True
        pending.since_s, pending.until_s, pending.waits_until_s = self._loop.time(), 0.0, 0.0
        pending.on_late = lambda header: self._return_undelivered(header, envelope)
        link.cancel(pending)

    def _return_undelivered(self, header: dict[str, Any], envelope: dict[str, Any]) -> None:
        """Return what an answer to ``consume_next`` leased: to its place, and the delivery does not count."""
        data = header.get("data") or {}
        for delivery in data.get("messages") or [data]:
            if not delivery.get("lease"):
                continue
            self.returned_leases += 1
            lease = delivery["lease"]
            payload = {"messageKey": lease["messageKey"], "leaseId": lease["leaseId"], "undelivered": True}
            released = {"as": envelope["as"], "door": envelope["door"], "command": Command.RELEASE, "payload": payload}
            self._first.send(self._pending(released, (), _Call(_ignore)))  # nobody waits for this answer

    # --- connections --------------------------------------------------------------------------------------------------

    def _link(self) -> Link:
        return Link(self._path, self._client_id, self._on_answer)

    def _link_for_wait(self) -> Link:
        if self._first.greeting:
            self._link_requests = self._first.greeting.requests
        limit = max(1, self._link_requests - _SPARE)
        for link in self._for_waits:
            if len(link.in_flight) < limit:
                return link
        self._for_waits.append(self._link())
        return self._for_waits[-1]

    @property
    def problem(self) -> str:
        """Why the daemon cannot be asked now: a sentence, empty if it can."""
        greeting = self._first.greeting
        if not greeting:
            return self._first.problem
        if not greeting.is_gateway:
            return NO_GATEWAY
        return ""

    @property
    def daemon(self) -> str:
        """The version of the daemon; empty if there is no connection."""
        return self._first.greeting.daemon if self._first.greeting else ""

    @property
    def request_bytes(self) -> int:
        """The largest request (bytes of header and bodies) that the daemon reads; 0 if there is no connection."""
        return self._first.greeting.request_bytes if self._first.greeting else 0

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a message."""
        return len(self._waits)

    @property
    def in_flight(self) -> int:
        """Number of requests that have no answer yet."""
        return sum(len(link.in_flight) for link in (self._first, *self._for_waits))

    @property
    def reconnections(self) -> int:
        """How often a connection was made again."""
        return sum(max(0, link.connections - 1) for link in (self._first, *self._for_waits))

    async def until_connected(self, seconds: float) -> bool:
        """Wait for the first connection; whether there is one."""
        until_s = self._loop.time() + seconds
        while not self._first.is_up and self._loop.time() < until_s:
            await asyncio.sleep(0.02)
        return self._first.is_up

    def tick(self) -> None:
        """Give up requests that have waited too long. Called about once a second."""
        now_s = self._loop.time()
        if self._first.greeting and not self._first.greeting.is_gateway and now_s >= self._renewed_s + _RENEW_S:
            self._renewed_s = now_s
            self._first.renew()
        for link in (self._first, *self._for_waits):
            for pending in list(link.in_flight.values()):
                if link.is_up:
                    late_s = max(pending.since_s, pending.until_s, link.changed_s) + self._answer_s
                else:
                    late_s = max(pending.since_s + self._patience_s, pending.waits_until_s)
                if now_s < late_s or (pending.is_abandoned and not link.is_up):
                    continue  # an abandoned one is sent again once there is a connection: it may have got a lease
                if pending.future.done() or isinstance(pending.future, _Call):
                    del link.in_flight[pending.request_id]
                if not pending.future.done():  # who waits for it takes it out
                    text = link.problem or f"the daemon did not answer within {self._answer_s:.0f} s"
                    pending.future.set_exception(DaemonUnavailable(text))

    def end_waits(self) -> None:
        """From now on no request waits for a message, and those that do are ended."""
        self._is_stopping = True
        for link, pending in self._waits.values():
            pending.until_s = pending.waits_until_s = self._loop.time()
            link.cancel(pending)

    async def close(self, seconds: float) -> None:
        """Wait for the answers that are missing, for some seconds at most, and close the connections."""
        until_s = self._loop.time() + seconds
        while self.in_flight and self._first.is_up and self._loop.time() < until_s:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(link.close() for link in (self._first, *self._for_waits)))


class _Call:
    """What is called with the outcome of a request. Stands where others have a future."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Answer | PostroomError], None]) -> None:
        self._then: Callable[[Answer | PostroomError], None] | None = then

    def done(self) -> bool:
        """Whether it was called."""
        return self._then is None

    def set_result(self, answer: tuple[dict[str, Any], bytes]) -> None:
        """Call it with an answer of the daemon."""
        self.set_exception(_outcome(*answer))

    def set_exception(self, outcome: Answer | PostroomError) -> None:
        """Call it with an outcome, such as an error."""
        then, self._then = self._then, None
        if then:
            try:
                then(outcome)
            except Exception:  # the connection to the daemon goes on
                log.exception("an answer of the daemon could not be passed on")


def _ignore(outcome: Answer | PostroomError) -> None:
    """Nobody is interested."""


#: Stands where nothing was sent.
_NOTHING: Final = Pending("", b"", _Call(_ignore), 0.0)


def _outcome(header: dict[str, Any], body: bytes) -> Answer | CommandError:
    """What an answer says."""
    if header["ok"]:
        data = header["data"]
        return Answer(data, _cut(data, body))
    return _error(header)


def _error(header: dict[str, Any]) -> CommandError:
    code, message = header["error"]["code"], header["error"]["message"]
    known = _CODES.get(code)
    if known is None:
        return CommandError(ErrorCode.INTERNAL_ERROR, f"{code}: {message}")
    return CommandError(known, message, header["error"].get("data"))


def _cut(data: dict[str, Any], body: bytes) -> list[bytes]:
    """The bodies that an answer describes; a body may be empty."""
    if "rawBytes" in data:
        return [body]
    bodies: list[bytes] = []
    start = 0
    message = data.get("message")
    for one in [message] if message else data.get("messages", ()):
        shown = one.get("message") or one  # a delivery has its message inside
        for part in shown.get("parts") or (shown,):
            size = part.get("bodyBytes")
            if size is not None:
                bodies.append(body[start : start + size])
                start += size
    return bodies
