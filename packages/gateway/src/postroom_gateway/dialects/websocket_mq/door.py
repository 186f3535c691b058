"""The door for WebSocket MQ: requests and batches of a connection, aborts, and the order in which they take effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from postroom_common.errors import CommandError, PostroomError

from ...contract import Answer, Daemon, DaemonUnavailable, MessagePeer, Ticket, WaitEnded
from .errors import RpcError, aborted, internal, unavailable, wrong_argument
from .methods import METHODS, ORDER, refusal
from .options import read_options
from .orders import Order
from .queues import Ordered, Queues, Step
from .rpc import Abort, Call, Request, encode_batch, encode_error, encode_result, read_message
from .turns import Scope, Turn, Turns
from .versions import satisfies

log = logging.getLogger(__name__)
T = TypeVar("T")

#: The version of the server whose methods these are; clients ask for a range of versions with each request.
SERVER_VERSION: Final = "0.7.4"
#: A request that is executed without a task: its id, its turn, its size in bytes, and when it began (s).
_Begun = tuple[str, Turn, int, float]
#: Most calls of a batch, and of a connection that are executed at the same time and do not wait.
_CALLS_LIMIT: Final = 1000
_AT_ONCE: Final = 256


class WebSocketMq:
    """WebSocket MQ. Raises ``ConfigurationError`` for wrong options."""

    def __init__(self, daemon: Daemon, door: str, options: Mapping[str, Any]) -> None:
        self._daemon = daemon
        self._door = door
        self.websocket = read_options(options)

    def ticket(self, path: str) -> Ticket:
        """As ``MessageDialect.ticket``: the path does not matter."""
        return Ticket()

    def connect(self, peer: MessagePeer) -> Conversation:
        """A connection was made."""
        return Conversation(peer, Queues(self._daemon, peer.principal, self._door))


class Signal:
    """Whether a request was aborted; if it is, its waits end."""

    def __init__(self) -> None:
        self._is_aborted = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def abort(self) -> None:
        """The client does not want the answer any more."""
        self._is_aborted = True
        for task in self._tasks:
            task.cancel()

    async def guard(self, wait: Coroutine[Any, Any, T]) -> T:
        """Wait for something. Raises the error of an aborted request as soon as this is one."""
        if self._is_aborted:
            wait.close()
            raise aborted()
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            return await wait
        except asyncio.CancelledError:
            if self._is_aborted and task.uncancel() == 0:
                raise aborted() from None
            raise
        finally:
            self._tasks.discard(task)


class Conversation:
    """One connection."""

    def __init__(self, peer: MessagePeer, queues: Queues) -> None:
        self._peer = peer
        self._queues = queues
        self._turns = Turns()
        self._places = asyncio.Semaphore(_AT_ONCE)
        #: The orders that are executed without a task.
        self._orders: set[Order] = set()
        #: What aborts the requests that wait.
        self._aborts: dict[str, Signal | Order] = {}

    def received(self, message: bytes) -> None:
        """As ``MessageHandler.received``."""
        asked = read_message(message)
        if asked is None:
            return
        if isinstance(asked, Abort):
            waiting = self._aborts.pop(asked.id, None)
            if waiting:  # else it was answered already: clients send such aborts after each call with a timeout
                waiting.abort()
            return
        turns = self._first_turns(asked)
        if turns and not asked.is_batch:
            call, turn = asked.calls[0], turns[0]
            method = METHODS.get(call.name)
            if method and method.step:
                begun = asked.id, turn, len(message), self._peer.begin(len(message))
                turn.when_come(partial(self._begin, begun, method.step, call.params))
                return
            if call.name == ORDER:
                order = Order(self._peer, self._queues, asked.id, len(message), self._order_ended)
                self._orders.add(order)
                self._aborts[asked.id] = order
                turn.when_come(partial(self._begin_order, order, turn, call.params))
                return
        orders = sum(call.name == ORDER for call in asked.calls)
        signal = Signal()
        if orders:
            self._aborts[asked.id] = signal
        only_waits = 0 < orders == len(asked.calls)
        self._peer.start(self._respond(asked, signal, turns), len(message), is_waiting=only_waits)

    def received_binary(self, message: bytes) -> None:
        """Binary messages are dropped."""

    def stopping(self) -> None:
        """Nothing waits for the client."""

    def lost(self) -> None:
        """As ``MessageHandler.lost``."""
        for order in list(self._orders):
            order.give_up()

    def _order_ended(self, order: Order) -> None:
        self._orders.discard(order)
        if self._aborts.get(order.request_id) is order:
            del self._aborts[order.request_id]

    def _first_turns(self, request: Request) -> list[Turn]:
        """The turns of the calls of a request, as many as are known; none if none of them will be executed. All have
        their turns before what arrives later, except those that are behind an order in a series: nobody knows when
        they begin."""
        if request.expected_version and not satisfies(SERVER_VERSION, request.expected_version):
            return []
        if not request.is_batch:
            return [self._turn(request.calls[0])]
        if len(request.calls) > _CALLS_LIMIT:
            return []
        return [self._turn(call) for call in (request.calls if request.is_parallel else _up_to_order(request.calls))]

    # --- a request that is one command: it needs no task --------------------------------------------------------------

    def _begin_order(self, order: Order, turn: Turn, params: list[Any]) -> None:
        turn.end()  # nobody waits for a wait
        if order in self._orders:  # else it was aborted before its turn
            order.begin(params)

    def _begin(self, begun: _Begun, step_of: Callable[[Queues, list[Any]], Step], params: list[Any]) -> None:
        if not self._peer.is_open:  # it has waited for its turn
            _, turn, size, began_s = begun
            turn.end()
            self._peer.end("", began_s, size)
            return
        try:
            step = step_of(self._queues, params)
        except RpcError as error:
            self._end(begun, error)
        else:
            self._queues.begin(step, partial(self._answered, begun, step))

    def _answered(self, begun: _Begun, step: Step, outcome: Answer | PostroomError) -> None:
        """The daemon has answered."""
        if isinstance(outcome, Answer):
            result: bytes | RpcError
            try:
                result = step.result(outcome)
            except Exception:
                log.exception("a request failed: %s", step.command)
                result = internal()
            self._end(begun, result)
        elif isinstance(outcome, CommandError) and self._peer.is_open:
            _, _, size, began_s = begun
            self._peer.start(self._explain(begun, step, outcome), size)
            self._peer.end("", began_s, size)
        else:
            self._end(begun, unavailable(str(outcome)))

    def _end(self, begun: _Begun, outcome: bytes | RpcError) -> None:
        request_id, turn, size, began_s = begun
        turn.end()
        answer, name = _encoded(request_id, outcome)
        self._peer.send(answer)
        self._peer.end(name, began_s, size)

    async def _explain(self, begun: _Begun, step: Step, error: CommandError) -> str:
        """Answer a request that the daemon has refused. Returns the name of the error."""
        request_id, turn, _, _ = begun
        try:
            outcome = await _settled(step.command, step.refused(error))
        finally:
            turn.end()
        answer, name = _encoded(request_id, outcome)
        self._peer.send(answer)
        return name

    # --- other requests -----------------------------------------------------------------------------------------------

    async def _respond(self, request: Request, signal: Signal, turns: list[Turn]) -> str:
        """Execute a request, and answer it. Returns ``ok``, or the name of the error."""
        ordered: list[Ordered] = []
        is_answered = False
        try:
            answer, outcome = await self._answer(request, signal, turns, ordered)
            self._peer.send(answer)
            is_answered = self._peer.is_open
            return outcome
        except WaitEnded:  # the gateway stops, and closes the connection: the client asks again
            return "ended"
        finally:
            if self._aborts.get(request.id) is signal:
                del self._aborts[request.id]
            if ordered and not is_answered:  # if this fails, they wait again when their time is over
                await asyncio.gather(*map(self._queues.return_undelivered, ordered), return_exceptions=True)

    async def _answer(
        self, request: Request, signal: Signal, turns: list[Turn], ordered: list[Ordered]
    ) -> tuple[bytes, str]:
        """The answer to a request, and what the metrics count. ``ordered`` gets what was leased for it."""
        if request.expected_version and not satisfies(SERVER_VERSION, request.expected_version):
            text = (
                f'The expected version is "{request.expected_version}", but the server version is "{SERVER_VERSION}".'
            )
            return encode_error(request.id, RpcError("VersionMismatch", text)), "VersionMismatch"
        if request.is_batch:
            if len(request.calls) > _CALLS_LIMIT:
                error = wrong_argument(f"A batch has at most {_CALLS_LIMIT} requests.")
                return encode_error(request.id, error), error.name
            return encode_batch(request.id, await self._outcomes(request, signal, turns, ordered)), "ok"
        return _encoded(request.id, await self._outcome(request.calls[0], turns[0], signal, ordered))

    async def _outcomes(
        self, request: Request, signal: Signal, turns: list[Turn], ordered: list[Ordered]
    ) -> list[bytes | RpcError]:
        """What becomes of the calls of a batch."""
        outcomes: list[bytes | RpcError] = []
        try:
            if request.is_parallel:
                work = [self._outcome(*one, signal, ordered) for one in zip(request.calls, turns, strict=True)]
                for outcome in await asyncio.gather(*work, return_exceptions=True):
                    if not isinstance(outcome, (bytes, RpcError)):
                        raise outcome
                    outcomes.append(outcome)
                return outcomes
            for number, call in enumerate(request.calls):
                if number == len(turns):
                    turns += map(self._turn, _up_to_order(request.calls[number:]))
                outcomes.append(await self._outcome(call, turns[number], signal, ordered))
            return outcomes
        finally:
            for turn in turns:
                turn.end()

    def _turn(self, call: Call) -> Turn:
        method = METHODS.get(call.name)
        return self._turns.take(method.scope(call.params) if method else Scope(object()))

    async def _outcome(self, call: Call, turn: Turn, signal: Signal, ordered: list[Ordered]) -> bytes | RpcError:
        """What becomes of a call: its result as JSON, or its error."""
        result = await _settled(call.name, self._execute(call, turn, signal))
        if isinstance(result, Ordered):
            ordered.append(result)
            return result.encoded()
        return result

    async def _execute(self, call: Call, turn: Turn, signal: Signal) -> bytes | Ordered:
        """Execute a call when its turn has come."""
        async with turn:
            method = METHODS.get(call.name)
            if method is None:
                raise RpcError("MethodNotAvailable", "The method is not available.")
            if call.name == ORDER:
                turn.end()  # nobody waits for a wait
                return await signal.guard(method.run(self._queues, call.params))
            async with self._places:
                return await method.run(self._queues, call.params)


async def _settled(name: str, work: Coroutine[Any, Any, T]) -> T | RpcError:
    """What work for a method returns, or the error that the client gets. Raises ``WaitEnded``."""
    try:
        return await work
    except RpcError as error:
        return error
    except CommandError as error:
        return refusal(error)
    except WaitEnded:
        raise
    except DaemonUnavailable as error:
        return unavailable(str(error))
    except Exception:
        log.exception("a request failed: %s", name)
        return internal()


def _encoded(request_id: str, outcome: bytes | RpcError) -> tuple[bytes, str]:
    """The answer to a request, and what the metrics count."""
    if isinstance(outcome, RpcError):
        return encode_error(request_id, outcome), outcome.name
    return encode_result(request_id, outcome), "ok"


def _up_to_order(calls: Sequence[Call]) -> Sequence[Call]:
    """The calls up to the first order, and that."""
    end = next((number for number, call in enumerate(calls, 1) if call.name == ORDER), len(calls))
    return calls[:end]
