"""The methods of WebSocket MQ: their parameters, checked, and their results as JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode
from postroom_common.websocket_mq import MqState

from .configuration import whole
from .errors import RpcError, wrong_argument
from .queues import Ordered, Queues, Step
from .rpc import NULL, encode
from .turns import Scope

#: The only method that waits.
ORDER: Final = "orderMessage"
_LOWEST_PRIORITY: Final = -(2**31)
_HIGHEST_PRIORITY: Final = 2**31 - 1

Params = list[Any]


class Method(NamedTuple):
    """A method: what executes it, and returns the result as JSON or what was ordered; what it reads or changes; and
    the operation, if it is one command of the daemon."""

    run: Callable[[Queues, Params], Coroutine[Any, Any, bytes | Ordered]]
    scope: Callable[[Params], Scope]
    step: Callable[[Queues, Params], Step] | None = None


def _one_step(step: Callable[[Queues, Params], Step], scope: Callable[[Params], Scope]) -> Method:
    async def run(queues: Queues, params: Params) -> bytes:
        return await queues.run(step(queues, params))

    return Method(run, scope, step)


def refusal(error: CommandError) -> RpcError:
    """The error for a refusal of the daemon that WebSocket MQ does not have: ``ERR_QUEUE_FULL`` is ``QueueFull``."""
    if error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.PARSE_ERROR):
        return wrong_argument(error.message)
    words = error.code.removeprefix("ERR_").split("_")
    return RpcError("".join(word.capitalize() for word in words), error.message)


# --- parameters -------------------------------------------------------------------------------------------------------


def _at(params: Params, place: int) -> Any:
    """A parameter; None, as JavaScript's ``undefined`` becomes, if there are fewer."""
    return params[place] if place < len(params) else None


def _text(params: Params, place: int, name: str) -> str:
    if place >= len(params) or type(params[place]) is not str:
        raise wrong_argument(f"The {name} must be a string.")
    return params[place]  # type: ignore[no-any-return]


def _queue(params: Params) -> str:
    return _text(params, 0, "queueId")


def _message(params: Params) -> str:
    return _text(params, 1, "messageId")


def _slots(params: Params) -> list[str]:
    """The names of slots, each once. This is checked before anything else, as in the reference."""
    names = _at(params, 2)
    if type(names) is not list or not all(type(name) is str for name in names):
        raise wrong_argument("The slotNames must be an array of strings.")
    if not names:
        raise wrong_argument("The slotNames cannot be empty.")
    return list(dict.fromkeys(names))


def _priority(params: Params) -> int | None:
    value = _at(params, 1)
    if value is None:
        return None
    number = whole(value)
    if number is None or not _LOWEST_PRIORITY <= number <= _HIGHEST_PRIORITY:
        raise wrong_argument(
            f"The priority must be null, or an integer from {_LOWEST_PRIORITY} to {_HIGHEST_PRIORITY}."
        )
    return number


def _optional_text(params: Params, place: int, name: str) -> str:
    """A parameter that need not be given; "" if it is not."""
    value = _at(params, place)
    if value is None:
        return ""
    if type(value) is not str or not value:
        raise wrong_argument(f"The {name} must be a string that is not empty.")
    return value


def _draft_id(params: Params) -> str:
    return _optional_text(params, 3, "messageId")


def _lease(params: Params) -> str:
    """The lease id, which clients that know nothing of leases do not give."""
    return _optional_text(params, 2, "leaseId")


def _state(params: Params) -> MqState:
    number = whole(_at(params, 1))
    if number is None or not 0 <= number < len(MqState):
        raise wrong_argument("The state must be an integer from 0 to 6.")
    return MqState(number)


def _wants_lease(params: Params, place: int) -> bool:
    """Whether the options ask for the lease id."""
    options = _at(params, place)
    return type(options) is dict and options.get("lease") is True


def _expected_lease(params: Params) -> str:
    """The lease id in the options of ``getMessage``; "" if there is none."""
    options = _at(params, 2)
    return _optional_text([options.get("leaseId")], 0, "leaseId") if type(options) is dict else ""


# --- methods ----------------------------------------------------------------------------------------------------------


async def _get_all_queue_ids(queues: Queues, params: Params) -> bytes:
    return encode(await queues.ids())


async def _get_queue(queues: Queues, params: Params) -> bytes:
    return encode(await queues.configuration(_queue(params)))


async def _set_queue(queues: Queues, params: Params) -> bytes:
    await queues.configure(_queue(params), _at(params, 1))
    return NULL


async def _remove_queue(queues: Queues, params: Params) -> bytes:
    await queues.remove(_queue(params))
    return NULL


async def _get_queue_stats(queues: Queues, params: Params) -> bytes:
    return encode(await queues.figures(_queue(params)))


async def _reset_queue(queues: Queues, params: Params) -> bytes:
    await queues.reset(_queue(params))
    return NULL


def _draft_message(queues: Queues, params: Params) -> Step:
    slots = _slots(params)
    return queues.draft(_queue(params), _priority(params), slots, _draft_id(params))


def _set_message_slot(queues: Queues, params: Params) -> Step:
    slot = _text(params, 2, "slotName")
    return queues.set_slot(_queue(params), _message(params), slot, encode(_at(params, 3)))


async def _order_message(queues: Queues, params: Params) -> Ordered:
    return await queues.order(*order_of(params))


def order_of(params: Params) -> tuple[str, bool]:
    """The queue of an ``orderMessage``, and whether the lease id is wanted. Raises ``RpcError``."""
    return _queue(params), _wants_lease(params, 1)


def _get_message(queues: Queues, params: Params) -> Step:
    wanted, expected = _wants_lease(params, 2), _expected_lease(params)
    return queues.take(_queue(params), _message(params), wanted, expected)


async def _peek_message(queues: Queues, params: Params) -> bytes:
    return await queues.peek(_queue(params), _message(params))


def _complete_message(queues: Queues, params: Params) -> Step:
    return queues.complete(_queue(params), _message(params), _lease(params))


def _fail_message(queues: Queues, params: Params) -> Step:
    return queues.fail(_queue(params), _message(params), _lease(params))


async def _renew_message(queues: Queues, params: Params) -> bytes:
    await queues.renew(_queue(params), _message(params))
    return NULL


def _abandon_message(queues: Queues, params: Params) -> Step:
    return queues.abandon(_queue(params), _message(params))


async def _remove_message(queues: Queues, params: Params) -> bytes:
    await queues.discard(_queue(params), _message(params))
    return NULL


async def _abandon_all_failed_messages(queues: Queues, params: Params) -> bytes:
    await queues.abandon_failed(_queue(params))
    return NULL


async def _renew_all_failed_messages(queues: Queues, params: Params) -> bytes:
    await queues.renew_failed(_queue(params))
    return NULL


async def _get_message_ids_by_state(queues: Queues, params: Params) -> bytes:
    return encode(await queues.ids_in(_queue(params), _state(params)))


async def _clear_messages_by_state(queues: Queues, params: Params) -> bytes:
    await queues.clear(_queue(params), _state(params))
    return NULL


# --- the table --------------------------------------------------------------------------------------------------------


def _all_queues(params: Params) -> Scope:
    return Scope()


def _whole_queue(params: Params) -> Scope:
    return Scope(_key(params, 0))


def _one_message(params: Params) -> Scope:
    return Scope(_key(params, 0), _key(params, 1))


def _new_message(params: Params) -> Scope:
    return Scope(_key(params, 0), _key(params, 3))


def _key(params: Params, place: int) -> object:
    """A parameter for comparisons: what is no string is refused later, or not given, and equals nothing."""
    if place < len(params) and type(params[place]) is str:
        return params[place]
    return object()


#: The methods, by name.
METHODS: Final[Mapping[str, Method]] = {
    "getAllQueueIds": Method(_get_all_queue_ids, _all_queues),
    "getQueue": Method(_get_queue, _whole_queue),
    "setQueue": Method(_set_queue, _whole_queue),
    "removeQueue": Method(_remove_queue, _whole_queue),
    "getQueueStats": Method(_get_queue_stats, _whole_queue),
    "resetQueue": Method(_reset_queue, _whole_queue),
    "draftMessage": _one_step(_draft_message, _new_message),
    "setMessageSlot": _one_step(_set_message_slot, _one_message),
    ORDER: Method(_order_message, _whole_queue),
    "getMessage": _one_step(_get_message, _one_message),
    "peekMessage": Method(_peek_message, _one_message),
    "completeMessage": _one_step(_complete_message, _one_message),
    "failMessage": _one_step(_fail_message, _one_message),
    "renewMessage": Method(_renew_message, _one_message),
    "abandonMessage": _one_step(_abandon_message, _one_message),
    "removeMessage": Method(_remove_message, _one_message),
    "abandonAllFailedMessages": Method(_abandon_all_failed_messages, _whole_queue),
    "renewAllFailedMessages": Method(_renew_all_failed_messages, _whole_queue),
    "getMessageIdsByState": Method(_get_message_ids_by_state, _whole_queue),
    "clearMessagesByState": Method(_clear_messages_by_state, _whole_queue),
}
