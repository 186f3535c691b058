"""WebSocket connections of consumers and producers."""

from __future__ import annotations

from typing import Any, Final

import orjson

from postroom_common.errors import CommandError

from ...contract import DaemonUnavailable, MessagePeer
from .dispatch import Consumer, Dispatcher
from .messages import Delivered, InvalidMessage, encode_envelope, read_raw, read_tree
from .tokens import Session
from .topics import DeliveryOver, Refused, Topics

#: Requests of a consumer about a delivery.
_ACK: Final = "ACK"
_NACK: Final = "NACK"
_EXTEND: Final = "EXTEND"
_REASON_LIMIT: Final = 1000


class ConsumerSession:
    """A connection that gets the messages of a topic."""

    def __init__(self, peer: MessagePeer, session: Session, dispatcher: Dispatcher, priority: tuple[int, int]) -> None:
        self._peer = peer
        self._topic = session.topic
        self._is_acking = session.is_acking
        self._dispatcher = dispatcher
        #: The deliveries that the daemon settles now, by lease id.
        self._settling: set[str] = set()
        self._consumer = Consumer(self, peer.principal, session.client_id, priority, session.capacity)
        dispatcher.enter(self._consumer)

    # --- Sink ---------------------------------------------------------------------------------------------------------

    def push(self, delivered: Delivered) -> None:
        """As ``Sink.push``. A consumer that does not settle has the message when its side of the connection has read
        it."""
        if self._is_acking:
            self._peer.send(encode_envelope(self._topic, delivered))
            return
        self._peer.send_binary(delivered.body)
        self._dispatcher.run(self._ack_when_read(delivered))

    def timed_out(self, delivered: Delivered) -> None:
        """As ``Sink.timed_out``. A consumer that does not settle has not read the message, and what follows would only
        wait behind it."""
        if self._is_acking:
            self._say(delivered, "TIMEOUT")
            return
        self._dispatcher.leave(self._consumer, has_failed=False)
        self._peer.close("a message was not read in time")

    def dismiss(self, reason: str) -> None:
        """As ``Sink.dismiss``."""
        self._peer.close(reason)

    async def _ack_when_read(self, delivered: Delivered) -> None:
        if await self._peer.confirmed() and self._dispatcher.give(self._consumer, delivered.lease_id):
            await self._dispatcher.topics.ack(self._consumer.principal, delivered)

    # --- MessageHandler -----------------------------------------------------------------------------------------------

    def received(self, message: bytes) -> None:
        """As ``MessageHandler.received``. Of a consumer that does not settle, everything is a sign of life."""
        if not self._is_acking:
            return
        try:
            asked = _read_object(message)
            kind = asked.get("type")
            if kind == "HEARTBEAT":
                return
            if kind not in (_ACK, _NACK, _EXTEND):
                raise InvalidMessage("type must be ACK, NACK, EXTEND or HEARTBEAT")
            delivered = self._find(asked)
        except InvalidMessage as error:
            self._peer.send(orjson.dumps({"type": "ERROR", "error": str(error)}))
            return
        if kind != _EXTEND:
            self._settling.add(delivered.lease_id)
        self._peer.start(self._settle(kind, delivered, asked), len(message))

    def received_binary(self, message: bytes) -> None:
        """As ``MessageHandler.received_binary``: a sign of life."""

    def stopping(self) -> None:
        """As ``MessageHandler.stopping``."""
        self._dispatcher.leave(self._consumer, has_failed=False)

    def lost(self) -> None:
        """As ``MessageHandler.lost``."""
        self._dispatcher.leave(self._consumer)

    def _find(self, asked: dict[str, Any]) -> Delivered:
        """The delivery that a consumer means: by its id, or the first of the message with its id. Raises
        ``InvalidMessage``."""
        for delivered, _ in self._consumer.deliveries.values():
            if delivered.lease_id in self._settling:
                continue
            if asked.get("deliveryId", delivered.lease_id) == delivered.lease_id and (
                "deliveryId" in asked or asked.get("messageId") == delivered.message_id
            ):
                return delivered
        raise InvalidMessage(
            "this consumer has no such delivery: it was settled, or its time is over; deliveryId or messageId names it"
        )

    async def _settle(self, kind: str, delivered: Delivered, asked: dict[str, Any]) -> str:
        """Execute a request about a delivery. Whatever comes of ACK and NACK, the consumer has room again, and the next
        message comes behind the answer."""
        if kind == _EXTEND:
            return await self._extend(delivered)
        try:
            return await self._end(kind, delivered, asked)
        finally:
            self._settling.discard(delivered.lease_id)
            self._dispatcher.give(self._consumer, delivered.lease_id)

    async def _extend(self, delivered: Delivered) -> str:
        try:
            seconds = await self._dispatcher.topics.extend(self._consumer.principal, delivered)
        except (DeliveryOver, CommandError, DaemonUnavailable) as error:
            return self._failed(delivered, error)
        self._dispatcher.prolong(self._consumer, delivered, seconds)
        self._say(delivered, "DELIVERING", seconds=seconds)
        return "ok"

    async def _end(self, kind: str, delivered: Delivered, asked: dict[str, Any]) -> str:
        topics, principal = self._dispatcher.topics, self._consumer.principal
        try:
            if kind == _ACK:
                await topics.ack(principal, delivered)
                status = {"status": "DELIVERED"}
            else:
                reason = asked.get("reason")
                text = reason[:_REASON_LIMIT] if isinstance(reason, str) else ""
                state = await topics.nack(principal, delivered, text)
                status = {"status": "FAILED", "next": "DEAD" if state in ("dead", "dropped") else "RETRY"}
        except (DeliveryOver, CommandError, DaemonUnavailable) as error:
            return self._failed(delivered, error)
        self._say(delivered, **status)
        return "ok"

    def _failed(self, delivered: Delivered, error: Exception) -> str:
        """Tell the consumer that a delivery is over, or was not settled: then it comes again when its time is over."""
        if isinstance(error, DeliveryOver):
            self._say(delivered, "TIMEOUT")
            return "timeout"
        self._say(delivered, "DELIVERING", error=str(error))
        return "unavailable" if isinstance(error, DaemonUnavailable) else "refused"

    def _say(self, delivered: Delivered, status: str, **fields: Any) -> None:
        said = {"type": "STATUS", "messageId": delivered.message_id, "deliveryId": delivered.lease_id}
        self._peer.send(orjson.dumps({**said, "status": status, **fields}))


class ProducerSession:
    """A connection that publishes: messages as JSON, and bodies for the topic that was set."""

    def __init__(self, peer: MessagePeer, topics: Topics) -> None:
        self._peer = peer
        self._topics = topics
        self._topic = ""

    def received(self, message: bytes) -> None:
        """As ``MessageHandler.received``."""
        try:
            asked = _read_object(message)
        except InvalidMessage as error:
            self._say("ERROR", error=str(error))
            return
        if asked.get("type") == "HEARTBEAT":
            return
        if asked.get("type") == "SET_TOPIC":
            topic = asked.get("topic")
            self._topic = topic if isinstance(topic, str) else ""
            self._say("TOPIC", topic=self._topic)
            return
        self._peer.start(self._publish(asked), len(message))

    def received_binary(self, message: bytes) -> None:
        """As ``MessageHandler.received_binary``."""
        self._peer.start(self._publish(message, self._topic), len(message))

    def stopping(self) -> None:
        """As ``MessageHandler.stopping``: what is being published is answered."""

    def lost(self) -> None:
        """As ``MessageHandler.lost``."""

    async def _publish(self, given: dict[str, Any] | bytes, topic: str = "") -> str:
        own_id = given.get("messageId") if isinstance(given, dict) else None
        named = {"messageId": own_id} if isinstance(own_id, str) else {}
        try:
            message = read_raw(topic, given) if isinstance(given, bytes) else read_tree(given, self._topic)
            message_id = await self._topics.publish(self._peer.principal, message)
        except (InvalidMessage, Refused, CommandError, DaemonUnavailable) as error:
            self._say("ERROR", **named, error=str(error))
            return "unavailable" if isinstance(error, DaemonUnavailable) else "refused"
        self._say("PUBLISHED", messageId=message_id)
        return "ok"

    def _say(self, kind: str, **fields: Any) -> None:
        self._peer.send(orjson.dumps({"type": kind, **fields}))


def _read_object(message: bytes) -> dict[str, Any]:
    """A message of a client. Raises ``InvalidMessage``."""
    try:
        tree = orjson.loads(message)
    except ValueError:
        raise InvalidMessage("a message must be JSON in UTF-8") from None
    if type(tree) is not dict:
        raise InvalidMessage("a message must be an object")
    return tree
