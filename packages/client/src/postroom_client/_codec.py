"""Encodes requests and decodes responses. No I/O, no clock, no randomness."""

import binascii
import json
import re

from . import _protocol
from ._compat import PY2, integer_types, ordered_dict, text_type
from .errors import ERRORS_BY_CODE, BadResponse, InvalidArgument, ServerError

_encode_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_is_id = re.compile("(?:" + _protocol.ID_PATTERN + r")\Z").match
_has_surrogate = re.compile(b"\xed[\xa0-\xbf]").search
_INFINITY = float("inf")
#: The envelope and its payload take two of the levels of nesting that a request may have.
_DEPTH_LIMIT = _protocol.JSON_DEPTH_LIMIT - 2


class Binary(object):
    """A body of bytes: ``data``, with its media type ``content_type`` or None.

    Text and JSON values are published as they are. Bytes must be published in this wrapper, and are delivered in it.
    """

    __slots__ = ("content_type", "data")

    def __init__(self, data, content_type=None):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidArgument("Binary takes bytes, not " + type(data).__name__)
        self.data = data.tobytes() if isinstance(data, memoryview) else bytes(data)
        self.content_type = content_type

    def __eq__(self, other):
        if not isinstance(other, Binary):
            return NotImplemented
        return (self.data, self.content_type) == (other.data, other.content_type)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash((self.data, self.content_type))

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        return "<Binary of %d bytes, %s>" % (len(self.data), self.content_type or "no content type")


def check_id(text, what):
    """Return ``text`` as a native string (on Python 2.7: UTF-8) if it is a valid id. Raises ``InvalidArgument``."""
    try:
        chars = text.decode("utf-8") if PY2 and isinstance(text, bytes) else text
        data = chars.encode("utf-8") if isinstance(chars, text_type) and _is_id(chars) else b""
    except UnicodeError:
        data = b""
    if not 0 < len(data) <= _protocol.ID_BYTES_LIMIT or _has_surrogate(data):
        raise InvalidArgument("%s %r: expected %s" % (what, text, _protocol.ID_RULE))
    return data if PY2 else chars


def encode_payload(command, options, replaced=()):
    """Return the payload of ``command`` from its options by their Python names. Options that are None are left out.
    ``replaced`` are required options that the request gives elsewhere.

    Raises ``InvalidArgument`` for an unknown or missing option, or for a value of the wrong type.
    """
    names = tuple(options)
    fields = _fields_by_names.get((command, names))
    if fields is None:
        fields = _fields_of(command, names)
    payload = ordered_dict()
    for wire_name, name, kind, exact in fields:
        value = options[name]
        if exact is not None:
            if value is None:
                continue
            if type(value) not in exact:
                check_kind(kind, value, name)
        elif isinstance(value, Binary) and value.content_type is not None and not options.get("content_type"):
            return encode_payload(command, dict(options, content_type=value.content_type), replaced)
        payload[wire_name] = value
    for wire_name, name in _REQUIRED[command]:
        if wire_name not in payload and name not in replaced:
            _check_replaced(command, wire_name, name, options)
    if lacks_delivery(command, payload):
        raise InvalidArgument("%s needs message_key or lease_id" % command)
    return payload


#: By command and the names of its options: their fields, see ``_fields_of``.
_fields_by_names = {}  # type: dict
_NAMES_LIMIT = 256
_REQUIRED = {command: [field[:2] for field in fields if field[4]] for command, fields in _protocol.FIELDS.items()}


def _fields_of(command, names):
    """Return the fields of ``command`` that have these Python names, in the protocol's order: the name on the wire, the
    Python name, the kind, and the types that are certainly of this kind (None: every type is).

    Raises ``InvalidArgument`` for a name that the command does not have.
    """
    fields = [
        (field[0], field[1], field[2], None if field[2] == "any value" else _EXACT.get(field[2], ()))
        for field in _protocol.FIELDS[command]
        if field[1] in names
    ]
    unknown = set(names).difference([field[1] for field in fields])
    if unknown:
        known = ", ".join(field[1] for field in _protocol.FIELDS[command]) or "none"
        raise InvalidArgument("%s has no option %s; it has: %s" % (command, ", ".join(sorted(unknown)), known))
    if len(_fields_by_names) >= _NAMES_LIMIT:
        _fields_by_names.clear()
    _fields_by_names[command, names] = fields
    return fields


def lacks_delivery(command, payload):
    """Return whether ``command`` is about a delivery, and its payload names neither the message nor the lease."""
    return command in _ABOUT_DELIVERIES and "messageKey" not in payload and "leaseId" not in payload


_ABOUT_DELIVERIES = frozenset(
    command for command, fields in _protocol.FIELDS.items() if any(field[0] == "leaseId" for field in fields)
)


def _check_replaced(command, wire_name, name, options):
    """Raise ``InvalidArgument`` for a missing field, unless one that replaces it is given."""
    others = [
        field[1] for field in _protocol.FIELDS[command] if _protocol.INSTEAD_OF.get(field[0]) == wire_name
    ]
    if all(options.get(other) is None for other in others):
        raise InvalidArgument("%s needs %s" % (command, " or ".join([name] + others)))


def check_kind(kind, value, name):
    """Raise ``InvalidArgument``, which names the argument, if ``value`` is not of the ``kind`` of its field."""
    if kind == "any value" or type(value) in _EXACT.get(kind, ()):
        return
    if not any(_is_kind(word, value) for word in kind.split(" or ")):
        words = " or ".join(_KIND_WORDS[word] for word in kind.split(" or "))
        raise InvalidArgument("%s must be %s, not %r" % (name, words, value))


_EXACT = {
    "integer": integer_types,
    "boolean": (bool,),
    "string": (text_type, str),
    "queue name": (text_type, str),
    "object": (dict,),
    "array": (list, tuple),
}
_TYPES = {"integer": integer_types, "number": integer_types + (float,), "object": (dict,), "array": (list, tuple)}
_KIND_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "True or False",
    "string": "a string",
    "queue name": "a string",
    "object": "a dict",
    "array": "a list",
}


def _is_kind(kind, value):
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    return isinstance(value, _TYPES.get(kind, (text_type, str)))


def encode_request(
    request_id, client_id, command, timestamp_ms, deadline_ms, payload, traceparent=None, idempotency_key=None
):
    """Return the header of a request, and its body: the bytes of all ``Binary`` in it. Without any, the header is the
    whole request; with some, a repeat is recognised by ``idempotency_key``.

    Raises ``InvalidArgument``, which names a value that cannot be sent.
    """
    bodies = []
    if not _is_plain(payload, _DEPTH_LIMIT + 1):
        payload, bodies = _take_bodies(payload)
        payload = _checked(payload, "", _DEPTH_LIMIT + 1)
    envelope = ordered_dict()
    envelope["requestId"] = _text(check_id(request_id, "request id"))
    envelope["clientId"] = _text(check_id(client_id, "client id"))
    envelope["command"] = command
    envelope["timestampMs"] = timestamp_ms
    envelope["deadlineMs"] = deadline_ms
    if traceparent is not None:
        check_kind("string", traceparent, "traceparent")
        envelope["traceparent"] = traceparent
    if bodies and idempotency_key is not None:  # its two forms differ, so that its bytes do not show what is a repeat
        envelope["idempotencyKey"] = idempotency_key
    envelope["payload"] = payload
    return _utf8(_encode_json(envelope)), b"".join(bodies)


def _utf8(data):
    if isinstance(data, text_type):
        try:
            data = data.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidArgument("text cannot be sent: it contains half a surrogate pair (%s)" % error.reason)
    if PY2 and _has_surrogate(data):
        raise InvalidArgument("text cannot be sent: it contains half a surrogate pair")
    return data


def _take_bodies(payload):
    """Return a payload with ``bodyBytes`` in place of ``Binary`` messages, and their bytes in the same order."""
    if not isinstance(payload, dict):
        return payload, []
    bodies = []
    payload = _without_body(payload, bodies)
    messages = payload.get("messages")
    if isinstance(messages, (list, tuple)):
        items = [_without_body(item, bodies) if isinstance(item, dict) else item for item in messages]
        payload = ordered_dict((name, items if name == "messages" else value) for name, value in payload.items())
    return payload, bodies


def _without_body(fields, bodies):
    message = fields.get("message")
    if not isinstance(message, Binary):
        return fields
    bodies.append(message.data)
    result = ordered_dict((name, value) for name, value in fields.items() if name not in ("message", "encoding"))
    result["bodyBytes"] = len(message.data)
    if message.content_type and not result.get("contentType"):
        result["contentType"] = message.content_type
    return result


def join_body(header, body):
    """Return the bytes of a request as the mailbox has it: its bodies as base64 within the JSON."""
    envelope = json.loads(header.decode("utf-8"), object_pairs_hook=ordered_dict)
    payload, start = envelope["payload"], 0
    for fields in [payload] + list(payload.get("messages") or ()):
        length = fields.pop("bodyBytes", None) if isinstance(fields, dict) else None
        if length is not None:
            fields["message"] = encode_base64(body[start : start + length])
            fields["encoding"] = u"base64"
            start += length
    return _utf8(_encode_json(envelope))


def encoded_length(value):
    """Return the size of a value in a request, in bytes. Raises ``InvalidArgument`` if it cannot be sent."""
    bodies = []
    if not _is_plain(value, _DEPTH_LIMIT):
        value = _checked(_without_body(value, bodies), "", _DEPTH_LIMIT)
    data = _encode_json(value)
    data = data.encode("utf-8", "replace") if isinstance(data, text_type) else data
    return len(data) + sum(base64_length(body) for body in bodies)


def _is_plain(container, depth):
    """Return whether the encoder can take an object or array as it is. If not, it must be ``_checked`` first."""
    if type(container) is dict or type(container) is ordered_dict:
        for key in container:
            if type(key) is not text_type:
                return False
        items = container.values()
    elif type(container) is list or type(container) is tuple:
        items = container
    else:
        return False
    if depth == 0:
        return False
    for item in items:
        kind = type(item)
        if kind is text_type or kind is bool or item is None:
            continue
        if kind is int:
            if not -(2**63) <= item < 2**64:
                return False
        elif kind is float:
            if not -_INFINITY < item < _INFINITY:
                return False
        elif not _is_plain(item, depth - 1):
            return False
    return True


def _checked(value, where, depth):
    """Return ``value`` ready for the encoder. Raises ``InvalidArgument`` for a value that the daemon would reject
    without an answer."""
    if value is None or isinstance(value, (bool, text_type)):
        return value
    if isinstance(value, integer_types):
        if not -(2**63) <= value < 2**64:
            raise InvalidArgument("%s: an integer must fit into 64 bits, not %d" % (where, value))
        return value
    if isinstance(value, float):
        if value != value or value in (_INFINITY, -_INFINITY):
            raise InvalidArgument("%s: %r has no JSON form" % (where, value))
        return value
    if isinstance(value, (dict, list, tuple)):
        if depth == 0:
            raise InvalidArgument("nested deeper than %d levels" % _DEPTH_LIMIT)
        if isinstance(value, dict):
            return _checked_object(value, where, depth)
        return [_checked(item, "%s[%d]" % (where, index), depth - 1) for index, item in enumerate(value)]
    if PY2 and isinstance(value, bytes):
        return _text_of_native(value, where)
    hint = "; wrap bytes in Binary" if isinstance(value, (bytes, bytearray, memoryview)) else ""
    raise InvalidArgument("%s: a %s cannot be sent as JSON%s" % (where, type(value).__name__, hint))


def _checked_object(value, where, depth):
    result = ordered_dict()
    for key, item in value.items():
        if PY2 and isinstance(key, bytes):
            key = _text_of_native(key, where)
        if not isinstance(key, text_type):
            raise InvalidArgument("%s: a key must be text, not %r" % (where or "payload", key))
        result[key] = _checked(item, where + "." + key if where else key, depth - 1)
    if len(result) != len(value):
        raise InvalidArgument("%s: a key occurs twice, as bytes and as text" % where)
    return result


def _text(native):
    """Return a valid id as text."""
    return native.decode("utf-8") if isinstance(native, bytes) else native


def _text_of_native(value, where):
    """Return a ``str`` of Python 2.7 as text."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidArgument("%s: a str must be UTF-8; wrap binary data in Binary" % where)


def base64_length(data):
    """Return how many bytes base64 of so many needs, with the name of its field."""
    return (len(data) + 2) // 3 * 4 + 32


def encode_base64(data):
    """Return bytes as base64 text, for ``encoding`` "base64"."""
    return binascii.b2a_base64(data).decode("ascii").rstrip("\n")


def decode_response(data, request_id, body=None):
    """Return the ``data`` object of a response; ``body`` has the bodies of its messages, if they are not in ``data``.

    Raises ``BadResponse`` if the bytes are not a response to ``request_id``, and the class of the error code if the
    daemon refused the request.
    """
    try:
        reply = json.loads(data.decode("utf-8"))
    except (ValueError, RuntimeError) as error:
        raise BadResponse("the response to %s is not JSON: %s" % (request_id, error))
    if not isinstance(reply, dict) or reply.get("requestId") != _text(request_id):
        raise BadResponse("the response to %s answers another request" % request_id)
    if reply.get("ok") is True:
        result = reply.get("data")
        if not isinstance(result, dict):
            raise BadResponse("the response to %s has no data" % request_id)
        if body is not None:
            _put_bodies(result, body, request_id)
        return result
    error = _error_in(reply)
    if error is None:
        raise BadResponse("the response to %s has neither data nor an error" % request_id)
    raise error


def _error_in(reply):
    """Return the exception for the error that a response has, or None."""
    error = reply.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), text_type):
        return None
    code = str(error["code"]) if error["code"] in ERRORS_BY_CODE else error["code"]
    return ERRORS_BY_CODE.get(code, ServerError)(code, error.get("message") or "", error.get("data"))


def encode_hello(client_id):
    """Return the header of the first frame on a connection of the lane."""
    return _utf8(_encode_json({"hello": {"versions": [_protocol.LANE_VERSION], "clientId": _text(client_id)}}))


def decode_hello(data):
    """Return how many bytes a frame to the daemon may have. Raises ``BadResponse``."""
    try:
        return int(json.loads(data.decode("utf-8"))["hello"]["requestBytes"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadResponse("the daemon's hello cannot be read: %r" % (error,))


def encode_cancel(request_id):
    """Return the header of the frame that ends the wait of a request."""
    return _utf8(_encode_json({"cancel": _text(request_id)}))


def error_of_connection(data):
    """Return the exception for an error that answers no request, or None if ``data`` is something else."""
    try:
        reply = json.loads(data.decode("utf-8"))
    except ValueError:
        return None
    return _error_in(reply) if isinstance(reply, dict) and "requestId" not in reply else None


def _put_bodies(data, body, request_id):
    """Give the messages of an answer their bodies, as the mailbox has them."""
    view, start = memoryview(body), 0
    entries = data.get("messages") or data.get("records")
    entries = [data] + (entries if isinstance(entries, list) else [])
    try:
        for message in [one for entry in entries for one in _messages_in(entry)]:
            length = message.pop("bodyBytes")
            encoding = message.pop("encoding")
            part = view[start : start + length].tobytes()
            _put_body(message, encoding, part)
            for one in message.get("parts", ()):
                end = start + one.pop("bodyBytes")
                _put_body(one, one.pop("encoding"), view[start:end].tobytes())
                start, length = end, 0
            start += length
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadResponse("the response to %s has bodies that cannot be read: %s" % (request_id, error))


def _put_body(fields, encoding, body):
    """Give a message, or one of its parts, its body."""
    if encoding == "binary":
        fields["payload"], fields["encoding"] = encode_base64(body), u"base64"
        fields.setdefault("contentType", u"application/octet-stream")
    else:
        text = body.decode("utf-8")
        fields["payload"] = json.loads(text) if encoding == "json" else text


def _messages_in(entry):
    """Return what in an answer, or in one of its ``messages``, has a body."""
    places = (entry, entry.get("message"), entry.get("originalMessage"))
    return [one for one in places if isinstance(one, dict) and "bodyBytes" in one]


def decode_body(message):
    """Return the body of a consumed message: ``Binary``, or text or a value as ``payloadAs`` has asked."""
    payload = message.get("payload")
    if message.get("encoding") != "base64":
        return payload
    try:
        return Binary(binascii.a2b_base64(payload.encode("ascii")), message.get("contentType"))
    except (AttributeError, ValueError, binascii.Error) as error:
        raise BadResponse("message %s: its body is not base64: %s" % (message.get("messageKey"), error))
