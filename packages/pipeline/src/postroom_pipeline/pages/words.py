"""What the names that reports use for kinds of trouble are called on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..reports.audit_messages import FINDINGS as _FINDINGS

#: Of ``clock_trouble``.
TROUBLES: Final = {
    "step": "the clock was set",
    "boot_step": "the clock was another after a start of the machine",
    "wrong_year": "the year of the clock cannot be right",
    "engine_back": "the running time of the device went back",
    "power_cut": "the machine started without having been stopped in order",
}
#: Of ``audit_messages``.
FINDINGS: Final = {name: text for name, (_, text) in _FINDINGS.items()}
#: Of ``anomalies``.
METRICS: Final = {
    "published": "messages published",
    "acked": "messages done",
    "retried": "deliveries that failed and were tried again",
    "died": "messages that died",
    "dropped": "messages dropped",
    "publish_to_lease_p90_ms": "wait of nine of ten messages until their delivery",
    "lease_to_ack_p90_ms": "work on nine of ten messages",
}
AGAINST: Final = {"own": "of its own past", "fleet": "of the same queue on the devices of the fleet"}


def in_words(column: str, words: Mapping[str, str]) -> str:
    """SQL for the words of a column's value; one that has none stands as it is. Words have no quotes."""
    cases = " ".join(f"when '{name}' then '{text}'" for name, text in words.items())
    return f"case {column} {cases} else {column} end"


def figure(value: str) -> str:
    """SQL for a figure of ``anomalies`` as a text with its unit."""
    told = "format_number({}, '#,##0.#')"
    return f"if(metric like '%ms', concat({told.format(f'{value} / 1000')}, ' s'), {told.format(value)})"
