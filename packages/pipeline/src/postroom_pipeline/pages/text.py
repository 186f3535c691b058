"""Values as people read them: numbers with units, times, names that may contain anything, and words for codes."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from ..reports.audit_messages import FINDINGS as _FINDINGS

#: Longer texts are cut on a page; the tables have all of it.
LONGEST: Final = 200
NOTHING: Final = "–"
#: Categories of characters that are invisible or change how others look: control, format (with bidi), surrogates,
#: private, unassigned, and line separators.
_UNSEEN: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_UNITS: Final = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "min"), (60_000, "min", 1000, "s"))


def shown(text: str, longest: int = LONGEST) -> str:
    """A text on one line, with each invisible character written as ``⟨U+202E⟩``; a long text is cut."""
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(f"⟨U+{ord(one):04X}⟩" if _is_unseen(one) else one for one in cut)


def quoted(text: str) -> str:
    """A text as one word of a shell command; with bash's ``$'…'`` if it has invisible characters."""
    if not any(map(_is_unseen, text)):
        return shlex.quote(text)
    escaped = (f"\\U{ord(one):08x}" if _is_unseen(one) else {"\\": "\\\\", "'": "\\'"}.get(one, one) for one in text)
    return f"$'{''.join(escaped)}'"


def count(number: float) -> str:
    """A number with commas; a fraction with one decimal."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def signed(number: float) -> str:
    """A number with its sign, for differences."""
    return f"+{count(number)}" if number > 0 else count(number).replace("-", "−")


def duration(ms: float) -> str:
    """A duration in its two largest units: ``850 ms``, ``2.5 s``, ``3 h 12 min``."""
    sign, ms = ("−" if ms < 0 else ""), abs(ms)
    if ms < 1000:
        return f"{sign}{ms:,.0f} ms"
    if ms < 60_000:
        return f"{sign}{ms / 1000:.3g} s"
    for large, large_name, small, small_name in _UNITS:
        if ms >= large:
            rest = int(ms % large // small)
            return f"{sign}{int(ms // large):,} {large_name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError("every duration is returned above")


def moment(at: dt.datetime) -> str:
    """A time in UTC, to the minute."""
    return f"{at:%Y-%m-%d %H:%M}"


def formatted(value: Any, kind: str = "") -> str:
    """Any value as text for a page.

    :param kind: ``ms`` for a duration, ``signed`` for a difference; by default the value's type decides.
    """
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, int | float):
        return {"ms": duration, "signed": signed}.get(kind, count)(value)
    if isinstance(value, str):
        return shown(value)
    return shown(json.dumps(value, ensure_ascii=False, default=str))


def formatted_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts by name as text; the end of a name gives the kind (``_ms``, ``_signed``)."""
    return {
        name: formatted(value, "ms" if name.endswith("_ms") else "signed" if name.endswith("_signed") else "")
        for name, value in facts.items()
    }


def _is_unseen(one: str) -> bool:
    return unicodedata.category(one) in _UNSEEN


#: Words for ``trouble`` of ``clock_trouble``.
TROUBLES: Final = {
    "step": "the clock was set",
    "boot_step": "the clock was another after a start of the machine",
    "wrong_year": "the year of the clock cannot be right",
    "engine_back": "the running time of the device went back",
    "power_cut": "the machine started without having been stopped in order",
}
#: Words for ``finding`` of ``audit_messages``.
FINDINGS: Final = {name: text for name, (_, text) in _FINDINGS.items()}
#: Words for ``metric`` and ``against`` of ``anomalies``.
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
    """SQL for the words of a column's value; a value without words stays as it is. Never put quotes into the words."""
    cases = " ".join(f"when '{name}' then '{text}'" for name, text in words.items())
    return f"case {column} {cases} else {column} end"


def figure(value: str) -> str:
    """SQL for a figure of ``anomalies`` as text with its unit."""
    number = "format_number({}, '#,##0.#')"
    return f"if(metric like '%ms', concat({number.format(f'{value} / 1000')}, ' s'), {number.format(value)})"
