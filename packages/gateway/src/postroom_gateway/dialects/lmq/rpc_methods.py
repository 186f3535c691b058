"""The methods of LMQ's MessagePack-RPC: arguments and results are encoded objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from . import properties
from .answers import MSGPACK_TYPE, Part, Pulled
from .msgpack_old import (
    ARRAY,
    NIL,
    NotMsgpack,
    Request,
    is_one_object,
    pack,
    pack_header,
    pack_raw,
    read_bytes,
    to_old_beside,
    unpack,
)
from .parameters import InvalidParameter, Reply, name_from_bytes, parse_message_id, wait_ms
from .properties import InvalidProperties
from .queues import DeliveryNotFound, QueueNotFound, Queues, Target

#: The kind of error if no method has this name and this number of arguments.
UNDEFINED: Final = "undef"
#: The kind of error if an argument has the wrong type.
WRONG_TYPE: Final = "function_clause"
_OK: Final = pack("ok")
#: What pull returns if there is no message in time.
EMPTY: Final = pack("empty")
#: Methods that may wait.
PULLS: Final = frozenset((b"pull", b"pull_any"))
#: What push returns, by what ``publish`` says of gathering.
_PUSHED: Final[Mapping[str | None, bytes]] = {None: _OK, "new": pack("packing started"), "appended": pack("packed")}


class RpcError(Exception):
    """An error of a call; ``encoded`` is what the client gets, by default the kind."""

    def __init__(self, kind: str, encoded: bytes = b"") -> None:
        super().__init__(kind)
        self.kind = kind
        self.encoded = encoded or pack(kind)


def thrown(reason: str) -> RpcError:
    """An error in the form in which LMQ throws: a list of the characters' numbers."""
    return RpcError(reason, pack(list(f"throw:{reason}".encode())))


async def call(queues: Queues, request: Request) -> bytes | Pulled:
    """Execute a request. Returns the encoded result, or the message that a pull has leased.

    Raises ``RpcError`` for everything that is not a fault of the gateway or the lane.
    """
    method = METHODS.get((request.method, len(request.arguments)))
    if method is None:
        raise RpcError(UNDEFINED)
    try:
        return await method(queues, *request.arguments)
    except (InvalidParameter, InvalidProperties):
        raise thrown("invalid") from None
    except NotMsgpack:
        raise RpcError(WRONG_TYPE) from None
    except DeliveryNotFound:
        raise thrown("not_found") from None
    except QueueNotFound:
        raise thrown("queue_not_found") from None
    except CommandError as error:
        raise thrown(_reason(error, has_pattern=method in _BY_PATTERN)) from None


def _reason(error: CommandError, has_pattern: bool) -> str:
    """The reason that a client gets for a refusal of the daemon: LMQ's word if there is one."""
    if error.code == ErrorCode.INVALID_REQUEST:
        return "invalid_regexp" if has_pattern else "invalid"
    return error.code.removeprefix("ERR_").lower()


async def _push(queues: Queues, name: bytes, content: bytes) -> bytes:
    return _PUSHED[await queues.push(_text(name), Part(await to_old_beside(content), MSGPACK_TYPE))]


async def _push_all(queues: Queues, pattern: bytes, content: bytes) -> bytes:
    await queues.push_all(_text(pattern), Part(await to_old_beside(content), MSGPACK_TYPE))
    return _OK


async def _pull(queues: Queues, name: bytes, wait: bytes | None = None) -> bytes | Pulled:
    return await queues.pull(Target(_text(name)), _wait_ms(wait)) or EMPTY


async def _pull_any(queues: Queues, pattern: bytes, wait: bytes | None = None) -> bytes | Pulled:
    return await queues.pull(Target(_text(pattern), is_pattern=True), _wait_ms(wait)) or EMPTY


async def _done(queues: Queues, name: bytes, message_id: bytes) -> bytes:
    return await _settled(queues, name, message_id, Reply.ACK)


async def _retain(queues: Queues, name: bytes, message_id: bytes) -> bytes:
    return await _settled(queues, name, message_id, Reply.EXT)


async def _release(queues: Queues, name: bytes, message_id: bytes) -> bytes:
    return await _settled(queues, name, message_id, Reply.NACK)


async def _settled(queues: Queues, name: bytes, message_id: bytes, reply: Reply) -> bytes:
    await queues.settle(_text(name), parse_message_id(_text(message_id)), reply)
    return _OK


async def _delete(queues: Queues, name: bytes) -> bytes:
    try:
        await queues.delete(_text(name))
    except QueueNotFound:
        pass  # as in LMQ: it is gone, which is what was asked for
    return _OK


async def _update_props(queues: Queues, name: bytes, given: bytes | None = None) -> bytes:
    await queues.update_properties(_text(name), {} if given is None else properties.from_rpc(unpack(given)))
    return _OK


async def _set_default_props(queues: Queues, given: bytes) -> bytes:
    await queues.set_default_properties(properties.default_from_rpc(unpack(given)))
    return _OK


async def _get_default_props(queues: Queues) -> bytes:
    entries = await queues.default_properties()
    return pack([[pattern, properties.to_rpc(given)] for pattern, given in entries])


Method = Callable[..., Awaitable[bytes | Pulled]]
#: The methods, by name and number of arguments.
METHODS: Final[dict[tuple[bytes, int], Method]] = {
    (b"push", 2): _push,
    (b"push_all", 2): _push_all,
    (b"pull", 1): _pull,
    (b"pull", 2): _pull,
    (b"pull_any", 1): _pull_any,
    (b"pull_any", 2): _pull_any,
    (b"done", 2): _done,
    (b"retain", 2): _retain,
    (b"release", 2): _release,
    (b"delete", 1): _delete,
    (b"update_props", 1): _update_props,
    (b"update_props", 2): _update_props,
    (b"set_default_props", 1): _set_default_props,
    (b"get_default_props", 0): _get_default_props,
}
#: Methods whose first argument is a regular expression.
_BY_PATTERN: Final = (_push_all, _pull_any)


def _text(argument: bytes) -> str:
    """A string argument, which is never longer than an id or a pattern. Raises ``NotMsgpack``."""
    raw = read_bytes(argument)
    if raw is None:
        raise NotMsgpack("a string is expected")
    return name_from_bytes(raw)


def _wait_ms(argument: bytes | None) -> int | None:
    """A wait in seconds as milliseconds. Raises ``NotMsgpack``."""
    seconds = unpack(argument) if argument is not None else float("inf")
    if type(seconds) not in (int, float):
        raise NotMsgpack("a number of seconds is expected")
    return wait_ms(seconds)


async def encode_pulled(pulled: Pulled) -> bytes:
    """What pull returns of a message."""
    contents = [await _content(part) for part in pulled.parts]
    return b"".join(
        (
            b"\x85\xa5queue",
            pack_raw(pulled.queue.encode()),
            b"\xa2id",
            pack_raw(pulled.message_id.encode()),
            b"\xa4type\xa7package" if pulled.is_compound else b"\xa4type\xa6normal",
            b"\xa5retry",
            pack(pulled.retry_remaining),
            b"\xa7content",
            pack_header(ARRAY, len(contents)) if pulled.is_compound else b"",
            *contents,
        )
    )


async def _content(part: Part) -> bytes:
    """A body as an object: decoded if it is MessagePack, else its bytes."""
    if part.content_type == MSGPACK_TYPE and is_one_object(part.body):
        try:
            return await to_old_beside(part.body)
        except NotMsgpack:
            pass  # an extension type, which the old specification does not have: its bytes are shown
    return pack_raw(part.body)


def answer(number: int, result: bytes) -> bytes:
    """The frame that answers a request."""
    return b"\x94\x01%b%b%b" % (pack(number), NIL, result)


def refusal(number: int, error: RpcError) -> bytes:
    """The frame that answers a request with an error."""
    return b"\x94\x01%b%b%b" % (pack(number), error.encoded, NIL)
