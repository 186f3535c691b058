"""The filter of the tail: words that must all hold.

========================  ==========================================================
``pump``                  the text stands anywhere in the line, whatever its case
``q:NAME``                the queue; ``*`` stands for any characters
``c:CLIENT``              the client or consumer
``cmd:publish``           requests of a command
``ev:died``               events of a type
``err:CODE``              requests that were refused; ``err:*`` is any refusal
``id:TEXT``               part of a message's key, or of a request's id
``.path.in.json=VALUE``   a published body has this value there; without ``=``, anything
``~REGEX``                a regular expression finds something in the line
``!WORD``                 the word must not hold
========================  ==========================================================

A word with spaces stands in quotes: ``"two words"``, ``!q:"my queue"``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Any, Final

import orjson

from .records import Record, body_json

Test = Callable[[Record], bool]

_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_STEP: Final = re.compile(r"\.([^.\[\]=]+)|\[(\d+)\]")
#: Bytes of a line in which a regular expression looks: a costly one does not stop the screen.
_REGEX_BYTES: Final = 2048


class FilterError(ValueError):
    """The filter cannot be read; the text says why."""


def compile_filter(text: str) -> Test:
    """What tells whether a record is meant. An empty text means all.

    Raises ``FilterError``.
    """
    if text.count('"') % 2:
        raise FilterError('a quote (") is not closed')
    tests = [_test_of(word) for word in _WORD.findall(text)]
    if not tests:
        return lambda record: True
    if len(tests) == 1:
        return tests[0]
    return lambda record: all(test(record) for test in tests)


def _test_of(word: str) -> Test:
    if word.startswith("!"):
        if len(word) == 1:
            raise FilterError("! stands before a word: !q:alarms")
        test = _test_of(word[1:])
        return lambda record: not test(record)
    if word.startswith("~"):
        return _regex(_unquoted(word[1:]))
    if word.startswith((".", "[")) and _STEP.match(word):
        return _path(_unquoted(word))
    name, colon, value = word.partition(":")
    make = _FIELDS.get(name) if colon else None
    if make:
        if not value.strip('"'):
            raise FilterError(f"{name}: needs something behind it")
        return make(_unquoted(value))
    return _text(_unquoted(word))


def _unquoted(text: str) -> str:
    return text.replace('"', "")


def _text(word: str) -> Test:
    plain, raw = word.casefold(), orjson.dumps(word)[1:-1].lower()
    return lambda record: raw in record.raw.lower() or plain in record.detail.casefold()


def _regex(pattern: str) -> Test:
    try:
        search = re.compile(pattern, re.IGNORECASE).search
    except re.error as error:
        raise FilterError(f"the regular expression cannot be read: {error}") from None
    return lambda record: search(record.raw[:_REGEX_BYTES].decode("utf-8", "replace")) is not None


def _matcher(pattern: str) -> Callable[[str], bool]:
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    found = re.compile(translate(pattern.replace("[", "[[]")), re.IGNORECASE)
    return lambda text: found.match(text) is not None


def _queue(pattern: str) -> Test:
    fits = _matcher(pattern)
    return lambda record: fits(record.queue)


def _client(pattern: str) -> Test:
    fits = _matcher(pattern)
    return lambda record: fits(record.client)


def _command(pattern: str) -> Test:
    fits = _matcher(pattern)
    return lambda record: not record.is_event and fits(record.kind)


def _event(pattern: str) -> Test:
    fits = _matcher(pattern)
    return lambda record: record.is_event and fits(record.kind)


def _refusal(pattern: str) -> Test:
    fits = _matcher(pattern.upper())
    return lambda record: record.code not in ("", "OK") and fits(record.code)


def _id(part: str) -> Test:
    return lambda record: part in record.key or part in record.request


_FIELDS: Final[dict[str, Callable[[str], Test]]] = {
    "q": _queue,
    "c": _client,
    "cmd": _command,
    "ev": _event,
    "err": _refusal,
    "id": _id,
}


def _path(word: str) -> Test:
    steps, end = [], 0
    while step := _STEP.match(word, end):
        steps.append(step[1] if step[1] is not None else int(step[2]))
        end = step.end()
    rest = word[end:]
    if rest and not rest.startswith("="):
        raise FilterError(f"{word}: a path is .name.name[0]=value")
    wanted = rest[1:] if rest else None

    def test(record: Record) -> bool:
        if record.kind != "published":
            return False
        return any(wanted is None or wanted in _shown(value) for value in _values(body_json(record), steps))

    return test


def _values(value: Any, steps: list[str | int]) -> Iterator[Any]:
    for step in steps:
        fits = (
            isinstance(value, dict) and step in value
            if isinstance(step, str)
            else isinstance(value, list) and step < len(value)
        )
        if not fits:
            return
        value = value[step]
    yield value


def _shown(value: Any) -> tuple[str, ...]:
    """How a value may be written in a filter."""
    text = orjson.dumps(value).decode()
    return (text, value) if type(value) is str else (text,)
