"""One connection of a client: requests that are executed one after the other, and the stream that one of them may
begin."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from postroom_common.errors import CommandError, PostroomError

from ...contract import DaemonUnavailable, Peer, WaitEnded
from . import texts
from .codec import ALIVE, OK, SUB_END, Op, Request, RequestReader, encode_error, encode_json
from .options import Options
from .replica import Replica
from .subscription import Subscribers, Subscription, SubscriptionLost, Terms
from .texts import Refused, TopicGone, refusal
from .topics import Topics

#: What a browser begins with (GET, POST, HEAD, OPTIONS): a page could hide requests in what it posts. These are no
#: commands.
_HTTP: Final = (b"G", b"P", b"H", b"O")
#: Used for every request, and slow to look up in its class.
_PUB: Final = int(Op.PUB)


class Conversation:
    """One connection."""

    def __init__(self, peer: Peer, topics: Topics, subscribers: Subscribers, options: Options) -> None:
        self._peer = peer
        self._topics = topics
        self._subscribers = subscribers
        self._options = options
        self._requests = RequestReader(options.payload_bytes)
        self._is_new = True
        self._is_busy = False
        self._publishing = (0.0, 0)  # when the publish that is under way began, and its size
        self._subscription: Subscription | None = None
        self._is_replica = False
        self._is_stopping = False

    # --- StreamHandler ------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """As ``StreamHandler.received``."""
        if self._is_new:
            self._is_new = False
            if data.startswith(_HTTP):
                raise ValueError("it speaks HTTP")
        if self._is_replica:
            return  # slaves send acks that nobody needs
        if self._subscription:
            data = self._subscription.received(data)
            if self._subscription.has_ended:
                self._subscription = None
            if not data:
                return
        self._requests.feed(data)
        if self._is_busy:
            self._peer.pause()  # what comes is for later
        else:
            self._advance()

    def stopping(self) -> None:
        """As ``StreamHandler.stopping``. Clients connect again, and go on where they were: one that reads slowly is not
        waited for."""
        self._is_stopping = True
        if self._subscription or self._is_replica:
            self._peer.abort()

    def closing(self) -> None:
        """Nothing is said to the client."""

    def lost(self) -> None:
        """There is nothing to end: the task of a request is cancelled."""

    # --- requests -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start the next request, if it is complete."""
        requests = self._requests
        request = requests.next()
        if request is None:
            if requests.is_dropping:
                self._peer.expect(0)  # each piece has its own time; nothing is kept
            self._peer.expect(1 if requests.is_dropping else requests.buffered_bytes)
            return
        self._peer.expect(0)
        self._is_busy = True
        refused: Refused | None = None
        if request.op == _PUB and not request.fault:
            try:
                self._publish(request)
                return
            except Refused as error:
                refused = error
        work = self._execute(request, refused)
        self._peer.start(work, request.size, is_waiting=request.op in (Op.SUB, Op.REPLICA))

    def _publish(self, request: Request) -> None:
        """Begin to publish, which needs no task. Raises ``Refused``."""
        self._topics.publish(request.topic, request.payload, self._published)
        self._publishing = self._peer.begin(request.size), request.size

    def _published(self, error: PostroomError | None) -> None:
        """Answer a publish, whose outcome is there, and go on."""
        outcome = "ok"
        if error is None:
            self._peer.write(OK)
        elif isinstance(error, CommandError):
            refused = refusal(error)
            outcome = refused.kind
            self._peer.write(encode_error(refused.text))
        else:
            outcome = "unavailable"
            self._peer.write(encode_error(str(error)))
        began_s, size = self._publishing
        self._go_on()
        self._peer.end(outcome, began_s, size)

    async def _execute(self, request: Request, refused: Refused | None) -> str:
        """Execute a request, and answer it. Returns ``ok``, or the kind of error."""
        outcome = "ok"
        try:
            if refused:
                raise refused
            if request.op == Op.SUB:
                await self._stream(request)
            elif request.op == Op.REPLICA:
                await self._replicate(request)
            else:
                self._peer.write(await self._answer(request))
        except Refused as refused:
            outcome = refused.kind
            self._peer.write(encode_error(refused.text))
        except DaemonUnavailable as error:
            outcome = "unavailable"
            self._peer.write(encode_error(str(error)))
        except SubscriptionLost:
            outcome = "no_ack"
            self._peer.close()
        except WaitEnded:  # the gateway stops: the client connects again
            outcome = "ended"
            self._peer.close()
        self._subscription = None
        if self._is_replica:
            self._peer.close()  # its acks may be on their way
        else:
            self._go_on()
        return outcome

    def _go_on(self) -> None:
        """A request is answered: start the next one."""
        self._is_busy = False
        if self._peer.is_open:
            self._advance()
            if not self._is_busy:
                self._peer.resume()

    async def _answer(self, request: Request) -> bytes:
        """The response to a request. Raises ``Refused``."""
        if request.fault:
            raise Refused(request.fault, "too_large")
        answer = _ANSWERS.get(request.op)
        if answer is None:
            raise Refused(texts.NOT_SUPPORTED, "not_supported")
        return await answer(self._topics, request)

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> None:
        """Push what a client subscribes to. Raises ``Refused`` if it cannot, or can no longer; ``SubscriptionLost``."""
        if request.fault:
            raise Refused(request.fault, "too_large")
        topic, who = request.topic, request.payload
        terms = Terms(topic, who, request.number, request.batch, request.ack_timeout_ns)
        subscription = Subscription(self._peer, self._topics, terms, self._options.alive_seconds)
        await subscription.start()
        self._check_stopping()
        self._subscribers.enter(topic, who)
        try:
            if self._requests.buffered_bytes:  # they came behind the request
                raise SubscriptionLost
            self._subscription = subscription
            self._peer.resume()  # for its acks, if it had not waited for the end of the request before
            await subscription.run()
        except TopicGone:
            self._subscription = None
            self._peer.write(SUB_END)
        finally:
            self._subscribers.leave(topic, who)

    def _check_stopping(self) -> None:
        """Raise ``WaitEnded`` if the gateway stops: a stream that begins now would hold it up."""
        if self._is_stopping:
            raise WaitEnded

    async def _replicate(self, request: Request) -> None:
        """Write the records of all topics, for ever. Raises ``Refused`` if it cannot, or can no longer."""
        replica = Replica(self._peer, self._topics, request.number, self._options.alive_seconds)
        await replica.start()
        self._check_stopping()
        self._is_replica = True
        self._peer.resume()
        await replica.run()


async def _create(topics: Topics, request: Request) -> bytes:
    await topics.create(request.topic, request.number)
    return OK


async def _delete(topics: Topics, request: Request) -> bytes:
    await topics.delete(request.topic)
    return OK


async def _publish_later(topics: Topics, request: Request) -> bytes:
    await topics.publish_later(request.topic, request.payload, request.number)
    return OK


async def _alive(topics: Topics, request: Request) -> bytes:
    return ALIVE


async def _info(topics: Topics, request: Request) -> bytes:
    return encode_json(await topics.info(request.topic))


async def _list(topics: Topics, request: Request) -> bytes:
    return encode_json(await topics.list_topics(request.number))


_ANSWERS: Final[dict[int, Callable[[Topics, Request], Coroutine[Any, Any, bytes]]]] = {
    Op.CREATE: _create,
    Op.DELETE: _delete,
    Op.DELAY: _publish_later,
    Op.ALIVE: _alive,
    Op.INFO: _info,
    Op.VALID_LIST: _list,
    Op.LIST: _list,
}
