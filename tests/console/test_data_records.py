"""Lines of the journal and of the traffic log as records, whatever they contain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_common.events import encode_line
from postroom_console.data.records import Record, body_json, body_text, from_event, from_request
from postroom_console.data.text import clean
from postroom_console.data.views import record_columns, record_row
from tests.console.lines import event, event_line, published, request, request_line

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        (published("hello"), "p0 hello"),
        (published("\x1b[2J \u202e [/b]"), "p0 \\x1b[2J \\u202e [/b]"),
        (event(1, "dropped", reason="\x9b2J"), "try - \\x9b2J"),
        (published({"a": [True, None]}, priority=3), 'p3 {"a":[true,null]}'),
        (event(1, message={"parts": [{"base64": "AAEC"}]}), "p0 AAEC"),
        (event(1, body={"bytes": 2100, "blake2b": "00"}), "p0 [2.1kB]"),
        (event(5, "leased", consumer="w-1", attempt=2, untilEngineMs=30_050), "w-1 try 2 for 30s"),
        (event(1, "acked", heldMs=12_000), "after 12s"),
        (
            event(1, "died", failure={"attempt": 5, "reasonCode": "REJECTED", "reasonMessage": "no"}),
            "try 5 REJECTED no",
        ),
        (event(1, "dropped", reason="idle"), "try - idle"),
        (event(1, "moved", to="line.red"), "to line.red"),
        (event(1, "policy_set", policy={"a": 1}), '{"a":1}'),
        (event(1, "policy_patterns_set", patterns=[{"pattern": "a"}]), '[{"pattern":"a"}]'),
        (event(1, "clock_marked"), ""),
        (event(1, "not_invented_yet", queue="q"), ""),
        (request("publish"), "OK 0.5ms 183B uid 1000"),
        (request("publish", "ERR_PAUSED"), "ERR_PAUSED 0.5ms 183B uid 1000"),
        (request("publish", door="lane"), "OK 0.5ms 183B uid 1000 by lane"),
        (request(uid=None, principal="token:a\x1b", door="lmq-http"), "OK 0.5ms 183B token:a\\x1b by lmq-http"),
    ],
)
def test_a_record_describes_what_happened_in_words(record: Record, detail: str) -> None:
    assert record.detail == detail


def test_a_record_has_the_fields_that_are_filtered() -> None:
    record = event(7, "died", queue="q", key="msg:q:1", by={"client": "app", "request": "r-1"}, consumer="w-1")
    assert record[:11] == (1795857482007, 70, True, "died", "q", "msg:q:1", "app", "", "r-1", 7, True)
    assert record.fields()["id"] == 7


def test_only_refused_requests_count_as_trouble() -> None:
    assert [request(code=code).is_trouble for code in ("OK", "ERR_FORBIDDEN")] == [False, True]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1,2]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"id":1,"type":"acked"}',
        event_line(1).replace(b'"published"', b'"dismantle"').rstrip(),
        event_line(1).rstrip()[:-1],
        encode_line({"id": 1, "type": "acked"}).rstrip(),
    ],
)
def test_an_incomplete_event_is_not_a_record(line: bytes) -> None:
    assert from_event(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"7",
        request_line(wallMs=1e300).rstrip(),
        request_line(engineMs="0").rstrip(),
        request_line().replace(b'"OK"', b"null").rstrip(),
        request_line(command="").rstrip(),
        request_line().rstrip()[:-1],
    ],
)
def test_an_incomplete_request_is_not_a_record(line: bytes) -> None:
    assert from_request(line) is None


FIELDS = [
    *("queue", "key", "by", "consumer", "priority", "message", "body", "untilEngineMs", "attempt", "heldMs", "failure"),
    *("to", "reason", "policy", "client", "uid", "ms", "bytes", "request"),
]


@given(
    st.sampled_from(["published", "leased", "acked", "died", "moved", "policy_set", "\x1b[2J"]),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=6),
    st.integers(-(2**53), 2**53),
)
def test_a_line_is_drawn_whatever_its_fields_contain_and_controls_nothing(kind: str, fields: Any, wall_ms: int) -> None:
    line = encode_line(
        {"id": 1, "epoch": 1, "req": 1, "grp": 1, "engineMs": 1, "wallMs": wall_ms, "type": kind, **fields}
    )
    record = from_event(line.rstrip(b"\n"))
    assert record
    for one in (record, from_request(request_line(**{**fields, "wallMs": wall_ms}).rstrip())):
        if one:
            row = record_row(1, one, one.wall_ms)
            assert len(row.cells) == len(record_columns())
            assert all(clean(cell.text) == cell.text for cell in row.cells)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail(line: bytes) -> None:
    assert from_event(line) is None
    assert from_request(line) is None


@given(values)
def test_a_message_of_any_shape_has_a_text_and_perhaps_json(message: Any) -> None:
    assert isinstance(body_text(message), str)
    body_json(event(1, message=message))


def test_json_that_was_sent_as_text_is_json_too() -> None:
    assert body_json(published(json.dumps({"a": 1}))) == {"a": 1}
    assert body_json(published("no json")) is None
    assert body_json(event(1, "acked")) is None


def test_only_the_beginning_of_a_huge_body_is_shown() -> None:
    assert len(published("x" * 100_000).detail) == 400
