"""The messages of ``delight-rpc`` 3: JSON objects, read from text messages and written to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from .errors import RpcError, wrong_argument

#: Half of a surrogate pair, which JSON may contain, and orjson and the daemon refuse; or a text that looks like one.
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_VERSION: Final = re.compile(r"3\.[0-9]+")
_HEAD: Final = b'{"protocol":"delight-rpc","version":"3.1","id":'
NULL: Final = b"null"


class Call(NamedTuple):
    """A method with its parameters. ``name`` is "" for a path of several elements: this server has no such method."""

    name: str
    params: list[Any]


class Request(NamedTuple):
    """Calls that are answered together. ``is_batch`` says how; a request that is no batch has one call."""

    id: str
    expected_version: str
    calls: list[Call]
    is_batch: bool = False
    is_parallel: bool = False


class Abort(NamedTuple):
    """The client does not want the answer to a request any more."""

    id: str


def read_message(data: bytes) -> Request | Abort | None:
    """What a text message asks for; None if it is not for this server, which then says nothing. Raises
    ``UnicodeDecodeError``."""
    message = loads(data)
    if type(message) is not dict or message.get("protocol") != "delight-rpc" or "channel" in message:
        return None
    version, request_id = message.get("version"), message.get("id")
    if version != "3.1" and (type(version) is not str or not _VERSION.fullmatch(version)):
        return None
    if type(request_id) is not str:
        return None
    if message.get("abort") is True:
        return Abort(request_id)
    expected = message.get("expectedVersion")
    if expected is not None and type(expected) is not str:
        return None
    if "requests" not in message:
        call = _call(message)
        return Request(request_id, expected or "", [call]) if call else None
    entries, is_parallel = message["requests"], message.get("parallel")
    if type(entries) is not list or type(is_parallel) is not bool:
        return None
    calls = [call for entry in entries if (call := _call(entry))]
    return Request(request_id, expected or "", calls, True, is_parallel) if len(calls) == len(entries) else None


def _call(entry: Any) -> Call | None:
    if type(entry) is not dict:
        return None
    method, params = entry.get("method"), entry.get("params")
    if type(method) is not list or type(params) is not list:
        return None
    if len(method) == 1 and type(method[0]) is str:
        return Call(method[0], params)
    return Call("", params) if all(type(name) is str for name in method) else None


def encode_result(request_id: str, result: bytes) -> bytes:
    """The answer to a request; ``result`` is JSON."""
    return b'%b%b,"result":%b}' % (_HEAD, encode(request_id), result)


def encode_error(request_id: str, error: RpcError) -> bytes:
    """The answer to a request that has failed."""
    return b'%b%b,"error":%b}' % (_HEAD, encode(request_id), _error(error))


def encode_batch(request_id: str, outcomes: Iterable[bytes | RpcError]) -> bytes:
    """The answer to a batch: what became of each call, in the order of the calls."""
    responses = [
        b'{"error":%b}' % _error(one) if isinstance(one, RpcError) else b'{"result":%b}' % one for one in outcomes
    ]
    return b'%b%b,"responses":[%b]}' % (_HEAD, encode(request_id), b",".join(responses))


def _error(error: RpcError) -> bytes:
    """All four fields: the client ignores an error without one of them, and waits on."""
    fields = {"name": error.name, "message": error.message, "stack": None, "ancestors": list(error.ancestors)}
    return encode(fields)


def encode(value: Any) -> bytes:
    """A value that was read as JSON, as JSON. Raises ``RpcError`` for one that is nested too deep."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # half of a surrogate pair, or too deep for orjson
        try:
            return json.dumps(value, separators=(",", ":")).encode()
        except RecursionError:
            raise wrong_argument("A value is nested too deep.") from None


def loads(data: bytes) -> Any:
    """The value of a text; None if it is no JSON. Raises ``UnicodeDecodeError``."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data.decode()
        if not SURROGATE.search(data):
            return None
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
