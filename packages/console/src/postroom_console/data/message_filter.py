"""he filter of messages and dead letters: words that become the daemon's filter.

=====================  ==================================================================
``pump``               with this text in its body; several such words are one text
``reason:CODE``        that died with this code, or whose last attempt failed with it
``why:TEXT``           with this text in the text of its last failure
``older:2h``           at least this old: ``90s``, ``10m``, ``2h``, ``3d``; a dead letter since its death
``younger:10m``        less than this old
``from:TIME``          published from this time: ``2026-11-28`` or ``2026-11-28T14:05``
``to:TIME``            published before this time
``c:NAME``             leased by this consumer, or last leased by it
``tries:3``            delivered at least this often
``prio:5``             with exactly this priority
``key:NAME``           with this ordering key
``corr:ID``            with this correlation id
``attr:NAME=VALUE``    with this attribute; the value is JSON or a text
``path:QUERY``         with a JSON body in which the query finds a value: ``path:$.a[?@.b>1]``
=====================  ==================================================================

A word with spaces needs quotes: ``why:"not found"``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import orjson

from ..i18n import tr
from .filters import WORD, FilterError

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def message_filter(text: str) -> dict[str, Any]:
    """The daemon's ``filter`` for a text; empty for an empty text. Raises ``FilterError``."""
    if text.count('"') % 2:
        raise FilterError(tr('a quote (") is not closed'))
    wanted: dict[str, Any] = {}
    plain = []
    for word in WORD.findall(text):
        name, colon, value = word.partition(":")
        known = _FIELDS.get(name) if colon else None
        if known is None:
            plain.append(word.replace('"', ""))
            continue
        key, read = known
        value = value if name == "path" else value.replace('"', "")
        if not value:
            raise FilterError(tr("{name}: needs a value").format(name=name))
        wanted[key] = {**wanted.get(key, {}), **read(name, value)} if key == "attribute" else read(name, value)
    if plain:
        wanted["text"] = " ".join(plain)
    return wanted


def _as_is(name: str, value: str) -> str:
    return value


def _code(name: str, value: str) -> str:
    return value.upper()


def _span(name: str, value: str) -> int:
    found = _SPAN.fullmatch(value)
    if not found:
        raise FilterError(tr("{name}: a time span is 90s, 10m, 2h or 3d").format(name=name))
    return int(float(found[1]) * _UNIT_MS[found[2]])


def _time(name: str, value: str) -> int:
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise FilterError(tr("{name}: a time is 2026-11-28 or 2026-11-28T14:05").format(name=name)) from None


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise FilterError(tr("{name}: needs a number").format(name=name)) from None


def _attribute(name: str, value: str) -> dict[str, Any]:
    key, equals, text = value.partition("=")
    if not equals or not key:
        raise FilterError(tr("attr: must be attr:name=value"))
    try:
        return {key: orjson.loads(text)}
    except orjson.JSONDecodeError:
        return {key: text}


_FIELDS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "reason": ("reasonCode", _code),
    "why": ("reasonText", _as_is),
    "older": ("olderThanMs", _span),
    "younger": ("youngerThanMs", _span),
    "from": ("from", _time),
    "to": ("to", _time),
    "c": ("consumerId", _as_is),
    "tries": ("attemptAtLeast", _number),
    "prio": ("priority", _number),
    "key": ("orderingKey", _as_is),
    "corr": ("correlationId", _as_is),
    "attr": ("attribute", _attribute),
    "path": ("jsonPath", _as_is),
}
