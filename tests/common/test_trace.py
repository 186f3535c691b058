"""Which values of ``traceparent`` name a trace (W3C Trace Context, level 2, section 3.2)."""

from __future__ import annotations

import pytest

from postroom_common.codec import decode_request
from postroom_common.trace import TRACEPARENT_LIMIT, is_traceparent, trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize("value", [VALID, f"00-{TRACE}-{PARENT}-ff", f"cc-{TRACE}-{PARENT}-01", f"cc{VALID[2:]}-what"])
def test_a_value_that_the_standard_allows_names_a_trace(value):
    assert is_traceparent(value)
    assert trace_id(value) == TRACE


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        b"00",
        "",
        "00",
        VALID + "\n",
        VALID + "-",
        f" {VALID}",
        VALID.upper(),
        f"ff{VALID[2:]}",
        f"0{VALID}",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE}-{PARENT}-0g",
        f"00_{TRACE}_{PARENT}_01",
        f"cc{VALID[2:]}what",
        f"cc{VALID[2:]}-\x1b[2J",
        f"cc{VALID[2:]}-{'x' * TRACEPARENT_LIMIT}",
    ],
)
def test_a_value_that_the_standard_forbids_names_no_trace(value):
    assert not is_traceparent(value)


def test_a_request_has_the_trace_of_its_envelope_or_else_that_of_its_message():
    other = VALID.replace("01", "00")

    def read(envelope: str, payload: str) -> str:
        return decode_request(
            f'{{"requestId":"r","clientId":"c","command":"publish"{envelope},"payload":{{{payload}}}}}'.encode()
        ).traceparent

    assert read(f',"traceparent":"{VALID}"', f'"traceparent":"{other}"') == VALID
    assert read("", f'"traceparent":"{other}"') == other
    assert read(',"traceparent":null', f'"traceparent":"{other}"') == other
    assert read(',"traceparent":"none"', f'"traceparent":"{other}"') == ""
    assert read(',"traceparent":{"a":1}', "") == read("", '"traceparent":7') == read("", "") == ""
