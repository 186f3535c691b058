"""The daemon's codec: request bytes to a checked request, answers to response bytes.

JSON is parsed more strictly than RFC 8259 requires: no NaN or infinity, no duplicate keys, no lone surrogates, no
integer outside 64 bits, at most ``JSON_DEPTH_LIMIT`` levels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from .errors import CommandError, RequestRejected
from .protocol import ID_BYTES_LIMIT, JSON_DEPTH_LIMIT, ErrorCode, is_id
from .trace import is_traceparent

#: The longest ``idempotencyKey``, in bytes.
IDEMPOTENCY_KEY_LIMIT: Final = 256
_INTEGER_LIMIT = 2.0**63
#: Types of a time in the envelope.
_TIMES = frozenset({int, type(None), float, bool})


@dataclass(slots=True)
class Request:
    """A request with valid ids, so that it can be answered. ``problem`` is the answer if the rest is invalid.

    ``traceparent`` is the trace of the request (W3C Trace Context), or empty. ``idempotency_key`` is what a repeat has
    in common with the first request; if it is empty, its bytes. ``acts_as`` and ``door`` are the values of ``as`` and
    ``door``, which only doors that know them check. ``has_client_id`` is False if ``client_id`` is not in the request.
    """

    request_id: str
    client_id: str
    command: str
    deadline_ms: int
    payload: dict[str, Any]
    problem: CommandError | None = None
    traceparent: str = ""
    idempotency_key: str = ""
    acts_as: Any = None
    door: Any = None
    has_client_id: bool = True


def strict_loads(data: bytes) -> Any:
    """Parse JSON by the rules of this module.

    Raises ``ValueError`` with a reason for people.
    """
    value = orjson.loads(data)  # refuses NaN, 1e999, lone surrogates, bad UTF-8, endless depth
    # Faster than counting them.
    if 2 * len(data) - len(data.replace(b"{", b"")) - len(data.replace(b"[", b"")) > JSON_DEPTH_LIMIT:
        _check_depth(value)
    # orjson keeps the last of duplicate keys, and reads an integer beyond 64 bits as a float: written again, such a
    # document differs. So does one that merely has spaces or other escapes: then the slow parser decides.
    if orjson.dumps(value) != data:
        _STRICT.decode(data.decode())
    return value


def _check_depth(value: Any) -> None:
    containers: list[Any] = [[value]]
    for _ in range(JSON_DEPTH_LIMIT + 1):
        containers = [
            item
            for one in containers
            for item in (one.values() if type(one) is dict else one)
            if type(item) is dict or type(item) is list
        ]
        if not containers:
            return
    raise ValueError(f"nested deeper than {JSON_DEPTH_LIMIT} levels")


def _integer_in_range(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError("an integer is outside 64 bits")
    return int(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"key {key[:80]!r} stands twice in one object")
        seen.add(key)


#: As ``is_id``, for ids that come again and are not too long.
_is_client_id: Final = lru_cache(maxsize=1024)(is_id)

_STRICT: Final = json.JSONDecoder(parse_int=_integer_in_range, object_pairs_hook=_no_duplicates)


def decode_request(data: bytes, client: str | None = None) -> Request:
    """Parse the bytes of a request. ``client`` is the client id of one that has none.

    Raises ``RequestRejected`` if the request cannot be answered: not a JSON object, or ids missing or unsafe in a path.
    ``Request.problem`` has any other fault, as the answer.
    """
    try:
        envelope = strict_loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestRejected(f"JSON parse error: {error}") from None
    if type(envelope) is not dict:
        raise RequestRejected("JSON parse error: a request must be an object")
    get = envelope.get
    request_id, client_id = get("requestId"), get("clientId")
    has_client_id = client_id is not None or "clientId" in envelope
    if not has_client_id:
        client_id = client
    if not is_id(request_id):
        raise RequestRejected("missing requestId" if request_id in (None, "") else "invalid requestId")
    if type(client_id) is not str or len(client_id) > ID_BYTES_LIMIT or not _is_client_id(client_id):
        raise RequestRejected("missing clientId" if client_id in (None, "") else "invalid clientId")
    command, deadline, payload, trace = get("command"), get("deadlineMs"), get("payload"), get("traceparent")
    key, acts_as, door = get("idempotencyKey"), get("as"), get("door")
    if type(deadline) is not int:
        deadline = _milliseconds(deadline)
    if payload is None:
        payload = {}
    if (
        type(command) is str
        and command
        and type(deadline) is int
        and type(get("timestampMs")) in _TIMES
        and type(payload) is dict
        and (key is None or (type(key) is str and 0 < len(key.encode()) <= IDEMPOTENCY_KEY_LIMIT))
    ):
        trace = trace or payload.get("traceparent")
        traceparent = trace if trace is not None and is_traceparent(trace) else ""
        deadline = deadline if deadline > 0 else 0
        return Request(
            request_id,
            client_id,
            command,
            deadline,
            payload,
            None,
            traceparent,
            key or "",
            acts_as,
            door,
            has_client_id,
        )
    problem = _envelope_problem(envelope)
    return Request(request_id, client_id, str(command or ""), 0, {}, problem, "", "", acts_as, door, has_client_id)


def _milliseconds(value: Any) -> Any:
    """A deadline as an integer, as the C++ system reads one: 0 if it is absent, a fraction is dropped, true is 1.
    Anything else is returned unchanged."""
    if value is None:
        return 0
    return int(value) if type(value) is bool or (type(value) is float and abs(value) < _INTEGER_LIMIT) else value


def _envelope_problem(envelope: dict[str, Any]) -> CommandError:
    command = envelope.get("command")
    if command in (None, ""):
        return CommandError(ErrorCode.INVALID_REQUEST, "missing command")
    if type(command) is not str:
        return CommandError(ErrorCode.PARSE_ERROR, "command must be a string")
    for name in ("timestampMs", "deadlineMs"):
        value = envelope.get(name)
        if type(value) not in _TIMES or (name == "deadlineMs" and type(_milliseconds(value)) is not int):
            return CommandError(ErrorCode.PARSE_ERROR, f"{name} must be a number: Unix milliseconds")
    if type(envelope.get("payload")) not in (dict, type(None)):
        return CommandError(ErrorCode.PARSE_ERROR, "payload must be an object")
    return CommandError(
        ErrorCode.INVALID_REQUEST, f"idempotencyKey must be a string of 1 to {IDEMPOTENCY_KEY_LIMIT} bytes of UTF-8"
    )


def encode_error(request_id: str, code: str, message: str) -> bytes:
    """Response bytes of an error answer."""
    error = {"code": code, "message": message}
    return orjson.dumps({"requestId": request_id, "ok": False, "error": error})
