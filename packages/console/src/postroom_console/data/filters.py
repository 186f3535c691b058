"""he filter of the tail. A line must match all words:

========================  ==========================================================
``pump``                  lines with this text, case-insensitively
``q:NAME``                the queue; ``*`` stands for any characters, ``?`` for one
``c:CLIENT``              the client or consumer
``cmd:publish``           requests of a command
``ev:died``               events of a type
``err:CODE``              refused requests, with or without ``ERR_``; ``err:*`` matches any error
``id:TEXT``               a part of a message key or request id
``.path.in.json=VALUE``   a published body with this value at this path; without ``=``, any value
``~REGEX``                a regular expression
``!WORD``                 lines that do not match the word
========================  ==========================================================

A word with spaces needs quotes: ``"two words"``, ``!q:"my queue"``, ``."a name"=1``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Any, Final

import orjson

from ..i18n import tr
from .records import Record, body_json
from .regex_timeout import RegexTimeout

Test = Callable[[Record], bool]

#: A word; quoted text in it may have spaces.
WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_STEP: Final = re.compile(r"\.([^.\[\]=]+)|\[(\d+)\]")
#: Bytes of a line that regular expressions search.
_REGEX_BYTES: Final = 2048


class FilterError(ValueError):
    """The filter is invalid; the text says why."""


class Filter:
    """Decides whether a record matches. An empty text matches all, see ``is_empty``.

    The constructor raises ``FilterError``. ``problem`` says that a regular expression took too long and was aborted, so
    that lines are missing; it is empty otherwise.
    """

    def __init__(self, text: str) -> None:
        self._patience = RegexTimeout()
        if text.count('"') % 2:
            raise FilterError(tr('a quote (") is not closed'))
        self._tests = [_test_of(word, self._patience) for word in WORD.findall(text)]
        self.is_empty = not self._tests

    def __call__(self, record: Record) -> bool:
        return all(test(record) for test in self._tests)

    @property
    def problem(self) -> str:
        return tr("the regular expression takes too long: lines are missing") if self._patience.is_spent else ""


def _test_of(word: str, patience: RegexTimeout) -> Test:
    bare = word.lstrip("!")
    if not bare:
        raise FilterError(tr("! must precede a word: !q:alarms"))
    test = _plain_test_of(bare, patience)
    if (len(word) - len(bare)) % 2:
        return lambda record: not test(record)
    return test


def _plain_test_of(word: str, patience: RegexTimeout) -> Test:
    if word.startswith("~"):
        return _regex(_unquoted(word[1:]), patience)
    if word.startswith((".", "[")) and _STEP.match(_unquoted(word)):
        return _path(_unquoted(word))
    name, colon, value = word.partition(":")
    make = _FIELDS.get(name) if colon else None
    if make:
        if not _unquoted(value):
            raise FilterError(tr("{name}: needs a value").format(name=name))
        return make(_unquoted(value))
    return _text(_unquoted(word))


def _unquoted(text: str) -> str:
    return text.replace('"', "")


def _text(word: str) -> Test:
    plain = word.casefold()
    # As JSON has it. Half a surrogate pair, which a terminal may send, is in no line.
    raw = orjson.dumps(word.encode("utf-8", "replace").decode())[1:-1].lower()
    return lambda record: raw in record.raw.lower() or plain in record.detail.casefold()


def _regex(pattern: str, patience: RegexTimeout) -> Test:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about syntax that may change its meaning
            search = re.compile(pattern, re.IGNORECASE).search
    except (re.error, RecursionError, OverflowError) as error:
        raise FilterError(tr("invalid regular expression: {error}").format(error=error)) from None

    def test(record: Record) -> bool:
        text = record.raw[:_REGEX_BYTES].decode("utf-8", "replace")
        return patience.call(lambda: search(text) is not None)

    return test


def _matcher(pattern: str) -> Callable[[str], bool]:
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    found = re.compile(translate(pattern.replace("[", "[[]")))
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
    fits = _matcher(pattern.upper().removeprefix("ERR_"))
    return lambda record: record.code not in ("", "OK") and fits(record.code.removeprefix("ERR_"))


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
        raise FilterError(tr("{word}: a path must look like .name.name[0]=value").format(word=word))
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
    """How a value may be written in a filter; nothing for one that is nested too deeply."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return ()
    return (text, value) if type(value) is str else (text,)
