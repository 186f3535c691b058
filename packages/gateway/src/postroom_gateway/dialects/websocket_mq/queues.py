"""What WebSocket MQ's clients do with queues and messages, as commands of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from postroom_common.errors import CommandError, PostroomError
from postroom_common.protocol import Command, ErrorCode, ReasonCode, State, named_key
from postroom_common.websocket_mq import MqState

from ...contract import Answer, Daemon, Principal
from . import configuration
from .errors import (
    RpcError,
    bad_state,
    duplicate_message,
    duplicate_message_id,
    message_not_found,
    queue_not_found,
    slot_not_found,
    stale_lease,
)
from .rpc import NULL, SURROGATE, encode
from .views import FILTERS, JSON_TYPE, STATES, encode_message, id_of, state_of

#: The daemon says by these that a message is in another state, or leased by somebody else.
_OTHER_STATE: Final = (ErrorCode.BAD_STATE, ErrorCode.LEASE_EXPIRED, ErrorCode.LEASE_MISMATCH)
#: Number of queues or messages on a page.
_PAGE: Final = 1000
#: Number of commands about single messages that are sent before their answers have come.
_AT_ONCE: Final = 128
_ORDER: Final = {"mustExist": True, "payloadAs": "none"}
_JSON: Final = {"encoding": "json", "contentType": JSON_TYPE}
#: A value of JSON that the daemon does not take as such.
_JSON_TEXT: Final = {"encoding": "text", "contentType": JSON_TYPE}


class Ordered(NamedTuple):
    """A message that was leased by ``order``: its id, what returns it, and whether the client wants the lease id."""

    message_id: str
    message_key: str
    lease_id: str
    with_lease: bool = False

    @property
    def returned(self) -> dict[str, Any]:
        """The payload of the command that returns it, as if it had never been ordered."""
        return {"messageKey": self.message_key, "leaseId": self.lease_id, "undelivered": True}

    def encoded(self) -> bytes:
        """What the client gets."""
        shown = {"messageId": self.message_id, "leaseId": self.lease_id}
        return encode(shown if self.with_lease else self.message_id)


class Step(NamedTuple):
    """An operation that is one command of the daemon: its ``result`` is that of the answer. If the daemon refuses the
    command, it is what ``refused`` returns, which may look for the reason, and raises what the operation raises."""

    command: Command
    payload: dict[str, Any]
    bodies: Sequence[bytes]
    result: Callable[[Answer], bytes]
    refused: Callable[[CommandError], Coroutine[Any, Any, bytes]]


class Queues:
    """The operations of one principal. They raise ``RpcError`` as the methods do, ``CommandError`` for what else the
    daemon refuses, and what ``Daemon.request`` raises."""

    def __init__(self, daemon: Daemon, principal: Principal, door: str) -> None:
        self._daemon = daemon
        self._principal = principal
        self._door = door

    async def _ask(
        self, command: str, payload: dict[str, Any], bodies: Sequence[bytes] = (), wait_ms: int | None = 0
    ) -> Answer:
        return await self._daemon.request(self._principal, command, payload, bodies, door=self._door, wait_ms=wait_ms)

    async def run(self, step: Step) -> bytes:
        """The result of an operation."""
        try:
            return step.result(await self._ask(step.command, step.payload, step.bodies))
        except CommandError as error:
            return await step.refused(error)

    def begin(self, step: Step, then: Callable[[Answer | PostroomError], None]) -> None:
        """Begin an operation; ``then`` gets what the daemon answers, as in ``Daemon.ask``."""
        self._daemon.ask(self._principal, step.command, step.payload, step.bodies, then, door=self._door)

    # --- queues -------------------------------------------------------------------------------------------------------

    async def ids(self) -> list[str]:
        """The ids of all queues, in the order of their names."""
        found: list[str] = []
        after = ""
        while True:
            page = (await self._ask(Command.LIST_QUEUES, {"limit": _PAGE, "after": after})).data
            found += [row["queue"] for row in page["queues"]]
            after = page["next"]
            if not after:
                return found

    async def configuration(self, queue: str) -> dict[str, Any] | None:
        """The configuration of a queue; None if it does not exist."""
        policy = await self._policy(queue)
        return configuration.from_policy(policy) if policy else None

    async def configure(self, queue: str, config: Any) -> None:
        """Create a queue, or change its configuration. A concurrency of 0 pauses it, another one resumes it after
        that."""
        policy = configuration.to_policy(config)
        before = await self._policy(queue)
        is_blocked = configuration.is_blocked(policy)
        if before and configuration.is_blocked(before) and not is_blocked:
            await self._ask(Command.RESUME, {"queue": queue})
            policy = configuration.unblocked(policy)
        payload = {"queue": queue, "policy": policy, "createWith": configuration.CREATE_WITH}
        await self._ask(Command.SET_POLICY, payload)
        if is_blocked:
            await self._ask(Command.PAUSE, {"queue": queue})

    async def remove(self, queue: str) -> None:
        """Delete a queue with its messages, if it exists."""
        try:
            while not (await self._ask(Command.DELETE_QUEUE, {"queue": queue, "discard": True})).data["deleted"]:
                pass
        except CommandError as error:
            if error.code != ErrorCode.QUEUE_NOT_FOUND:
                raise

    async def reset(self, queue: str) -> None:
        """Drop all messages of a queue, and begin its counts anew, if it exists."""
        try:
            await self._purge({"queue": queue, "state": "any", "resetTally": True})
        except CommandError as error:
            if error.code != ErrorCode.QUEUE_NOT_FOUND:
                raise

    async def figures(self, queue: str) -> dict[str, int] | None:
        """The number of messages in each state; None if the queue does not exist. Of completed and abandoned ones also
        those that were not kept."""
        status = (await self._ask(Command.STATUS, {"queue": queue})).data
        if not status["exists"]:
            return None
        counts, tally = status["metrics"], status.get("tally", {})
        ordered = counts.get("ordered", 0)
        abandoned = status["reasons"].get(ReasonCode.ABANDONED, 0)
        return {
            "drafting": counts[State.DRAFTING],
            "waiting": sum(counts[state] for state in STATES[MqState.WAITING]),
            "ordered": ordered,
            "active": counts[State.INFLIGHT] - ordered,
            "failed": counts["dlq"] - abandoned,
            "completed": counts[State.DONE] + tally.get("completed", 0),
            "abandoned": abandoned + tally.get("abandoned", 0),
        }

    async def _policy(self, queue: str) -> dict[str, Any] | None:
        """The policy of a queue; None if it does not exist."""
        try:
            answer = await self._ask(Command.GET_POLICY, {"queue": queue})
        except CommandError as error:
            if error.code != ErrorCode.QUEUE_NOT_FOUND:
                raise
            return None
        policy: dict[str, Any] = answer.data["policy"]
        return policy

    async def _require(self, queue: str) -> None:
        """Raises ``QueueNotFound`` if the queue does not exist."""
        if await self._policy(queue) is None:
            raise queue_not_found()

    # --- one message --------------------------------------------------------------------------------------------------

    def draft(self, queue: str, priority: int | None, slots: Sequence[str], name: str) -> Step:
        """Make a message without values; its id, which is ``name`` unless that is empty. Raises ``QueueNotFound`` and
        ``DuplicateMessageId``."""
        payload: dict[str, Any] = {"queue": queue, "parts": slots, "mustExist": True}
        if priority is None:
            payload["noPriority"] = True
        else:
            payload["priority"] = priority
        if name:
            payload["name"] = name
        return Step(Command.DRAFT, payload, (), _encoded_id, self._not_drafted)

    async def _not_drafted(self, error: CommandError) -> bytes:
        if error.code == ErrorCode.QUEUE_NOT_FOUND:
            raise queue_not_found()
        if error.code == ErrorCode.DUPLICATE_MESSAGE:
            raise duplicate_message_id()
        raise error

    def set_slot(self, queue: str, message_id: str, slot: str, value: bytes) -> Step:
        """Set a slot to a JSON value."""
        form = _JSON_TEXT if SURROGATE.search(value) else _JSON
        payload = {"messageKey": named_key(queue, message_id), "part": slot, "bodyBytes": len(value), **form}
        return Step(Command.SET, payload, (value,), _nothing, partial(self._not_set, queue))

    async def _not_set(self, queue: str, error: CommandError) -> bytes:
        if error.code == ErrorCode.BAD_STATE:
            raise bad_state("Drafting", "Waiting")
        if error.code == ErrorCode.PART_NOT_FOUND:
            raise slot_not_found()
        if error.code == ErrorCode.DUPLICATE_MESSAGE:
            raise duplicate_message()
        return await self._raise_missing(queue, error)

    async def order(self, queue: str, with_lease: bool) -> Ordered:
        """Lease the next message, or wait for one, however long. Raises ``QueueNotFound``, also if the queue is removed
        meanwhile."""
        try:
            answer = await self._ask(Command.CONSUME_NEXT, _ORDER | {"queue": queue}, wait_ms=None)
        except CommandError as error:
            raise _not_ordered(error) from None
        return _ordered(answer, with_lease)

    def begin_order(
        self, queue: str, with_lease: bool, then: Callable[[Ordered | PostroomError | RpcError], None]
    ) -> Callable[[], None]:
        """Begin an ``order``; ``then`` gets what that returns or raises. Returns what ends it without that."""

        def answered(outcome: Answer | PostroomError) -> None:
            if isinstance(outcome, Answer):
                then(_ordered(outcome, with_lease))
            else:
                then(_not_ordered(outcome) if isinstance(outcome, CommandError) else outcome)

        payload = _ORDER | {"queue": queue}
        return self._daemon.ask_waiting(self._principal, Command.CONSUME_NEXT, payload, answered, door=self._door)

    def begin_return(self, ordered: Ordered) -> None:
        """Begin to return a message, as ``return_undelivered``. If that fails, it waits again when its time is over."""
        self._daemon.ask(self._principal, Command.RELEASE, ordered.returned, (), lambda _: None, door=self._door)

    async def return_undelivered(self, ordered: Ordered) -> None:
        """Return a message whose id never reached its client: to its place, and it counts as never ordered."""
        try:
            await self._ask(Command.RELEASE, ordered.returned)
        except CommandError as error:
            if error.code not in (*_OTHER_STATE, ErrorCode.MESSAGE_NOT_FOUND):
                raise

    def take(self, queue: str, message_id: str, with_lease: bool, lease_id: str) -> Step:
        """The encoded message; one that is ordered becomes active. ``null`` if it does not exist. With a lease id,
        raises ``StaleLease`` unless the message has that lease."""
        payload = {"messageKey": named_key(queue, message_id), "anyHolder": True, "payloadAs": "value"}
        if lease_id:
            payload["leaseId"] = lease_id
        shown = _active_with_lease if with_lease else _active
        return Step(Command.ACTIVATE, payload, (), shown, partial(self._not_taken, queue, message_id, lease_id))

    async def _not_taken(self, queue: str, message_id: str, lease_id: str, error: CommandError) -> bytes:
        if error.code not in (*_OTHER_STATE, ErrorCode.MESSAGE_NOT_FOUND):
            raise error
        if lease_id and error.code != ErrorCode.MESSAGE_NOT_FOUND:
            raise stale_lease()
        return await self.peek(queue, message_id, was_not_ordered=True)

    async def peek(self, queue: str, message_id: str, was_not_ordered: bool = False) -> bytes:
        """The encoded message as it is; ``null`` if it does not exist. With ``was_not_ordered``, one that is ordered
        now is shown as waiting."""
        answer = await self._found(queue, message_id)
        if answer is None:
            return NULL
        message = answer.data["message"]
        state = state_of(message)
        if was_not_ordered and state is MqState.ORDERED:
            state = MqState.WAITING
        return encode_message(state, message, answer.bodies)

    async def _found(self, queue: str, message_id: str) -> Answer | None:
        """What the daemon says of a message in any state; None if it does not exist. Raises ``QueueNotFound``."""
        payload = {"messageKey": named_key(queue, message_id), "payloadAs": "value"}
        try:
            return await self._ask(Command.GET_MESSAGE, payload)
        except CommandError as error:
            if error.code != ErrorCode.MESSAGE_NOT_FOUND:
                raise
            await self._require(queue)
            return None

    def complete(self, queue: str, message_id: str, lease_id: str) -> Step:
        """Acknowledge an active message; with a lease id, only under that lease."""
        return self._settle(Command.ACK, queue, message_id, lease_id)

    def fail(self, queue: str, message_id: str, lease_id: str) -> Step:
        """Make an active message a failed one; with a lease id, only under that lease."""
        return self._settle(Command.NACK, queue, message_id, lease_id)

    def _settle(self, command: Command, queue: str, message_id: str, lease_id: str) -> Step:
        payload: dict[str, Any] = {"messageKey": named_key(queue, message_id), "anyHolder": True}
        if lease_id:
            payload["leaseId"] = lease_id
        return Step(command, payload, (), _nothing, partial(self._not_settled, queue, lease_id))

    async def _not_settled(self, queue: str, lease_id: str, error: CommandError) -> bytes:
        if error.code not in _OTHER_STATE:
            await self._raise_missing(queue, error)
        if lease_id and error.code != ErrorCode.BAD_STATE:
            raise stale_lease()
        raise bad_state("Active")

    async def renew(self, queue: str, message_id: str) -> None:
        """Make a failed message wait again."""
        found = await self._found(queue, message_id)
        if found is None:
            raise message_not_found()
        if state_of(found.data["message"]) is not MqState.FAILED:
            raise bad_state("Failed")
        try:
            await self._ask(Command.REPROCESS_DLQ, {"messageKey": named_key(queue, message_id)})
        except CommandError as error:
            if error.code == ErrorCode.DLQ_NOT_FOUND:
                raise bad_state("Failed") from None
            raise

    def abandon(self, queue: str, message_id: str) -> Step:
        """Abandon a message in any state."""
        payload = {"messageKey": named_key(queue, message_id)}
        return Step(Command.ABANDON, payload, (), _nothing, partial(self._raise_missing, queue))

    async def discard(self, queue: str, message_id: str) -> None:
        """Drop a message in any state, if it exists."""
        try:
            await self._ask(Command.PURGE, {"queue": queue, "messageKey": named_key(queue, message_id)})
        except CommandError as error:
            if error.code == ErrorCode.QUEUE_NOT_FOUND:
                raise queue_not_found() from None
            if error.code != ErrorCode.MESSAGE_NOT_FOUND:
                raise

    async def _raise_missing(self, queue: str, error: CommandError) -> NoReturn:
        """Raises what a method raises for a missing message, or the error if it is another one."""
        if error.code != ErrorCode.MESSAGE_NOT_FOUND:
            raise error
        await self._require(queue)
        raise message_not_found()

    # --- all messages in a state --------------------------------------------------------------------------------------

    async def ids_in(self, queue: str, state: MqState) -> list[str]:
        """The ids of all messages in a state."""
        return [id_of(row) for row in await self._rows(queue, state)]

    async def abandon_failed(self, queue: str) -> None:
        """Abandon all failed messages."""
        rows = await self._rows(queue, MqState.FAILED)
        failed = [{"messageKey": row["messageKey"], "ifState": State.DEAD} for row in rows]
        await self._ask_about_each(Command.ABANDON, failed)

    async def renew_failed(self, queue: str) -> None:
        """Make all failed messages wait again, in the order in which they failed."""
        await self._require(queue)
        payload = {"queue": queue, "filter": FILTERS[MqState.FAILED], "limit": _PAGE}
        after = ""
        while True:
            after = (await self._ask(Command.REPROCESS_DLQ, payload | {"after": after})).data["next"]
            if not after:
                return

    async def clear(self, queue: str, state: MqState) -> None:
        """Drop all messages in a state, and nothing else."""
        if state not in (MqState.ORDERED, MqState.ACTIVE):
            await self._require(queue)
            some = {"filter": FILTERS[state]} if state in FILTERS else {}
            for one in reversed(STATES[state]):  # what becomes ready meanwhile is found
                await self._purge({"queue": queue, "state": one, **some})
            return
        rows = await self._rows(queue, state)
        same = {"queue": queue, "ifState": state.name.lower()}
        await self._ask_about_each(Command.PURGE, [{"messageKey": row["messageKey"], **same} for row in rows])

    async def _ask_about_each(self, command: Command, payloads: Sequence[dict[str, Any]]) -> None:
        """Send a command about many messages, in order."""
        for start in range(0, len(payloads), _AT_ONCE):
            await asyncio.gather(*(self._ask_about(command, one) for one in payloads[start : start + _AT_ONCE]))

    async def _ask_about(self, command: Command, payload: dict[str, Any]) -> None:
        """Send a command about a message that may have gone, or changed its state, since it was listed."""
        try:
            await self._ask(command, payload)
        except CommandError as error:
            if error.code not in (*_OTHER_STATE, ErrorCode.MESSAGE_NOT_FOUND, ErrorCode.DLQ_NOT_FOUND):
                raise

    async def _rows(self, queue: str, state: MqState) -> list[dict[str, Any]]:
        """What the daemon says of each message in a state. Raises ``QueueNotFound``."""
        await self._require(queue)
        rows: list[dict[str, Any]] = []
        for one in STATES[state]:
            after = ""
            while True:
                payload = {"queue": queue, "state": one, "limit": _PAGE, "after": after, "previewBytes": 0}
                page = (await self._ask(Command.BROWSE, payload)).data
                rows += [row for row in page["messages"] if state_of(row) is state]
                after = page["next"]
                if not after:
                    break
        return rows

    async def _purge(self, payload: dict[str, Any]) -> None:
        """Drop what a request selects, page by page; only what was there when it began."""
        after: dict[str, Any] = {}
        while True:
            page = (await self._ask(Command.PURGE, {"limit": _PAGE, **payload, **after})).data
            if not page["next"]:
                return
            after = {"after": page["next"], "upToEvent": page["upToEvent"]}


def _ordered(answer: Answer, with_lease: bool) -> Ordered:
    lease = answer.data["lease"]
    return Ordered(id_of(answer.data["message"]), lease["messageKey"], lease["leaseId"], with_lease)


def _not_ordered(error: CommandError) -> RpcError | CommandError:
    return queue_not_found() if error.code == ErrorCode.QUEUE_NOT_FOUND else error


def _nothing(answer: Answer) -> bytes:
    return NULL


def _encoded_id(answer: Answer) -> bytes:
    return encode(id_of(answer.data))


def _active(answer: Answer) -> bytes:
    return encode_message(MqState.ACTIVE, answer.data["message"], answer.bodies)


def _active_with_lease(answer: Answer) -> bytes:
    return encode_message(MqState.ACTIVE, answer.data["message"], answer.bodies, answer.data["lease"]["leaseId"])
