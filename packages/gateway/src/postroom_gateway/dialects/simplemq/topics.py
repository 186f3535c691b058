"""What SimpleMQ's clients do with topics, as commands of the daemon. A topic is a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import Command, ErrorCode

from ...contract import Answer, Daemon, Principal
from .messages import Delivered, Published
from .options import Options
from .strategies import Strategy

#: The daemon says by these that a delivery is over.
_OVER: Final = frozenset((ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.LEASE_EXPIRED, ErrorCode.LEASE_MISMATCH))


class Refused(Exception):
    """The queue's policy did not accept a message. The text says why."""


class DeliveryOver(Exception):
    """A delivery was settled already, or its time is over."""


def leader_of(error: CommandError) -> str:
    """Where the node is that leads, if this one of a cluster does not; empty if it is not known."""
    return str((error.data or {}).get("address") or "")


def text_of(error: CommandError) -> str:
    """A refusal in words, with the address of the node that leads."""
    leader = leader_of(error)
    return f"{error.message}, at {leader}" if leader else error.message


class Topics:
    """The operations of all principals. They raise ``CommandError`` for what the daemon refuses, and what
    ``Daemon.request`` raises."""

    def __init__(self, daemon: Daemon, door: str, options: Options) -> None:
        self._daemon = daemon
        self._door = door
        self._options = options
        self._create_with = options.create_with()

    async def publish(self, principal: Principal, message: Published, key: str = "", trace: str = "") -> str:
        """Publish a message, and return its id. ``key`` identifies repeats of a message without an id. Raises
        ``Refused``."""
        payload = {"queue": message.topic, "bodyBytes": len(message.body), "createWith": self._create_with}
        payload |= message.fields
        if self._options.strategy_of(message.topic) is Strategy.ORDERED:
            payload["orderingKey"] = message.topic
        answer = await self._daemon.request(
            principal,
            Command.PUBLISH,
            payload,
            [message.body],
            door=self._door,
            idempotency_key=message.idempotency_key() or key,
            traceparent=trace,
        )
        if "state" in answer.data:
            raise Refused(answer.data.get("reason") or f"the message is {answer.data['state']}")
        return message.message_id or str(answer.data["messageId"])

    async def lease(self, principal: Principal, topic: str, consumer: str, most: int) -> list[Delivered]:
        """Lease the next messages of a topic, as many as are there, or wait for one, however long."""
        payload = {
            "queue": topic,
            "consumerId": consumer,
            "max": most,
            "payloadAs": "value",
            "createWith": self._create_with,
        }
        answer = await self._daemon.request(principal, Command.CONSUME_NEXT, payload, door=self._door, wait_ms=None)
        bodies = iter(answer.bodies)
        return [_delivered(one, answer.data["engineNowMs"], bodies) for one in answer.data["messages"]]

    async def ack(self, principal: Principal, delivered: Delivered) -> None:
        """Settle a delivery as done. Raises ``DeliveryOver``."""
        await self._settle(principal, Command.ACK, delivered)

    async def nack(self, principal: Principal, delivered: Delivered, reason: str, **fields: Any) -> str:
        """Settle a delivery as failed; the state of the message after that. Raises ``DeliveryOver``."""
        answer = await self._settle(principal, Command.NACK, delivered, reason=reason, requeue=True, **fields)
        return str(answer.data["state"])

    async def extend(self, principal: Principal, delivered: Delivered) -> float:
        """Let the time of a delivery begin anew; how long (s) that is. Raises ``DeliveryOver``."""
        data = (await self._settle(principal, Command.EXTEND_LEASE, delivered)).data
        return float(data["leaseUntilEngineMs"] - data["engineNowMs"]) / 1000

    async def release(self, principal: Principal, delivered: Delivered) -> None:
        """Return a message to its place, as if it had not been delivered. Raises ``DeliveryOver``."""
        await self._settle(principal, Command.RELEASE, delivered, undelivered=True)

    async def _settle(self, principal: Principal, command: Command, delivered: Delivered, **fields: Any) -> Answer:
        payload = {"messageKey": delivered.message_key, "leaseId": delivered.lease_id, **fields}
        try:
            return await self._daemon.request(principal, command, payload, door=self._door)
        except CommandError as error:
            if error.code not in _OVER:
                raise
            raise DeliveryOver(error.message) from None


def _delivered(one: Mapping[str, Any], now_ms: float, bodies: Iterator[bytes]) -> Delivered:
    message, lease = one["message"], one["lease"]
    return Delivered(
        message.get("deduplicationKey") or message["messageId"],
        lease["messageKey"],
        lease["leaseId"],
        (lease["leaseUntilEngineMs"] - now_ms) / 1000,
        b"".join([next(bodies) for _ in message.get("parts") or (message,)]),
        message,
    )
