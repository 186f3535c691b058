"""Messages as SimpleMQ's JSON shows them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

_BINARY: Final = "application/octet-stream"
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
#: Fields about the producer, which are attributes of the message.
_PRODUCER: Final = ("producerId", "producerName", "producerGroup", "clientVersion")
_ID_LIMIT: Final = 256
_INT: Final = (-(2**31), 2**31 - 1)


class InvalidMessage(ValueError):
    """A message that cannot be published. The text is a sentence."""


class Published(NamedTuple):
    """A message that is to be published."""

    topic: str
    body: bytes
    fields: Mapping[str, Any]
    #: The producer's own id; empty if it gave none.
    message_id: str = ""

    def idempotency_key(self) -> str:
        """What makes a message with the same id in the same topic a repeat of this one."""
        if not self.message_id:
            return ""
        return "simplemq-" + hashlib.sha256(f"{self.topic}\0{self.message_id}".encode()).hexdigest()


class Delivered(NamedTuple):
    """A message that was leased for a consumer."""

    message_id: str
    message_key: str
    lease_id: str
    #: Duration of the lease (s).
    seconds: float
    body: bytes
    shown: Mapping[str, Any]


def read_raw(topic: str, body: bytes) -> Published:
    """A message that is a body alone."""
    return Published(_checked_topic(topic), body, {"encoding": "binary", "contentType": _BINARY})


def read_json(data: bytes, default_topic: str = "") -> Published:
    """A message as JSON. Raises ``InvalidMessage``."""
    try:
        tree = orjson.loads(data)
    except ValueError:
        raise InvalidMessage("the message must be JSON in UTF-8") from None
    if type(tree) is not dict:
        raise InvalidMessage("the message must be an object")
    return read_tree(tree, default_topic)


def read_tree(tree: Mapping[str, Any], default_topic: str = "") -> Published:
    """A message as an object. What stands in ``header`` must be equal to what stands beside it. Raises
    ``InvalidMessage``."""
    header = _object(tree, "header")
    topic = _text(tree, header, "topic") or default_topic
    message_id = _text(tree, header, "messageId")
    if len(message_id.encode()) > _ID_LIMIT:
        raise InvalidMessage(f"messageId must have at most {_ID_LIMIT} bytes")
    body, fields = _body(tree, header.get("contentType"))
    priority = header.get("priority")
    if priority is not None:
        if type(priority) is not int or not _INT[0] <= priority <= _INT[1]:
            raise InvalidMessage("header.priority must be an integer of 32 bits")
        fields["priority"] = priority
    stamp = tree.get("timestamp", header.get("timestamp"))
    if type(stamp) in (str, int, float):
        fields["timestamp"] = stamp
    producer = _object(tree, "producerInfo")
    attributes = {name: value for name in _PRODUCER if isinstance(value := producer.get(name), str)}
    if attributes:
        fields["attributes"] = attributes
    if message_id:
        fields["deduplicationKey"] = message_id
    return Published(_checked_topic(topic), body, fields, message_id)


def encode_envelope(topic: str, delivered: Delivered) -> bytes:
    """A message as a consumer gets it that settles deliveries itself."""
    shown = delivered.shown
    attributes = shown.get("attributes")
    given = attributes if isinstance(attributes, dict) else {}
    stamp = shown.get("timestamp")
    created = datetime.fromtimestamp(shown["createdAt"] / 1000, UTC).isoformat(timespec="milliseconds")
    made = created.replace("+00:00", "Z")
    header = {
        "messageId": delivered.message_id,
        "topic": topic,
        "timestamp": made,
        "priority": shown.get("priority") or 0,
        "contentType": shown.get("contentType") or _type_of(shown),
    }
    return orjson.dumps(
        {
            "messageId": delivered.message_id,
            "deliveryId": delivered.lease_id,
            "topic": topic,
            "status": "DELIVERING",
            "attempt": shown.get("attempt", 1),
            "timestamp": made if stamp is None else stamp,
            "header": header,
            "body": base64.b64encode(delivered.body).decode(),
            "producerInfo": {name: given[name] for name in _PRODUCER if name in given} or None,
        }
    )


def _type_of(shown: Mapping[str, Any]) -> str:
    return {"text": _TEXT, "json": _JSON}.get(shown.get("encoding", ""), _BINARY)


def _body(tree: Mapping[str, Any], content_type: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a message, and what they are. ``body`` is base64 text, ``payload`` a text or another value."""
    given = content_type if isinstance(content_type, str) else ""
    body, payload = tree.get("body"), tree.get("payload")
    if body is not None:
        if type(body) is not str:
            raise InvalidMessage("body must be base64 text; for other values there is payload")
        try:
            return base64.b64decode(body, validate=True), {"encoding": "binary", "contentType": given or _BINARY}
        except ValueError:
            raise InvalidMessage("body must be base64 text; for other values there is payload") from None
    if "payload" not in tree:
        raise InvalidMessage("the message has neither body nor payload")
    if isinstance(payload, str):
        return payload.encode(), {"encoding": "text", "contentType": given or _TEXT}
    try:
        return orjson.dumps(payload), {"encoding": "json", "contentType": given or _JSON}
    except TypeError:  # what can be read may be nested more deeply than what can be written
        raise InvalidMessage("payload is nested too deeply") from None


def _object(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = tree.get(name)
    if value is not None and type(value) is not dict:
        raise InvalidMessage(f"{name} must be an object")
    return value or {}


def _text(tree: Mapping[str, Any], header: Mapping[str, Any], name: str) -> str:
    """A text that may stand in two places."""
    values = {value for value in (tree.get(name), header.get(name)) if isinstance(value, str) and value}
    if len(values) > 1:
        raise InvalidMessage(f"{name} and header.{name} differ")
    return values.pop() if values else ""


def _checked_topic(topic: str) -> str:
    if not topic:
        raise InvalidMessage("the topic is missing")
    return topic
