"""Redacted values never leave the device, and what is exported of them is bounded and safe."""

from __future__ import annotations

import gzip
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_console.export.events import of_event
from postroom_console.export.redaction import (
    SHAPE_CHARACTERS,
    SHAPE_LEVELS,
    Redaction,
    Redactor,
    as_part,
    fit,
    shape_of,
)
from tests.console.exports import export, make
from tests.console.site import HOSTILE
from tests.wire.daemon import Daemon

BODY = "s3cret-body"
ATTRIBUTE = "s3cret-attribute"
NAMED = "s3cret-customer"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


def fill(daemon: Daemon) -> None:
    """Secrets wherever a daemon takes them."""
    attributes = {"kind": ATTRIBUTE, "customer-id": NAMED}
    for body in ({"deep": [BODY]}, BODY, json.dumps({"a": BODY})):
        daemon.publish("q", body, attributes=attributes)
        daemon.publish("waiting", body, attributes=json.dumps(attributes))
    for _ in range(3):
        daemon.settle("nack", daemon.consume("q"), reason="no", requeue=False)
    daemon.ask("append", queue="log", message={"deep": [BODY]}, attributes=attributes, createWith={})
    daemon.ask("append", queue="log", message={"deep": [BODY]}, attributes=attributes, delayMs=3_600_000)
    daemon.ask("set_schedule", name="daily", cron="30 5 * * *", queue="q", message=BODY, attributes=attributes)


@pytest.mark.parametrize("redaction", list(Redaction))
def test_no_more_of_bodies_and_attributes_is_exported_than_was_asked_for(
    daemon: Daemon, tmp_path: Path, redaction: Redaction
) -> None:
    fill(daemon)
    text = gzip.decompress(
        make(daemon.root, tmp_path / "out", redaction=redaction, hidden=("customer*",)).path.read_bytes()
    )
    assert (BODY.encode() in text) == (redaction is Redaction.NONE)
    assert (ATTRIBUTE.encode() in text) == (redaction is not Redaction.ATTRIBUTES)
    assert NAMED.encode() not in text
    snapshot = export(daemon.root, tmp_path / "other", redaction=redaction, hidden=("customer*",))
    with_bodies = ("published", "appended")
    reported = [*snapshot.of("dead"), *(line for line in snapshot.of("event") if line["type"] in with_bodies)]
    assert len(reported) == 11
    for line in reported:
        assert "record" not in line.get("ext", {})
        assert sorted(line["attributes"]) == ["customer-id", "kind"]
        assert line["payloadShape"] in ('{"deep":["string"]}', "text", '{"a":"string"}')
        assert ("payload" in line) == (redaction is Redaction.NONE)
    assert snapshot.header["hiddenAttributes"] == ["customer*"]


def test_a_body_has_the_same_digest_when_it_is_published_and_when_it_is_dead(daemon: Daemon, tmp_path: Path) -> None:
    bodies: list[tuple[Any, dict[str, Any]]] = [
        ({"b": 1.50, "a": [1e300, -0.0, 10**18]}, {}),
        ("text", {}),
        (HOSTILE, {}),
        ("AAEC", {"encoding": "base64"}),
        (["수집"], {}),
        (None, {}),
        (7, {}),
    ]
    for body, more in bodies:
        daemon.publish("q", body, **more)
        daemon.settle("nack", daemon.consume("q"), reason="no", requeue=False)
    snapshot = export(daemon.root, tmp_path / "out")
    names = ("payloadBytes", "payloadDigest", "payloadShape", "contentType")
    published = {
        line["message"]: [line.get(name) for name in names]
        for line in snapshot.of("event")
        if line["type"] == "published"
    }
    assert {line["message"]: [line.get(name) for name in names] for line in snapshot.of("dead")} == published
    digests = {reported[1] for reported in published.values()}
    assert blake2b(b"text", digest_size=16).hexdigest() in digests
    assert blake2b(b"\0\1\2", digest_size=16).hexdigest() in digests
    assert len(digests) == len(bodies)


def test_a_shape_has_the_structure_without_the_values() -> None:
    value = {"press": 7, "tags": ["hot", "new"], "mixed": [1, "a", None, 2], "at": {"x": 1.5, "ok": True}, "none": []}
    assert json.loads(shape_of(value)) == {
        "press": "integer",
        "tags": ["string"],
        "mixed": ["integer", "string", "null"],
        "at": {"x": "number", "ok": "boolean"},
        "none": [],
    }
    assert (shape_of(7), shape_of(None), shape_of("x")) == ("integer", "null", "string")


def test_a_shape_is_bounded() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    assert json.loads(shape_of(deep)) == json.loads('{"a":' * SHAPE_LEVELS + '"object"' + "}" * SHAPE_LEVELS)
    wide = {f"name-{number}": {"x": number} for number in range(10_000)}
    assert len(shape_of(wide)) <= SHAPE_CHARACTERS
    assert shape_of({"n" * 2000: 1}) == "object"
    assert shape_of([{f"{number}" * 20: 1} for number in range(500)]) == '["object"]'


@given(JSON)
def test_whatever_a_body_is_its_line_can_be_written(value: Any) -> None:
    fields = Redactor(Redaction.NONE).body({"json": value})
    assert len(fields["payloadShape"]) <= SHAPE_CHARACTERS
    orjson.dumps(fields)
    json.loads(orjson.dumps(fit(value)), parse_constant=pytest.fail)


@given(st.text())
def test_whatever_a_text_is_its_line_can_be_written(text: str) -> None:
    fields = Redactor(Redaction.NONE).body({"text": text})
    assert orjson.loads(orjson.dumps(fields))["payload"] == text
    assert fields["payloadBytes"] == len(text.encode())


def test_values_that_no_reader_accepts_are_converted() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    assert fit({"a": 2**70, "b": float("nan"), "c": 10**400, "d": "\ud800", "e": -(2**63)}) == {
        "a": float(2**70),
        "b": None,
        "c": None,
        "d": "?",
        "e": -(2**63),
    }
    orjson.dumps(fit(deep))
    orjson.dumps(Redactor(Redaction.PAYLOAD).rest({"some": deep}))
    orjson.dumps(Redactor(Redaction.PAYLOAD).attributes({"some": deep}))


def test_attributes_that_are_not_an_object_are_left_out() -> None:
    values: list[Any] = ["plain", "[1]", 7, None, "{", {}, '{"a":1']
    for value in values:
        assert Redactor(Redaction.PAYLOAD).attributes(value) is None


def test_patterns_of_attributes_are_case_sensitive() -> None:
    redactor = Redactor(Redaction.PAYLOAD, ("cust*", "?x"))
    reported = redactor.attributes({"customer": 1, "Customer": 2, "ax": 3, "x": 4})
    assert reported == {"customer": None, "Customer": 2, "ax": None, "x": 4}


def test_an_event_of_a_newer_daemon_is_exported_without_its_bodies() -> None:
    event = {
        "id": 9, "epoch": 1, "req": 9, "grp": 9, "engineMs": 1, "wallMs": 2, "type": "teleported", "queue": "q",
        "key": "k", "priority": "high", "speed": 3, "copies": [{"message": {"parts": [{"text": BODY}]}, "to": "mars"}],
        "by": {"uid": 1, "client": "c", "request": "r", "digest": "d"}, "crc": "00000000",
    }  # fmt: skip
    line = of_event(event, Redactor(Redaction.PAYLOAD))
    assert line["type"] == "teleported"
    assert (line["queue"], line["message"], line["client"], line["requestEnd"]) == ("q", "k", "c", 9)
    assert line["ext"] == {"priority": "high", "speed": 3, "copies": [{"to": "mars"}]}


def test_the_principal_and_the_door_of_a_gateway_are_exported() -> None:
    event = {
        "id": 9, "epoch": 1, "req": 9, "grp": 9, "engineMs": 1, "wallMs": 2, "type": "acked", "queue": "q",
        "key": "k", "lease": "l", "heldMs": 0, "crc": "00000000",
        "by": {"principal": "token:a", "client": "token:a", "request": "r", "digest": "d", "door": "lmq-http"},
    }  # fmt: skip
    line = of_event(event, Redactor(Redaction.PAYLOAD))
    assert line["ext"] == {"by": {"principal": "token:a", "door": "lmq-http"}}
    assert line["client"] == "token:a" and "uid" not in line


def test_fields_of_an_event_with_another_type_break_nothing() -> None:
    """One column has one type: what does not fit stands aside."""
    numbers = {"id": 1, "epoch": 1, "req": 1, "grp": 1, "engineMs": 1, "wallMs": 1}
    odd: list[Any] = [None, 7, "x", [], {}, True, 1.5]
    for value in odd:
        event = {**numbers, "type": "published", **dict.fromkeys(("queue", "key", "attempt", "to", "uid"), value)}
        line = of_event(
            {**event, "by": value, "failure": value, "message": value, "body": value}, Redactor(Redaction.NONE)
        )
        types = {"queue": str, "message": str, "attempt": int, "to": str, "uid": int}
        assert all(type(line[name]) is kind for name, kind in types.items() if line.get(name) is not None)
        orjson.dumps(line)


def test_an_ambiguous_answer_is_resolved_by_its_length() -> None:
    assert as_part("x", None, None, 1) == {"text": "x"}
    assert as_part("x", None, "text/plain", 3) == {"json": "x", "contentType": "text/plain"}
    assert as_part("AAEC", "base64", None, 3) == {"base64": "AAEC"}
