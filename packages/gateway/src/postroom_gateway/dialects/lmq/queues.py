"""What LMQ's clients do with queues, as commands of the daemon. Both doors use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.protocol import Command, ErrorCode

from ...contract import Answer, Daemon, Principal
from . import properties as properties_
from .answers import Part, Pulled
from .options import Options
from .parameters import Reply
from .properties import Properties
from .statistics import QueueFigures

#: The daemon says by these that no message is leased with an id, or no longer.
_NOT_LEASED: Final = frozenset((ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.LEASE_EXPIRED, ErrorCode.LEASE_MISMATCH))
#: Content types of bodies that other consumers of the queue get as text, if they are UTF-8.
_TEXTS: Final = ("text/", "application/json")
#: Content types that LMQ's clients get of bodies that were published without one, by encoding.
_TYPES: Final = {"json": "application/json", "text": "text/plain; charset=utf-8"}
#: Number of queues on a page.
_PAGE: Final = 1000


class QueueNotFound(Exception):
    """The queue does not exist."""


class DeliveryNotFound(Exception):
    """No message of the queue is leased with this id: it was settled, or its lease has ended."""


class Target(NamedTuple):
    """One queue by its name, or all that match a regular expression."""

    name: str
    is_pattern: bool = False

    def fields(self) -> dict[str, Any]:
        """The fields of a payload that name the target."""
        return {"queuePattern" if self.is_pattern else "queue": self.name}


class Queues:
    """The operations of one principal. They raise ``CommandError`` for what the daemon refuses, and what
    ``Daemon.request`` raises."""

    def __init__(
        self,
        daemon: Daemon,
        principal: Principal,
        door: str,
        options: Options,
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> None:
        self._daemon = daemon
        self._principal = principal
        self._door = door
        self._options = options
        self._idempotency_key = idempotency_key
        self._traceparent = traceparent

    async def _ask(
        self, command: str, payload: dict[str, Any], bodies: Sequence[bytes] = (), wait_ms: int | None = 0
    ) -> Answer:
        return await self._daemon.request(
            self._principal,
            command,
            payload,
            bodies,
            door=self._door,
            wait_ms=wait_ms,
            idempotency_key=self._idempotency_key if command == Command.PUBLISH else "",
            traceparent=self._traceparent,
        )

    async def push(self, queue: str, part: Part) -> str | None:
        """Publish a body. Returns whether it began a compound message (``new``), was added to one (``appended``), or
        neither (None). Creates the queue. Refuses an idempotency key of ``push_all``, as ``push_all`` refuses one of
        ``push``."""
        payload = {"queue": queue, **_published(part), "createWith": self._options.create_with}
        data = (await self._ask(Command.PUBLISH, payload, [part.body])).data
        if "published" in data:
            raise _used_key("to several queues")
        return data.get("gathering")

    async def push_all(self, pattern: str, part: Part) -> dict[str, str | None]:
        """Publish a body to every queue that matches now. Returns the ``gathering`` of each that took it."""
        data = (await self._ask(Command.PUBLISH, {"queuePattern": pattern, **_published(part)}, [part.body])).data
        if "published" not in data:
            raise _used_key("to one queue")
        return {queue: one.get("gathering") for queue, one in data["published"].items()}

    async def pull(self, target: Target, wait_ms: int | None) -> Pulled | None:
        """Lease a message, or wait for one (None: for ever). Returns None if there is none in time. Creates the queue
        if the target is one."""
        payload = target.fields() | {"payloadAs": "value"}
        if not target.is_pattern:
            payload["createWith"] = self._options.create_with
        answer = await self._ask(Command.CONSUME_NEXT, payload, wait_ms=wait_ms)
        return self._pulled(answer) if answer.data["message"] else None

    async def settle(self, queue: str, message_id: str | None, reply: Reply) -> None:
        """Acknowledge a pulled message, give it back, or prolong its lease. Raises ``DeliveryNotFound`` and
        ``QueueNotFound``."""
        if message_id is not None:
            payload: dict[str, Any] = {"leaseId": message_id, "queue": queue}
            command = {Reply.ACK: Command.ACK, Reply.NACK: Command.NACK, Reply.EXT: Command.EXTEND_LEASE}[reply]
            if reply is Reply.NACK and not self._options.nack_counts:
                command = Command.RELEASE
            elif reply is Reply.NACK:
                payload |= {"requeue": True, "delayMs": 0}
            try:
                await self._ask(command, payload)
                return
            except CommandError as error:
                if error.code not in _NOT_LEASED:
                    raise
        status = await self._ask(Command.STATUS, {"queue": queue})
        if not status.data["exists"]:
            raise QueueNotFound(queue)
        raise DeliveryNotFound(message_id)

    async def return_undelivered(self, pulled: Pulled) -> None:
        """Return a message that never reached its client: to its place, and the delivery does not count."""
        payload = {"leaseId": pulled.message_id, "queue": pulled.queue, "undelivered": True}
        try:
            await self._ask(Command.RELEASE, payload)
        except CommandError as error:
            if error.code not in _NOT_LEASED:
                raise

    async def delete(self, queue: str) -> None:
        """Delete a queue with its messages and properties. Raises ``QueueNotFound``."""
        try:
            deleted = False
            while not deleted:
                answer = await self._ask(Command.DELETE_QUEUE, {"queue": queue, "discard": True})
                deleted = answer.data["deleted"]
        except CommandError as error:
            if error.code != ErrorCode.QUEUE_NOT_FOUND:
                raise
            raise QueueNotFound(queue) from None

    async def properties(self, queue: str) -> Properties:
        """The properties in force; of a queue that does not exist, those that it would have."""
        answer = await self._ask(Command.GET_POLICY, {"queue": queue, "createWith": self._options.create_with})
        return properties_.from_policy(answer.data["policy"])

    async def update_properties(self, queue: str, properties: Properties) -> None:
        """Set some of a queue's own properties; without any, remove them all. Creates the queue."""
        policy = properties_.to_policy(properties) or properties_.RESET
        await self._ask(Command.SET_POLICY, {"queue": queue, "policy": policy, "createWith": self._options.create_with})

    async def default_properties(self) -> list[tuple[str, Properties]]:
        """The patterns and their properties, in order."""
        answer = await self._ask(Command.GET_POLICY_PATTERNS, {})
        return properties_.from_patterns(answer.data["patterns"])

    async def set_default_properties(self, entries: Sequence[tuple[str, Properties]]) -> None:
        """Replace all patterns."""
        await self._ask(Command.SET_POLICY_PATTERNS, {"patterns": properties_.to_patterns(entries)})

    async def figures(self) -> list[QueueFigures]:
        """The figures of every queue."""
        measured = {row["queue"]: row for row in await self._all_pages(Command.QUEUE_STATISTICS, {})}
        rows = await self._all_pages(Command.LIST_QUEUES, {"policies": True})
        return [
            QueueFigures(row, properties_.from_policy(row["policy"]), measured.get(row["queue"], {})) for row in rows
        ]

    async def _all_pages(self, command: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """The rows of all pages of a list of queues."""
        rows: list[dict[str, Any]] = []
        after = ""
        while True:
            page = (await self._ask(command, {"limit": _PAGE, "after": after, **fields})).data
            rows += page["queues"]
            after = page["next"]
            if not after:
                return rows

    def _pulled(self, answer: Answer) -> Pulled:
        message = answer.data["message"]
        is_compound = bool(message.get("gathered"))
        parts = message["parts"] if is_compound else [message]
        return Pulled(
            message["queue"],
            answer.data["lease"]["leaseId"],
            message.get("attemptsLeft", 0),
            tuple(self._part(part, body) for part, body in zip(parts, answer.bodies, strict=False)),
            is_compound,
        )

    def _part(self, shown: Mapping[str, Any], body: bytes) -> Part:
        given = shown.get("attributes")
        values: Mapping[str, Any] = given if isinstance(given, dict) else {}
        headers = tuple(
            (name, value) for name in self._options.preserve_headers if isinstance(value := values.get(name), str)
        )
        return Part(body, shown.get("contentType") or _TYPES.get(shown.get("encoding", ""), ""), headers)


def _used_key(where: str) -> CommandError:
    """The refusal of a push whose answer is that of another kind of push."""
    return CommandError(ErrorCode.INVALID_REQUEST, f"the Idempotency-Key is that of a push {where}")


def _published(part: Part) -> dict[str, Any]:
    """The fields of ``publish`` for a body. The limit of retries is that of this moment, as in LMQ."""
    fields: dict[str, Any] = {"bodyBytes": len(part.body), "encoding": _encoding(part), "retryLimit": "policy"}
    if part.content_type:
        fields["contentType"] = part.content_type
    if part.headers:
        fields["attributes"] = dict(part.headers)
    return fields


def _encoding(part: Part) -> str:
    """How other consumers get the body: as text if its type says so and its bytes are."""
    if not part.content_type.lower().startswith(_TEXTS):
        return "binary"
    try:
        part.body.decode()
    except UnicodeDecodeError:
        return "binary"
    return "text"
