"""The filter of messages and dead letters, as people write it: words that the daemon's filters understand.

=====================  ==================================================================
``pump``               the text stands within the body; several such words are one text
``reason:CODE``        it died of this, or its last attempt failed with it
``why:TEXT``           this stands within the text of its last failure
``older:2h``           it is at least so old: ``90s``, ``10m``, ``2h``, ``3d``; a dead letter since its death
``younger:10m``        it is less old
``from:TIME``          it was published then or later: ``2026-11-28`` or ``2026-11-28T14:05``
``to:TIME``            it was published before
``c:NAME``             a consumer has it, or had it last
``tries:3``            it has been delivered so often, or more often
``prio:5``             it has just this priority
``key:NAME``           its ordering key
``corr:ID``            its correlation id
``attr:NAME=VALUE``    it has this attribute; the value is JSON or a text
``path:QUERY``         a JSON body has something there: ``path:$.a[?@.b>1]``
=====================  ==================================================================

A word with spaces stands in quotes: ``why:"not found"``.
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
    """The daemon's ``filter`` for what is written; empty for an empty text. Raises ``FilterError``."""
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
            raise FilterError(tr("{name}: needs something behind it").format(name=name))
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
    key, equals, told = value.partition("=")
    if not equals or not key:
        raise FilterError(tr("attr: is attr:name=value"))
    try:
        return {key: orjson.loads(told)}
    except orjson.JSONDecodeError:
        return {key: told}


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
